"""What runs on a device alone: CUDA passes, kernels of many columns, programs and paths of all
folds side by side.

The rest of the package calls the functions below; each is loaded from its module on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: The functions that other packages call, and the modules that define them.
HOMES = {
    "add_gaussians": "_torch_passes",
    "combine_directly": "_torch_passes",
    "follow_together": "folds",
    "multiply_directly": "_torch_passes",
    "multiply_features": "_torch_passes",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
