"""Gram matrices on a device: what the rooms above see of them, without importing the library that holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: From row numbers and their coefficients to Kβ in double precision.
ExactProduct = Callable[[NDArray[np.intp], NDArray[np.float64]], NDArray[np.float64]]


class DeviceGram:
    """One combined kernel matrix that lives on a device.

    Solvers for it are registered in `kernelmosaic.solvers`; whoever has no such solver reads it as an array, which
    copies it to the host. Those of joint machines, which keep a column of coefficients a class on the host, ask for
    products with such columns and for blocks of a few thousand samples.

    Parameters
    ----------
    matrix : torch.Tensor of shape (n, n)
        The entries, in the bank's precision.
    exact : callable, optional
        Multiplies the kernel, computed anew in double precision, with a sparse β of one or several columns; None if
        the entries are the best there is.
    """

    #: Up to this many samples a block is copied to the host.
    block_samples = 4096

    def __init__(self, matrix: Any, exact: ExactProduct | None = None) -> None:
        self.matrix = matrix
        self.exact = exact

    @property
    def shape(self) -> tuple[int, int]:
        return (int(self.matrix.shape[0]), int(self.matrix.shape[1]))

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.matrix.element_size() == 4 else np.float64)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.matrix.cpu().numpy()
        # On the host the tensor's memory is the array's: a reader must not change it unawares.
        array = array.copy() if copy is not False and self.matrix.device.type == "cpu" else array
        return np.asarray(array, dtype=dtype)

    def diagonal(self) -> NDArray[np.float64]:
        """Return the diagonal, on the host."""
        return np.asarray(self.matrix.diagonal().double().cpu().numpy())

    def products(self, beta: NDArray[np.float64], exact: bool = False) -> NDArray[np.float64]:
        """Return K β for β of shape (n, columns), by the entries as they are stored unless it is to be exact."""
        from kernelmosaic.gram._torch_blocks import multiply_columns

        support = np.flatnonzero(np.any(beta != 0, axis=1))
        if exact and self.exact is not None:
            return self.exact(support, beta[support])
        return np.asarray(multiply_columns(self.matrix, *self._placed(support, beta[support])).cpu().numpy())

    def block(self, which: NDArray[np.intp]) -> NDArray[Any]:
        """Return the block of these samples, on the host."""
        from kernelmosaic.gram._torch_blocks import take_block

        (at,) = self._placed(which)
        return np.asarray(take_block(self.matrix, at, at).cpu().numpy())

    def _placed(self, *arrays: NDArray[Any]) -> list[Any]:
        import torch

        return [torch.as_tensor(array, device=self.matrix.device) for array in arrays]

    def add_diagonal(self, values: NDArray[np.float64]) -> DeviceGram:
        """Add to the diagonal in place, and return the matrix with it."""
        diagonal = self.matrix.diagonal()
        diagonal += _like(values, diagonal)
        exact = self.exact
        if exact is None:
            return self
        inner: ExactProduct = exact

        def shifted(support: NDArray[np.intp], beta: NDArray[np.float64]) -> NDArray[np.float64]:
            out = inner(support, beta)
            out[support] += (values[support] * beta.T).T
            return out

        return DeviceGram(self.matrix, shifted)


def _like(values: NDArray[np.float64], tensor: Any) -> Any:
    import torch

    return torch.as_tensor(values, dtype=tensor.dtype, device=tensor.device)


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


def is_tensor(X: Any) -> bool:
    """Whether X is a torch tensor; torch is not imported to find out."""
    return type(X).__module__.partition(".")[0] == "torch" and hasattr(X, "detach")


def tensor_device(X: Any) -> str | None:
    """Return the device a tensor lives on; None for arrays and for tensors in the host's memory."""
    return str(X.device) if is_tensor(X) and X.device.type != "cpu" else None


def to_host(X: Any) -> Any:
    """Return a tensor as an array, anything else as it is."""
    return X.detach().cpu().numpy() if is_tensor(X) else X
