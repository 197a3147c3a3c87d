"""Views and kernels from the words of the command line; how columns are prepared."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from kernelmosaic._typing import ArrayOrTensor, Estimator, Indices, MatrixLike
from kernelmosaic.cli.requests import FitRequest, MethodName, TaskName
from kernelmosaic.files import existing_file
from kernelmosaic.imputing import ViewImputer, ViewTransformer
from kernelmosaic.kernels import (
    Correlation,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    Ranked,
    Spectrum,
    WeightedDegree,
)
from kernelmosaic.kernels.matrices import join_samples
from kernelmosaic.kernels.views import default_kernels, one_class_kernels
from kernelmosaic.ridge.kernels import ridge_kernels
from kernelmosaic.tables import (
    list_names,
    read_columns,
    read_matrix,
    require,
    suggest_name,
    texts_of,
)

#: The column of row numbers that precomputed kernels read, where the user names none.
ROW_COLUMN = "(row number)"

#: The words for radial kernels, which come in widths and families.
_RADIAL: dict[str, type[Gaussian | Laplacian]] = {
    **dict.fromkeys(("gauss", "gaussian", "rbf"), Gaussian),
    **dict.fromkeys(("laplace", "laplacian"), Laplacian),
}

#: The words for kernels with a whole number, a degree or a length, and its default.
_COUNTED: dict[str, tuple[type[Polynomial | Spectrum | WeightedDegree], str]] = {
    "poly": (Polynomial, "2"),
    "spectrum": (Spectrum, "3"),
    "wd": (WeightedDegree, "3"),
}

#: The largest degree or length that is read. Chosen by hand: above it, a slip of the finger.
_LARGEST_COUNT = 100

#: The most widths of a family such as ``gauss*5``. Chosen by hand: each width is twice the one
#: before, so that 20 of them span a factor of 5e5.
_MOST_WIDTHS = 20

#: The kernel of columns of strings for which none is named.
_STRING_KERNEL = "spectrum(3)"

#: What messages list as readable kernels.
_EXAMPLES_OF_KERNELS = (
    "linear, poly2, poly(3), gauss, gauss(2*median), gauss(1.5), gauss*5, laplace (like gauss),"
    " rank-gauss (of the ranks of numbers), correlation, spectrum(3), wd(5)"
)

# Kernels in short ---------------------------------------------------------------------------------


def usual_kernels(
    task: TaskName, method: MethodName | None, is_only_view: bool = False
) -> list[Kernel]:
    """Return the kernels of a view of numbers for which the user names none.

    Methods whose cost grows most with each kernel have one Gaussian in place of several.

    Parameters
    ----------
    task : str
    method : str or None
    is_only_view : bool
        Whether the view is the only one: in ridge it then has more kernels.
    """
    if method == "ridge" and is_only_view:
        return ridge_kernels()
    if method == "ridge":
        return ridge_kernels(ranks=False, squares=False)
    if task == "one-class":
        return one_class_kernels()
    kernels = default_kernels()
    if method not in ("localized", "bilinear", "rmkl"):
        return kernels
    return [k for k in kernels if not isinstance(k, Gaussian) or k.factor == 1]


def read_short(text: str) -> list[Kernel]:
    """Return the kernels that a text such as ``linear+gauss*5`` names."""
    kernels = []
    for term in text.split("+"):
        kernels += _read_term(term.strip(), text)
    return kernels


def _read_term(term: str, text: str) -> list[Kernel]:
    """Return the kernels of one term, several for a family such as ``gauss*5``.

    Parameters
    ----------
    term : str
        ``[rank-]WORD[NUMBER][(ARGUMENT)][*WIDTHS]``.
    text : str
        The text that the term is part of, for errors.
    """
    words = "linear|poly|quadratic|gauss|gaussian|rbf|laplace|laplacian|correlation|spectrum|wd"
    match = re.fullmatch(rf"(rank-)?({words})(\d+)?(?:\(([^()]*)\))?(?:\*(\d+))?", term)
    if match is None:
        raise ValueError(
            f"unknown kernel {term or text!r}: choose among {_EXAMPLES_OF_KERNELS}, or add them up"
            " with +."
        )
    rank_prefix, word, number, in_brackets, n_widths = match.groups()
    if n_widths is not None:
        has_median_width = (number or in_brackets) in (None, "median")
        is_family = word in _RADIAL and has_median_width and 2 <= int(n_widths) <= _MOST_WIDTHS
        if not is_family:
            raise ValueError(
                f"kernel {term!r}: only Gaussians and Laplacians come as a family, gauss*2 to"
                f" gauss*{_MOST_WIDTHS}, whose widths lie around the median distance."
            )
        # Each width is twice the one before; their geometric mean is the median distance.
        factors = 2.0 ** (np.arange(int(n_widths)) - (int(n_widths) - 1) / 2)
        kernels: list[Kernel] = [_RADIAL[word](factor=float(factor)) for factor in factors]
    else:
        argument = number if in_brackets is None else in_brackets.strip()
        try:
            kernels = [_make_kernel(word, argument)]
            if rank_prefix and kernels[0].input_kind != "numbers":
                raise ValueError(term)
        except (ValueError, TypeError):
            raise ValueError(
                f"kernel {term!r} cannot be read: write it like one of {_EXAMPLES_OF_KERNELS}."
            ) from None
    if rank_prefix:
        return [Ranked(kernel) for kernel in kernels]
    return kernels


def _make_kernel(word: str, argument: str | None) -> Kernel:
    """Return the kernel of a word and its argument, such as ``2*median`` of a width.

    An argument that the kernel does not take, or that is out of range, raises a ValueError.
    """
    if word in _RADIAL:
        factor_text, star, rule = (argument or "median").rpartition("*")
        if rule.strip() not in ("median", "nearest"):
            return _RADIAL[word](_positive(rule))
        factor = _positive(factor_text) if star else 1.0
        return _RADIAL[word](rule.strip(), factor)
    if word in _COUNTED:
        kind, default = _COUNTED[word]
        return kind(_positive(argument or default, int, _LARGEST_COUNT))
    if argument is not None:
        raise ValueError(argument)
    if word == "linear":
        return Linear()
    if word == "correlation":
        return Correlation()
    return Polynomial(degree=2)


def label_of(kernel: Kernel) -> str:
    """Return a kernel as the user would write it."""
    if isinstance(kernel, Ranked):
        return f"rank-{label_of(kernel.kernel)}"
    if isinstance(kernel, Gaussian | Laplacian):
        word = "gauss" if isinstance(kernel, Gaussian) else "laplace"
        width = kernel.width
        if not isinstance(width, str):
            width = f"{width:g}"
        if kernel.factor != 1:
            width = f"{kernel.factor:.3g}*{width}"
        return word if width == "median" else f"{word}({width})"
    if isinstance(kernel, Polynomial):
        return f"poly{kernel.degree}"
    if isinstance(kernel, Spectrum):
        return f"spectrum({kernel.length})"
    if isinstance(kernel, WeightedDegree):
        return f"wd({kernel.degree})"
    return type(kernel).__name__.lower()


def _positive(text: str, kind: Callable[[str], Any] = float, largest: float = 1e300) -> Any:
    """Return a positive number up to `largest`, or raise."""
    number = kind(text)
    if not 0 < number <= largest:
        raise ValueError(text)
    return number


# Views --------------------------------------------------------------------------------------------

#: The columns that a kernel reads together, as numbers of a row.
_ROW_KINDS = ("numbers", "categories")

#: The separators that end a prefix in the name of a column, as in ``rna_CD4`` or ``rna.CD4``.
_PREFIX = r"(.*?[^_.])(__|_|\.)[^_.]"

#: Prefixes that say what kind of number a column holds, and not which view it belongs to.
_KINDS_OF_NUMBERS = {"is", "has", "was", "n", "no", "nr", "num", "number", "count", "total"}

#: The columns that must share a prefix to be a view, where not every name has one. Chosen by hand:
#: two columns often share a prefix by chance.
_LEAST_COLUMNS_OF_A_PREFIX = 3

#: The most views that are guessed; names with more prefixes have another pattern. Chosen by hand.
_MOST_GUESSED_VIEWS = 20


@dataclass(frozen=True)
class View:
    """Columns that belong together, and their kernels.

    Parameters
    ----------
    name : str
    columns : tuple of str
    kernels : tuple of Kernel
        They all read sequences, or none does.
    """

    name: str
    columns: tuple[str, ...]
    kernels: tuple[Kernel, ...]

    @property
    def reads_sequences(self) -> bool:
        """Whether the kernels compare strings."""
        return self.kernels[0].input_kind == "sequences"


def matching(pattern: str, columns: Collection[str]) -> list[str]:
    """Return the columns that a name or a glob such as ``fac_*`` matches."""
    # The name of a column is that column alone, even if it looks like a glob, as x[1] does.
    name = pattern if pattern in columns else pattern.strip()
    if name in columns:
        return [name]
    return [column for column in columns if fnmatchcase(column, name)]


def match_columns(patterns: Iterable[str], columns: Sequence[str], where: str) -> list[str]:
    """Return the columns that patterns match; refuse a pattern that matches none.

    Parameters
    ----------
    patterns : iterable of str
    columns : sequence of str
    where : str
        The option that the patterns are from, for errors.
    """
    matched: dict[str, None] = {}
    column_set = dict.fromkeys(columns)  # in the order of the columns, but quick to search
    for pattern in patterns:
        names = matching(pattern, column_set)
        if not names:
            listed = list_names([repr(name) for name in columns], 6)
            hint = suggest_name(pattern.strip(), columns)
            raise ValueError(
                f"{where}: the pattern {pattern.strip()!r} matches no column;{hint} there are"
                f" {listed}."
            )
        matched.update(dict.fromkeys(names))
    return list(matched)


def split_names(text: str, columns: Collection[str]) -> list[str]:
    """Return the names and patterns that commas divide.

    The name of a column may have commas itself: from the left, the longest text that is the name of
    a column is one name.
    """
    parts = text.split(",")
    most_parts = 1 + max((name.count(",") for name in columns), default=0)
    names = []
    start = 0
    while start < len(parts):
        n_parts = min(most_parts, len(parts) - start)
        while n_parts > 1 and not _is_column(",".join(parts[start : start + n_parts]), columns):
            n_parts -= 1
        names.append(",".join(parts[start : start + n_parts]))
        start += n_parts
    return names


def _is_column(text: str, columns: Collection[str]) -> bool:
    """Return whether a text is the name of a column, with or without the spaces around it."""
    return text in columns or text.strip() in columns


@dataclass(frozen=True)
class ViewSpec:
    """A view as the user writes it.

    Parameters
    ----------
    name : str
    patterns : tuple of str
        Names of columns, or globs.
    kernel : str
        Kernels in short, as `read_short` reads them; empty for the default ones.
    where : str
        The option or the file that has the view, for errors.
    """

    name: str
    patterns: tuple[str, ...]
    kernel: str
    where: str


def read_options(options: Sequence[str], columns: Iterable[str]) -> list[ViewSpec]:
    """Return the views of texts such as ``name=PATTERN:KERNEL``, the values of --view."""
    specs = []
    known_columns = set(columns)
    for text in options:
        name, equals, source = text.partition("=")
        if not equals or not name.strip() or not source.strip():
            raise ValueError(
                f"--view {text}: write name=PATTERN:KERNEL, such as shape=fac_*:linear+gauss*5;"
                " files are joined by --on COLUMN and --view name=FILE."
            )
        pattern = source
        kernel = ""
        # A colon may be part of the name of a column.
        if ":" in source and source not in known_columns:
            pattern, _, kernel = source.rpartition(":")
        patterns = tuple(split_names(pattern, known_columns))
        specs.append(ViewSpec(name.strip(), patterns, kernel, f"--view {text}"))
    return specs


def read_view_file(path: Path) -> list[ViewSpec]:
    """Return the views of a JSON file.

    Each is a pattern, a list of patterns, or a dict of ``columns`` (either of these) and
    ``kernel``.
    """
    import json

    form = (
        'write {"name": ["PATTERN", …]} or {"name": {"columns": ["PATTERN", …], "kernel":'
        ' "gauss*3"}}'
    )
    try:
        content = json.loads(existing_file(path, "a JSON file").read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"--views {path} is not JSON: {error}; {form}.") from None
    if not isinstance(content, dict) or not content:
        raise ValueError(f"--views {path} names no views: {form}.")
    specs = []
    for name, entry in content.items():
        fields: dict[str, Any] = {"kernel": ""}
        if isinstance(entry, dict):
            fields |= entry
        else:
            fields["columns"] = entry
        kernel = fields.pop("kernel")
        columns = fields.pop("columns", None)
        patterns = [columns] if isinstance(columns, str) else columns
        is_list_of_texts = (
            isinstance(patterns, list)
            and bool(patterns)
            and all(isinstance(pattern, str) for pattern in patterns)
        )
        is_valid = is_list_of_texts and isinstance(kernel, str) and bool(name.strip())
        if not is_valid or fields:
            raise ValueError(
                f"--views {path}, view {name!r}: {json.dumps(entry)[:80]} cannot be read; {form}."
            )
        where = f"--views {path}, view {name!r}"
        specs.append(ViewSpec(name.strip(), tuple(patterns), kernel, where))
    return specs


def read_views(
    specs: Sequence[ViewSpec], kinds: Mapping[str, str], default: list[Kernel]
) -> list[View]:
    """Return the views that are specified, with their columns and kernels.

    Parameters
    ----------
    specs : sequence of ViewSpec
    kinds : mapping of str to str
        What each usable column holds: "numbers", "categories", "sequences" or "free text".
    default : list of Kernel
        The kernels on numbers of views that name none.
    """
    views: list[View] = []
    for spec in specs:
        if "__" in spec.name or ":" in spec.name:
            raise ValueError(f"{spec.where}: the name {spec.name!r} must not contain '__' or ':'.")
        columns = match_columns(spec.patterns, list(kinds), spec.where)
        try:
            kernels = read_short(spec.kernel) if spec.kernel else None
        except ValueError as error:
            raise ValueError(f"{spec.where}: {error}") from None
        views += _make_views(spec.name, columns, kernels, kinds, default)
    return views


def guess_views(kinds: Mapping[str, str], default: list[Kernel]) -> tuple[list[View], list[str]]:
    """Return views guessed from the columns, and notes on columns left out.

    Columns of numbers and categories that share a prefix are a view; every column of sequences is
    one; columns of free text are left out. The arguments are those of `read_views`.
    """
    row_columns = [name for name, kind in kinds.items() if kind in _ROW_KINDS]
    sequences = [name for name, kind in kinds.items() if kind == "sequences"]
    groups = list(_group_by_prefix(row_columns).items())
    groups += [(name, [name]) for name in sequences]
    views: list[View] = []
    for name, columns in groups:
        views += _make_views(safe_name(name), columns, None, kinds, default)

    reason = "too many different texts for categories, as of ids or free text"
    left_out = [name for name, kind in kinds.items() if kind not in (*_ROW_KINDS, "sequences")]
    notes = [
        f"column {name!r} is left out: {reason}. Name it in a --view to use it."
        for name in left_out
    ]
    if not views:
        raise ValueError(
            f"no column to learn from: every column but the target is left out, or has {reason}."
        )
    return views, notes


def _group_by_prefix(columns: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns grouped by the prefix of their names.

    If no prefixes are found, all columns are the group "all". Columns without a shared prefix are
    the group "other". A name that is a prefix of another one, as ``sex`` of ``sex_label``, or a
    prefix that two columns share by chance, makes no group.
    """
    if not columns:
        return {}
    groups: dict[tuple[str, str], list[str]] = {}
    for name in columns:
        match = re.match(_PREFIX, name)
        if match and match[1].lower() not in _KINDS_OF_NUMBERS:
            groups.setdefault((match[1], match[2]), []).append(name)

    # Where every name has a prefix before the same separator, two columns of each are enough.
    counts = [len(members) for members in groups.values()]
    separators = {separator for _, separator in groups}
    every_name_has_one = sum(counts) == len(columns) and len(separators) == 1
    least_columns = _LEAST_COLUMNS_OF_A_PREFIX
    if every_name_has_one and min(counts) > 1:
        least_columns = 2
    shared = {}
    for (prefix, _), members in groups.items():
        if len(members) >= least_columns:
            shared[prefix] = members
    if not 2 <= len(shared) <= _MOST_GUESSED_VIEWS:
        return {"all": list(columns)}
    grouped: set[str] = set()
    grouped.update(*shared.values())
    ungrouped = [name for name in columns if name not in grouped]
    if ungrouped:
        shared["other"] = ungrouped
    return shared


