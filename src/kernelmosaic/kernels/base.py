"""The base classes of kernels, and the checks of samples and parameters that they share.

A kernel is a fitted formula that turns two sets of samples into a block of similarities.
"""

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
#: The kernels of this package by their names in other libraries.
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
        Whether the cost of a block of dense samples is proportional to its entries, so that several
        threads may compute small blocks at once. It is not if the formula describes every sample
        before it compares two.
    takes_tensors : bool
        Whether `_block` takes tensors as well as arrays, and is evaluated on their device.
    keeps_scale : bool
        Whether its columns must not be standardised, as counts must not.
    reads_pairs : bool
        Whether a sample is a pair of members, each of which is compared by another kernel.
    stack_maker : tuple of str or None
        The module and the function that make the `GramStack` of a fit with kernels of this class.
        The function takes the kernel set, the views and the bytes that stored matrices might take,
        and returns a stack, or None if the matrices should be stored. None for kernels whose
        matrices are always stored or computed in the usual way.
    preparation : str
        The name of what `prepare` does: kernels fitted to the same samples whose names are equal
        prepare samples in the same way.
    learned : str
        The attribute that `fit` sets, empty if there is none. A kernel that is called before `fit`
        takes the samples in the columns of the block for its training set, as in a
        test-versus-train block.
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
        # Cached, since it is called for every kernel of every fit, and reading a signature takes
        # longer than many formulas do.
        return list(super()._get_param_names())

    def fit(self, X: MatrixLike, y: TargetLike = None) -> Self:
        """Learn the parameters that depend on the training set; most kernels have none."""
        self._check_parameters()
        return self._learn(FitSamples(self.validate(X)))

    def fit_to(self, samples: FitSamples) -> Self:
        """Learn the parameters that depend on the training set, from validated samples.

        Kernels that are fitted to the same `FitSamples` share what they compute from them. A class
        that defines `fit` itself is fitted by it, without sharing.
        """
        if type(self).fit is not Kernel.fit:
            return self.fit(samples.X)
        self._check_parameters()
        return self._learn(samples)

    def _learn(self, samples: FitSamples) -> Self:
        """Set the attributes that depend on the training set; none, unless a subclass does."""
        return self

    @property
    def inner(self) -> Kernel:
        """The kernel that compares the samples that `prepare` returns; by default this kernel."""
        return self

    def prepare(self, X: MatrixLike) -> MatrixLike:
        """Return validated samples in the form that `inner` reads; by default as they are."""
        return X

    def cancelled(self, X: MatrixLike) -> Array | None:
        """Return for every sample the size of the terms that cancel in k(x, x).

        None for a kernel in which no terms cancel.
        """
        return None

    def _check_parameters(self) -> None:
        """Raise a ValueError if a parameter is not what it must be."""

    def __call__(self, X: MatrixLike, Y: MatrixLike = None) -> Block:
        """Return the (len(X), len(Y)) block of similarities; ``Y=None`` means ``Y=X``."""
        X = self.validate(X)
        Y = X if Y is None else self.validate(Y)
        return self._fitted_to(Y)._block(X, Y)

    def diag(self, X: MatrixLike) -> Array:
        """Return k(x, x) for every sample, without computing the other entries of the block."""
        X = self.validate(X)
        return self._fitted_to(X)._diagonal(X)

    def _fitted_to(self, X: MatrixLike) -> Self:
        """Return the kernel itself if it needs no fit, else a clone that is fitted to X."""
        self._check_parameters()
        if not self.learned or hasattr(self, self.learned):
            return self
        fitted: Self = clone(self).fit(X)
        return fitted

    def validate(self, X: MatrixLike) -> MatrixLike:
        """Return X in the form `_block` reads, or raise naming what is wrong.

        The form depends on the input kind only, has a ``shape`` and slices by rows, and is itself
        valid input.
        """
        # Called for every kernel of a fit, and `check_array` takes longer than a small matrix does.
        if _is_valid(X):
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
        """Return a key that is equal for kernels whose `validate` returns equal results.

        Sparse samples are excepted: not all kernels accept them.
        """
        return type(self).validate

    def with_categories(self, is_category: Sequence[bool]) -> Kernel:
        """Return the kernel for columns that hold categories by their type in a data frame.

        A kernel that does not depend on such types returns itself.
        """
        return self

    def terms(self) -> dict[str, Kernel]:
        """Return the kernels that an estimator weights in place of this one.

        The keys are appended to the name of this kernel.
        """
        return {"": self}

    def lacks(self, X: MatrixLike) -> Mask:
        """Return which samples lack the view, that is, have NaN in all columns of the kernel.

        Raises a ValueError where some columns of a sample are NaN and others are not.
        """
        is_empty_cell = is_missing(X)
        is_lacking = np.asarray(is_empty_cell.all(axis=1))
        incomplete = np.flatnonzero(is_empty_cell.any(axis=1) & ~is_lacking)
        if len(incomplete):
            i = incomplete[0]
            raise ValueError(
                f"X[{i}] contains NaN in {int(is_empty_cell[i].sum())} of {is_empty_cell.shape[1]}"
                " columns: a sample may lack all columns of a kernel, not some of them; fill the"
                " empty cells, as in make_pipeline(ViewImputer(), ...) of kernelmosaic.imputing,"
                " or give these columns a kernel of their own."
            )
        return is_lacking

    def entry_roundings(self, X: MatrixLike) -> float:
        """Return the rounding error of k(x, z) in units of the last place of √(k(x, x) k(z, z)).

        Sums over d columns, as most formulas are, have an error of about √d units.
        """
        if self.input_kind in ("numbers", "table"):
            return float(np.sqrt(max(X.shape[1], 1)))
        return 1.0

    @abstractmethod
    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        """The formula, on validated samples; ``Y is X`` means that the block is symmetric."""

    def _diagonal(self, X: MatrixLike) -> Array:
        """Return k(x, x) of validated samples, by default from blocks of single samples."""
        samples = (X[i : i + 1] for i in range(X.shape[0]))
        return np.array([self._block(x, x)[0, 0] for x in samples], dtype=np.float64)

    def draw_frequencies(self, n_columns: int, count: int, random: np.random.RandomState) -> Array:
        """Return `count` frequencies drawn from the spectrum of a kernel of x − z.

        Their shape is (n_columns, count). A kernel without a spectrum raises a ValueError.
        """
        raise ValueError(
            "approximation='fourier' supports Gaussian and Laplacian kernels, their products and"
            f" multiples, not {self!r}; use approximation='nystroem', which supports every kernel."
        )

    if TYPE_CHECKING:
        # Defined in `algebra`, beside sums and products.

        def __add__(self, other: object) -> Kernel: ...

        def __mul__(self, other: object) -> Kernel: ...

        def __rmul__(self, other: object) -> Kernel: ...


