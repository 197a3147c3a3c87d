"""What a kernel is: a fitted formula that turns two sets of samples into a block of
similarities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from inspect import isabstract, isclass, signature
from itertools import product
from numbers import Integral, Number, Real
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_array
from sklearn.utils.extmath import row_norms

from kernelmosaic._typing import AnyArray, Array, Mask, MatrixLike, Settings, TargetLike
from kernelmosaic.frames import is_number
from kernelmosaic.kernels.distances import FitSamples, pairwise_statistic

#: An array, or a tensor where the samples are tensors.
Block = AnyArray
#: What other libraries call kernels that are here.
_ELSEWHERE = {
    "rbf": "Gaussian()",
    "gauss": "Gaussian()",
    "lin": "Linear()",
    "poly": "Polynomial(degree=3)",
    "quadratic": "Polynomial(degree=2)",
    "cosine": "Linear(), with normalize='diagonal',",
    "cosinesimilarity": "Linear(), with normalize='diagonal',",
}


class Kernel(BaseEstimator, ABC):
    """A positive semi-definite similarity k(x, z).

    Subclasses write one formula, `_block`, and, when the diagonal is cheaper than the whole block,
    `_diagonal`. Constants that depend on the training set (a width, say) are learned by `fit` and
    stored with a trailing underscore.

    Attributes
    ----------
    input_kind : {"numbers", "rows", "sequences", "table", "graphs", "objects"}
        What one sample is: a row of numbers, the number of a row of a given matrix, a string, a row
        of a table whose columns may hold numbers or text, a graph, or any other object, which
        `validate` then reads.
    accepts_sparse : bool
        Whether the formula takes SciPy's compressed sparse rows.
    costs_by_entries : bool
        Whether many small blocks of dense samples cost what one large block of as many entries
        does, and several threads may compute them at once; not if a formula describes every sample
        before it compares two.
    takes_tensors : bool
        Whether `_block` takes tensors as well as arrays, and is evaluated where they are.
    keeps_scale : bool
        Whether its columns must not be standardised, as counts must not.
    reads_pairs : bool
        Whether a sample is a pair of members, which other kernels compare side by side.
    stack_maker : tuple of str or None
        The module and the function that keep the kernels of a fit in a form that this kind of
        kernel brings. The function takes the kernel set, the views and the bytes that stored
        matrices might take, and returns a stack, or None where matrices are stored, as they are for
        kernels without such a function.
    preparation : str
        What `prepare` does: kernels fitted to the same samples whose word is the same prepare
        samples alike.
    learned : str
        The attribute that `fit` learns, if there is one. A kernel that is called before `fit` takes
        the columns of the block for its training set, as a test-versus-train block has them.
    """

    input_kind: ClassVar[str] = "numbers"
    accepts_sparse: ClassVar[bool] = False
    costs_by_entries: ClassVar[bool] = False
    takes_tensors: ClassVar[bool] = False
    keeps_scale: ClassVar[bool] = False
    reads_pairs: ClassVar[bool] = False
    stack_maker: ClassVar[tuple[str, str] | None] = None
    preparation: ClassVar[str] = ""
    learned: ClassVar[str] = ""
    # An array times a kernel is a mistake; NumPy would make it an array of kernels.
    __array_ufunc__: ClassVar[None] = None

    @classmethod
    @cache
    def _get_param_names(cls) -> list[str]:
        # Looked up for every kernel of every fit: reading a signature takes longer than many a
        # formula.
        return list(super()._get_param_names())

    def fit(self, X: MatrixLike, y: TargetLike = None) -> Self:
        """Learn the parameters that depend on the training set; most kernels have none."""
        self._check_parameters()
        return self._learn(FitSamples(self.validate(X)))

    def fit_to(self, samples: FitSamples) -> Self:
        """Learn the same of validated samples, and share with other kernels what these learn of
        them.

        A class that defines `fit` is fitted by it.
        """
        if type(self).fit is not Kernel.fit:
            return self.fit(samples.X)
        self._check_parameters()
        return self._learn(samples)

    def _learn(self, samples: FitSamples) -> Self:
        """Learn parameters of samples; those of a class that defines neither this nor `fit` do not
        depend on them."""
        return self

    @property
    def inner(self) -> Kernel:
        """The kernel of the samples that `prepare` returns: itself, unless it replaces samples by
        others."""
        return self

    def prepare(self, X: MatrixLike) -> MatrixLike:
        """Return validated samples as `inner` reads them."""
        return X

    def cancelled(self, X: MatrixLike) -> Array | None:
        """Return, of every sample, the size of the terms that cancel in k(x, x); None where none
        do."""
        return None

    def _check_parameters(self) -> None:
        """Raise a ValueError if a parameter is not what it must be."""

    def __call__(self, X: MatrixLike, Y: MatrixLike = None) -> Block:
        """Return the (len(X), len(Y)) block of similarities; ``Y=None`` means ``Y=X``."""
        X = self.validate(X)
        Y = X if Y is None else self.validate(Y)
        return self._fitted_to(Y)._block(X, Y)

    def diag(self, X: MatrixLike) -> Array:
        """Return k(x, x) for every sample, without the rest of the block."""
        X = self.validate(X)
        return self._fitted_to(X)._diagonal(X)

    def _fitted_to(self, X: MatrixLike) -> Self:
        """Return the kernel itself if it is fitted, or learns nothing; else a clone fitted to these
        samples."""
        self._check_parameters()
        fitted: Self = (
            clone(self).fit(X) if self.learned and not hasattr(self, self.learned) else self
        )
        return fitted

    def validate(self, X: MatrixLike) -> MatrixLike:
        """Return X in the form `_block` reads, or raise naming what is wrong.

        The form depends on the input kind only, has a ``shape`` and slices by rows, and is itself
        valid input.
        """
        if _is_valid(
            X
        ):  # every kernel of a fit is asked, and `check_array` takes longer than a small matrix
            return X
        with refuse_text(X):
            return check_array(
                X,
                accept_sparse="csr" if self.accepts_sparse else False,
                dtype=(np.float64, np.float32),
                input_name="X",
                estimator=self,
            )

    def form(self) -> Hashable:
        """Return what is equal for kernels whose `validate` returns the same of the same samples,
        sparse ones aside."""
        return type(self).validate

    def with_categories(self, is_category: Sequence[bool]) -> Kernel:
        """Return the kernel for columns some of which hold categories by their type; itself where
        this is all one."""
        return self

    def terms(self) -> dict[str, Kernel]:
        """Return the kernels that an estimator weights in place of this one, by the endings of
        their names."""
        return {"": self}

    def lacks(self, X: MatrixLike) -> Mask:
        """Return which samples have nothing in the columns that the kernel reads, which must then
        all be NaN.

        Raises a ValueError where some of a sample's columns are NaN and others are not.
        """
        empty = is_missing(X)
        every = np.asarray(empty.all(axis=1))
        some = np.flatnonzero(empty.any(axis=1) & ~every)
        if len(some):
            raise ValueError(
                f"X[{some[0]}] contains NaN in {int(empty[some[0]].sum())} of {empty.shape[1]}"
                " columns: a sample may lack all columns of a kernel, not some of them; fill the"
                " empty cells, as in make_pipeline(ViewImputer(), ...) of kernelmosaic.imputing,"
                " or give these columns a kernel of their own."
            )
        return every

    def entry_roundings(self, X: MatrixLike) -> float:
        """Return by how many units of its last place k(x, z) is off, relative to √(k(x, x) k(z,
        z)).

        Sums over d columns, as most formulas are, are off by about √d.
        """
        return (
            float(np.sqrt(max(X.shape[1], 1))) if self.input_kind in ("numbers", "table") else 1.0
        )

    @abstractmethod
    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        """The formula, on validated samples; ``Y is X`` means that the block is symmetric."""

    def _diagonal(self, X: MatrixLike) -> Array:
        return np.array(
            [self._block(x, x)[0, 0] for x in (X[i : i + 1] for i in range(X.shape[0]))],
            dtype=np.float64,
        )

    def draw_frequencies(self, n_columns: int, count: int, random: np.random.RandomState) -> Array:
        """Return frequencies drawn from the spectrum of a kernel of x − z, of shape (n_columns,
        count)."""
        raise ValueError(
            "approximation='fourier' supports Gaussian and Laplacian kernels, their products and"
            f" multiples, not {self!r}; use approximation='nystroem', which supports every kernel."
        )

    if TYPE_CHECKING:  # defined in `algebra`, beside sums and products

        def __add__(self, other: object) -> Kernel: ...

        def __mul__(self, other: object) -> Kernel: ...

        def __rmul__(self, other: object) -> Kernel: ...


def is_of_user(kernel: Kernel) -> bool:
    """Whether a kernel, or one that it is made of, is of a class that is not of this package."""
    if type(kernel).__module__.partition(".")[0] != "kernelmosaic":
        return True
    values = (getattr(kernel, name) for name in kernel._get_param_names())
    return any(is_of_user(value) for value in values if isinstance(value, Kernel))


class FeatureKernel(Kernel):
    """The inner product of descriptions of two samples, ⟨f(x), f(z)⟩."""

    @abstractmethod
    def _features(self, X: MatrixLike) -> AnyArray:
        """Return f(x) of validated samples, one row per sample."""

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        features = self._features(X)
        return np.asarray(features @ (features if Y is X else self._features(Y)).T)

    def _diagonal(self, X: MatrixLike) -> Array:
        features = self._features(X)
        return np.asarray(np.einsum("ij,ij->i", features, features))


class StatisticKernel(Kernel):
    """A kernel that is a function of one number per pair of samples: their inner product or a
    distance.

    Kernels on the same columns share that number, so a stack computes it once for a whole family of
    widths. A formula of operators and of functions that NumPy and torch share by name, taken from
    ``backend_of(S).xp``, is evaluated on a device as it is; any other is evaluated on the host, and
    its blocks are copied.

    Attributes
    ----------
    statistic : {"products", "squared_distances", "manhattan_distances"}
        The number the formula reads.
    """

    statistic: ClassVar[str]
    accepts_sparse = True
    costs_by_entries = True

    @abstractmethod
    def from_statistic(self, S: Block) -> Block:
        """The formula, entry by entry, on a block of the statistic; S must not be changed."""

    def statistic_scale(self) -> float:
        """Return over how much of the statistic the kernel changes; 0 where every digit of a small
        one may count."""
        return 0.0

    def entry_roundings(self, X: MatrixLike) -> float:
        # Distances are near zero where kernels of them are near constant: what rounds is the
        # formula.
        return super().entry_roundings(X) if self.statistic == "products" else 1.0

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        return self.from_statistic(pairwise_statistic(self.statistic, X, Y, self.statistic_scale()))

    def _diagonal(self, X: MatrixLike) -> Array:
        if self.statistic == "products":
            return self.from_statistic(row_norms(X, squared=True).astype(np.float64))
        return self.from_statistic(np.zeros(X.shape[0]))


def is_missing(X: MatrixLike) -> Mask:
    """Return which entries of an array are NaN, None or the missing value of pandas."""
    if X.dtype.kind == "f":
        return np.asarray(np.isnan(X))
    if X.dtype.kind in "mM":
        return np.asarray(np.isnat(X))
    if X.dtype.kind != "O":
        return np.zeros(X.shape, dtype=bool)
    return np.fromiter(map(is_empty, X.flat), dtype=bool, count=X.size).reshape(X.shape)


def is_empty(value: object) -> bool:
    """Whether one cell is NaN, None or the missing value of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    # NaN is the number that does not equal itself.
    return isinstance(value, Number) and bool(value != value)


