"""From the words on the command line to kernels on columns: views, kernels in short, the preparation of columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import ArrayOrTensor, Estimator
from kernelmosaic.files import existing_file
from kernelmosaic.kernels import (
    Correlation,
    Gaussian,
    Kernel,
    Linear,
    Polynomial,
    Precomputed,
    Spectrum,
    WeightedDegree,
)
from kernelmosaic.kernels.matrices import join_samples
from kernelmosaic.kernels.views import default_kernels, one_class_kernels

KNOWN = "linear, poly2, poly(3), gauss, gauss(2*median), gauss(1.5), gauss*5, correlation, spectrum(3), wd(5)"

_TERM = re.compile(r"(?P<word>[a-z]+)(?P<short>\d+)?(?:\((?P<argument>[^()]*)\))?(?:\*(?P<copies>\d+))?")
_ON_STRINGS = ("spectrum", "wd")
_MOST_COPIES = 20
_NUMBERS, _CATEGORIES, _SEQUENCES = "numbers", "categories", "sequences"
_PREFIX = re.compile(r"(?P<prefix>.*?[^_.])(?P<separator>__|_|\.)[^_.]")
#: A prefix is that of a view if so many columns have it, or two where all names have a prefix.
_FEWEST = 3
#: More groups than this are not what anybody means by views.
_MOST_GROUPS = 20
#: Words that say what sort of number a column holds, not what it belongs to.
_NO_PREFIX = frozenset(("is", "has", "was", "n", "no", "nr", "num", "number", "count", "total"))
#: The column of row numbers that precomputed kernels read, where the user names none.
ROW_COLUMN = "(row number)"


@dataclass(frozen=True)
class Spec:
    """One kernel, or a family of Gaussians around the median distance.

    Parameters
    ----------
    word : str
        Which formula.
    label : str
        How it is written.
    kernels : tuple of (str, Kernel)
        The kernels with their labels.
    """

    word: str
    label: str
    kernels: tuple[tuple[str, Kernel], ...]

    @classmethod
    def one(cls, word: str, label: str, kernel: Kernel) -> Spec:
        return cls(word, label, ((label, kernel),))

    @property
    def reads_sequences(self) -> bool:
        """Whether it compares strings, one column at a time."""
        return self.word in _ON_STRINGS


def default_specs(one_class: bool, few: bool) -> list[Spec]:
    """Return the library's default kernels on numbers; if few, of several Gaussians only the one of the median."""
    if one_class:
        return [_default_spec(kernel) for kernel in one_class_kernels()]
    return [_default_spec(k) for k in default_kernels() if not (few and isinstance(k, Gaussian) and k.factor != 1)]


def _default_spec(kernel: Kernel) -> Spec:
    if isinstance(kernel, Gaussian):
        return _gaussian(kernel)
    return _poly(str(kernel.degree)) if isinstance(kernel, Polynomial) else _linear(None)


def read_specs(text: str) -> list[Spec]:
    """Return the kernels a text such as ``linear+gauss*5`` stands for, or raise naming those there are."""
    specs = [_read_term(term.strip(), text) for term in text.split("+")]
    labels = [spec.label for spec in specs]
    repeated = [label for label in labels if labels.count(label) > 1]
    if repeated:
        raise ValueError(f"kernel {repeated[0]!r} is named twice in {text!r}.")
    return specs


def _read_term(term: str, text: str) -> Spec:
    match = _TERM.fullmatch(term)
    reader = _READERS.get(match["word"]) if match else None
    if match is None or reader is None:
        raise ValueError(f"unknown kernel {term or text!r}: choose among {KNOWN}, or add them up with +.")
    if match["copies"] is not None:
        return _family(match, term)
    argument = match["short"] if match["argument"] is None else match["argument"].strip()
    try:
        return reader(argument)
    except (ValueError, TypeError):
        raise ValueError(f"kernel {term!r} cannot be read: write it like one of {KNOWN}.") from None


