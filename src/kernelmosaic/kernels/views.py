"""The `kernels` parameter of every estimator: its entries, their names and their columns.

`read_kernels` checks the parameter and returns entries, whose columns are as the user wrote them.
`lay_specs` turns them into specifications of single kernels, whose columns are numbers.
"""

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
#: The end of messages about names of columns where samples come without names.
_KEEP_NAMES = (
    "give column numbers, or a data frame; a transformer before keeps the names with "
    'set_output(transform="pandas"), such as StandardScaler().set_output(transform="pandas")'
)


@dataclass(frozen=True)
class Entry:
    """One entry of the `kernels` parameter.

    `columns` is as the user wrote it, None for all columns.
    """

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
    """Return the kernels of ``kernels=None``: linear, quadratic and three Gaussians.

    The widths of the Gaussians are the median distance between samples and multiples of it.
    """
    return [Linear(), Polynomial(degree=2), *(Gaussian(factor=factor) for factor in (1, 2, 4))]


def one_class_kernels() -> list[Kernel]:
    """Return the kernels of ``kernels=None`` for one-class machines: three narrow Gaussians.

    Their widths are below the median distance between samples. A training set of one class has no
    evidence against a wide kernel, so learned weights favour the widest.
    """
    return [Gaussian(factor=factor) for factor in (0.175, 0.35, 0.7)]


def read_kernels(
    kernels: KernelsLike,
    default: Callable[[], list[Kernel]] = default_kernels,
    X: MatrixLike = None,
    views: Mapping[str, list[int]] | None = None,
) -> list[Entry]:
    """Return the entries of a `kernels` parameter, with a name for every kernel.

    Raises a TypeError or a ValueError that says which entry is wrong.

    A kernel that names no columns reads the table of its name. If there is no such table, every
    table has an entry of that kernel. The columns may be the name of a table. Where None stands
    for kernels of numbers, the columns of a data frame that hold categories, by their type or as
    text, have one `Categorical`.

    Parameters
    ----------
    kernels : list of kernels, (name, kernel) or (name, kernel, columns), one kernel, or None
        The parameter of an estimator.
    default : callable
        Returns the kernels that None stands for.
    X : array-like, optional
        The samples; only the kernels of None depend on them.
    views : mapping, optional
        The column numbers of each table, where the samples are several tables.
    """
    if kernels is None:
        return _default_entries(default(), X, views)
    if isinstance(kernels, _KINDS):
        kernels = [kernels]
    _check_list(kernels)
    entries = _name_entries([_read_entry(i, element) for i, element in enumerate(kernels)])
    names = [entry.name for entry in entries]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(
            f"kernels: the name {repeated[0]!r} is used {names.count(repeated[0])} times; names"
            " must differ."
        )
    if views is None:
        return entries
    return _on_tables(entries, views)


def _default_entries(
    kernels: list[Kernel], X: MatrixLike, views: Mapping[str, list[int]] | None
) -> list[Entry]:
    """Return the entries of default kernels, on columns of numbers, and of categories if any."""
    entries = [
        Entry(name, kernel) for name, kernel in zip(name_kernels(kernels), kernels, strict=True)
    ]
    categories = category_columns(X)
    if not categories:
        return entries if views is None else _on_tables(entries, views)
    tables = {"": list(range(_n_columns(X)))} if views is None else views
    number_columns = {}
    categorical_columns = {}
    for name, columns in tables.items():
        number_columns[name] = [j for j in columns if j not in categories]
        categorical_columns[name] = [j for j in columns if j in categories]
    categorical = [Entry("categorical", Categorical())]
    return _on_tables(entries, number_columns) + _on_tables(categorical, categorical_columns)


