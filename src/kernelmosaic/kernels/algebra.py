"""Sums, products and positive multiples of kernels, which are kernels again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from numbers import Real
from typing import ClassVar, Self

import numpy as np
from sklearn.base import clone

from kernelmosaic._typing import Array, MatrixLike
from kernelmosaic.kernels.base import Block, Kernel, is_positive
from kernelmosaic.kernels.distances import FitSamples
from kernelmosaic.kernels.views import check_kernel


class _Composite(Kernel):
    """A kernel made of other kernels on the same samples, its operands.

    `fit` does not change the operands: it fits clones of them, whose attributes end in an
    underscore.
    """

    #: Names of the parameters that are kernels.
    operand_names: ClassVar[tuple[str, ...]]

    def _operands(self) -> list[Kernel]:
        """Return the kernels that this kernel is made of, after checking them."""
        self._check_parameters()
        return [getattr(self, name) for name in self.operand_names]

    @property
    def input_kind(self) -> str:  # type: ignore[override]
        return self._operands()[0].input_kind

    @property
    def accepts_sparse(self) -> bool:  # type: ignore[override]
        return all(operand.accepts_sparse for operand in self._operands())

    @property
    def costs_by_entries(self) -> bool:  # type: ignore[override]
        return all(operand.costs_by_entries for operand in self._operands())

    @property
    def keeps_scale(self) -> bool:  # type: ignore[override]
        return any(operand.keeps_scale for operand in self._operands())

    def _learn(self, samples: FitSamples) -> Self:
        for name in self.operand_names:
            setattr(self, f"{name}_", clone(getattr(self, name)).fit_to(samples))
        return self

    def validate(self, X: MatrixLike) -> MatrixLike:
        for operand in self._operands():
            X = operand.validate(X)
        return X

    def form(self) -> Hashable:
        """Return the form of the operands if it is the same for all, else the tuple of forms."""
        forms = list(dict.fromkeys(operand.form() for operand in self._operands()))
        return forms[0] if len(forms) == 1 else tuple(forms)

    def with_categories(self, is_category: Sequence[bool]) -> Kernel:
        operands = {name: getattr(self, name) for name in self.operand_names}
        typed = {name: kernel.with_categories(is_category) for name, kernel in operands.items()}
        if all(typed[name] is operands[name] for name in operands):
            return self
        composite: Kernel = clone(self).set_params(**typed)
        return composite


class _Pair(_Composite):
    """Two kernels on the same samples."""

    operand_names: ClassVar[tuple[str, ...]] = ("left", "right")
    learned: ClassVar[str] = "left_"
    #: The function that combines the entries of both kernels.
    _join: ClassVar[np.ufunc]
    left_: Kernel
    right_: Kernel

    def __init__(self, left: Kernel, right: Kernel) -> None:
        self.left = left
        self.right = right
        # Checked here rather than at fit, so that the traceback ends where the two were joined.
        self._check_parameters()

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        return np.asarray(self._join(self.left_._block(X, Y), self.right_._block(X, Y)))

    def _diagonal(self, X: MatrixLike) -> Array:
        return np.asarray(self._join(self.left_._diagonal(X), self.right_._diagonal(X)))

    def entry_roundings(self, X: MatrixLike) -> float:
        return self.left.entry_roundings(X) + self.right.entry_roundings(X)

    @property
    def input_kind(self) -> str:  # type: ignore[override]
        # The kind of each operand is read once: in a nested sum of m kernels, several reads at
        # every level would take a time exponential in m.
        name = type(self).__name__
        check_kernel("left", self.left, name)
        check_kernel("right", self.right, name)
        left, right = self.left.input_kind, self.right.input_kind
        if left != right:
            raise ValueError(
                f"{name} joins kernels on the same samples, but left={self.left!r} reads {left} and"
                f" right={self.right!r} reads {right}; give them to an estimator as two kernels"
                " instead."
            )
        return left

    def _check_parameters(self) -> None:
        # Reading the input kind raises an error if the operands are wrong.
        _ = self.input_kind

    @abstractmethod
    def __repr__(self) -> str:
        """Return an expression of Python that builds an equal kernel."""


class Sum(_Pair):
    """k(x, z) = left(x, z) + right(x, z); written ``left + right``.

    Parameters
    ----------
    left, right : Kernel
        Two kernels of one input kind.

    Attributes
    ----------
    left_, right_ : Kernel
        The fitted clones.

    Examples
    --------
    >>> from kernelmosaic.kernels import Gaussian, Linear
    >>> Linear() + Gaussian(1.0)
    Linear() + Gaussian(width=1.0)
    """

    _join = np.add

    def __repr__(self) -> str:
        return f"{self.left!r} + {_operand_text(self.right, Sum)}"


class Product(_Pair):
    """k(x, z) = left(x, z) · right(x, z); written ``left * right``.

    Parameters
    ----------
    left, right : Kernel
        Two kernels of one input kind.

    Attributes
    ----------
    left_, right_ : Kernel
        The fitted clones.

    Examples
    --------
    >>> from kernelmosaic.kernels import Gaussian, Linear
    >>> Linear() * Gaussian(1.0)
    Linear() * Gaussian(width=1.0)
    """

    _join = np.multiply

    def draw_frequencies(self, n_columns: int, count: int, random: np.random.RandomState) -> Array:
        # The frequencies of a product of kernels are sums of independent frequencies of both.
        left = self.left_.draw_frequencies(n_columns, count, random)
        return left + self.right_.draw_frequencies(n_columns, count, random)

    def __repr__(self) -> str:
        left = _operand_text(self.left, Sum)
        right = _operand_text(self.right, Sum, Product, Scaled)
        return f"{left} * {right}"


class Scaled(_Composite):
    """k(x, z) = factor · kernel(x, z); written ``factor * kernel``.

    Parameters
    ----------
    factor : float
        A positive number.
    kernel : Kernel
        The kernel that is multiplied.

    Attributes
    ----------
    kernel_ : Kernel
        The fitted clone.

    Examples
    --------
    >>> from kernelmosaic.kernels import Linear
    >>> (2.0 * Linear())([[1.0], [3.0]])
    array([[ 2.,  6.],
           [ 6., 18.]])
    """

    operand_names: ClassVar[tuple[str, ...]] = ("kernel",)
    learned: ClassVar[str] = "kernel_"
    kernel_: Kernel

    def __init__(self, factor: float, kernel: Kernel) -> None:
        self.factor = factor
        self.kernel = kernel
        self._check_parameters()

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        K = self.kernel_._block(X, Y)
        return np.asarray(np.multiply(K, K.dtype.type(self.factor)))

    def _diagonal(self, X: MatrixLike) -> Array:
        return np.multiply(self.kernel_._diagonal(X), float(self.factor))

    def draw_frequencies(self, n_columns: int, count: int, random: np.random.RandomState) -> Array:
        return self.kernel_.draw_frequencies(n_columns, count, random)

    def entry_roundings(self, X: MatrixLike) -> float:
        return self.kernel.entry_roundings(X) + 1.0

    def _check_parameters(self) -> None:
        check_kernel("kernel", self.kernel, "Scaled")
        if not is_positive(self.factor):
            raise ValueError(
                f"factor={self.factor!r}: a kernel can only be multiplied by a positive finite"
                " number or by a kernel."
            )

    def __repr__(self) -> str:
        return f"{float(self.factor)!r} * {_operand_text(self.kernel, Sum, Product, Scaled)}"


def _operand_text(kernel: Kernel, *in_parentheses: type[Kernel]) -> str:
    """Return the `repr` of an operand, in parentheses if it is of one of the given classes.

    Without them Python would read another expression.
    """
    return f"({kernel!r})" if isinstance(kernel, in_parentheses) else repr(kernel)


def _add(left: Kernel, right: object) -> Sum:
    """Return `left + right` for two kernels."""
    return Sum(left, right) if isinstance(right, Kernel) else NotImplemented


def _multiply(left: Kernel, right: object) -> Product | Scaled:
    """Return the product of a kernel with another kernel or with a number."""
    if isinstance(right, Kernel):
        return Product(left, right)
    return Scaled(float(right), left) if isinstance(right, Real) else NotImplemented


# The operators are set here, because `base` cannot import the classes above. Importing the package
# imports both modules.
Kernel.__add__ = _add  # type: ignore[method-assign]
Kernel.__mul__ = Kernel.__rmul__ = _multiply  # type: ignore[method-assign]
