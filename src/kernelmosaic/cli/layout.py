"""From the words on the command line to kernels on columns: views, kernels in short, the
preparation of columns."""

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
from kernelmosaic.tables import meant, read_columns, read_matrix, require, some, texts_of

#: The column of row numbers that precomputed kernels read, where the user names none.
ROW_COLUMN = "(row number)"

#: The words for radial kernels, which come in widths and families.
_RADIAL: dict[str, type[Gaussian | Laplacian]] = {
    **dict.fromkeys(("gauss", "gaussian", "rbf"), Gaussian),
    **dict.fromkeys(("laplace", "laplacian"), Laplacian),
}

#: The words for kernels with a whole number: a degree, or a length.
_COUNTED: dict[str, type[Polynomial | Spectrum | WeightedDegree]] = {
    "poly": Polynomial,
    "spectrum": Spectrum,
    "wd": WeightedDegree,
}

# Kernels in short ---------------------------------------------------------------------------------


def usual_kernels(task: TaskName, method: MethodName | None, alone: bool = False) -> list[Kernel]:
    """Return the default kernels on numbers of each of several views, or of one alone.

    Methods for which each kernel costs most have one Gaussian in place of several.
    """
    if method == "ridge":
        return ridge_kernels() if alone else ridge_kernels(ranks=False, squares=False)
    if task == "one-class":
        return one_class_kernels()
    few = method in ("localized", "bilinear", "rmkl")
    return [k for k in default_kernels() if not (few and isinstance(k, Gaussian) and k.factor != 1)]


def read_short(text: str) -> list[Kernel]:
    """Return the kernels that a text such as ``linear+gauss*5`` names, or raise naming the known
    ones."""
    return [kernel for term in text.split("+") for kernel in _read_term(term.strip(), text)]


def _read_term(term: str, text: str, most: int = 20) -> list[Kernel]:
    known = (
        "linear, poly2, poly(3), gauss, gauss(2*median), gauss(1.5), gauss*5, laplace (like gauss),"
        " rank-gauss (of the ranks of numbers), correlation, spectrum(3), wd(5)"
    )
    words = "linear|poly|quadratic|gauss|gaussian|rbf|laplace|laplacian|correlation|spectrum|wd"
    match = re.fullmatch(rf"(rank-)?({words})(\d+)?(?:\(([^()]*)\))?(?:\*(\d+))?", term)
    if match is None:
        raise ValueError(
            f"unknown kernel {term or text!r}: choose among {known}, or add them up with +."
        )
    ranked, word, short, written, copies = match.groups()
    if copies is not None:
        if (
            word not in _RADIAL
            or (short or written) not in (None, "median")
            or not 2 <= int(copies) <= most
        ):
            raise ValueError(
                f"kernel {term!r}: only Gaussians and Laplacians come as a family, gauss*2 to"
                f" gauss*{most}, whose widths lie around the median distance."
            )
        factors = 2.0 ** (np.arange(int(copies)) - (int(copies) - 1) / 2)
        found: list[Kernel] = [_RADIAL[word](factor=float(factor)) for factor in factors]
    else:
        try:
            found = [_kernel(word, short if written is None else written.strip())]
            if ranked and found[0].input_kind != "numbers":
                raise ValueError(term)
        except (ValueError, TypeError):
            raise ValueError(
                f"kernel {term!r} cannot be read: write it like one of {known}."
            ) from None
    return [Ranked(kernel) for kernel in found] if ranked else found


def _kernel(word: str, argument: str | None) -> Kernel:
    """The kernel of a word; an argument that it has no use for, or that is no number, is a
    ValueError."""
    if word in _RADIAL:
        factor, star, rule = (argument or "median").rpartition("*")
        if rule.strip() in ("median", "nearest"):
            return _RADIAL[word](rule.strip(), _positive(factor) if star else 1.0)
        return _RADIAL[word](_positive(rule))
    if word in _COUNTED:
        return _COUNTED[word](_positive(argument or ("2" if word == "poly" else "3"), int, 100))
    if argument is not None:
        raise ValueError(argument)
    plain: dict[str, Kernel] = {
        "linear": Linear(),
        "correlation": Correlation(),
        "quadratic": Polynomial(degree=2),
    }
    return plain[word]


