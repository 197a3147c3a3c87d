"""The kernels of ``kernels=None``, and weights that are products of factors."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from kernelmosaic._typing import Array
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.kernels import (
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Polynomial,
    Ranked,
    by_group,
    family,
)

#: Weights that are products of fewer factors, by the value of `weights` that names them: the module
#: and the function, loaded on first use, which says of the kernels what each is a product of.
TIES = {"factorized": ("kernelmosaic.pairs.stack", "side_ties")}


def ties_of_weights(name: str, kernel_set: KernelSet) -> Array:
    """Return of which factors the weight of every kernel is the product.

    Returns
    -------
    ndarray of shape (P, factors)
        One where a factor belongs to a kernel, else zero.
    """
    module, function = TIES[name]
    ties: Array = getattr(import_module(module), function)(kernel_set)
    return ties


def ridge_kernels(ranks: bool = True, squares: bool = True) -> list[Kernel]:
    """Return the kernels of ``kernels=None``.

    They are a linear kernel, with `squares` a quadratic one, and Gaussians and Laplacians of ½, 1,
    2 and 4 times the median distance; with `ranks` also the same on the ranks of the columns.
    """
    factors = [0.5, 1, 2, 4]
    kernels: list[Kernel] = [Linear()]
    if squares:
        kernels.append(Polynomial(degree=2))
    kernels += family(Gaussian(), factor=factors)
    kernels += family(Laplacian(), factor=factors)
    if ranks:
        kernels += [Ranked(kernel) for kernel in kernels]
    return kernels


def ridge_view_kernels(views: Mapping[str, Any]) -> list[tuple[str, Kernel, Any]]:
    """Return kernels for views: of one, those of `ridge_kernels`; of several, nine of each.

    Parameters
    ----------
    views : dict
        Columns by the name of their view, as `stack_views` returns them.

    Returns
    -------
    list of (name, kernel, columns)
        Of each of several views, a linear kernel, Gaussians and Laplacians of ½, 1, 2 and 4 times
        the median distance, without squares and ranks.
    """
    is_single = len(views) == 1
    return by_group(ridge_kernels(ranks=is_single, squares=is_single), views)