def _family(match: re.Match[str], term: str) -> Spec:
    copies = int(match["copies"])
    plain = match["argument"] in (None, "median") and match["short"] is None
    if match["word"] not in ("gauss", "gaussian", "rbf") or not plain or not 2 <= copies <= _MOST_COPIES:
        raise ValueError(
            f"kernel {term!r}: only Gaussians come as a family, gauss*2 to gauss*{_MOST_COPIES}, whose widths lie "
            "around the median distance."
        )
    factors = 2.0 ** (np.arange(copies) - (copies - 1) / 2)
    members = tuple(_gaussian(Gaussian(factor=float(factor))).kernels[0] for factor in factors)
    return Spec("gauss", f"gauss*{copies}", members)


def _linear(argument: str | None) -> Spec:
    _refuse(argument)
    return Spec.one("linear", "linear", Linear())


def _correlation(argument: str | None) -> Spec:
    _refuse(argument)
    return Spec.one("correlation", "correlation", Correlation())


def _refuse(argument: str | None) -> None:
    if argument is not None:
        raise ValueError(argument)


def _poly(argument: str | None) -> Spec:
    degree = _whole(argument or "2")
    return Spec.one("poly", f"poly{degree}", Polynomial(degree=degree))


def _quadratic(argument: str | None) -> Spec:
    _refuse(argument)
    return _poly("2")


def _gauss(argument: str | None) -> Spec:
    if argument == "median":
        return Spec.one("gauss", "gauss(median)", Gaussian())
    factor, star, rule = (argument or "median").rpartition("*")
    if rule.strip() in ("median", "nearest"):
        return _gaussian(Gaussian(rule.strip(), _positive(factor) if star else 1.0))
    return _gaussian(Gaussian(_positive(argument or "")))


def _gaussian(kernel: Gaussian) -> Spec:
    """Write the width as the user would: nothing, a number, a rule, or a multiple of one."""
    width = kernel.width if isinstance(kernel.width, str) else f"{kernel.width:g}"
    if kernel.factor != 1:
        width = f"{kernel.factor:.3g}*{width}"
    return Spec.one("gauss", "gauss" if width == "median" else f"gauss({width})", kernel)


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < np.inf:
        raise ValueError(text)
    return number


def _spectrum(argument: str | None) -> Spec:
    length = _whole(argument or "3")
    return Spec.one("spectrum", f"spectrum({length})", Spectrum(length))


def _weighted_degree(argument: str | None) -> Spec:
    degree = _whole(argument or "3")
    return Spec.one("wd", f"wd({degree})", WeightedDegree(degree))


