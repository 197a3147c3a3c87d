"""New rows for kernels given as matrices: their similarities to the training rows are joined to the model's matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.cli._prepare import Plan, read_named_matrix
from kernelmosaic.kernels import Precomputed
from kernelmosaic.kernels.precomputed import join_samples


def n_samples(model: Any) -> int:
    """Return how many samples the matrices given to a model number; 0 if it has none."""
    return max((len(kernel.K) for _, kernel, *_ in model.kernels if isinstance(kernel, Precomputed)), default=0)


def extend(model: Any, given: Sequence[str], n_rows: int, plan: Plan | None) -> NDArray[np.intp]:
    """Join blocks written as ``name=FILE`` to the matrices of a fitted model; return the new rows' numbers."""
    needed = {name: kernel for name, kernel, *_ in model.kernels if isinstance(kernel, Precomputed)}
    if plan is None or not needed:
        raise ValueError(f"--kernel {given[0]}: the model has no kernel given as a matrix; leave the option out.")
    blocks = {}
    for text in given:
        name, _, block = read_named_matrix(text)
        if name not in needed:
            raise ValueError(f"--kernel {text}: the model's matrices are called {', '.join(needed)}.")
        blocks[name] = _checked(block, text, n_rows, len(needed[name].K))
    lost = [name for name in needed if name not in blocks]
    if lost:
        raise ValueError(
            f"the model reads the kernel matrix {lost[0]!r}: give the similarities of the {n_rows} new rows to its "
            f"{len(needed[lost[0]].K)} training rows with --kernel {lost[0]}=FILE."
        )
    for name, kernel in _fitted(model):
        join_samples(kernel, blocks[name])
    start = len(next(iter(needed.values())).K)  # all matrices number the same samples
    return np.arange(start, start + n_rows)


def _checked(block: Any, text: str, n_rows: int, n_training: int) -> Any:
    if block.shape != (n_rows, n_training):
        raise ValueError(
            f"--kernel {text}: the matrix is {block.shape[0]} × {block.shape[1]}, but {n_rows} new rows by "
            f"{n_training} training rows are needed."
        )
    if not np.all(np.isfinite(block)):
        i, j = np.argwhere(~np.isfinite(block))[0]
        raise ValueError(f"--kernel {text}: row {i + 1}, column {j + 1} is {block[i, j]}.")
    return block


def _fitted(model: Any) -> Iterator[tuple[str, Precomputed]]:
    """The fitted copies of given kernels, by which predictions are made, by name."""
    for expansion in {id(e): e for e in [model._expansion, *getattr(model, "_expansions", [])]}.values():
        for piece in expansion.mosaic.pieces:
            if isinstance(piece.kernel, Precomputed):
                yield piece.name, piece.kernel