def _check_list(kernels: Any) -> None:
    """Raise, with what to write instead, if `kernels` is not a list with at least one entry."""
    if isinstance(kernels, str | type) or callable(kernels):
        raise TypeError(f"kernels={shown(kernels)}: {suggest_kernel(kernels)}")
    if isinstance(kernels, bytes) or not isinstance(kernels, Sequence):
        if hasattr(kernels, "shape"):
            remedy = suggest_kernel(kernels)
        else:
            conversion = " list(kernels.items()) is one." if isinstance(kernels, dict) else ""
            remedy = f"give a list whose items are {_FORMS}.{conversion}"
        raise TypeError(f"kernels={shown(kernels)}: {remedy}")
    if isinstance(kernels, tuple) and len(kernels) in (2, 3) and isinstance(kernels[0], str):
        raise TypeError(f"kernels={kernels!r}: give a list, [{kernels!r}].")
    if not kernels:
        raise ValueError("kernels is empty: give at least one kernel, or None for the defaults.")


def _name_entries(triples: list[tuple[str | None, Kernel | PerColumn, Any]]) -> list[Entry]:
    """Return the entries of triples (name or None, kernel, columns), with names for the unnamed."""
    unnamed: list[Kernel] = []
    for name, kernel, _ in triples:
        if name is not None:
            continue
        if isinstance(kernel, PerColumn):
            check_kernel("kernel", kernel.kernel, type(kernel).__name__)
            kernel = kernel.kernel
        unnamed.append(kernel)
    new_names = iter(name_kernels(unnamed))
    entries = []
    for name, kernel, columns in triples:
        if name is None:
            name = next(new_names)
        entries.append(Entry(name, kernel, columns))
    return entries


def _on_tables(entries: Sequence[Entry], tables: Mapping[str, list[int]]) -> list[Entry]:
    """Return the entries with the column numbers of their tables.

    An entry without columns whose name is not that of a table is repeated for every table that has
    columns; the name of the table then precedes its own, unless it is empty.

    Parameters
    ----------
    entries : sequence of Entry
        With columns as the user wrote them; a string may be the name of a table.
    tables : mapping of str to list of int
        The column numbers of each table.
    """
    assigned: list[Entry] = []
    repeated: list[Entry] = []
    for entry in entries:
        table = ""
        if entry.columns is None:
            table = entry.name
        elif isinstance(entry.columns, str):
            table = entry.columns
        if table in tables or entry.columns is not None:
            assigned.append(replace(entry, columns=tables.get(table, entry.columns)))
        else:
            repeated.append(entry)
    for table, columns in tables.items():
        if not columns:
            continue
        prefix = f"{table}, " if table else ""
        assigned += [Entry(prefix + entry.name, entry.kernel, columns) for entry in repeated]
    return assigned


def _read_entry(i: int, element: object) -> tuple[str | None, Kernel | PerColumn, Any]:
    """Return the name, the kernel and the columns of element i of `kernels`, None where not given.

    Raises a TypeError or a ValueError if it is not of one of the three forms of `_FORMS`.
    """
    if isinstance(element, _KINDS):
        return None, element, None
    if isinstance(element, str | type) or callable(element) or hasattr(element, "shape"):
        raise TypeError(f"kernels[{i}]={shown(element)}: {suggest_kernel(element)}")
    if not isinstance(element, tuple) or len(element) not in (2, 3):
        hint = ""
        if isinstance(element, list) and len(element) in (2, 3):
            hint = f"; write the tuple {tuple(element)!r}"
        raise TypeError(f"kernels[{i}]={element!r}: expected {_FORMS}{hint}.")
    name, kernel = element[:2]
    if not isinstance(name, str) or "__" in name:
        raise ValueError(f"kernels[{i}]: the name {name!r} must be a string without '__'.")
    if not isinstance(kernel, _KINDS):
        raise TypeError(f"kernels[{i}]: {shown(kernel)} is not a kernel; {suggest_kernel(kernel)}")
    columns = element[2] if len(element) == 3 else None
    return name, kernel, columns