def _whole(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 100:
        raise ValueError(text)
    return number


_READERS: dict[str, Callable[[str | None], Spec]] = {
    "linear": _linear,
    "poly": _poly,
    "quadratic": _quadratic,
    "gauss": _gauss,
    "gaussian": _gauss,
    "rbf": _gauss,
    "correlation": _correlation,
    "spectrum": _spectrum,
    "wd": _weighted_degree,
}


@dataclass(frozen=True)
class View:
    """Columns that belong together, and their kernels."""

    name: str
    columns: tuple[str, ...]
    specs: tuple[Spec, ...]


@dataclass
class Views:
    """The views, and the remarks on them that are printed."""

    views: list[View]
    notes: list[str] = field(default_factory=list)


def matching(pattern: str, columns: Sequence[str]) -> list[str]:
    """Return the columns that a name or a glob such as ``fac_*`` means."""
    # A name is a name, even where it looks like a glob, as x[1] does.
    part = pattern if pattern in columns else pattern.strip()
    return [part] if part in columns else [name for name in columns if fnmatchcase(name, part)]


def match_columns(patterns: Iterable[str], columns: Sequence[str], what: str) -> list[str]:
    """Return the columns that patterns mean, or raise naming one that means none."""
    found: dict[str, None] = {}
    for part in patterns:
        names = matching(part, columns)
        if not names:
            shown = ", ".join(map(repr, columns[:6])) + (" …" if len(columns) > 6 else "")
            raise ValueError(f"{what}: the pattern {part.strip()!r} matches no column; there are {shown}.")
        found.update(dict.fromkeys(names))
    return list(found)


@dataclass(frozen=True)
class ViewSpec:
    """A view as the user wrote it: its name, patterns of columns, kernels or nothing, and what to call it in errors."""

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
            raise ValueError(f"--view {text}: write name=PATTERN:KERNEL, such as shape=fac_*:linear+gauss*5.")
        pattern, colon, kernel = rest.rpartition(":") if rest not in known else (rest, "", "")
        if not colon:
            pattern, kernel = rest, ""
        found.append(ViewSpec(name.strip(), tuple(pattern.split(",")), kernel, f"--view {text}"))
    return found


def read_view_file(path: Path) -> list[ViewSpec]:
    """Return the views of a JSON file, each a list of patterns, or a dict of ``columns`` and ``kernel``."""
    import json

    form = 'write {"name": ["PATTERN", …]} or {"name": {"columns": ["PATTERN", …], "kernel": "gauss*3"}}'
    try:
        content = json.loads(existing_file(path, "a JSON file").read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"--views {path} is not JSON: {error}; {form}.") from None
    if not isinstance(content, dict) or not content:
        raise ValueError(f"--views {path} names no views: {form}.")
    found = []
    for name, entry in content.items():
        given = entry if isinstance(entry, dict) else {"columns": entry}
        columns, kernel = given.get("columns"), given.get("kernel", "")
        columns = [columns] if isinstance(columns, str) else columns
        texts = [one for one in columns if isinstance(one, str)] if isinstance(columns, list) else []
        if (
            not texts
            or texts != columns
            or not isinstance(kernel, str)
            or not {*given} <= {"columns", "kernel"}
            or not name.strip()
        ):
            raise ValueError(f"--views {path}, view {name!r}: {json.dumps(entry)[:80]} cannot be read; {form}.")
        found.append(ViewSpec(name.strip(), tuple(texts), kernel, f"--views {path}, view {name!r}"))
    return found


def read_views(wanted: Sequence[ViewSpec], kinds: Mapping[str, str], default: list[Spec]) -> Views:
    """Return the views with their columns and kernels; where none is named, `default` on numbers."""
    views: list[View] = []
    for one in wanted:
        if "__" in one.name or ":" in one.name:
            raise ValueError(f"{one.where}: the name {one.name!r} must not contain '__' or ':'.")
        columns = match_columns(one.patterns, list(kinds), one.where)
        try:
            specs = read_specs(one.kernel) if one.kernel else None
        except ValueError as error:
            raise ValueError(f"{one.where}: {error}") from None
        views += _split(one.name, columns, specs, kinds, default)
    return Views(_merged(views))


def guess_views(kinds: Mapping[str, str], default: list[Spec]) -> Views:
    """Return views of columns that share a prefix, sequences apart, with `default` kernels on numbers."""
    usable = [name for name, kind in kinds.items() if kind in (_NUMBERS, _CATEGORIES)]
    groups = _groups(usable)
    sequences = [name for name, kind in kinds.items() if kind == _SEQUENCES]
    views = []
    for name, columns in groups.items():
        views += _split(safe_name(name), columns, None, kinds, default)
    for column in sequences:
        views.append(View(safe_name(column), (column,), tuple(read_specs("spectrum(3)"))))
    left = [name for name, kind in kinds.items() if kind not in (_NUMBERS, _CATEGORIES, _SEQUENCES)]
    notes = [f"column {name!r} is left out: free text. Name it in a --view to use it." for name in left]
    if not views:
        raise ValueError("no column to learn from: every column but the target is free text or left out.")
    return Views(_merged(views), notes)


def _groups(columns: Sequence[str]) -> dict[str, list[str]]:
    """Columns by what stands before the first separator of their names; all in one where that separates none.

    A name that is a prefix of another, as ``sex`` of ``sex_label``, or that two columns share by chance, makes no view.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for name in columns:
        found = _PREFIX.match(name)
        if found and found["prefix"].lower() not in _NO_PREFIX:
            groups.setdefault((found["prefix"], found["separator"]), []).append(name)
    # Where every name follows the pattern, two are enough.
    counts = [len(members) for members in groups.values()]
    regular = sum(counts) == len(columns) and min(counts, default=0) > 1 and len({key[1] for key in groups}) == 1
    shared = {key[0]: members for key, members in groups.items() if regular or len(members) >= _FEWEST}
    if not 2 <= len(shared) <= _MOST_GROUPS:
        return {"all": list(columns)} if columns else {}
    grouped = {name for members in shared.values() for name in members}
    alone = [name for name in columns if name not in grouped]
    return {**shared, **({"other": alone} if alone else {})}


def _split(
    name: str, columns: Sequence[str], specs: list[Spec] | None, kinds: Mapping[str, str], default: list[Spec]
) -> list[View]:
    """One view for the columns of numbers and categories together, one for every column of strings."""
    if specs is None:
        rows = [c for c in columns if kinds[c] in (_NUMBERS, _CATEGORIES)]
        strings = [c for c in columns if c not in rows]
        # Categories alone have nothing that a square or a distance would add.
        usual = default if any(kinds[c] == _NUMBERS for c in rows) else read_specs("linear")
        views = [View(name, tuple(rows), tuple(usual))] if rows else []
        return views + _one_each(name, strings, read_specs("spectrum(3)"), len(columns) > 1)
    on_strings = [spec for spec in specs if spec.reads_sequences]
    on_rows = [spec for spec in specs if not spec.reads_sequences]
    views = [View(name, tuple(columns), tuple(on_rows))] if on_rows else []
    return views + (_one_each(name, columns, on_strings, len(columns) > 1) if on_strings else [])


def _one_each(name: str, columns: Sequence[str], specs: list[Spec], several: bool) -> list[View]:
    return [View(f"{name}[{safe_name(c)}]" if several else name, (c,), tuple(specs)) for c in columns]


def _merged(views: list[View]) -> list[View]:
    """Views written in several parts, as one kernel each, keep one name as long as their kernels differ."""
    seen: set[tuple[str, str]] = set()
    for view in views:
        for spec in view.specs:
            if (view.name, spec.label) in seen:
                raise ValueError(f"--view {view.name}: the kernel {spec.label} is named twice; choose another name.")
            seen.add((view.name, spec.label))
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
        What stands in for empty cells of numbers and categories; with "views", what a row lacks of a group it lacks.
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
        return [*self.numbers, *self.categories, *self.texts, *([self.rows] if self.rows else [])]

    def positions(self, names: Sequence[str]) -> list[int]:
        """Return where the given columns stand in what the kernels get."""
        places: dict[str, list[int]] = {name: [i] for i, name in enumerate(self.numbers)}
        start = len(self.numbers)
        for name, values in self.categories.items():
            places[name] = list(range(start, start + len(values)))
            start += len(values)
        for i, name in enumerate([*self.texts, *([self.rows] if self.rows else [])]):
            # A column of strings may be a category of one view and a sequence of another.
            places[f"text:{name}"] = [start + i]
        return [place for name in names for place in places[name]]

    def steps(self) -> list[tuple[str, Any]]:
        """Return the steps that make it so; raw tables, columns in any order, go in."""
        from kernelmosaic.estimators._imputing import TableImputer

        number = "most_frequent" if self.impute == "frequent" else "median"
        names = [*self.numbers, *self.categories]
        groups = [list(group) for group in self.groups] if self.impute == "views" else []
        fill = [] if self.impute == "none" else [("impute", TableImputer(names, number, groups))]
        return [*fill, ("prepare", self._transformer())]

    def _transformer(self) -> Any:
        from sklearn.compose import ColumnTransformer
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        steps: list[tuple[str, Any, list[str]]] = []
        if self.numbers:
            steps.append(("numbers", StandardScaler(), list(self.numbers)))
        if self.categories:
            values = [np.array(v, dtype=object) for v in self.categories.values()]
            # The values are fixed here: a fold that lacks one must still give the same columns.
            encoder = OneHotEncoder(categories=values, handle_unknown="ignore", sparse_output=False)
            steps.append(("categories", encoder, list(self.categories)))
        if self.texts:
            steps.append(("texts", "passthrough", list(self.texts)))
        if self.rows:
            steps.append(("rows", "passthrough", [self.rows]))
        return ColumnTransformer(steps)

    def table(self, raw: ArrayOrTensor, where: Any) -> Any:
        """Return the columns of a raw table that the pipeline reads, checked, as numbers and texts."""
        from kernelmosaic.tables import read_columns, require

        require(raw, self.columns, where)
        numbers = [*self.numbers, *([self.rows] if self.rows else [])]
        filled = () if self.impute == "none" else {*self.numbers, *self.categories} - {*self.texts}
        return read_columns(raw, numbers, [*self.categories, *self.texts], where, self.groups, filled)

    def empty_rows(self, raw: ArrayOrTensor) -> NDArray[np.intp]:
        """Return the places of the rows of a raw table that have nothing to be read: they lack every view."""
        names = [name for name in (*self.numbers, *self.categories, *self.texts) if name in raw.columns]
        if self.rows is not None or not names:
            return np.empty(0, dtype=np.intp)
        return np.flatnonzero(raw[names].isna().all(axis=1).to_numpy())


def make_plan(
    views: Sequence[View],
    kinds: Mapping[str, str],
    raw: ArrayOrTensor,
    rows: str | None,
    where: Any,
    named: bool = True,
    impute: str = "none",
) -> Plan:
    """Return the plan that serves the views, or raise naming a column whose content its kernel cannot read.

    A row may lack a view of numbers if the user has named the views, or asked for it: what is empty in others may be a
    mistake.
    """
    figures: dict[str, None] = {}
    categories: dict[str, list[str]] = {}
    strings: dict[str, None] = {}
    for view in views:
        for column in view.columns:
            if view.specs[0].reads_sequences:
                if kinds[column] == "numbers":
                    raise ValueError(
                        f"{where}, column {column!r} holds numbers, but {view.specs[0].label} of --view {view.name} "
                        "reads strings; linear, poly2 and gauss read numbers."
                    )
                strings[column] = None
            elif kinds[column] == "numbers":
                figures[column] = None
            elif kinds[column] == "categories":
                categories[column] = sorted({str(value) for value in raw[column].dropna()})
            else:
                raise ValueError(
                    f"{where}, row 1, column {column!r}: {raw[column].iloc[0]!r} is not a number, which the kernel "
                    f"{view.specs[0].label} of --view {view.name} needs; spectrum(3) and wd(5) read strings."
                )
    # Without a second view a row that lacks one has nothing.
    groups = {view.columns for view in views if all(kinds[column] == "numbers" for column in view.columns)}
    several = (named or impute == "views") and (len({view.columns for view in views}) > 1 or rows is not None)
    plan = Plan(tuple(figures), categories, tuple(strings), rows, tuple(sorted(groups)) if several else (), impute)
    nothing = [name for name in plan.columns if impute != "none" and name in raw and raw[name].isna().all()]
    if nothing:
        raise ValueError(
            f"{where}: every cell is empty in column {', '.join(map(repr, nothing[:5]))}"
            f"{f' and {len(nothing) - 5} more' if len(nothing) > 5 else ''}: --impute {impute} has nothing to go by; "
            "leave the column out with --drop."
        )
    return plan


def lay_kernels(plan: Plan, views: Sequence[View]) -> list[tuple[str, Kernel, list[int]]]:
    """Return the kernels of the views by name, with the columns they read of what the plan's transformer gives."""
    kernels = []
    for view in views:
        for spec in view.specs:
            names = [f"text:{c}" for c in view.columns] if spec.reads_sequences else list(view.columns)
            columns = plan.positions(names)
            if spec.word == "correlation" and len(columns) < 2:
                raise ValueError(f"--view {view.name}: correlation needs at least two columns.")
            kernels += [(f"{view.name}:{label}", kernel, columns) for label, kernel in spec.kernels]
    return kernels


def check_lengths(views: Sequence[View], table: Any, where: Any) -> None:
    """Refuse strings of different lengths where a kernel compares them place by place."""
    for view in views:
        label = next((spec.label for spec in view.specs if spec.word == "wd"), None)
        for column in view.columns if label else ():
            lengths = table[column].str.len().to_numpy()
            odd = int(np.argmax(lengths != lengths[0]))
            if odd:
                raise ValueError(
                    f"{where}, row {odd + 1}, column {column!r}: {lengths[odd]} letters, but row 1 has {lengths[0]}, "
                    f"and {label} of --view {view.name} compares letters at the same place; pad or cut them to one "
                    "length, or use spectrum(3)."
                )


def check_row_numbers(table: Any, plan: Plan, n: int, where: Any) -> None:
    """Refuse a column of row numbers that points outside matrices of n samples."""
    if plan.rows is None or plan.rows == ROW_COLUMN:
        return
    numbers = table[plan.rows].to_numpy()
    wrong = (numbers < 0) | (numbers >= n) | (numbers != np.floor(numbers))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{where}, row {row + 1}, column {plan.rows!r}: {numbers[row]:g} is no row of the kernel matrices, whose "
            f"{n} are numbered from 0 to {n - 1}; --rows names the column of these numbers."
        )