def label_of(kernel: Kernel) -> str:
    """Return a kernel as the user would write it."""
    if isinstance(kernel, Ranked):
        return f"rank-{label_of(kernel.kernel)}"
    if isinstance(kernel, Gaussian | Laplacian):
        word = "gauss" if isinstance(kernel, Gaussian) else "laplace"
        width = kernel.width if isinstance(kernel.width, str) else f"{kernel.width:g}"
        width = width if kernel.factor == 1 else f"{kernel.factor:.3g}*{width}"
        return word if width == "median" else f"{word}({width})"
    if isinstance(kernel, Polynomial):
        return f"poly{kernel.degree}"
    if isinstance(kernel, Spectrum):
        return f"spectrum({kernel.length})"
    return (
        f"wd({kernel.degree})"
        if isinstance(kernel, WeightedDegree)
        else type(kernel).__name__.lower()
    )


def _positive(text: str, kind: Callable[[str], Any] = float, most: float = 1e300) -> Any:
    """Return a positive number up to `most`, or raise."""
    number = kind(text)
    if not 0 < number <= most:
        raise ValueError(text)
    return number


# Views --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """Columns that belong together, and their kernels."""

    name: str
    columns: tuple[str, ...]
    kernels: tuple[Kernel, ...]

    @property
    def reads_sequences(self) -> bool:
        """Whether its kernels compare strings."""
        return self.kernels[0].input_kind == "sequences"


def matching(pattern: str, columns: Collection[str]) -> list[str]:
    """Return the columns that a name or a glob such as ``fac_*`` means."""
    # A name is a name, even where it looks like a glob, as x[1] does.
    part = pattern if pattern in columns else pattern.strip()
    return [part] if part in columns else [name for name in columns if fnmatchcase(name, part)]


def match_columns(patterns: Iterable[str], columns: Sequence[str], what: str) -> list[str]:
    """Return the columns that patterns mean, or raise naming one that means none."""
    found: dict[str, None] = {}
    every = dict.fromkeys(columns)  # among many columns a name is found at once
    for part in patterns:
        names = matching(part, every)
        if not names:
            known = some([repr(name) for name in columns], 6)
            hint = meant(part.strip(), columns)
            raise ValueError(
                f"{what}: the pattern {part.strip()!r} matches no column;{hint} there are {known}."
            )
        found.update(dict.fromkeys(names))
    return list(found)