def lay_specs(entries: Sequence[Entry], X: MatrixLike) -> list[KernelSpec]:
    """Return one specification per kernel that an estimator weights, with column numbers.

    Columns are read as `ColumnTransformer` reads them. An entry of several kernels has several
    specifications: one per term of its kernel, or one per column for `PerColumn`.
    """
    specs = []
    for entry in entries:
        columns = None
        if entry.columns is not None:
            with named(entry.name):
                columns = _column_numbers(entry.columns, X)
        if isinstance(entry.kernel, Kernel):
            kernel = _with_types(entry.kernel, X, columns)
            for suffix, term in kernel.terms().items():
                specs.append(KernelSpec(entry.name + suffix, term, columns))
            continue
        numbers = np.arange(_n_columns(X)) if columns is None else columns
        labels = getattr(X, "columns", range(_n_columns(X)))
        kernels = entry.kernel.expand([int(c) for c in numbers])
        for c, kernel in zip(numbers, kernels, strict=True):
            specs.append(KernelSpec(f"{entry.name}[{labels[c]}]", kernel, np.array([c])))
    return specs


def _with_types(kernel: Kernel, X: MatrixLike, columns: Indices | None) -> Kernel:
    """Return a kernel that knows which of its columns a data frame marks as categories.

    Only a kernel of tables depends on that; any other is returned as it is.
    """
    if kernel.input_kind != "table":
        return kernel
    categories = columns_of_category_type(X)
    numbers = range(_n_columns(X)) if columns is None else columns.tolist()
    return kernel.with_categories([j in categories for j in numbers])


def term_names(entries: Sequence[Entry]) -> list[str]:
    """Return the names of the kernels that entries stand for, without reading samples.

    An entry of `PerColumn`, whose number of kernels depends on the samples, has one name.
    """
    names = []
    for entry in entries:
        if isinstance(entry.kernel, Kernel):
            names += [entry.name + suffix for suffix in entry.kernel.terms()]
        else:
            names.append(entry.name)
    return names


def _column_numbers(columns: Any, X: MatrixLike) -> Indices:
    """Return the numbers of the columns of X that `columns` of an entry selects.

    Raises a ValueError that quotes `columns` if it does not fit X or selects nothing.

    Parameters
    ----------
    columns : int, str, slice, list, array, mask or callable
        As `ColumnTransformer` takes them; names may lack the prefix of their table.
    X : array, data frame or sparse table
        The samples.
    """
    n_columns = _n_columns(X)
    numbers = _plain_numbers(columns, n_columns)
    if numbers is not None:
        return numbers
    columns = _add_prefixes(_call_selector(columns, X), X)
    text = repr(columns)
    if isinstance(columns, list | tuple | np.ndarray):
        text = shorten(columns)
    is_list = isinstance(columns, Sequence | np.ndarray) and len(columns) > 0
    is_mask = is_list and all(isinstance(column, bool | np.bool_) for column in columns)
    if is_mask and len(columns) != n_columns:
        raise ValueError(
            f"columns {text} is a mask of {len(columns)} for the {n_columns} columns of X: give"
            " one boolean per column, or names or numbers."
        )
    try:
        if isinstance(X, SparseTable) and hasattr(X, "columns"):
            # scikit-learn takes a sparse table for an array without names of columns.
            columns = _columns_in_sparse_table(columns, X)
        numbers = np.asarray(_get_column_indices(X, columns), dtype=np.intp)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        reason = _missing_names(columns, X) or str(error)
        raise ValueError(f"columns {text} do not fit the {n_columns} of X: {reason}") from error
    if len(numbers) == 0:
        raise ValueError(f"columns {text} select none of the {n_columns} columns of X.")
    return numbers


def _columns_in_sparse_table(columns: Any, X: SparseTable) -> list[Any]:
    """Return columns of a sparse table, with numbers in place of names.

    Raises a KeyError for a name that the table does not have.
    """
    if isinstance(columns, str):
        columns = [columns]
    return [X.places[column] if isinstance(column, str) else column for column in columns]