def _is_valid(X: object) -> bool:
    """Return whether X is a plain array of finite numbers that `check_array` returns as it is; if
    in doubt, False."""
    if (
        type(X) is not np.ndarray
        or X.ndim != 2
        or X.size == 0
        or X.dtype not in (np.float64, np.float32)
    ):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(X.sum()))


@contextmanager
def refuse_text(X: MatrixLike, y: TargetLike = None) -> Iterator[None]:
    """Turn complaints about a cell into one that names the column, or the target, and about NaN
    into what to do."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if str(error).startswith("Input X contains NaN"):
            raise ValueError(
                "Input X contains NaN: fill empty cells with an imputer"
                " (kernelmosaic.imputing.ViewImputer, or one of scikit-learn's) as an earlier step"
                " of a pipeline; a missing view is NaN in all columns that its kernels name."
            ) from None
        complaint = "could not convert string" in str(error)
        found = first_text(X) if complaint else None
        if found is None and complaint and y is not None and (target := first_text(y)) is not None:
            raise ValueError(
                f"y holds text ({target[1]!r}) where one number per sample is needed: give numbers,"
                " or use a classifier for classes."
            ) from error
        if found is None:
            _refuse_object(X, error)
            raise
        column, value = found
        raise ValueError(
            f"X: column {column!r} holds text ({value!r}) where numbers are needed: name the"
            " columns of each kernel, (name, kernel, columns), and give text to Categorical or to"
            " a sequence kernel such as Spectrum."
        ) from error


def _refuse_object(X: MatrixLike, error: Exception) -> None:
    """Raise naming the first cell that is no number, where NumPy has complained of one."""
    complaints = (
        "float() argument must be",
        "setting an array element with a sequence",
        "could not be promoted",
    )
    if not any(complaint in str(error) for complaint in complaints):
        return
    found = first_object(X)
    if found is None:
        return
    column, value = found
    kind = type(value).__name__
    article = "an" if kind[0] in "aeiouAEIOU" else "a"
    # scikit-learn, too, raises TypeError for a cell of another type, with NumPy's sentence.
    category = TypeError if isinstance(error, TypeError) else ValueError
    raise category(
        f"X: column {column!r} holds {article} {kind} ({shorten_text(value)}) where numbers are"
        " needed: name the columns of each kernel, (name, kernel, columns); a kernel of your own"
        " that compares such objects sets input_kind = 'objects' and reads them in its method"
        f" validate. NumPy's complaint: {error}"
    ) from error


def shorten_text(value: object, most: int = 40) -> str:
    """Write an object, of a long one the beginning."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"