def read_given_kernels(given: Sequence[str], plan: Plan, n_rows: int) -> list[tuple[str, Any, list[int]]]:
    """Return the kernels written as ``name=FILE``, checked to be square, symmetric and positive semi-definite."""
    kernels: list[tuple[str, Any, list[int]]] = []
    for text in given:
        name, path, matrix = read_named_matrix(text)
        if plan.rows == ROW_COLUMN and matrix.shape[0] == matrix.shape[1] != n_rows:
            raise ValueError(
                f"--kernel {text}: the matrix is {matrix.shape[0]} × {matrix.shape[1]}, but the table has {n_rows} "
                "rows; if it holds more samples, name the column of row numbers (from 0) with --rows."
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
    from kernelmosaic.tables import read_matrix

    name, equals, path = text.partition("=")
    if not equals or not name or not path or "__" in name or ":" in name:
        raise ValueError(f"--kernel {text}: write name=FILE, the name without '__' and ':'.")
    try:
        return name, Path(path), read_matrix(Path(path), name)
    except (OSError, ValueError) as error:
        raise ValueError(f"--kernel {text}: {error}") from None


def n_samples(model: Estimator) -> int:
    """Return how many samples the matrices given to a model number; 0 if it has none."""
    return max((len(kernel.K) for _, kernel, *_ in model.kernels if isinstance(kernel, Precomputed)), default=0)


def extend(model: Estimator, given: Sequence[str], n_rows: int, plan: Plan | None) -> NDArray[np.intp]:
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


def _checked(block: ArrayOrTensor, text: str, n_rows: int, n_training: int) -> Any:
    if block.shape != (n_rows, n_training):
        raise ValueError(
            f"--kernel {text}: the matrix is {block.shape[0]} × {block.shape[1]}, but {n_rows} new rows by "
            f"{n_training} training rows are needed."
        )
    if not np.all(np.isfinite(block)):
        i, j = np.argwhere(~np.isfinite(block))[0]
        raise ValueError(f"--kernel {text}: row {i + 1}, column {j + 1} is {block[i, j]}.")
    return block


def _fitted(model: Estimator) -> Iterator[tuple[str, Precomputed]]:
    """The fitted copies of given kernels, by which predictions are made, by name."""
    for expansion in {id(e): e for e in [model._expansion, *getattr(model, "_expansions", [])]}.values():
        for fitted_kernel in expansion.kernel_set.fitted:
            if isinstance(fitted_kernel.kernel, Precomputed):
                yield fitted_kernel.name, fitted_kernel.kernel