def split_names(text: str, columns: Collection[str]) -> list[str]:
    """Return the names and patterns that commas divide; a comma may be part of the name of a
    column.

    Of several ways to divide it, the longest name that is a column is one.
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
    return text in columns or text.strip() in columns


@dataclass(frozen=True)
class ViewSpec:
    """A view as the user wrote it: its name, patterns of columns, kernels or nothing, and what to
    call it in errors."""

    name: str
    patterns: tuple[str, ...]
    kernel: str
    where: str


def read_options(given: Sequence[str], columns: Iterable[str]) -> list[ViewSpec]:
    """Return the views written as ``name=PATTERN:KERNEL``."""
    found, known = [], set(columns)
    for text in given:
        name, equals, rest = text.partition("=")
        if not equals or not name.strip() or not rest.strip():
            raise ValueError(
                f"--view {text}: write name=PATTERN:KERNEL, such as shape=fac_*:linear+gauss*5;"
                " files are joined by --on COLUMN and --view name=FILE."
            )
        pattern, _, kernel = (
            rest.rpartition(":") if ":" in rest and rest not in known else (rest, "", "")
        )
        found.append(
            ViewSpec(name.strip(), tuple(split_names(pattern, known)), kernel, f"--view {text}")
        )
    return found


def read_view_file(path: Path) -> list[ViewSpec]:
    """Return the views of a JSON file, each a list of patterns, or a dict of ``columns`` and
    ``kernel``."""
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
    found = []
    for name, entry in content.items():
        given = {"kernel": ""} | (entry if isinstance(entry, dict) else {"columns": entry})
        kernel, columns = given.pop("kernel"), given.pop("columns", None)
        texts = [columns] if isinstance(columns, str) else columns
        is_list = isinstance(texts, list) and texts and all(isinstance(one, str) for one in texts)
        if given or not is_list or not isinstance(kernel, str) or not name.strip():
            raise ValueError(
                f"--views {path}, view {name!r}: {json.dumps(entry)[:80]} cannot be read; {form}."
            )
        found.append(ViewSpec(name.strip(), tuple(texts), kernel, f"--views {path}, view {name!r}"))
    return found


def read_views(
    wanted: Sequence[ViewSpec], kinds: Mapping[str, str], default: list[Kernel]
) -> list[View]:
    """Return the views with their columns and kernels; where none is named, `default` on
    numbers."""
    views: list[View] = []
    for one in wanted:
        if "__" in one.name or ":" in one.name:
            raise ValueError(f"{one.where}: the name {one.name!r} must not contain '__' or ':'.")
        columns = match_columns(one.patterns, list(kinds), one.where)
        try:
            kernels = read_short(one.kernel) if one.kernel else None
        except ValueError as error:
            raise ValueError(f"{one.where}: {error}") from None
        views += _split(one.name, columns, kernels, kinds, default)
    return views


def guess_views(kinds: Mapping[str, str], default: list[Kernel]) -> tuple[list[View], list[str]]:
    """Return views of columns that share a prefix, each sequence for itself, and remarks on columns
    left out."""
    groups = list(
        _groups([name for name, kind in kinds.items() if kind in ("numbers", "categories")]).items()
    )
    groups += [(name, [name]) for name, kind in kinds.items() if kind == "sequences"]
    views = [
        view
        for name, columns in groups
        for view in _split(safe_name(name), columns, None, kinds, default)
    ]
    left = [
        name for name, kind in kinds.items() if kind not in ("numbers", "categories", "sequences")
    ]
    many = "too many different texts for categories, as of ids or free text"
    notes = [
        f"column {name!r} is left out: {many}. Name it in a --view to use it." for name in left
    ]
    if not views:
        raise ValueError(
            f"no column to learn from: every column but the target is left out, or has {many}."
        )
    return views, notes


def _groups(columns: Sequence[str]) -> dict[str, list[str]]:
    """Columns by what stands before the first separator of their names; all in one where that
    separates none.

    A name that is a prefix of another, as ``sex`` of ``sex_label``, or that two columns share by
    chance, makes no view.
    """
    # Words for the kind of number in a column, not for what it belongs to.
    sorts = {"is", "has", "was", "n", "no", "nr", "num", "number", "count", "total"}
    groups: dict[tuple[str, str], list[str]] = {}
    for name in columns:
        found = re.match(r"(.*?[^_.])(__|_|\.)[^_.]", name)
        if found and found[1].lower() not in sorts:
            groups.setdefault((found[1], found[2]), []).append(name)
    # A prefix is that of a view if three columns have it; where every name follows the pattern, two
    # are enough.
    counts = [len(members) for members in groups.values()]
    regular = (
        sum(counts) == len(columns)
        and min(counts, default=0) > 1
        and len({key[1] for key in groups}) == 1
    )
    shared = {key[0]: members for key, members in groups.items() if regular or len(members) >= 3}
    if not 2 <= len(shared) <= 20:  # more prefixes than that are no views
        return {"all": list(columns)} if columns else {}
    grouped = {name for members in shared.values() for name in members}
    alone = [name for name in columns if name not in grouped]
    return {**shared, **({"other": alone} if alone else {})}


def _split(
    name: str,
    columns: Sequence[str],
    kernels: list[Kernel] | None,
    kinds: Mapping[str, str],
    default: list[Kernel],
) -> list[View]:
    """One view for the columns of numbers and categories together, one for every column of
    strings."""
    if kernels is None:
        rows = [c for c in columns if kinds[c] in ("numbers", "categories")]
        # Categories alone have nothing that a square or a distance would add.
        on_rows: list[Kernel] = default if any(kinds[c] == "numbers" for c in rows) else [Linear()]
        strings, on_strings = [c for c in columns if c not in rows], read_short("spectrum(3)")
    else:
        rows, strings = list(columns), list(columns)
        on_strings = [kernel for kernel in kernels if kernel.input_kind == "sequences"]
        on_rows = [kernel for kernel in kernels if kernel.input_kind != "sequences"]
    views = [View(name, tuple(rows), tuple(on_rows))] if rows and on_rows else []
    for column in strings if on_strings else ():
        own = f"{name}[{safe_name(column)}]" if len(columns) > 1 else name
        views.append(View(own, (column,), tuple(on_strings)))
    return views


def safe_name(name: str) -> str:
    """Return a column's name as part of a kernel's, where two underscores mean something else."""
    return re.sub("_{2,}", "_", name).replace(":", ".") or "column"


@dataclass(frozen=True)
class Plan:
    """Which columns are used, and how.

    Parameters
    ----------
    numbers : tuple of str
        Columns to be standardised.
    categories : dict
        Columns to be written as zeros and ones, with their values.
    texts : tuple of str
        Columns passed on as they are.
    rows : str or None
        The column of row numbers of given matrices.
    groups : tuple of tuple of str
        Columns of numbers that a row may lack together.
    impute : {"none", "median", "frequent", "views"}
        What stands in for empty cells of numbers and categories; with "views", what a row lacks of
        a group it lacks.
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
        return [*self.texts, *([self.rows] if self.rows else [])]

    @property
    def feature_names(self) -> list[str]:
        """The columns that the kernels get, in their order."""
        encoded = [
            f"{name}={value}" for name, values in self.categories.items() for value in values
        ]
        return [*self.numbers, *encoded, *self._passed_on]

    def positions(self, names: Sequence[str]) -> list[int]:
        """Return where the given columns stand in what the kernels get."""
        # A column of strings may be a category of one view and a sequence of another.
        encoded = (name for name, values in self.categories.items() for _ in values)
        places: dict[str, list[int]] = {}
        for i, name in enumerate(
            [*self.numbers, *encoded, *(f"text:{name}" for name in self._passed_on)]
        ):
            places.setdefault(name, []).append(i)
        return [place for name in names for place in places[name]]

    def steps(self) -> list[tuple[str, Any]]:
        """Return the steps that make it so; raw tables, columns in any order, go in."""
        number = "most_frequent" if self.impute == "frequent" else "median"
        groups = [list(group) for group in self.groups] if self.impute == "views" else []
        names = [*self.numbers, *self.categories]
        others = [name for name in self._passed_on if name not in names]
        cells = (
            ("cells", ViewImputer(groups, strategy=number), names),
            ("as they are", "passthrough", others),
        )
        filled = ViewTransformer(list(cells), verbose_feature_names_out=False).set_output(
            transform="pandas"
        )
        fill = [] if self.impute == "none" else [("impute", filled)]
        values = [np.array(v, dtype=object) for v in self.categories.values()]
        # The values are fixed here: a fold that lacks one must still give the same columns.
        encoder = OneHotEncoder(categories=values, handle_unknown="ignore", sparse_output=False)
        scaled, encoded = (
            ("numbers", StandardScaler(), list(self.numbers)),
            ("categories", encoder, [*self.categories]),
        )
        prepared = ViewTransformer(
            [scaled, encoded, ("as they are", "passthrough", self._passed_on)]
        )
        return [*fill, ("prepare", prepared)]

    def table(self, raw: ArrayOrTensor, where: object) -> MatrixLike:
        """Return the columns of a raw table that the pipeline reads, checked, as numbers and
        texts."""
        require(raw, self.columns, where)
        numbers = [*self.numbers, *([self.rows] if self.rows else [])]
        filled = () if self.impute == "none" else {*self.numbers, *self.categories} - {*self.texts}
        return read_columns(
            raw, numbers, [*self.categories, *self.texts], where, self.groups, filled
        )