def is_of_user(kernel: Kernel) -> bool:
    """Whether a kernel, or one of the kernels it is made of, is of a class of the user's."""
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
        left = self._features(X)
        right = left if Y is X else self._features(Y)
        return np.asarray(left @ right.T)

    def _diagonal(self, X: MatrixLike) -> Array:
        features = self._features(X)
        return np.asarray(np.einsum("ij,ij->i", features, features))


class StatisticKernel(Kernel):
    """A kernel that is a function of the inner product or of a distance of two samples.

    Kernels on the same columns share that number, the statistic, so a stack computes it once for a
    whole family of widths. A formula of operators and of functions that NumPy and torch share by
    name, taken from ``backend_of(S).xp``, is evaluated on a device as it is; any other is evaluated
    on the host, and its blocks are copied.

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
        """Return the difference of the statistic over which the kernel changes noticeably.

        0 means that every digit of a small statistic may matter.
        """
        return 0.0

    def entry_roundings(self, X: MatrixLike) -> float:
        if self.statistic == "products":
            return super().entry_roundings(X)
        # Where a distance is small, the kernel is nearly constant in it: only the rounding of the
        # formula counts.
        return 1.0

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        return self.from_statistic(pairwise_statistic(self.statistic, X, Y, self.statistic_scale()))

    def _diagonal(self, X: MatrixLike) -> Array:
        if self.statistic == "products":
            statistic = row_norms(X, squared=True).astype(np.float64)
        else:
            statistic = np.zeros(X.shape[0])
        return self.from_statistic(statistic)


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
    """Whether X is a plain array of finite numbers that `check_array` returns as it is.

    A sum that overflows makes the answer False although the numbers are finite; `check_array` then
    decides.
    """
    if type(X) is not np.ndarray or X.ndim != 2:
        return False
    if X.size == 0 or X.dtype not in (np.float64, np.float32):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(X.sum()))


@contextmanager
def refuse_text(X: MatrixLike, y: TargetLike = None) -> Iterator[None]:
    """Replace errors of NumPy and scikit-learn about cells of X or y by errors that name a remedy.

    Text and other objects where numbers are needed are reported with their column, or as the
    target; NaN with ways to fill it. Other errors pass as they are.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        if str(error).startswith("Input X contains NaN"):
            raise ValueError(
                "Input X contains NaN: fill empty cells with an imputer"
                " (kernelmosaic.imputing.ViewImputer, or one of scikit-learn's) as an earlier step"
                " of a pipeline; a missing view is NaN in all columns that its kernels name."
            ) from None
        if "could not convert string" in str(error):
            cell = first_text(X)
            if cell is not None:
                column, value = cell
                raise ValueError(
                    f"X: column {column!r} holds text ({value!r}) where numbers are needed: name"
                    " the columns of each kernel, (name, kernel, columns), and give text to"
                    " Categorical or to a sequence kernel such as Spectrum."
                ) from error
            target = None if y is None else first_text(y)
            if target is not None:
                raise ValueError(
                    f"y holds text ({target[1]!r}) where one number per sample is needed: give"
                    " numbers, or use a classifier for classes."
                ) from error
        _refuse_object(X, error)
        raise


