"""Kernels of transformed samples.

Samples are standardised (`Correlation`), or replaced by frequencies (`FFT`), by ranks (`Ranked`),
by rescaled columns (`Rescaled`) or by projections (`Projected`), which another kernel compares.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy as np
from scipy import fft, sparse
from sklearn.base import clone
from sklearn.utils import check_array, check_random_state

from kernelmosaic._checks import check_choice
from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, MatrixLike, Seed
from kernelmosaic.backend import backend_of
from kernelmosaic.kernels.base import (
    Block,
    FeatureKernel,
    Kernel,
    StatisticKernel,
    is_whole,
    shorten,
)
from kernelmosaic.kernels.distances import FitSamples, pairwise_statistic, to_ranks
from kernelmosaic.kernels.numeric import Gaussian, Linear, Polynomial, Radial

#: Length of the random part that is added to every column of a projection, as a fraction of the
#: column's length, so that two projections start apart. Chosen by hand.
_PERTURBATION = 0.3


class Correlation(FeatureKernel):
    """k(x, z) = Pearson's correlation between the entries of x and those of z.

    It compares profiles, such as those of gene expression. It is the inner product of the rows
    after each is centred and scaled to length one. A constant row has no direction left once it is
    centred: it becomes the zero vector, and its similarity to every sample, itself included, is 0.

    Examples
    --------
    >>> from kernelmosaic.kernels import Correlation
    >>> Correlation()([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 2.0, 1.0]]).round(6)
    array([[ 1.,  1., -1.],
           [ 1.,  1., -1.],
           [-1., -1.,  1.]])
    """

    def validate(self, X: MatrixLike) -> MatrixLike:
        return check_array(
            X, dtype=(np.float64, np.float32), ensure_min_features=2, input_name="X", estimator=self
        )

    def _features(self, X: MatrixLike) -> AnyArray:
        # Rows are divided by their largest entry first: squares then neither overflow nor
        # underflow, and a constant row becomes a row of ones, which is centred to exact zeros.
        # Otherwise the rounding of its mean would be amplified by the division by the length.
        largest = np.abs(X).max(axis=1, keepdims=True)
        Z = X / np.where(largest > 0, largest, 1)
        Z -= Z.mean(axis=1, keepdims=True)
        lengths = np.linalg.norm(Z, axis=1, keepdims=True)
        Z /= np.where(lengths > 0, lengths, 1)
        return np.asarray(Z)

    def _diagonal(self, X: MatrixLike) -> Array:
        return np.asarray(X.max(axis=1) > X.min(axis=1), dtype=np.float64)


class Transformed(Kernel):
    """A kernel `kernel_` of the samples that `transform` returns."""

    learned = "kernel_"
    kernel_: Kernel

    @abstractmethod
    def transform(self, X: MatrixLike) -> ArrayOrTensor:
        """Return the samples that the inner kernel compares, in the precision of X."""

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        left = self.transform(X)
        right = left if Y is X else self.transform(Y)
        block: Block = self.kernel_._block(left, right)
        return block

    def _diagonal(self, X: MatrixLike) -> Array:
        return np.asarray(self.kernel_._diagonal(self.transform(X)))


class FFT(Transformed):
    """k(x, z) = exp(−‖s(x) − s(z)‖² / width²) for the spectra s of two profiles.

    The spectrum s(x) holds the magnitudes of the Fourier transform of x. Magnitudes do not depend
    on where along the profile a pattern is, only on its period. Profiles, such as the hydropathy of
    a protein, are rows of one length: pad the shorter ones with zeros.

    Parameters
    ----------
    width : float or {"nearest", "median"}, default="median"
        The width of the Gaussian, as in `Gaussian`; a word is measured between the magnitudes of
        the training profiles.
    n_frequencies : int or None, default=None
        How many of the lowest frequencies to compare, the mean of the profile being the first;
        ``None`` for all. Fewer filter out the fast changes.

    Attributes
    ----------
    kernel_ : Gaussian
        The fitted kernel between magnitudes; also called ``gaussian_``.

    References
    ----------
    Lanckriet, De Bie, Cristianini, Jordan and Noble (2004), "A statistical framework for genomic
    data fusion".

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic.kernels import FFT
    >>> waves = np.sin(np.outer([1, 2], np.linspace(0, 2 * np.pi, 16, endpoint=False)))
    >>> K = FFT()(waves)
    >>> bool(K[0, 1] < K[0, 0])
    True
    """

    def __init__(self, width: float | str = "median", n_frequencies: int | None = None) -> None:
        self.width = width
        self.n_frequencies = n_frequencies

    def _learn(self, samples: FitSamples) -> Self:
        self.kernel_ = self.gaussian_ = Gaussian(self.width).fit(self.transform(samples.X))
        return self

    def transform(self, X: MatrixLike) -> AnyArray:
        """Return the magnitudes of the Fourier transforms, of shape (n, n_frequencies).

        With ``n_frequencies=None`` they are those of all frequencies, half of the points plus one.
        """
        n_available = X.shape[1] // 2 + 1
        n_frequencies = self.n_frequencies
        is_valid = n_frequencies is None or (
            is_whole(n_frequencies, least=1) and n_frequencies <= n_available
        )
        if not is_valid:
            raise ValueError(
                f"n_frequencies={n_frequencies!r}: give an integer from 1 to {n_available}, the"
                f" number of frequencies of profiles with {X.shape[1]} points, or None for all."
            )
        return np.asarray(np.abs(fft.rfft(X, axis=1)[:, :n_frequencies]))


class Ranked(Transformed):
    """k(r(x), r(z)) for the ranks r of the entries among the training samples.

    Ranks do not change under monotone transformations of a column, and outliers are one rank away
    from their neighbours. Equal entries share the mean of their ranks, entries between two training
    values are interpolated, and those beyond all have the first or the last rank. Every column of
    ranks has mean zero and variance one.

    Parameters
    ----------
    kernel : Kernel
        The kernel of the ranks.

    Attributes
    ----------
    kernel_ : Kernel
        The inner kernel, fitted to the ranks of the training samples.
    values_, ranks_ : list of ndarray
        Of every column, the distinct training entries in order, and their standardised ranks.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic.kernels import Laplacian, Ranked
    >>> X = np.array([[1.0], [10.0], [100.0]])
    >>> kernel = Ranked(Laplacian()).fit(X)
    >>> np.allclose(kernel(X), Laplacian()([[1.0], [2.0], [3.0]]))
    True
    """

    preparation = "ranks"

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def _learn(self, samples: FitSamples) -> Self:
        self.values_, self.ranks_, ranked = samples.ranked
        self.kernel_ = clone(self.kernel).fit_to(ranked)
        return self

    @property
    def inner(self) -> Kernel:
        return self.kernel_

    def prepare(self, X: MatrixLike) -> MatrixLike:
        return self.transform(X)

    def transform(self, X: MatrixLike) -> AnyArray:
        """Return the standardised ranks of the entries, in the shape and precision of X."""
        return to_ranks(X, self.values_, self.ranks_)


class Rescaled(Transformed):
    """k(x / s, z / s): a kernel of samples whose columns are divided by given numbers.

    ``Rescaled(Gaussian(width=1.0), scale=widths)`` is the Gaussian with one width per column. The
    ridge estimators learn such widths for ``Gaussian(width="learn", per_column=True)``, and return
    them in this form.

    Parameters
    ----------
    kernel : Gaussian, Laplacian, Linear or Polynomial
        The kernel of the divided columns.
    scale : array-like of shape (n_features,)
        One positive number per column. A column divided by a large number does not matter.

    Attributes
    ----------
    scale_ : ndarray of shape (n_features,)
        The numbers.
    kernel_ : Kernel
        The inner kernel, fitted to the divided columns of the training samples.

    Examples
    --------
    >>> from kernelmosaic.kernels import Gaussian, Rescaled
    >>> X, widths = [[0.0, 0.0], [2.0, 3.0]], [2.0, 3.0]
    >>> float(Rescaled(Gaussian(width=1.0), widths)(X)[0, 1].round(4))  # exp(−1 − 1)
    0.1353
    """

    costs_by_entries = True
    takes_tensors = True

    def __init__(self, kernel: Kernel, scale: ArrayOrTensor) -> None:
        self.kernel = kernel
        self.scale = scale

    def _learn(self, samples: FitSamples) -> Self:
        X = samples.X
        if not isinstance(self.kernel, StatisticKernel):
            raise TypeError(
                f"kernel={self.kernel!r}: give Gaussian, Laplacian, Linear or Polynomial."
            )
        scale = np.asarray(self.scale, dtype=np.float64)
        if scale.shape != (X.shape[1],) or not np.all((scale > 0) & np.isfinite(scale)):
            raise ValueError(
                f"scale={shorten(scale.ravel())}: give {X.shape[1]} positive numbers, one per"
                " column."
            )
        self.scale_ = scale
        self.kernel_ = clone(self.kernel).fit(self.transform(X))
        return self

    def transform(self, X: MatrixLike) -> ArrayOrTensor:
        """Return the columns divided by `scale_`, in the precision of X."""
        backend = backend_of(X)
        return X * backend.asarray(1.0 / self.scale_, backend.dtype(X))

    def draw_frequencies(self, n_columns: int, count: int, random: np.random.RandomState) -> Array:
        return self.kernel_.draw_frequencies(n_columns, count, random) / self.scale_[:, np.newaxis]


def width_learner(kernel: Kernel) -> Radial | None:
    """Return the kernel, or the one inside `Ranked`, if its width is to be learned, else None."""
    inner = kernel.kernel if isinstance(kernel, Ranked) else kernel
    return inner if isinstance(inner, Radial) and inner.width == "learn" else None


def with_width(kernel: Kernel, width: str | Array) -> Kernel:
    """Return a kernel whose width was to be learned with that width.

    A kernel without a width to learn is returned as it is.

    Parameters
    ----------
    kernel : Kernel
        With ``width="learn"``, possibly inside `Ranked`.
    width : str or ndarray
        A rule such as ``"median"``, or an array of the learned widths: one per column if the kernel
        has ``per_column=True``, else one.
    """
    learner = width_learner(kernel)
    if learner is None:
        return kernel
    if isinstance(kernel, Ranked):
        return Ranked(with_width(learner, width))
    if isinstance(width, str):
        return type(learner)(width, learner.factor)
    if learner.per_column:
        return Rescaled(type(learner)(1.0), width.tolist())
    return type(learner)(float(width[0]))


class Projected(Transformed):
    """k(Wᵀx, Wᵀz): a kernel of projected samples.

    `fit` sets W to the leading principal directions, or to random ones; the localized estimators
    start there and learn W together with the machine. One such kernel is a global projection,
    several of them under gates are local ones.

    Parameters
    ----------
    kernel : Linear, Polynomial or Gaussian
        The kernel of the projected samples.
    n_components : int, default=2
        Dimensions to project to; at most the number of columns.
    random_state : int, RandomState or None, default=None
        The seed of a small random rotation of W away from the principal directions, so that two
        projections start apart; None means no rotation. With ``init="random"`` it is the seed of
        W; None means 0.
    init : {"pca", "random"}, default="pca"
        The start of W: the principal directions, or random orthonormal ones, which differ between
        the `n_init` starts of an estimator.

    Attributes
    ----------
    W_ : ndarray of shape (n_features, n_components)
        The projection.
    kernel_ : Kernel
        The inner kernel, fitted to the projected training set as W is at the start.

    References
    ----------
    Gönen and Alpaydın (2010), "Supervised learning of local projection kernels".

    Examples
    --------
    >>> from kernelmosaic import LocalizedMKLClassifier
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.kernels import Linear, Projected
    >>> X, y = make_gaussians(n_samples=100, random_state=0)
    >>> kernels = [Projected(Linear(), 1), Projected(Linear(), 1)]
    >>> model = LocalizedMKLClassifier(kernels, tol=1e-2, random_state=0)
    >>> model.fit(X, y).transform(X).shape
    (100, 2)
    """

    accepts_sparse = True
    learned = "W_"

    def __init__(
        self,
        kernel: Kernel | None = None,
        n_components: int = 2,
        random_state: Seed = None,
        init: str = "pca",
    ) -> None:
        self.kernel = kernel
        self.n_components = n_components
        self.random_state = random_state
        self.init = init

    def _learn(self, samples: FitSamples) -> Self:
        X = samples.X
        n_features = X.shape[1]
        n_components = self.n_components
        inner = Linear() if self.kernel is None else self.kernel
        if not isinstance(inner, Linear | Polynomial | Gaussian):
            raise TypeError(
                f"kernel={inner!r}: Projected learns projections for Linear, Polynomial and"
                " Gaussian kernels."
            )
        if not (is_whole(n_components) and n_components <= n_features):
            raise ValueError(
                f"n_components={n_components!r}: give a whole number from 1 to the {n_features}"
                " columns."
            )
        if check_choice("init", self.init, ("pca", "random")) == "random":
            rng = check_random_state(self.random_state or 0)
            self.W_ = _random_directions(n_features, n_components, rng)
        else:
            self.W_ = _principal_directions(X, n_components)
            if self.random_state is not None:
                self.W_ = _perturbed(self.W_, check_random_state(self.random_state))
        self.kernel_ = clone(inner).fit(self.transform(X))
        return self

    def start(self, rng: np.random.RandomState, is_single: bool) -> Array:
        """Return the projection at which learning starts, of the shape of `W_`.

        With ``init="pca"`` it is the fitted projection, turned a little by random numbers unless
        it is the single projection of a model; else it consists of random directions.
        """
        if self.init == "random":
            return _random_directions(len(self.W_), self.W_.shape[1], rng)
        return self.W_ if is_single else _perturbed(self.W_, rng)

    def transform(self, X: MatrixLike) -> Array:
        """Return the projected samples Wᵀx, of shape (n, n_components)."""
        return np.asarray(self.validate(X) @ self.W_, dtype=np.float64)

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        return super()._block(X, Y).astype(X.dtype, copy=False)

    def vjp(self, X: MatrixLike, G: Array) -> Array:
        """Return Σ_ij G_ij ∂k(x_i, x_j)/∂W, of the shape of W.

        The kernel is a function f of the products or squared distances S of Z = XW. With
        H = G ∘ f'(S) + (G ∘ f'(S))ᵀ the derivative in Z is HZ for products, and
        2 (diag(H·1) Z − HZ) for squared distances; that in W is Xᵀ times it.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, n_features)
            Samples.
        G : ndarray of shape (n, n)
            The derivatives of some objective in the entries of the Gram matrix.
        """
        Z = self.transform(X)
        S = pairwise_statistic(self.kernel_.statistic, Z, Z, self.kernel_.statistic_scale())
        has_distances = self.kernel_.statistic == "squared_distances"
        if has_distances:
            # Distances do not change with the origin, and far from it the differences below would
            # have few digits.
            Z = Z - Z.mean(axis=0)
        H = G * _derivative(self.kernel_, S)
        H = H + H.T
        # By way of the derivative in Z, no array has the size of pairs of samples times features.
        gradient_in_Z = H @ Z
        if has_distances:
            gradient_in_Z = 2.0 * (H.sum(axis=1)[:, np.newaxis] * Z - gradient_in_Z)
        return np.asarray(X.T @ gradient_in_Z)

    def diagonal_vjp(self, X: MatrixLike, g: Array) -> Array:
        """Return Σ_i g_i ∂k(x_i, x_i)/∂W, of the shape of W; zero for a function of distances."""
        if self.kernel_.statistic != "products":
            return np.zeros_like(self.W_)
        Z = self.transform(X)
        derivatives = _derivative(self.kernel_, np.einsum("ij,ij->i", Z, Z))
        return np.asarray(X.T @ ((2.0 * g * derivatives)[:, np.newaxis] * Z))


def _random_directions(n_features: int, n_components: int, rng: np.random.RandomState) -> Array:
    """Return random orthonormal columns, of shape (n_features, n_components)."""
    return np.asarray(np.linalg.qr(rng.normal(size=(n_features, n_components)))[0])


def _perturbed(W: Array, rng: np.random.RandomState) -> Array:
    """Return W with a random vector added to every column, a fraction of the column as long."""
    noise = rng.normal(size=W.shape)
    lengths = np.linalg.norm(W, axis=0) / np.maximum(np.linalg.norm(noise, axis=0), 1e-300)
    return np.asarray(W + _PERTURBATION * lengths * noise)


def _principal_directions(X: MatrixLike, n_components: int) -> Array:
    """Return the leading orthonormal eigenvectors of the covariance, in columns.

    The entry of largest absolute value in each is positive, which fixes the signs.
    """
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    if sparse.issparse(X):
        C = np.asarray((X.T @ X).toarray(), dtype=np.float64) / X.shape[0] - np.outer(mean, mean)
    else:
        Z = X - mean
        C = Z.T @ Z / X.shape[0]
    W = np.linalg.eigh(C)[1][:, ::-1][:, :n_components]
    signs = np.sign(W[np.abs(W).argmax(axis=0), np.arange(n_components)])
    return np.ascontiguousarray(W * signs)


def _derivative(kernel: StatisticKernel, S: Block) -> Array:
    """Return the derivative of a kernel in its statistic, for every entry of S."""
    if isinstance(kernel, Polynomial):
        derivative = kernel.degree * (S + kernel.offset) ** (kernel.degree - 1)
        return np.asarray(derivative, dtype=np.float64)
    if isinstance(kernel, Gaussian):
        return np.asarray(-kernel.from_statistic(S) / kernel.width_**2)
    return np.ones_like(S)
