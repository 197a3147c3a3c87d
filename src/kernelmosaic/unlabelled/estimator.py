"""Several views without labels: one embedding of the samples, or clusters, on a weighted sum of
kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._checks import check_choice, check_count
from kernelmosaic._typing import (
    Array,
    ArrayOrTensor,
    KernelsLike,
    MatrixLike,
    Seed,
    Settings,
    TargetLike,
)
from kernelmosaic.backend import row_strips
from kernelmosaic.engine.fit import Fit, Method, fit
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.estimators._base import KernelEstimator
from kernelmosaic.estimators.inputs import NO_TARGETS
from kernelmosaic.kernels import Gaussian, Kernel
from kernelmosaic.unlabelled.learning import EmbeddingOptions, NeighborGraph, unit_rows
from kernelmosaic.unlabelled.method import ClusterMethod, EmbeddingMethod, NoTargets

#: What `weights` may be by name.
RULES = ("screen", "equal", "statis")


def unlabelled_kernels() -> list[Kernel]:
    """Return the kernels of ``kernels=None``: a Gaussian of the median width, for each of several
    tables one."""
    return [Gaussian()]


class UnlabelledEstimator(KernelEstimator):
    """What both estimators share: samples in, their kernels, and weights that no labels decide."""

    weights: ArrayOrTensor
    scale: bool

    # Rows on a disk could not be scaled.
    reads_in_memory: ClassVar[bool] = True

    def _kernels_of(self, X: MatrixLike, views: Settings | None) -> list[Kernel]:
        return unlabelled_kernels()

    def fit(self, X: MatrixLike, y: TargetLike = None) -> Self:
        """Fit to samples.

        Parameters
        ----------
        X : array-like, sparse matrix, data frame, or dict or list of such tables
            Samples; several tables have the same rows, and each is a view.
        y : None
            Ignored.

        Returns
        -------
        self
        """
        self._check_parameters()
        given = self._read_input(X, None, None, NO_TARGETS)
        n = given.X.shape[0]
        if n < 2:
            raise ValueError(
                f"X has n_samples={n}: samples are compared with each other; give at least two."
            )
        samples = self.scaled(given, self.scale)
        self.keep(fit(self.recipe(samples), samples), samples)
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.weights, str):
            check_choice("weights", self.weights, RULES, ", or give one number per kernel")

    def _warn_of_what_is_missing(self, fit: Fit) -> None:
        """Warn of nothing: eigenvectors are computed to `tol`, in as many steps as they need."""

    def _task(self) -> NoTargets:
        return NoTargets(type(self).__name__)

    def _options(self) -> EmbeddingOptions:
        return EmbeddingOptions(self.tol, self.random_state)


class MKLKernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, UnlabelledEstimator):
    """Principal components of several views, by the sum of their kernels.

    The components are those of K = Σ_m η_m K_m, centred: the eigenvectors U of HKH with its largest
    eigenvalues λ, H = I − 11ᵀ/n. Training samples have the coordinates U √λ, new ones H k(x) U /
    √λ, as in :class:`~sklearn.decomposition.KernelPCA` of the summed kernel. Nothing but the
    weights η depends on the views, and these are not the solution of a training problem: without
    labels there is no criterion for them.

    Parameters
    ----------
    kernels : list, default=None
        Kernels, ``(name, kernel)`` or ``(name, kernel, columns)`` with columns as in
        :class:`~sklearn.compose.ColumnTransformer`. None means a Gaussian of the median distance,
        and one for each table where `fit` is given several. Kernels that read the same columns are
        of one view.
    n_components : int, default=2
        Number of components; fewer where HKH has fewer positive eigenvalues.
    weights : {"screen", "equal", "statis"} or array-like of shape (P,), default="screen"
        Weights of the views, of sum one, which the kernels of a view share equally. ``"equal"``:
        all the same. ``"screen"``: the same for all views that depend on another one, zero for
        those that are independent of all others by a test at the level 0.05; where no two views
        depend on each other, all of them. Copies, views with a similarity of 0.95 or more, count as
        one view in this, unless no others depend on each other. ``"statis"``: by the leading
        eigenvector of the RV coefficients, which favours views that repeat each other. An array:
        one number per kernel, used as given.
    scale : bool, default=True
        Standardise the columns of numbers first.
    missing : {"neighbors", "zero"} or None, default="neighbors"
        How a view that a sample lacks (all its columns are NaN) is imputed, in the feature space of
        a kernel: the mean of the most similar samples, or zero, with the other views of the sample
        rescaled. Either way the kernel stays positive semi-definite. None refuses such samples.
    normalize : {"centered", "trace", "diagonal"} or None, default="centered"
        How kernels are put on one scale; ``"centered"``: mean zero and trace one per sample.
    approximation : {"nystroem", "leading", "fourier"} or None, default=None
        None computes the kernels exactly, else each becomes a block of features, for many samples.
    rank : int or sequence of P int, default=500
        Maximum number of features per kernel.
    tol : float, default=1e-10
        Relative error of the eigenvalues, which Lanczos' method computes for more than 500 samples.
    memory_budget : float, default=None
        Bytes the Gram matrices, or features, may take; None means half of the free memory. A larger
        stack is recomputed in blocks.
    device : str, default=None
        Where kernels are computed, such as ``"cuda"``; None means here.
    random_state : int, RandomState or None, default=None
        Draws landmarks, frequencies, and where Lanczos' method starts.

    Attributes
    ----------
    weights_ : ndarray of shape (P,)
        The weights of the kernels.
    view_weights_ : dict
        The weights summed over the kernels of every view, by its name.
    views_ : list of str
        Names of the V views, in the order of the next two.
    similarity_ : ndarray of shape (V, V)
        RV coefficients between views without their bias, of at most 5,000 samples: 1 for views
        equal up to scale, 0 on average for independent ones and for those that no sample has both
        of.
    pvalues_ : ndarray of shape (V, V)
        Of the test of independence of every two views, P(χ²₁ > n R + 1) with R from `similarity_`,
        adjusted by Holm.
    eigenvalues_ : ndarray of shape (n_components,)
        λ, the largest first.
    explained_ : ndarray of shape (n_components,)
        λ as a share of the sum of all eigenvalues.
    embedding_ : ndarray of shape (n_samples, n_components)
        The coordinates of the training samples.
    kernel_names_, n_features_in_, feature_names_in_
        As in :class:`MKLClassifier`.

    References
    ----------
    Schölkopf, Smola and Müller (1998), "Nonlinear component analysis as a kernel eigenvalue
    problem". Shen, Panda and Vogelstein (2022), "The chi-square test of distance correlation".
    Mariette and Villa-Vialaneix (2018), "Unsupervised multiple kernel learning for heterogeneous
    data integration", for STATIS weights.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLKernelPCA
    >>> rng = np.random.RandomState(0)
    >>> hidden = rng.randn(60, 2)
    >>> views = {"one": hidden @ rng.randn(2, 5), "two": np.tanh(hidden)}
    >>> views["noise"] = rng.randn(60, 3)
    >>> model = MKLKernelPCA(weights="equal").fit(views)
    >>> model.transform(views).shape
    (60, 2)
    >>> bool(model.pvalues_[0, 1] < 0.05 < model.pvalues_[0, 2])
    True
    """

    def __init__(
        self,
        kernels: KernelsLike = None,
        n_components: int = 2,
        *,
        weights: ArrayOrTensor = "screen",
        scale: bool = True,
        missing: str | None = "neighbors",
        normalize: str | None = "centered",
        approximation: str | None = None,
        rank: int | Sequence[int] = 500,
        tol: float = 1e-10,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Seed = None,
    ) -> None:
        self.kernels = kernels
        self.n_components = n_components
        self.weights = weights
        self.scale = scale
        self.missing = missing
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count("n_components", self.n_components)

    def _method(self) -> Method:
        return EmbeddingMethod(self._options(), self.weights, self.n_components)

    def fit_transform(self, X: MatrixLike, y: TargetLike = None) -> Array:
        """Fit to samples, and return their coordinates, of shape (n_samples, n_components)."""
        return np.asarray(self.fit(X).embedding_)

    def transform(self, X: MatrixLike) -> Array:
        """Return the coordinates of samples, of shape (n_samples, n_components).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples, which may lack views.
        """
        return self._outputs(X)


class MKLClustering(ClusterMixin, UnlabelledEstimator):
    """Clusters of samples with several views, by k-means in an embedding of the sum of their
    kernels.

    ``embedding="kernel"``: the leading principal components of the summed kernel, as of
    :class:`MKLKernelPCA`, but with coordinates U λ^¼ in place of U √λ, so that weak components
    count more; each sample is then divided by its length, so that directions count alone.
    ``embedding="graph"``: every sample is joined to its nearest ones by the distance of the summed
    kernel, and the coordinates are the leading eigenvectors of the random walk D⁻¹W on that graph
    (spectral clustering). New samples are put into the same embedding, and belong to the cluster of
    the nearest centre.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        Number of clusters. ``"auto"``: the k from 2 to 10 with the largest gap λ_k − λ_(k+1)
        between eigenvalues of the random walk on the graph of neighbours, whatever the embedding; a
        suggestion, which fails where clusters overlap, are of very different sizes or consist of
        smaller ones.
    kernels : list, default=None
        As in :class:`MKLKernelPCA`.
    embedding : {"kernel", "graph"}, default="kernel"
        What k-means reads. ``"graph"`` finds clusters of any shape, including those of a strong
        confounder.
    n_components : int or "auto", default="auto"
        Number of coordinates; ``"auto"``: of a kernel twice as many as there are clusters, since
        the leading ones may show structure of a single view; of a graph as many as there are
        clusters.
    n_neighbors : int or "auto", default="auto"
        Neighbours of a sample in the graph; ``"auto"``: log₂ of the number of samples, rounded up.
    n_init : int, default=10
        Starts of k-means, of which the best is taken.
    weights, scale, missing, normalize, approximation, rank, tol, memory_budget, device
        As in :class:`MKLKernelPCA`; `random_state` also draws the starts of k-means.
    random_state
        As in :class:`MKLKernelPCA`; `random_state` also draws the starts of k-means.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        The cluster of every training sample, from 0.
    embedding_ : ndarray of shape (n_samples, n_components)
        Their coordinates.
    silhouette_ : ndarray of shape (n_samples,)
        How much nearer, in the embedding, a sample is to its own cluster than to the next, from −1
        to 1; computed when it is read.
    cluster_centers_ : ndarray of shape (n_clusters, n_components)
        The centres of the clusters.
    n_clusters_, n_neighbors_ : int
        As given or chosen; no neighbours are found for a kernel with a given number of clusters.
    eigenvalues_ : ndarray of shape (n_components,)
        Of the summed kernel, or of the random walk, the largest first.
    weights_, view_weights_, views_, similarity_, pvalues_
        As in :class:`MKLKernelPCA`.
    kernel_names_, n_features_in_, feature_names_in_
        As in :class:`MKLClassifier`.

    References
    ----------
    Zha, He, Ding, Simon and Gu (2001), "Spectral relaxation for k-means clustering". Ng, Jordan and
    Weiss (2001), "On spectral clustering", for rows of length one. von Luxburg (2007), "A tutorial
    on spectral clustering".

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLClustering
    >>> rng = np.random.RandomState(0)
    >>> group = np.repeat([0, 1, 2], 30)
    >>> one = np.eye(3)[group] * 4 + rng.randn(90, 3)
    >>> two = rng.randn(3, 5)[group] * 3 + rng.randn(90, 5)
    >>> views = [one, two]
    >>> model = MKLClustering(3, random_state=0).fit(views)
    >>> [len(set(model.labels_[group == g])) for g in range(3)]
    [1, 1, 1]
    >>> bool((model.predict(views) == model.labels_).all())
    True
    """

    _graph: NeighborGraph | None = None

    def __init__(
        self,
        n_clusters: int | str = "auto",
        kernels: KernelsLike = None,
        *,
        embedding: str = "kernel",
        n_components: int | str = "auto",
        n_neighbors: int | str = "auto",
        n_init: int = 10,
        weights: ArrayOrTensor = "screen",
        scale: bool = True,
        missing: str | None = "neighbors",
        normalize: str | None = "centered",
        approximation: str | None = None,
        rank: int | Sequence[int] = 500,
        tol: float = 1e-10,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Seed = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernels = kernels
        self.embedding = embedding
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.n_init = n_init
        self.weights = weights
        self.scale = scale
        self.missing = missing
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("embedding", self.embedding, ("kernel", "graph"))
        check_count("n_init", self.n_init)
        for name in ("n_clusters", "n_components", "n_neighbors"):
            value = getattr(self, name)
            if isinstance(value, str):
                check_choice(name, value, ("auto",), ", or give a whole number")
            else:
                check_count(name, value)

    def _method(self) -> Method:
        return ClusterMethod(
            self._options(),
            self.weights,
            n_components=_number_unless_auto(self.n_components),
            n_clusters=_number_unless_auto(self.n_clusters),
            n_neighbors=_number_unless_auto(self.n_neighbors),
            embedding=self.embedding,
            n_init=self.n_init,
        )

    def keep(self, fit: Fit, given: FitInput) -> None:
        super().keep(fit, given)
        # Only a graph is continued by comparing new samples with those of the fit.
        self._X = given.X if self._graph is not None else None

    def embed(self, X: MatrixLike) -> Array:
        """Return the coordinates of samples in the embedding, of shape (n_samples, n_components).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples, which may lack views. By a graph, their coordinates are those of their nearest
            training samples.
        """
        new = self.read(X)
        if self._graph is None:
            return unit_rows(self.function_.outputs(new) / self.eigenvalues_**0.25)
        out = np.empty((new.shape[0], len(self._graph.values)))
        for rows in row_strips(len(out), 2**24 // len(self.labels_)):
            K = self.function_.combined(new[rows], self._X)[0]
            out[rows] = self._graph.extend(K, self.n_neighbors_)
        return out

    def predict(self, X: MatrixLike) -> NDArray[np.int32]:
        """Return the cluster of every sample, from 0: that of the nearest centre in the embedding.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples, which may lack views.
        """
        apart = ((self.embed(X)[:, np.newaxis] - self.cluster_centers_) ** 2).sum(axis=2)
        return np.asarray(apart.argmin(axis=1), dtype=np.int32)

    @property
    def silhouette_(self) -> Array:
        """The silhouette of every training sample."""
        from sklearn.metrics import silhouette_samples

        check_is_fitted(self)
        return np.asarray(silhouette_samples(self.embedding_, self.labels_))


def _number_unless_auto(value: int | str) -> int | None:
    """Return a number of clusters, components or neighbours; None where it is to be chosen."""
    return None if isinstance(value, str) else int(value)