def _refuse_object(X: MatrixLike, error: Exception) -> None:
    """Raise an error that names the first cell of X that is no number, if NumPy refused a cell.

    Return if the error is about something else, or no such cell is found.
    """
    complaints = (
        "float() argument must be",
        "setting an array element with a sequence",
        "could not be promoted",
    )
    if not any(complaint in str(error) for complaint in complaints):
        return
    cell = first_object(X)
    if cell is None:
        return
    column, value = cell
    class_name = type(value).__name__
    article = "an" if class_name[0] in "aeiouAEIOU" else "a"
    # scikit-learn, too, raises TypeError for a cell of another type, with NumPy's sentence.
    error_class = TypeError if isinstance(error, TypeError) else ValueError
    raise error_class(
        f"X: column {column!r} holds {article} {class_name} ({shorten_text(value)}) where numbers"
        " are needed: name the columns of each kernel, (name, kernel, columns); a kernel of your"
        " own that compares such objects sets input_kind = 'objects' and reads them in its method"
        f" validate. NumPy's complaint: {error}"
    ) from error


def shorten_text(value: object, max_length: int = 40) -> str:
    """Return the `repr` of an object, cut after `max_length` characters."""
    text = repr(value)
    return text if len(text) <= max_length else f"{text[:max_length]}…"


def first_object(X: MatrixLike) -> tuple[Any, Any] | None:
    """Return the first cell that is no number, no text and not empty, after its column's name.

    Columns without names are numbered. None if there is no such cell.
    """
    table = object_table(X)
    names = list(X.columns) if hasattr(X, "columns") else range(table.shape[1])
    for name, values in zip(names, table.T, strict=True):
        is_empty_cell = is_missing(values)
        for value in values[~is_empty_cell].tolist():
            if not isinstance(value, str | Real):
                return name, value
    return None


def object_table(X: MatrixLike) -> AnyArray:
    """Return samples as a two-dimensional array of objects; a list of samples as one column.

    NumPy would take a sample that is a list or an array for a row, and make columns of its entries.
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
    """Return the first text that cannot be read as a number, after its column's name or number.

    None if there is no such text.
    """
    table = np.asarray(X, dtype=object)
    columns = table.T if table.ndim == 2 else [table.ravel()]
    for j, values in enumerate(columns):
        for value in values:
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            if isinstance(text, str) and not is_number(text):
                column = list(X.columns)[j] if hasattr(X, "columns") else j
                return column, str(text)
    return None


def is_positive(value: object) -> bool:
    """Whether a parameter is a positive, finite number."""
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < np.inf


def is_whole(value: object, least: int = 1) -> bool:
    """Whether a parameter is a whole number of at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def settings_of(grids: Mapping[str, Any]) -> list[Settings]:
    """Return every combination of the values of some parameters, the last one changing fastest."""
    value_lists = []
    for name, grid in grids.items():
        if isinstance(grid, str | bytes) or not isinstance(grid, Iterable):
            raise TypeError(f"{name}={grid!r}: give a list of values, such as {name}=[{grid!r}].")
        # Numbers of Python print as numbers. An array of matrices becomes a list of arrays.
        values = list(grid)
        if isinstance(grid, np.ndarray) and grid.ndim == 1:
            values = grid.tolist()
        if not values:
            raise ValueError(f"{name}=[]: give at least one value.")
        value_lists.append(values)
    return [dict(zip(grids, values, strict=True)) for values in product(*value_lists)]