def _plain_numbers(columns: Any, n_columns: int) -> Indices | None:
    """Return the column numbers of a list or an array of valid integers; None for anything else.

    scikit-learn could read these as well, but takes half a millisecond for every kernel.
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


def _missing_names(columns: Any, X: MatrixLike) -> str | None:
    """Return the end of a message: which names of columns X lacks, and which names it has.

    None if `columns` has no names in it, or X has them all.
    """
    if isinstance(columns, slice):
        columns = [columns.start, columns.stop]
    listed = np.atleast_1d(np.asarray(columns, dtype=object)).tolist()
    names = [column for column in listed if isinstance(column, str)]
    if not names:
        return None
    if not hasattr(X, "columns"):
        return f"X is an array, whose columns have no names; {_KEEP_NAMES}."
    available = [str(name) for name in X.columns]
    full_names = find_columns(names, available)
    missing = [name for name in names if name not in full_names]
    if not missing:
        return None
    with_prefix = [name for name in available if SEPARATOR in name]
    prefixes = dict.fromkeys(name.partition(SEPARATOR)[0] + SEPARATOR for name in with_prefix)
    hint = ""
    if prefixes:
        hint = f"; the prefix of a table, {shorten(prefixes)}, may be left out"
    return f"it has no {shorten(missing)}, but {shorten(available)}{hint}."


def _add_prefixes(columns: Any, X: MatrixLike) -> Any:
    """Return names of columns with the prefixes of their tables, where these were left out.

    What holds no names, or names that X has as they are, is returned unchanged.
    """
    is_list = isinstance(columns, list | tuple | np.ndarray)
    names = list(columns) if is_list else [columns]
    if not hasattr(X, "columns") or not all(isinstance(name, str) for name in names):
        return columns
    # A dict of names answers at once, where an array of names would be searched from its start.
    available = X.places if isinstance(X, SparseTable) else X.columns
    if all(name in available for name in names):
        return columns
    full_names = find_columns(names, X.columns)
    with_prefixes = [full_names.get(name, name) for name in names]
    return with_prefixes if is_list else with_prefixes[0]


def _call_selector(columns: Any, X: MatrixLike) -> Any:
    """Return `columns` with a callable replaced by its result, a series or an index by a list.

    That is how `ColumnTransformer` reads them.
    """
    if callable(columns):
        try:
            if _selects_by_pattern(columns, X):
                pattern = columns.pattern
                columns = [
                    name for name in X.columns if pattern is None or re.search(pattern, name)
                ]
            else:
                columns = columns(X)
        except ValueError as error:
            if hasattr(X, "columns"):
                raise
            raise ValueError(f"{error} Here X is an array: {_KEEP_NAMES}.") from error
    if isinstance(columns, slice) and columns == slice(None):
        # scikit-learn takes a slice without ends for a slice of names, which arrays do not have.
        return slice(0, None)
    return columns.to_list() if hasattr(columns, "to_list") else columns


def _selects_by_pattern(selector: Any, X: MatrixLike) -> bool:
    """Whether this is a `make_column_selector` without types, on a frame that is not of pandas.

    Called on such a frame the selector would raise, although it needs nothing but the names.
    """
    if hasattr(X, "iloc") or not hasattr(X, "columns"):
        return False
    from sklearn.compose import make_column_selector

    if not isinstance(selector, make_column_selector):
        return False
    types = (getattr(selector, name, None) for name in ("dtype_include", "dtype_exclude"))
    return all(selected_types is None for selected_types in types)


def view_names(kernels: Sequence[Any], labels: Sequence[Any]) -> list[str]:
    """Return the name of every kernel's view; kernels of the same columns have the same view.

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
    for m, spec in enumerate(kernels):
        matrix_name = spec.name if spec.kernel.input_kind == "rows" else None
        columns = None if spec.columns is None else tuple(spec.columns.tolist())
        members[matrix_name, columns].append(m)
    names = [""] * len(kernels)
    for (_, columns), members_of_view in members.items():
        column_labels = None if columns is None else [labels[c] for c in columns]
        view_name = _view_name([kernels[m].name for m in members_of_view], column_labels)
        for m in members_of_view:
            names[m] = view_name
    return names


