"""Where torch computes, without importing it before it is needed."""

from __future__ import annotations

from typing import Any

from kernelmosaic.backend import is_tensor


def require_device(device: Any) -> Any:
    """Return the torch device of that name, or raise saying what is missing."""
    if isinstance(device, str) and device.lower() in ("gpu", "nvidia"):
        raise ValueError(f"device={device!r}: write device='cuda' for a GPU, 'cuda:1' for the second; None for NumPy.")
    try:
        import torch
    except ImportError:
        raise ImportError(
            f"device={device!r} needs the optional package torch: pip install 'kernelmosaic[gpu]'."
        ) from None
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"device={device!r}: give None, 'cuda', 'cuda:1' or 'cpu'.") from None
    if found.type not in ("cpu", "cuda"):
        raise ValueError(f"device={device!r}: only 'cuda' devices and 'cpu' compute in double precision.")
    count = torch.cuda.device_count() if found.type == "cuda" else 1
    if count == 0:
        raise ValueError(f"device={device!r}: torch finds no CUDA device here; use device=None.")
    if (found.index or 0) >= count:
        raise ValueError(f"device={device!r}: there are {count} CUDA devices, numbered from 0.")
    return found


def has_device(device: str | None) -> bool:
    """Whether torch and that device are here."""
    if device is None:
        return False
    try:
        require_device(device)
    except (ImportError, ValueError):
        return False
    return True


def tensor_device(X: Any) -> str | None:
    """Return the device a tensor lives on; None for arrays and for tensors in the host's memory."""
    return str(X.device) if is_tensor(X) and X.device.type != "cpu" else None


def to_host(X: Any) -> Any:
    """Return a tensor as an array, anything else as it is."""
    return X.detach().cpu().numpy() if is_tensor(X) else X