def make_plan(
    views: Sequence[View],
    kinds: Mapping[str, str],
    raw: ArrayOrTensor,
    rows: str | None,
    request: FitRequest,
) -> Plan:
    """Return the plan that serves the views, or raise naming a column whose content its kernel
    cannot read.

    A row may lack a view of numbers if views are named, or with --impute views: what is empty in
    others may be a mistake.
    """
    where, impute = request.path, request.impute
    figures: dict[str, None] = {}
    categories: dict[str, list[str]] = {}
    strings: dict[str, None] = {}
    for view in views:
        for column in view.columns:
            kernel = f"{label_of(view.kernels[0])} of --view {view.name}"
            if view.reads_sequences and kinds[column] == "numbers":
                raise ValueError(
                    f"{where}, column {column!r} holds numbers, but {kernel} reads strings; linear,"
                    " poly2 and gauss read numbers."
                )
            if view.reads_sequences:
                strings[column] = None
            elif kinds[column] == "numbers":
                figures[column] = None
            elif kinds[column] == "categories":
                categories[column] = sorted(set(texts_of(raw[column].dropna())))
            else:
                raise ValueError(
                    f"{where}, row 1, column {column!r}: {raw[column].iloc[0]!r} is not a number,"
                    f" which the kernel {kernel} needs; spectrum(3) and wd(5) read strings."
                )
    # Without a second view a row that lacks one has nothing.
    groups = {
        view.columns for view in views if all(kinds[column] == "numbers" for column in view.columns)
    }
    several = (request.names_views or impute == "views") and (
        len({view.columns for view in views}) > 1 or rows is not None
    )
    plan = Plan(
        tuple(figures),
        categories,
        tuple(strings),
        rows,
        tuple(sorted(groups)) if several else (),
        impute,
    )
    nothing = [
        name for name in plan.columns if impute != "none" and name in raw and raw[name].isna().all()
    ]
    if nothing:
        raise ValueError(
            f"{where}: every cell is empty in column {some([repr(name) for name in nothing], 5)}:"
            f" --impute {impute} has no value to fill in; leave the column out with --drop."
        )
    return plan