def first_object(X: MatrixLike) -> tuple[Any, Any] | None:
    """Return the first column with a cell that is no number, no text and not empty, and the
    cell."""
    table = object_table(X)
    names = list(X.columns) if hasattr(X, "columns") else range(table.shape[1])
    for name, values in zip(names, table.T, strict=True):
        empty = is_missing(values)
        for value in values[~empty].tolist():
            if not isinstance(value, str | Real):
                return name, value
    return None


def object_table(X: MatrixLike) -> AnyArray:
    """Return samples as a table of objects, a list of them as one column.

    NumPy would take a set, a list or an array for a sequence, and make rows of what it holds.
    """
    if hasattr(X, "shape"):
        table = np.asarray(X, dtype=object)
        return table.reshape(-1, 1) if table.ndim == 1 else table
    samples = list(X)
    table = np.empty((len(samples), 1), dtype=object)
    for i, sample in enumerate(samples):
        table[i, 0] = sample
    return table


@contextmanager
def named(name: str) -> Iterator[None]:
    """Add the name of the kernel to an error: a kernel itself has no name."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"kernel {name!r}: {error}") from error


def first_text(X: MatrixLike) -> tuple[Any, str] | None:
    """Return the first column with a string that is no number, by name or number, and the
    string."""
    table = np.asarray(X, dtype=object)
    for j, values in enumerate(table.T if table.ndim == 2 else [table.ravel()]):
        for value in values:
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            if isinstance(text, str) and not is_number(text):
                return (list(X.columns)[j] if hasattr(X, "columns") else j), str(text)
    return None


def is_positive(value: object) -> bool:
    """Whether a parameter is a positive, finite number."""
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < np.inf


def is_whole(value: object, least: int = 1) -> bool:
    """Whether a parameter is a whole number, and not below the least."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def settings_of(grids: Mapping[str, Any]) -> list[Settings]:
    """Return every combination of the values of some parameters, the last one changing fastest."""
    listed = []
    for name, grid in grids.items():
        if isinstance(grid, str | bytes) or not isinstance(grid, Iterable):
            raise TypeError(f"{name}={grid!r}: give a list of values, such as {name}=[{grid!r}].")
        # Plain numbers print as numbers; matrices of a stack stay the arrays they are.
        listed.append(
            grid.tolist() if isinstance(grid, np.ndarray) and grid.ndim == 1 else list(grid)
        )
        if not listed[-1]:
            raise ValueError(f"{name}=[]: give at least one value.")
    return [dict(zip(grids, chosen, strict=True)) for chosen in product(*listed)]