def _make_views(
    name: str,
    columns: Sequence[str],
    kernels: list[Kernel] | None,
    kinds: Mapping[str, str],
    default: list[Kernel],
) -> list[View]:
    """Return the views that a name stands for.

    Kernels on numbers read all columns of a view together; kernels on strings read one column, so
    that every column is a view for them, called ``name[column]``.

    Parameters
    ----------
    name : str
    columns : sequence of str
    kernels : list of Kernel or None
        The kernels that are named; None for the default ones of what each column holds.
    kinds, default
        As of `read_views`.
    """
    if kernels is None:
        row_columns = [c for c in columns if kinds[c] in _ROW_KINDS]
        row_kernels: list[Kernel] = default
        if not any(kinds[c] == "numbers" for c in row_columns):
            # Zeros and ones of categories alone: squares and distances would add nothing.
            row_kernels = [Linear()]
        string_columns = [c for c in columns if kinds[c] not in _ROW_KINDS]
        string_kernels = read_short(_STRING_KERNEL)
    else:
        row_columns = list(columns)
        row_kernels = [kernel for kernel in kernels if kernel.input_kind != "sequences"]
        string_columns = list(columns)
        string_kernels = [kernel for kernel in kernels if kernel.input_kind == "sequences"]

    views = []
    if row_columns and row_kernels:
        views.append(View(name, tuple(row_columns), tuple(row_kernels)))
    if string_kernels:
        for column in string_columns:
            view_name = name
            if len(columns) > 1:
                view_name = f"{name}[{safe_name(column)}]"
            views.append(View(view_name, (column,), tuple(string_kernels)))
    return views


