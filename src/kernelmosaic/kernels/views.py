"""The `kernels` parameter of every estimator: families and groups of kernels, their names and their
columns."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils._indexing import _get_column_indices, _safe_indexing

from kernelmosaic._checks import check_count
from kernelmosaic._typing import Indices, KernelsLike, MatrixLike
from kernelmosaic.frames import category_columns, columns_of_category_type
from kernelmosaic.kernels.base import Kernel, named, settings_of, shorten, shown, suggest_kernel
from kernelmosaic.kernels.categorical import Categorical
from kernelmosaic.kernels.numeric import Gaussian, Linear, Polynomial
from kernelmosaic.stacking import SEPARATOR, SparseTable, find_columns

_FORMS = "a kernel, (name, kernel) or (name, kernel, columns)"
#: Where names get lost, and how to keep them.
_KEEP_NAMES = (
    "give column numbers, or a data frame; a transformer before keeps the names with "
    'set_output(transform="pandas"), such as StandardScaler().set_output(transform="pandas")'
)


@dataclass(frozen=True)
class Entry:
    """One item of the `kernels` parameter; the columns are still as the user wrote them, None for
    all."""

    name: str
    kernel: Kernel | PerColumn
    columns: Any = None


@dataclass(frozen=True)
class KernelSpec:
    """One kernel with the numbers of the columns it reads; None for all."""

    name: str
    kernel: Kernel
    columns: Indices | None


def default_kernels() -> list[Kernel]:
    """Return the kernels of ``kernels=None``: linear, quadratic and Gaussians from the scale of the
    data upwards."""
    return [Linear(), Polynomial(degree=2), *(Gaussian(factor=factor) for factor in (1, 2, 4))]


def one_class_kernels() -> list[Kernel]:
    """Return the same for one-class machines: Gaussians that are narrower than the scale of the
    data.

    A training set of one class has no evidence against a wide kernel, so learned weights favour the
    widest.
    """
    return [Gaussian(factor=factor) for factor in (0.175, 0.35, 0.7)]


def read_kernels(
    kernels: KernelsLike,
    default: Callable[[], list[Kernel]] = default_kernels,
    X: MatrixLike = None,
    views: Mapping[str, list[int]] | None = None,
) -> list[Entry]:
    """Return the entries of a `kernels` parameter, unnamed kernels named, or raise saying which
    entry is wrong.

    A kernel that names no columns reads the table of its name or, if there is none, every table has
    it; the columns may be the name of a table. Where None stands for kernels of numbers, columns of
    a data frame that hold categories, by their type or as text, have one `Categorical`.

    Parameters
    ----------
    kernels : list of kernels, (name, kernel) or (name, kernel, columns), one kernel, or None
        As an estimator was given it.
    default : callable
        Makes the kernels of None.
    X : array-like, optional
        The samples, as far as kernels depend on them.
    views : mapping, optional
        The column numbers of each table, where samples are given as several.
    """
    if kernels is None:
        made = default()
        entries = [
            Entry(name, kernel) for name, kernel in zip(name_kernels(made), made, strict=True)
        ]
        categories = category_columns(X)
        if not categories:
            return entries if views is None else _on_tables(entries, views)
        tables = {"": list(range(_n_columns(X)))} if views is None else views
        numbers_of = {
            name: [j for j in columns if j not in categories] for name, columns in tables.items()
        }
        categories_of = {
            name: [j for j in columns if j in categories] for name, columns in tables.items()
        }
        return _on_tables(entries, numbers_of) + _on_tables(
            [Entry("categorical", Categorical())], categories_of
        )
    if isinstance(kernels, _KINDS):
        kernels = [kernels]
    if isinstance(kernels, str | type) or callable(kernels):
        raise TypeError(f"kernels={shown(kernels)}: {suggest_kernel(kernels)}")
    if isinstance(kernels, bytes) or not isinstance(kernels, Sequence):
        write = " list(kernels.items()) is one." if isinstance(kernels, dict) else ""
        gram = (
            suggest_kernel(kernels)
            if hasattr(kernels, "shape")
            else f"give a list whose items are {_FORMS}.{write}"
        )
        raise TypeError(f"kernels={shown(kernels)}: {gram}")
    if isinstance(kernels, tuple) and len(kernels) in (2, 3) and isinstance(kernels[0], str):
        raise TypeError(f"kernels={kernels!r}: give a list, [{kernels!r}].")
    if not kernels:
        raise ValueError("kernels is empty: give at least one kernel, or None for the defaults.")
    triples = [_read_item(i, item) for i, item in enumerate(kernels)]
    unnamed = [kernel for name, kernel, _ in triples if name is None]
    for kernel in unnamed:
        if not isinstance(kernel, Kernel):
            check_kernel("kernel", kernel.kernel, type(kernel).__name__)
    given = iter(name_kernels([one if isinstance(one, Kernel) else one.kernel for one in unnamed]))
    entries = [
        Entry(next(given) if name is None else name, kernel, columns)
        for name, kernel, columns in triples
    ]
    names = [entry.name for entry in entries]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(
            f"kernels: the name {repeated[0]!r} is used {names.count(repeated[0])} times; names"
            " must differ."
        )
    return entries if views is None else _on_tables(entries, views)


def _on_tables(entries: Sequence[Entry], tables: Mapping[str, list[int]]) -> list[Entry]:
    """Return the entries with the columns of their tables; one that names none is given to every
    table."""
    own: list[tuple[str, Entry]] = []
    shared: list[tuple[str, Entry]] = []
    for entry in entries:
        named = (
            entry.columns
            if isinstance(entry.columns, str)
            else entry.name
            if entry.columns is None
            else ""
        )
        (own if named in tables or entry.columns is not None else shared).append((named, entry))
    laid = [replace(entry, columns=tables.get(named, entry.columns)) for named, entry in own]
    for name, columns in tables.items():
        begin = f"{name}, " if name else ""
        laid += [Entry(begin + entry.name, entry.kernel, columns) for _, entry in shared if columns]
    return laid


def _read_item(i: int, item: object) -> tuple[str | None, Kernel | PerColumn, Any]:
    if isinstance(item, _KINDS):
        return None, item, None
    if isinstance(item, str | type) or callable(item) or hasattr(item, "shape"):
        raise TypeError(f"kernels[{i}]={shown(item)}: {suggest_kernel(item)}")
    if not isinstance(item, tuple) or len(item) not in (2, 3):
        hint = (
            f"; write the tuple {tuple(item)!r}"
            if isinstance(item, list) and len(item) in (2, 3)
            else ""
        )
        raise TypeError(f"kernels[{i}]={item!r}: expected {_FORMS}{hint}.")
    name, kernel = item[:2]
    if not isinstance(name, str) or "__" in name:
        raise ValueError(f"kernels[{i}]: the name {name!r} must be a string without '__'.")
    if not isinstance(kernel, _KINDS):
        raise TypeError(f"kernels[{i}]: {shown(kernel)} is not a kernel; {suggest_kernel(kernel)}")
    return name, kernel, item[2] if len(item) == 3 else None


def lay_specs(entries: Sequence[Entry], X: MatrixLike) -> list[KernelSpec]:
    """Turn columns into numbers, as `ColumnTransformer` does, and expand the entries of several
    kernels."""
    specs = []
    for entry in entries:
        with named(entry.name):
            columns = None if entry.columns is None else _column_numbers(entry.columns, X)
        if isinstance(entry.kernel, Kernel):
            kernel = _with_types(entry.kernel, X, columns)
            specs += [
                KernelSpec(entry.name + end, term, columns) for end, term in kernel.terms().items()
            ]
            continue
        numbers = np.arange(_n_columns(X)) if columns is None else columns
        labels = getattr(X, "columns", range(_n_columns(X)))
        kernels = entry.kernel.expand([int(c) for c in numbers])
        for c, kernel in zip(numbers, kernels, strict=True):
            specs.append(KernelSpec(f"{entry.name}[{labels[c]}]", kernel, np.array([c])))
    return specs


def _with_types(kernel: Kernel, X: MatrixLike, columns: Indices | None) -> Kernel:
    """Return a kernel of tables that knows which columns of a data frame hold categories by their
    type."""
    if kernel.input_kind != "table":
        return kernel
    categories = columns_of_category_type(X)
    numbers = range(_n_columns(X)) if columns is None else columns.tolist()
    return kernel.with_categories([j in categories for j in numbers])


def term_names(entries: Sequence[Entry]) -> list[str]:
    """Return the names of the kernels of entries; one where their number depends on the columns."""
    kernels = [entry.kernel for entry in entries]
    ends = [one.terms() if isinstance(one, Kernel) else [""] for one in kernels]
    return [entry.name + end for entry, own in zip(entries, ends, strict=True) for end in own]


def _column_numbers(columns: Any, X: MatrixLike) -> Indices:
    numbers = _plain_numbers(columns, _n_columns(X))
    if numbers is not None:
        return numbers
    columns = _with_tables(_chosen(columns, X), X)
    shown = shorten(columns) if isinstance(columns, list | tuple | np.ndarray) else repr(columns)
    n_columns = _n_columns(X)
    several = isinstance(columns, Sequence | np.ndarray) and len(columns) > 0
    is_mask = several and all(isinstance(one, bool | np.bool_) for one in columns)
    if is_mask and len(columns) != n_columns:
        raise ValueError(
            f"columns {shown} is a mask of {len(columns)} for the {n_columns} columns of X: give"
            " one boolean per column, or names or numbers."
        )
    try:
        if isinstance(X, SparseTable) and hasattr(
            X, "columns"
        ):  # which scikit-learn takes for one without names
            listed = [columns] if isinstance(columns, str) else columns
            columns = [X.places[one] if isinstance(one, str) else one for one in listed]
        numbers = np.asarray(_get_column_indices(X, columns), dtype=np.intp)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        why = _misfit(columns, X) or str(error)
        raise ValueError(f"columns {shown} do not fit the {n_columns} of X: {why}") from error
    if len(numbers) == 0:
        raise ValueError(f"columns {shown} select none of the {n_columns} columns of X.")
    return numbers


def _plain_numbers(columns: Any, n_columns: int) -> Indices | None:
    """Return a list or an array of valid column numbers as it is read; None for all else.

    scikit-learn reads these, too, but takes half a millisecond for every kernel.
    """
    if isinstance(columns, np.ndarray):
        is_plain = columns.ndim == 1 and columns.dtype.kind == "i"
    else:
        is_plain = isinstance(columns, list) and all(type(column) is int for column in columns)
    if not is_plain or len(columns) == 0:
        return None
    numbers = np.array(columns, dtype=np.intp)
    if numbers.min() < -n_columns or numbers.max() >= n_columns:
        return None
    return np.where(numbers < 0, numbers + n_columns, numbers)


def _misfit(columns: Any, X: MatrixLike) -> str | None:
    """Say what is wrong with names of columns, and what would do; None where it is not about
    names."""
    names = [columns.start, columns.stop] if isinstance(columns, slice) else columns
    names = [
        one
        for one in np.atleast_1d(np.asarray(names, dtype=object)).tolist()
        if isinstance(one, str)
    ]
    if not names:
        return None
    if not hasattr(X, "columns"):
        return f"X is an array, whose columns have no names; {_KEEP_NAMES}."
    known = [str(name) for name in X.columns]
    missing = [name for name in names if name not in find_columns(names, known)]
    prefixes = list(
        dict.fromkeys(
            f"{name.partition(SEPARATOR)[0]}{SEPARATOR}" for name in known if SEPARATOR in name
        )
    )
    less = f"; the prefix of a table, {shorten(prefixes)}, may be left out" if prefixes else ""
    return f"it has no {shorten(missing)}, but {shorten(known)}{less}." if missing else None


def _with_tables(columns: Any, X: MatrixLike) -> Any:
    """Return names of columns with the prefixes of their tables, where these were left out."""
    several = isinstance(columns, list | tuple | np.ndarray)
    names = list(columns) if several else [columns]
    if not hasattr(X, "columns") or not all(isinstance(one, str) for one in names):
        return columns
    known = (
        X.places if isinstance(X, SparseTable) else X.columns
    )  # an array of names is searched from its start
    if all(name in known for name in names):
        return columns
    found = find_columns(names, X.columns)
    full = [found.get(name, name) for name in names]
    return full if several else full[0]


def _chosen(columns: Any, X: MatrixLike) -> Any:
    """The columns as `ColumnTransformer` reads them: a callable called, a series or an index as a
    list."""
    if callable(columns):
        try:
            if _reads_names_only(columns, X):
                columns = [
                    name
                    for name in X.columns
                    if columns.pattern is None or re.search(columns.pattern, name)
                ]
            else:
                columns = columns(X)
        except ValueError as error:
            if hasattr(X, "columns"):
                raise
            raise ValueError(f"{error} Here X is an array: {_KEEP_NAMES}.") from error
    if isinstance(columns, slice) and columns == slice(None):
        # scikit-learn takes a slice without ends for one of names, which arrays have not.
        return slice(0, None)
    return columns.to_list() if hasattr(columns, "to_list") else columns


def _reads_names_only(selector: Any, X: MatrixLike) -> bool:
    """Whether this is scikit-learn's selector, by pattern alone, on a frame that is not of pandas:
    it would refuse."""
    if hasattr(X, "iloc") or not hasattr(X, "columns"):
        return False
    from sklearn.compose import make_column_selector

    types = (getattr(selector, name, None) for name in ("dtype_include", "dtype_exclude"))
    return isinstance(selector, make_column_selector) and all(chosen is None for chosen in types)


def view_names(kernels: Sequence[Any], labels: Sequence[Any]) -> list[str]:
    """Return the name of every kernel's view: kernels that read the same columns are of one view.

    A view is called what stands before ``:`` or ``, `` in the names of all its kernels, as in those
    of `by_group`; else the one kernel that it has; else its columns, or what stands before ``__``
    in their names, as `stack_views` writes them. Views of one name are one view, and every given
    matrix is a view.

    Parameters
    ----------
    kernels : sequence of KernelSpec or FittedKernel
        With names, kernels and column numbers.
    labels : sequence
        The names of all columns, or their numbers.
    """
    members: dict[Any, list[int]] = defaultdict(list)
    for m, one in enumerate(kernels):
        own = one.name if one.kernel.input_kind == "rows" else None
        members[own, None if one.columns is None else tuple(one.columns.tolist())].append(m)
    names = [""] * len(kernels)
    for (_, columns), group in members.items():
        name = _view_name(
            [kernels[m].name for m in group],
            None if columns is None else [labels[c] for c in columns],
        )
        for m in group:
            names[m] = name
    return names


def _view_name(kernels: list[str], columns: list[Any] | None) -> str:
    # Past a parenthesis come parameters.
    own = _common(re.match(r"([^(]+?)(?::|, )", name) for name in kernels)
    if own is not None or len(kernels) == 1:
        return own or kernels[0]
    if columns is None:
        return "all columns"
    texts = [str(one) for one in columns]
    return _common(re.match("(.+?)__", text) for text in texts) or ", ".join(texts)


def _common(found: Iterable[re.Match[str] | None]) -> str | None:
    """What all matches have found, if it is the same."""
    parts = {None if one is None else one[1] for one in found}
    return parts.pop() if len(parts) == 1 else None


def _n_columns(X: MatrixLike) -> int:
    shape = np.shape(X)
    return int(shape[1]) if len(shape) > 1 else 1


def take_columns(X: MatrixLike, columns: Indices | None) -> MatrixLike:
    """Return some columns of an array or sparse matrix, all of them if columns is None."""
    if columns is None:
        return X
    # With hundreds of kernels, looking for what kind of table an array is takes longer than taking
    # its columns.
    return X[:, columns] if type(X) is np.ndarray else _safe_indexing(X, columns, axis=1)


def family(kernel: Kernel, **grids: Iterable[Any]) -> list[Kernel]:
    """Return one clone of the kernel for every combination of the given parameter values.

    Parameters
    ----------
    kernel : Kernel
        The pattern; parameters that are not named keep its values.
    **grids : iterable
        The values of each parameter; nested parameters are written with two underscores, as
        ``left__width``.

    Returns
    -------
    list of Kernel
        In the order of nested loops, the last parameter changing fastest.

    Examples
    --------
    >>> from kernelmosaic.kernels import Gaussian, family
    >>> family(Gaussian(), width=[0.1, 1, 10])
    [Gaussian(width=0.1), Gaussian(width=1), Gaussian(width=10)]
    >>> # Half and twice the median distance between training samples.
    >>> family(Gaussian(), factor=[0.5, 2])
    [Gaussian(factor=0.5), Gaussian(factor=2)]
    """
    check_kernel("kernel", kernel, "family")
    known = kernel.get_params()
    unknown = [name for name in grids if name not in known]
    if unknown:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise ValueError(f"{unknown[0]}: {kernel!r} has no such parameter; {has}.")
    return [clone(kernel).set_params(**chosen) for chosen in settings_of(grids)]


class PerColumn(BaseEstimator):
    """One kernel per column: a placeholder in a list of kernels for clones of a kernel, each on one
    column.

    Parameters
    ----------
    kernel : Kernel
        The pattern.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifier
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.kernels import Gaussian, per_column
    >>> X, y = make_gaussians(n_samples=100, random_state=0)
    >>> MKLClassifier(per_column(Gaussian())).fit(X, y).kernel_names_
    ['gaussian[0]', 'gaussian[1]']
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def expand(self, columns: Sequence[int]) -> list[Kernel]:
        """Return a clone of the kernel for every column, in their order; an estimator does this at
        `fit`."""
        check_kernel("kernel", self.kernel, "PerColumn")
        return [clone(self.kernel) for _ in columns]