def lay_kernels(plan: Plan, views: Sequence[View]) -> list[tuple[str, Kernel, list[int]]]:
    """Return the kernels of the views by name, with the columns they read of what the plan's
    transformer gives."""
    found = []
    for view in views:
        columns = plan.positions([f"text:{c}" if view.reads_sequences else c for c in view.columns])
        for kernel in view.kernels:
            if isinstance(kernel, Correlation) and len(columns) < 2:
                raise ValueError(f"--view {view.name}: correlation needs at least two columns.")
            found.append((f"{view.name}:{label_of(kernel)}", kernel, columns))
    return found


def check_lengths(
    views: Sequence[View], table: MatrixLike, where: object, places: Sequence[int]
) -> None:
    """Refuse strings of different lengths where a kernel compares them place by place; rows have
    places in a file."""
    for view in views:
        label = next(
            (label_of(kernel) for kernel in view.kernels if isinstance(kernel, WeightedDegree)),
            None,
        )
        for column in view.columns if label else ():
            lengths = table[column].str.len().to_numpy()
            odd = int(np.argmax(lengths != lengths[0]))
            if odd:
                raise ValueError(
                    f"{where}, row {places[odd] + 1}, column {column!r}: {lengths[odd]} letters,"
                    f" but row {places[0] + 1} has {lengths[0]}, and {label} of --view {view.name}"
                    " compares letters at the same place; pad or cut them to one length, or use"
                    " spectrum(3)."
                )