def safe_name(name: str) -> str:
    """Return a name of a column in the form that names of kernels may contain.

    In those, ``__`` and ``:`` separate parts.
    """
    return re.sub("_{2,}", "_", name).replace(":", ".") or "column"


# The preparation of columns -----------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """How the columns of a table become what the kernels read.

    Parameters
    ----------
    numbers : tuple of str
        Columns to be standardised.
    categories : dict
        Columns to be written as zeros and ones, with their values.
    texts : tuple of str
        Columns passed on unchanged.
    rows : str or None
        The column of row numbers of given matrices.
    groups : tuple of tuple of str
        Columns of numbers that a row may lack together.
    impute : {"none", "median", "frequent", "views"}
        What fills empty cells of numbers and categories. With "views", a group that is empty in a
        row stays missing.
    """

    numbers: tuple[str, ...]
    categories: dict[str, list[str]]
    texts: tuple[str, ...]
    rows: str | None = None
    groups: tuple[tuple[str, ...], ...] = ()
    impute: str = "none"

    @property
    def columns(self) -> list[str]:
        """All columns the pipeline reads."""
        return [*self.numbers, *self.categories, *self._passed_on]

    @property
    def _passed_on(self) -> list[str]:
        """The columns that the kernels get unchanged: texts, and row numbers of matrices."""
        return [*self.texts, *self._row_columns]

    @property
    def _row_columns(self) -> list[str]:
        """The column of row numbers in a list; empty if there is none."""
        return [self.rows] if self.rows else []

    @property
    def feature_names(self) -> list[str]:
        """The columns that the kernels get, in their order."""
        encoded = []
        for name, values in self.categories.items():
            encoded += [f"{name}={value}" for value in values]
        return [*self.numbers, *encoded, *self._passed_on]

    def positions(self, names: Sequence[str]) -> list[int]:
        """Return the positions of columns in what the kernels get.

        Parameters
        ----------
        names : sequence of str
            Names of columns; of those that are passed on, ``text:name``, since a column of strings
            may be categories in one view and sequences in another.
        """
        # Of a column of categories, every value has a position.
        encoded: list[str] = []
        for name, values in self.categories.items():
            encoded += [name] * len(values)
        passed_on = [f"text:{name}" for name in self._passed_on]
        positions_of: dict[str, list[int]] = {}
        for position, name in enumerate([*self.numbers, *encoded, *passed_on]):
            positions_of.setdefault(name, []).append(position)
        positions: list[int] = []
        for name in names:
            positions += positions_of[name]
        return positions

    def steps(self) -> list[tuple[str, Any]]:
        """Return the steps of the pipeline before the model, with their names.

        They read a table with the columns of the plan, in any order: a step fills empty cells if
        the plan says so, the next one standardises numbers and encodes categories.
        """
        values = [np.array(v, dtype=object) for v in self.categories.values()]
        # The values are fixed here: a fold that lacks one must still give the same columns.
        encoder = OneHotEncoder(categories=values, handle_unknown="ignore", sparse_output=False)
        prepared = ViewTransformer(
            [
                ("numbers", StandardScaler(), list(self.numbers)),
                ("categories", encoder, [*self.categories]),
                ("as they are", "passthrough", self._passed_on),
            ]
        )
        if self.impute == "none":
            return [("prepare", prepared)]

        strategy = "most_frequent" if self.impute == "frequent" else "median"
        groups: list[list[str]] = []
        if self.impute == "views":
            groups = [list(group) for group in self.groups]
        cell_columns = [*self.numbers, *self.categories]
        # A column may be a category and a sequence: then it is filled as a category.
        other_columns = [name for name in self._passed_on if name not in cell_columns]
        filled = ViewTransformer(
            [
                ("cells", ViewImputer(groups, strategy=strategy), cell_columns),
                ("as they are", "passthrough", other_columns),
            ],
            verbose_feature_names_out=False,
        ).set_output(transform="pandas")
        return [("impute", filled), ("prepare", prepared)]

    def table(self, raw: ArrayOrTensor, where: object) -> MatrixLike:
        """Return the columns that the pipeline reads, checked, as numbers and texts.

        Parameters
        ----------
        raw : DataFrame
        where : object
            What errors call the table.
        """
        require(raw, self.columns, where)
        numbers = [*self.numbers, *self._row_columns]
        texts = [*self.categories, *self.texts]
        filled: set[str] = set()
        if self.impute != "none":
            filled = {*self.numbers, *self.categories} - {*self.texts}
        return read_columns(raw, numbers, texts, where, self.groups, filled)


def make_plan(
    views: Sequence[View],
    kinds: Mapping[str, str],
    raw: ArrayOrTensor,
    rows: str | None,
    request: FitRequest,
) -> Plan:
    """Return the plan of the views; refuse columns that their kernels cannot read.

    Parameters
    ----------
    views : sequence of View
    kinds : mapping of str to str
        What each column holds.
    raw : DataFrame
    rows : str or None
        The column of row numbers of given matrices.
    request : FitRequest
    """
    numbers, categories, strings = _columns_by_use(views, kinds, raw, request.path)
    groups = _groups_that_rows_may_lack(views, kinds, rows, request)
    plan = Plan(numbers, categories, strings, rows, groups, request.impute)
    if request.impute == "none":
        return plan
    empty = [name for name in plan.columns if name in raw and raw[name].isna().all()]
    if empty:
        listed = list_names([repr(name) for name in empty], 5)
        raise ValueError(
            f"{request.path}: every cell is empty in column {listed}: --impute {request.impute} has"
            " no value to fill in; leave the column out with --drop."
        )
    return plan


def _columns_by_use(
    views: Sequence[View], kinds: Mapping[str, str], raw: ArrayOrTensor, where: object
) -> tuple[tuple[str, ...], dict[str, list[str]], tuple[str, ...]]:
    """Return the columns of the views by what their kernels read.

    Returns
    -------
    numbers : tuple of str
    categories : dict of str to list of str
        The values of each column.
    strings : tuple of str
    """
    # Dicts without values keep the order of the columns.
    numbers: dict[str, None] = {}
    categories: dict[str, list[str]] = {}
    strings: dict[str, None] = {}
    for view in views:
        kernel = f"{label_of(view.kernels[0])} of --view {view.name}"
        for column in view.columns:
            kind = kinds[column]
            if view.reads_sequences and kind == "numbers":
                raise ValueError(
                    f"{where}, column {column!r} holds numbers, but {kernel} reads strings; linear,"
                    " poly2 and gauss read numbers."
                )
            if view.reads_sequences:
                strings[column] = None
            elif kind == "numbers":
                numbers[column] = None
            elif kind == "categories":
                categories[column] = sorted(set(texts_of(raw[column].dropna())))
            else:
                raise ValueError(
                    f"{where}, row 1, column {column!r}: {raw[column].iloc[0]!r} is not a number,"
                    f" which the kernel {kernel} needs; spectrum(3) and wd(5) read strings."
                )
    return tuple(numbers), categories, tuple(strings)


def _groups_that_rows_may_lack(
    views: Sequence[View], kinds: Mapping[str, str], rows: str | None, request: FitRequest
) -> tuple[tuple[str, ...], ...]:
    """Return the columns of each view that a row may lack.

    Views may be lacking if they are named or with --impute views: an empty cell of a guessed view
    may be a mistake. Without a second view, a row that lacks one has nothing. Only views of numbers
    may be lacking.
    """
    may_be_lacking = request.names_views or request.impute == "views"
    has_several = len({view.columns for view in views}) > 1 or rows is not None
    if not may_be_lacking or not has_several:
        return ()
    groups = set()
    for view in views:
        if all(kinds[column] == "numbers" for column in view.columns):
            groups.add(view.columns)
    return tuple(sorted(groups))


def lay_kernels(plan: Plan, views: Sequence[View]) -> list[tuple[str, Kernel, list[int]]]:
    """Return name, kernel and columns of every kernel of the views.

    Columns are positions in what the plan's pipeline returns.
    """
    kernels = []
    for view in views:
        names = list(view.columns)
        if view.reads_sequences:
            names = [f"text:{column}" for column in view.columns]
        columns = plan.positions(names)
        for kernel in view.kernels:
            if isinstance(kernel, Correlation) and len(columns) < 2:
                raise ValueError(f"--view {view.name}: correlation needs at least two columns.")
            kernels.append((f"{view.name}:{label_of(kernel)}", kernel, columns))
    return kernels


# Checks of cells ----------------------------------------------------------------------------------


def check_lengths(
    views: Sequence[View], table: MatrixLike, where: object, file_rows: Sequence[int]
) -> None:
    """Refuse columns with strings of different lengths if a kernel compares letter by letter.

    Parameters
    ----------
    views : sequence of View
    table : DataFrame
    where : object
        What errors call the file.
    file_rows : sequence of int
        The row of the file that each row of the table stands in, from 0.
    """
    for view in views:
        labels = [label_of(kernel) for kernel in view.kernels if isinstance(kernel, WeightedDegree)]
        if not labels:
            continue
        for column in view.columns:
            lengths = table[column].str.len().to_numpy()
            # The first row that differs from row 0; 0 if none does.
            row = int(np.argmax(lengths != lengths[0]))
            if row == 0:
                continue
            raise ValueError(
                f"{where}, row {file_rows[row] + 1}, column {column!r}: {lengths[row]} letters,"
                f" but row {file_rows[0] + 1} has {lengths[0]}, and {labels[0]} of --view"
                f" {view.name} compares letters at the same place; pad or cut them to one length,"
                " or use spectrum(3)."
            )


def check_row_numbers(
    table: MatrixLike, plan: Plan, n: int, where: object, file_rows: Sequence[int]
) -> None:
    """Refuse a column of row numbers that points outside matrices of n samples.

    The other arguments are those of `check_lengths`.
    """
    if plan.rows is None or plan.rows == ROW_COLUMN:
        return
    numbers = table[plan.rows].to_numpy()
    is_wrong = (numbers < 0) | (numbers >= n) | (numbers != np.floor(numbers))
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        raise ValueError(
            f"{where}, row {file_rows[row] + 1}, column {plan.rows!r}: {numbers[row]:g} is not a"
            f" row of the kernel matrices, whose {n} are numbered from 0 to {n - 1}; --rows names"
            " the column of these numbers."
        )


# Kernels given as matrices ------------------------------------------------------------------------


def read_given_kernels(
    options: Sequence[str], plan: Plan, n_rows: int
) -> list[tuple[str, Any, list[int]]]:
    """Return name, kernel and columns of the kernels of texts such as ``name=FILE``.

    Their matrices are checked to be square, symmetric, positive semi-definite, and of one size.

    Parameters
    ----------
    options : sequence of str
        The values of --kernel.
    plan : Plan
    n_rows : int
        The number of rows of the table.
    """
    kernels: list[tuple[str, Any, list[int]]] = []
    for text in options:
        name, path, matrix = read_named_matrix(text)
        n, n_columns = matrix.shape
        if plan.rows == ROW_COLUMN and n == n_columns != n_rows:
            raise ValueError(
                f"--kernel {text}: the matrix is {n} × {n_columns}, but the table has {n_rows}"
                " rows; if it holds more samples, name the column of row numbers (from 0) with"
                " --rows."
            )
        kernel = Precomputed(matrix)
        try:
            kernel.fit(np.arange(n))
        except ValueError as error:
            raise ValueError(f"--kernel {name}={path}: {error}") from None
        if kernels:
            first_name, first_kernel, _ = kernels[0]
            if len(first_kernel.K) != n:
                raise ValueError(
                    f"--kernel {text}: the matrix has {n} rows, that of {first_name} has "
                    f"{len(first_kernel.K)}; all must hold the same samples."
                )
        kernels.append((name, kernel, plan.positions([f"text:{plan.rows}"])))
    return kernels


def read_named_matrix(text: str) -> tuple[str, Path, Any]:
    """Return the name, path and matrix of ``name=FILE``."""
    name, equals, path = text.partition("=")
    if not equals or not name or not path or "__" in name or ":" in name:
        raise ValueError(f"--kernel {text}: write name=FILE, the name without '__' and ':'.")
    try:
        return name, Path(path), read_matrix(Path(path), name)
    except (OSError, ValueError) as error:
        raise ValueError(f"--kernel {text}: {error}") from None


def n_samples(model: Estimator) -> int:
    """Return the number of samples in the matrices given to a model; 0 if it has none."""
    return max((len(kernel.K) for kernel in _given_kernels(model).values()), default=0)


def _given_kernels(model: Estimator) -> dict[str, Precomputed]:
    """Return the kernels of a model that were given as matrices, by name."""
    return {name: kernel for name, kernel, *_ in model.kernels if isinstance(kernel, Precomputed)}


def extend(model: Estimator, options: Sequence[str], n_rows: int, plan: Plan | None) -> Indices:
    """Change a model: join the similarities of new rows to its given matrices.

    Parameters
    ----------
    model : estimator
    options : sequence of str
        Texts such as ``name=FILE``, one for every matrix of the model. Each file holds a matrix of
        shape (new rows, samples of the model's matrix).
    n_rows : int
        The number of new rows.
    plan : Plan or None

    Returns
    -------
    ndarray
        The numbers of the new rows in the extended matrices.
    """
    given_kernels = _given_kernels(model)
    n_known = n_samples(model)
    if plan is None or not given_kernels:
        raise ValueError(
            f"--kernel {options[0]}: the model has no kernel given as a matrix; leave the option"
            " out."
        )
    blocks = {}
    for text in options:
        name, _, block = read_named_matrix(text)
        if name not in given_kernels:
            raise ValueError(
                f"--kernel {text}: the model's matrices are called {', '.join(given_kernels)}."
            )
        if block.shape != (n_rows, n_known):
            raise ValueError(
                f"--kernel {text}: the matrix is {block.shape[0]} × {block.shape[1]}, but {n_rows}"
                f" new rows by {n_known} training rows are needed."
            )
        if not np.all(np.isfinite(block)):
            i, j = np.argwhere(~np.isfinite(block))[0]
            raise ValueError(f"--kernel {text}: row {i + 1}, column {j + 1} is {block[i, j]}.")
        blocks[name] = block
    missing = [name for name in given_kernels if name not in blocks]
    if missing:
        raise ValueError(
            f"the model reads the kernel matrix {missing[0]!r}: give the similarities of the"
            f" {n_rows} new rows to its {n_known} training rows with --kernel {missing[0]}=FILE."
        )
    # Predictions are made by fitted copies of the given kernels; functions of localized models have
    # several expansions.
    for expansion in (model.function_.expansion, *getattr(model.function_, "own", ())):
        for fitted in expansion.kernel_set.fitted:
            if isinstance(fitted.kernel, Precomputed):
                join_samples(fitted.kernel, blocks[fitted.name])
    return np.arange(n_known, n_known + n_rows)