def suggest_kernel(value: object) -> str:
    """Return the end of a message: what to write in place of a value that is not a kernel."""
    if isclass(value) and issubclass(value, Kernel):
        return f"that is a class: write {_constructor_call(value)}."
    if hasattr(value, "shape"):
        return (
            "a Gram matrix is given as Precomputed(K), and X then holds the row numbers,"
            " np.arange(len(K))."
        )
    if type(value).__module__ == "sklearn.gaussian_process.kernels":
        return _replacement_of_process_kernel(value)
    if isinstance(value, str) or callable(value):
        name = value
        if not isinstance(name, str):
            name = getattr(value, "__name__", type(value).__name__)
        call = _call_by_name(name)
        if call is not None:
            return f"kernels are objects: write {call} from kernelmosaic.kernels."
        if callable(value):
            return (
                "functions are not accepted as kernels: give Precomputed(K) of its matrix, or a"
                " subclass of Kernel."
            )
    return (
        "give a kernel of kernelmosaic.kernels, such as Gaussian(), Linear() or"
        " Polynomial(degree=2)."
    )


def _call_by_name(name: str) -> str | None:
    """Return the constructor call of the kernel that has a name here or in another library.

    None if there is no such kernel. Functions of scikit-learn are called as the kernels are, or end
    in "_kernel".
    """
    library_kernels = list(_library_kernels(Kernel))  # type: ignore[type-abstract]
    calls = {kernel.__name__.lower(): _constructor_call(kernel) for kernel in library_kernels}
    return (_ELSEWHERE | calls).get(name.lower().removesuffix("_kernel").replace("_", ""))


def _replacement_of_process_kernel(kernel: Any) -> str:
    """Return the end of a message: the replacement of a Gaussian-process kernel of scikit-learn."""
    name = type(kernel).__name__
    if name == "RBF" and np.ndim(kernel.length_scale) == 0:
        width = 2**0.5 * kernel.length_scale
        return (
            f"write Gaussian(width={width:.6g}), the same kernel, or Gaussian(), as wide as the"
            " data."
        )
    if name == "DotProduct":
        return (
            f"write Polynomial(degree=1, offset={kernel.sigma_0**2:.6g}), the same kernel, or"
            " Linear()."
        )
    return (
        "kernels of scikit-learn's Gaussian processes are not taken: compute the matrix, K ="
        " kernel(X), and give Precomputed(K), with the row numbers np.arange(len(K)) as X; or"
        " derive a class from Kernel."
    )


def shown(value: object) -> str:
    """Return the text of a value in a message: the shape of an array, the `repr` of any other."""
    if hasattr(value, "shape"):
        return f"an array of shape {tuple(value.shape)}"
    return repr(value)


def _library_kernels(parent: type[Kernel]) -> Iterator[type[Kernel]]:
    """Yield the kernel classes of this package that are derived from a class.

    Only classes whose modules are loaded are found; importing the package loads all.
    """
    for kernel in parent.__subclasses__():
        if kernel.__module__.startswith("kernelmosaic.") and not isabstract(kernel):
            yield kernel
        yield from _library_kernels(kernel)


def _constructor_call(kernel: type[Kernel]) -> str:
    """Return the call of a kernel's constructor as text, with the parameters that it requires."""
    parameters = signature(kernel).parameters.values()
    required = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    return f"{kernel.__name__}({', '.join(required)})"


def shorten(values: Iterable[Any], max_count: int = 5) -> str:
    """Return the text of a list: its first values, and how many more there are."""
    values = list(values)
    text = ", ".join(map(repr, values[:max_count]))
    if len(values) > max_count:
        text += f", … and {len(values) - max_count} more"
    return f"[{text}]"