def _view_name(kernel_names: list[str], column_labels: list[Any] | None) -> str:
    """Return the name of a view by the rule of `view_names`; no labels means all columns."""
    # The prefix must not contain a parenthesis, since parameters stand behind it.
    prefix = _common_group(re.match(r"([^(]+?)(?::|, )", name) for name in kernel_names)
    if prefix is not None:
        return prefix
    if len(kernel_names) == 1:
        return kernel_names[0]
    if column_labels is None:
        return "all columns"
    texts = [str(label) for label in column_labels]
    return _common_group(re.match("(.+?)__", text) for text in texts) or ", ".join(texts)


def _common_group(matches: Iterable[re.Match[str] | None]) -> str | None:
    """Return the first group of the matches if it is the same in all of them, else None."""
    groups = {None if match is None else match[1] for match in matches}
    return groups.pop() if len(groups) == 1 else None


def _n_columns(X: MatrixLike) -> int:
    """Return the number of columns of samples; samples without a second axis are one column."""
    shape = np.shape(X)
    return int(shape[1]) if len(shape) > 1 else 1


def take_columns(X: MatrixLike, columns: Indices | None) -> MatrixLike:
    """Return some columns of samples in any form, or all of them if `columns` is None."""
    if columns is None:
        return X
    if type(X) is np.ndarray:
        # With hundreds of kernels, `_safe_indexing` spends more time on finding out what kind of
        # table an array is than on taking its columns.
        return X[:, columns]
    return _safe_indexing(X, columns, axis=1)


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
    parameters = kernel.get_params()
    unknown = [name for name in grids if name not in parameters]
    if unknown:
        available = f"it has {', '.join(parameters)}" if parameters else "it has none"
        raise ValueError(f"{unknown[0]}: {kernel!r} has no such parameter; {available}.")
    return [clone(kernel).set_params(**setting) for setting in settings_of(grids)]


class PerColumn(BaseEstimator):
    """One kernel per column: a placeholder for clones of a kernel in a list of kernels.

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
        """Return a clone of the kernel for every column, as an estimator does at `fit`."""
        check_kernel("kernel", self.kernel, "PerColumn")
        return [clone(self.kernel) for _ in columns]


#: The classes whose objects may stand in a list of kernels.
_KINDS = (Kernel, PerColumn)


def per_column(kernel: Kernel) -> PerColumn:
    """Return a placeholder for one clone of a kernel per column.

    An estimator expands it at `fit`.

    Examples
    --------
    >>> from kernelmosaic.kernels import Linear, per_column
    >>> per_column(Linear())
    PerColumn(kernel=Linear())
    """
    check_kernel("kernel", kernel, "per_column")
    return PerColumn(kernel)


def check_kernel(name: str, value: object, owner: str) -> None:
    """Raise a TypeError, with what to write instead, if a parameter of `owner` is not a kernel."""
    if not isinstance(value, Kernel):
        raise TypeError(f"{name}={value!r}: {owner} needs a kernel; {suggest_kernel(value)}")


def name_kernels(kernels: Sequence[Kernel]) -> list[str]:
    """Return a distinct name for every kernel, as short as possible.

    A name is the class in lower case. Where a class occurs more than once, the parameters in which
    its kernels differ follow, as in ``gaussian(width=0.1)``. Where names are still equal, ``-1``,
    ``-2``, … follow in the order of the kernels. A name never contains two underscores in a row,
    which separate the levels of scikit-learn's nested parameters.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for i, kernel in enumerate(kernels):
        groups[type(kernel).__name__.lower()].append(i)
    names = [""] * len(kernels)
    for class_name, members in groups.items():
        parameters = _differing_parameters([kernels[i] for i in members])
        for i, text in zip(members, parameters, strict=True):
            names[i] = re.sub("_{2,}", "_", class_name + text).strip("_")
    counts = Counter(names)
    last_numbers = Counter[str]()
    taken = set(names)
    distinct_names = []
    for name in names:
        distinct = name
        while counts[name] > 1 and distinct in taken:
            last_numbers[name] += 1
            distinct = f"{name}-{last_numbers[name]}"
        taken.add(distinct)
        distinct_names.append(distinct)
    return distinct_names


