"""Passes written in CUDA, compiled when they are first asked for."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch


@lru_cache(maxsize=64)
def compiled(source: str, name: str, device: torch.device) -> Any:
    """Return the compiled function of that name; a private door of torch, behind which anything may go wrong."""
    with torch.cuda.device(device):
        return torch.cuda._compile_kernel(source, name)