def check_row_numbers(
    table: MatrixLike, plan: Plan, n: int, where: object, places: Sequence[int]
) -> None:
    """Refuse a column of row numbers that points outside matrices of n samples; rows have places in
    a file."""
    if plan.rows is None or plan.rows == ROW_COLUMN:
        return
    numbers = table[plan.rows].to_numpy()
    wrong = (numbers < 0) | (numbers >= n) | (numbers != np.floor(numbers))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{where}, row {places[row] + 1}, column {plan.rows!r}: {numbers[row]:g} is not a row"
            f" of the kernel matrices, whose {n} are numbered from 0 to {n - 1}; --rows names the"
            " column of these numbers."
        )


def read_given_kernels(
    given: Sequence[str], plan: Plan, n_rows: int
) -> list[tuple[str, Any, list[int]]]:
    """Return the kernels written as ``name=FILE``, checked to be square, symmetric and positive
    semi-definite."""
    kernels: list[tuple[str, Any, list[int]]] = []
    for text in given:
        name, path, matrix = read_named_matrix(text)
        if plan.rows == ROW_COLUMN and matrix.shape[0] == matrix.shape[1] != n_rows:
            raise ValueError(
                f"--kernel {text}: the matrix is {matrix.shape[0]} × {matrix.shape[1]}, but the"
                f" table has {n_rows} rows; if it holds more samples, name the column of row"
                " numbers (from 0) with --rows."
            )
        kernel = Precomputed(matrix)
        try:
            kernel.fit(np.arange(len(matrix)))
        except ValueError as error:
            raise ValueError(f"--kernel {name}={path}: {error}") from None
        if kernels and len(kernels[0][1].K) != len(matrix):
            raise ValueError(
                f"--kernel {text}: the matrix has {len(matrix)} rows, that of {kernels[0][0]} has "
                f"{len(kernels[0][1].K)}; all must hold the same samples."
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
    """Return how many samples the matrices given to a model number; 0 if it has none."""
    return max((len(kernel.K) for kernel in _given(model).values()), default=0)


def _given(model: Estimator) -> dict[str, Precomputed]:
    """The kernels of a model that were given as matrices, by name."""
    return {name: kernel for name, kernel, *_ in model.kernels if isinstance(kernel, Precomputed)}


def extend(model: Estimator, given: Sequence[str], n_rows: int, plan: Plan | None) -> Indices:
    """Join blocks written as ``name=FILE`` to the matrices of a fitted model; return the new rows'
    numbers."""
    needed, start = _given(model), n_samples(model)
    if plan is None or not needed:
        raise ValueError(
            f"--kernel {given[0]}: the model has no kernel given as a matrix; leave the option out."
        )
    blocks = {}
    for text in given:
        name, _, block = read_named_matrix(text)
        if name not in needed:
            raise ValueError(
                f"--kernel {text}: the model's matrices are called {', '.join(needed)}."
            )
        if block.shape != (n_rows, start):
            raise ValueError(
                f"--kernel {text}: the matrix is {block.shape[0]} × {block.shape[1]}, but {n_rows}"
                f" new rows by {start} training rows are needed."
            )
        if not np.all(np.isfinite(block)):
            i, j = np.argwhere(~np.isfinite(block))[0]
            raise ValueError(f"--kernel {text}: row {i + 1}, column {j + 1} is {block[i, j]}.")
        blocks[name] = block
    lost = [name for name in needed if name not in blocks]
    if lost:
        raise ValueError(
            f"the model reads the kernel matrix {lost[0]!r}: give the similarities of the {n_rows}"
            f" new rows to its {start} training rows with --kernel {lost[0]}=FILE."
        )
    # Predictions are made by fitted copies of the given kernels.
    for expansion in (model.function_.expansion, *getattr(model.function_, "own", ())):
        for fitted in expansion.kernel_set.fitted:
            if isinstance(fitted.kernel, Precomputed):
                join_samples(fitted.kernel, blocks[fitted.name])
    return np.arange(start, start + n_rows)