def _differing_parameters(kernels: list[Kernel]) -> list[str]:
    """Return for every kernel the parameters in which the kernels differ, in parentheses.

    The text is empty for a kernel without such a parameter.
    """
    texts_by_kernel: list[dict[str, str]] = []
    for kernel in kernels:
        texts = {}
        for name, value in kernel.get_params(deep=False).items():
            text = _parameter_text(value)
            if text is not None:
                texts[name] = text
        texts_by_kernel.append(texts)
    names = dict.fromkeys(chain.from_iterable(texts_by_kernel))
    differing = [name for name in names if len({texts.get(name) for texts in texts_by_kernel}) > 1]
    descriptions = []
    for texts in texts_by_kernel:
        description = ", ".join(f"{name}={texts[name]}" for name in differing if name in texts)
        descriptions.append(f"({description})" if description else "")
    return descriptions


def _parameter_text(value: object) -> str | None:
    """Return the value of a parameter as a name of a kernel writes it.

    None for a value that a few letters cannot identify, such as a matrix.
    """
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
    patterns: list[Any]
    if kernel is None:
        patterns = [Gaussian()]
    elif isinstance(kernel, list | tuple):
        patterns = list(kernel)
    else:
        patterns = [kernel]
    for pattern in patterns:
        check_kernel("kernel", pattern, "by_group")
    condition = ""
    if among is not None:
        available = list(among)
        groups = _available_groups(groups, available, min_size)
        condition = f" with at least min_size={min_size} columns of among, {shorten(available)}"
    if not patterns:
        raise ValueError("kernel=[]: give at least one kernel, or None for Gaussian().")
    if not groups:
        raise ValueError(f"groups: there is no group{condition}; give at least one.")
    suffixes = [""]
    if len(patterns) > 1:
        suffixes = [f", {name}" for name in name_kernels(patterns)]
    triples = []
    for group, columns in groups.items():
        # Two underscores in a row separate the levels of nested parameters.
        name = re.sub("_{2,}", "_", str(group))
        for suffix, pattern in zip(suffixes, patterns, strict=True):
            triples.append((name + suffix, clone(pattern), columns))
    return triples


def _available_groups(
    groups: Mapping[str, Any], available: list[Any], min_size: int
) -> dict[str, list[Any]]:
    """Return the groups without the columns that are not available, and without small groups.

    Names get the prefix of their table, as it stands in `available`.
    """
    listed = {}
    for group, columns in groups.items():
        if isinstance(columns, str) or not isinstance(columns, Iterable):
            raise TypeError(f"groups[{group!r}]={columns!r}: with `among`, give a list of columns.")
        listed[group] = columns.tolist() if isinstance(columns, np.ndarray) else list(columns)
    full_names = find_columns(chain.from_iterable(listed.values()), available)
    available_groups = {}
    for group, columns in listed.items():
        columns = [full_names[column] for column in columns if column in full_names]
        if len(columns) >= min_size:
            available_groups[group] = columns
    return available_groups


def read_gmt(path: str | PathLike[str]) -> dict[str, list[str]]:
    """Return the groups of genes of a ``.gmt`` file, the format of MSigDB.

    A line has the name of a group, a description and the genes, with tabs between them.

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
        name, *fields = (field.strip() for field in line.split("\t"))
        # The first of the other fields is the description.
        genes = list(dict.fromkeys(gene for gene in fields[1:] if gene))
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