def suggest_kernel(given: object) -> str:
    """Return what to write instead of something that is not a kernel, as the end of a message."""
    if isclass(given) and issubclass(given, Kernel):
        return f"that is a class: write {_call(given)}."
    if hasattr(given, "shape"):
        return (
            "a Gram matrix is given as Precomputed(K), and X then holds the row numbers,"
            " np.arange(len(K))."
        )
    if type(given).__module__ == "sklearn.gaussian_process.kernels":
        return _of_gaussian_processes(given)
    if isinstance(given, str) or callable(given):
        # Functions of scikit-learn are called as the kernels, or as these and "_kernel".
        name = given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
        known = {one.__name__.lower(): _call(one) for one in _library_kernels(Kernel)}  # type: ignore[type-abstract]
        call = (_ELSEWHERE | known).get(name.lower().removesuffix("_kernel").replace("_", ""))
        if call is not None:
            return f"kernels are objects: write {call} from kernelmosaic.kernels."
        if callable(given):
            return (
                "functions are not accepted as kernels: give Precomputed(K) of its matrix, or a"
                " subclass of Kernel."
            )
    return (
        "give a kernel of kernelmosaic.kernels, such as Gaussian(), Linear() or"
        " Polynomial(degree=2)."
    )


def _of_gaussian_processes(given: Any) -> str:
    """Return what to write instead of a kernel of scikit-learn's Gaussian processes."""
    name = type(given).__name__
    if name == "RBF" and np.ndim(given.length_scale) == 0:
        width = 2**0.5 * given.length_scale
        return (
            f"write Gaussian(width={width:.6g}), the same kernel, or Gaussian(), as wide as the"
            " data."
        )
    if name == "DotProduct":
        return (
            f"write Polynomial(degree=1, offset={given.sigma_0**2:.6g}), the same kernel, or"
            " Linear()."
        )
    return (
        "kernels of scikit-learn's Gaussian processes are not taken: compute the matrix, K ="
        " kernel(X), and give Precomputed(K), with the row numbers np.arange(len(K)) as X; or"
        " derive a class from Kernel."
    )


def shown(given: object) -> str:
    """Write what is not a kernel, a matrix by its shape."""
    return f"an array of shape {tuple(given.shape)}" if hasattr(given, "shape") else repr(given)


def _library_kernels(parent: type[Kernel]) -> Iterator[type[Kernel]]:
    """Yield the kernels of this package, all of whose modules are loaded by then."""
    for kind in parent.__subclasses__():
        if kind.__module__.startswith("kernelmosaic.") and not isabstract(kind):
            yield kind
        yield from _library_kernels(kind)


def _call(kernel: type[Kernel]) -> str:
    needed = [
        name for name, one in signature(kernel).parameters.items() if one.default is one.empty
    ]
    return f"{kernel.__name__}({', '.join(needed)})"


def shorten(items: Iterable[Any], most: int = 5) -> str:
    """Write a list with its first items and how many more there are."""
    items = list(items)
    shown = ", ".join(map(repr, items[:most]))
    return f"[{shown}, … and {len(items) - most} more]" if len(items) > most else f"[{shown}]"
