"""One kernel per group of columns, such as the genes of a pathway, and the files that list them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from kernelmosaic.kernels.base import Kernel, is_whole
from kernelmosaic.kernels.gaussian import Gaussian
from kernelmosaic.kernels.spelling import shorten
from kernelmosaic.kernels.views import check_kernel, name_kernels


def by_group(
    groups: Mapping[str, Any],
    kernel: Kernel | Sequence[Kernel] | None = None,
    *,
    among: Iterable[Any] | None = None,
    min_size: int = 1,
) -> list[tuple[str, Kernel, Any]]:
    """Return a list of kernels for an estimator, one for every group of columns.

    Parameters
    ----------
    groups : mapping
        From the name of a group to its columns: names or numbers, as `ColumnTransformer` takes them.
    kernel : Kernel or list of Kernel, default=None
        What each group is compared by; of a list, such as a `family`, every group has all. None means ``Gaussian()``.
    among : iterable, default=None
        The columns that there are, such as ``X.columns``: others are left out of the groups, which list genes that were
        not measured, say. None leaves the groups as they are, and the estimator refuses columns it does not find.
    min_size : int, default=1
        With `among`: groups with fewer columns than this are left out.

    Returns
    -------
    list of (name, kernel, columns)
        In the order of the groups.

    See Also
    --------
    read_gmt : Reads groups from a file.

    Examples
    --------
    >>> from kernelmosaic.kernels import Linear, by_group
    >>> by_group({"immune": ["CD4", "CD8A"], "cycle": ["MKI67", "XYZ"]}, Linear(), among=["CD4", "CD8A", "MKI67"])
    [('immune', Linear(), ['CD4', 'CD8A']), ('cycle', Linear(), ['MKI67'])]
    """
    if not isinstance(groups, Mapping):
        raise TypeError(f"groups={groups!r}: give a dict from the name of a group to its columns.")
    if not is_whole(min_size):
        raise ValueError(f"min_size={min_size!r}: give a whole number of at least 1.")
    several = isinstance(kernel, list | tuple)
    kernels: list[Any] = list(kernel) if several else [Gaussian() if kernel is None else kernel]  # type: ignore[arg-type]
    for one in kernels:
        check_kernel("kernel", one, "by_group")
    if among is not None:
        known = dict.fromkeys(among)
        kept = {name: [one for one in _listed(name, columns) if one in known] for name, columns in groups.items()}
        groups = {name: columns for name, columns in kept.items() if len(columns) >= min_size}
    if not groups or not kernels:
        raise ValueError(
            f"groups: none is left, or there is no kernel. The columns of a group must be among those given, "
            f"{shorten([] if among is None else list(known))}, at least min_size={min_size} of them."
        )
    suffixes = [""] if len(kernels) == 1 else [f", {name}" for name in name_kernels(kernels)]
    return [
        # Two underscores in a row separate the levels of nested parameters.
        (re.sub("_{2,}", "_", str(name)) + suffix, clone(one), columns)
        for name, columns in groups.items()
        for suffix, one in zip(suffixes, kernels, strict=True)
    ]


def _listed(name: str, columns: Any) -> list[Any]:
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise TypeError(f"groups[{name!r}]={columns!r}: with `among`, give a list of columns.")
    return columns.tolist() if isinstance(columns, np.ndarray) else list(columns)


def read_gmt(path: str | PathLike[str]) -> dict[str, list[str]]:
    """Read groups of genes from a ``.gmt`` file, the format of MSigDB: name, description and genes, between tabs.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    dict
        From the name of every group to its genes, each once, in the order of the file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from pathlib import Path
    >>> from kernelmosaic.kernels import read_gmt
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "sets.gmt"
    ...     _ = path.write_text("IMMUNE\\thttps://example.org\\tCD4\\tCD8A\\n")
    ...     read_gmt(path)
    {'IMMUNE': ['CD4', 'CD8A']}
    """
    groups: dict[str, list[str]] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        name, *rest = (field.strip() for field in line.split("\t"))
        genes = list(dict.fromkeys(gene for gene in rest[1:] if gene))
        if not name or not genes:
            raise ValueError(
                f"{path}, line {number}: expected a name, a description and at least one gene between tabs, not "
                f"{line[:60]!r}."
            )
        if name in groups:
            raise ValueError(f"{path}, line {number}: the group {name!r} comes twice; names must differ.")
        groups[name] = genes
    if not groups:
        raise ValueError(f"{path} holds no group: a .gmt file has one per line.")
    return groups