#: What may stand in a list of kernels.
_KINDS = (Kernel, PerColumn)


def per_column(kernel: Kernel) -> PerColumn:
    """Return a placeholder that an estimator expands, at `fit`, to one clone of the kernel for
    every column.

    Examples
    --------
    >>> from kernelmosaic.kernels import Linear, per_column
    >>> per_column(Linear())
    PerColumn(kernel=Linear())
    """
    check_kernel("kernel", kernel, "per_column")
    return PerColumn(kernel)


def check_kernel(name: str, given: object, owner: str) -> None:
    """Raise, with what to write instead, if a parameter of the owner is not a kernel."""
    if not isinstance(given, Kernel):
        raise TypeError(f"{name}={given!r}: {owner} needs a kernel; {suggest_kernel(given)}")


def name_kernels(kernels: Sequence[Kernel]) -> list[str]:
    """Return a distinct name for every kernel, as short as it can be.

    The class in lower case; where a class occurs more than once, then the parameters in which its
    kernels differ, as in ``gaussian(width=0.1)``; where names are still equal, then ``-1``, ``-2``,
    … in the order given. A name never contains two underscores in a row, which separate the levels
    of scikit-learn's nested parameters.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for i, kernel in enumerate(kernels):
        groups[type(kernel).__name__.lower()].append(i)
    names = [""] * len(kernels)
    for stem, members in groups.items():
        for i, parameters in zip(
            members, _distinguishing([kernels[i] for i in members]), strict=True
        ):
            names[i] = re.sub("_{2,}", "_", stem + parameters).strip("_")
    total, seen, taken = Counter(names), Counter[str](), set(names)
    numbered = []
    for name in names:
        one = name
        while total[name] > 1 and one in taken:
            seen[name] += 1
            one = f"{name}-{seen[name]}"
        taken.add(one)
        numbered.append(one)
    return numbered


def _distinguishing(kernels: list[Kernel]) -> list[str]:
    """For each kernel the parameters, in parentheses, that not all of them have alike."""
    shown = [
        {
            name: text
            for name, value in kernel.get_params(deep=False).items()
            if (text := _text(value)) is not None
        }
        for kernel in kernels
    ]
    differing = [
        name
        for name in dict.fromkeys(n for s in shown for n in s)
        if len({s.get(name) for s in shown}) > 1
    ]
    parts = [", ".join(f"{name}={s[name]}" for name in differing if name in s) for s in shown]
    return [f"({part})" if part else "" for part in parts]


def _text(value: object) -> str | None:
    """A parameter as it stands in a name; None for a matrix, say, which a few letters cannot
    identify."""
    if value is None or isinstance(value, bool | str):
        return str(value)
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return repr(float(value))
    return repr(value) if isinstance(value, Kernel) else None


# Groups of columns --------------------------------------------------------------------------------


def by_group(
    kernel: Kernel | Sequence[Kernel] | Mapping[str, Any] | None = None,
    groups: Mapping[str, Any] | Kernel | Sequence[Kernel] | None = None,
    *,
    among: Iterable[Any] | None = None,
    min_size: int = 1,
) -> list[tuple[str, Kernel, Any]]:
    """Return a list of kernels for an estimator, one for every group of columns.

    Parameters
    ----------
    kernel : Kernel or list of Kernel, default=None
        Kernel of each group; of a list, such as a `family`, every group has all. None means
        ``Gaussian()``.
    groups : mapping
        From the name of a group to its columns: names or numbers, as `ColumnTransformer` takes
        them. Names may omit the prefix of their table, ``CD4`` for ``rna__CD4``. `groups` may also
        be the first or the only argument.
    among : iterable, default=None
        The available columns, such as ``X.columns``, or those of one table, ``views["rna"]`` of
        `stack_views`: others are left out of the groups, for example genes that were not measured.
        None leaves the groups as they are, and the estimator refuses columns it does not find.
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
    >>> sets = {"immune": ["CD4", "CD8A"], "cycle": ["MKI67", "XYZ"]}
    >>> by_group(Linear(), sets, among=["CD4", "CD8A", "MKI67"])
    [('immune', Linear(), ['CD4', 'CD8A']), ('cycle', Linear(), ['MKI67'])]
    """
    if isinstance(kernel, Mapping):
        kernel, groups = groups, kernel
    if not isinstance(groups, Mapping):
        raise TypeError(
            f"groups={groups!r}: give a dict from the name of a group to its columns,"
            " by_group(kernel, dict)."
        )
    check_count("min_size", min_size)
    kernels: list[Any] = [Gaussian() if kernel is None else kernel]
    if isinstance(kernel, list | tuple):
        kernels = list(kernel)
    for one in kernels:
        check_kernel("kernel", one, "by_group")
    if among is not None:
        known = list(among)
        listed = {name: _listed(name, columns) for name, columns in groups.items()}
        found = find_columns(chain.from_iterable(listed.values()), known)
        kept = {name: [found[one] for one in own if one in found] for name, own in listed.items()}
        groups = {name: columns for name, columns in kept.items() if len(columns) >= min_size}
    if not kernels:
        raise ValueError("kernel=[]: give at least one kernel, or None for Gaussian().")
    if not groups:
        few = (
            ""
            if among is None
            else f" with at least min_size={min_size} columns of among, {shorten(known)}"
        )
        raise ValueError(f"groups: there is no group{few}; give at least one.")
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
    """Read groups of genes from a ``.gmt`` file, the format of MSigDB: name, description and genes,
    between tabs.

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
                f"{path}, line {number}: expected a name, a description and at least one gene"
                f" between tabs, not {line[:60]!r}."
            )
        if name in groups:
            raise ValueError(
                f"{path}, line {number}: the group {name!r} comes twice; names must differ."
            )
        groups[name] = genes
    if not groups:
        raise ValueError(f"{path} holds no group: a .gmt file has one per line.")
    return groups
