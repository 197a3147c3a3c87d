"""The kernel set in features: named kernels, each approximated by inner products of features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot

from kernelmosaic._checks import check_choice
from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, DType, Indices, MatrixLike, Seed
from kernelmosaic.backend import NUMPY, Backend, backend_of, row_strips, torch_backend
from kernelmosaic.gram.kernel_set import Kernels, KernelSet, PlacedSamples, Views, take_rows
from kernelmosaic.gram.normalizing import (
    CENTRED_ERROR,
    UnitTrace,
    centring_noise,
    is_constant,
    make_normalization,
    raise_of_rounding,
    warn_of_constant,
)
from kernelmosaic.gram.options import FitOptions, device_entries
from kernelmosaic.gram.row_blocks import RowSource
from kernelmosaic.gram.tuning import (
    EIGENVALUE_ROUNDING,
    LANDMARKS_FOR_FRACTION,
    LANDMARKS_PER_FEATURE,
    LEAST_LANDMARKS,
    ROUNDINGS_PER_LANDMARK,
)
from kernelmosaic.kernels.base import Block, Kernel, named
from kernelmosaic.kernels.numeric import Linear
from kernelmosaic.kernels.views import KernelSpec

#: The ways to make features.
#:
#: "leading" stands beside "nystroem" since few of its features are better: with 10 to 30 per kernel
#: it is 0.2 to 1.2 points more accurate in about the same time (multifeat, spambase and satimage,
#: means of two or three splits), and 100 of them are as accurate as 200 landmarks on satimage, in a
#: third of the time. At 100 features it gains nothing on the other two. Predictions, from 400
#: landmarks and more, take two to eleven times as long. The study of single cells uses it
#: (studies/single_cell.py).
APPROXIMATIONS = ("nystroem", "leading", "fourier")

# One kernel ---------------------------------------------------------------------------------------


class NystroemMap:
    """Z = K(X, L) K(L, L)^(−½) with landmarks L: projections onto the span of their images φ(L).

    It needs a block of the kernel alone, so it serves every kernel. With every sample as a landmark
    the features give the kernel itself.

    Parameters
    ----------
    block : ndarray of shape (r, r)
        K(L, L), normalised as later blocks will be.
    first : int
        The place of the first landmark of this kernel among the landmarks of all kernels.
    rank : int or float, optional
        The number of features that are kept, those of the largest eigenvalues of K(L, L). Or the
        fraction of its trace that may be left out. By default all are kept.
    centred : bool
        Whether to take the eigenvalues of the centred matrix: what all samples have in common is
        then no feature.

    Attributes
    ----------
    landmark_range : tuple of int
        The places of the first landmark, and after the last one.
    root : ndarray of shape (r, width)
        What blocks between samples and landmarks are multiplied by.
    width : int
        The number of features.
    """

    #: Eigenvalues of K(L, L) below this fraction of the largest are rounding.
    rounding: ClassVar[float] = EIGENVALUE_ROUNDING

    def __init__(
        self, block: Block, first: int, rank: float | None = None, centred: bool = False
    ) -> None:
        K = np.asarray(block, dtype=np.float64)
        if centred:
            K = K - K.mean(axis=0) - K.mean(axis=1, keepdims=True) + K.mean()
        eigenvalues, V = leading_eigenvectors(0.5 * (K + K.T), rank)
        precision = float(np.finfo(_floating(block)).eps)
        rounding = max(self.rounding, ROUNDINGS_PER_LANDMARK * len(K) * precision)
        keep = eigenvalues > rounding * max(float(eigenvalues[-1]), 0.0)
        if np.any(keep):
            self.root = V[:, keep] / np.sqrt(eigenvalues[keep])
        else:
            # A kernel of zeros has one feature, which is zero.
            self.root = np.zeros((len(K), 1))
        self.landmark_range = (first, first + len(K))
        self.width = self.root.shape[1]

    def project(self, block: ArrayOrTensor) -> ArrayOrTensor:
        """Return the features of samples from their block with the landmarks."""
        return block @ backend_of(block).asarray(self.root, _floating(block))


def leading_eigenvectors(K: AnyArray, rank: Any) -> tuple[AnyArray, AnyArray]:
    """Return eigenvalues in ascending order, and their eigenvectors as columns.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        A symmetric matrix.
    rank : int, float or None
        How many are returned, the largest ones; or the fraction of the trace that the smallest ones
        have, which are left out; or None for all.
    """
    n = len(K)
    if isinstance(rank, int):
        values, V = eigh(K, check_finite=False, subset_by_index=[max(n - rank, 0), n - 1])
        return values, V
    values, V = eigh(K, check_finite=False)
    first = 0
    if rank is not None:
        first = int(np.searchsorted(np.cumsum(values), rank * values.sum(), side="right"))
    first = min(first, n - 1)
    return values[first:], V[:, first:]


class ColumnsMap:
    """The columns that a linear kernel reads, which are exact, or their leading directions."""

    def __init__(self, width: int, directions: AnyArray | None = None) -> None:
        self.width = width
        self.directions = directions

    def features(self, X: MatrixLike) -> ArrayOrTensor:
        """Return the features of samples, of shape (n, width), not normalised yet.

        X is an array, a sparse matrix or a tensor.
        """
        columns = X.toarray() if hasattr(X, "toarray") else X
        if self.directions is None:
            return columns
        backend = backend_of(columns)
        return columns @ backend.asarray(self.directions, backend.dtype(columns))


class FourierMap:
    """√(a/r) (cos Xω, sin Xω) for r frequencies ω drawn from the spectrum of a kernel a · κ(x − z).

    References
    ----------
    Rahimi and Recht (2007), "Random features for large-scale kernel machines".
    """

    #: What is subtracted from every sample: cosines of large angles have few exact digits.
    center: Any = 0.0

    def __init__(
        self, kernel: Kernel, X: MatrixLike, rank: int, random: np.random.RandomState
    ) -> None:
        # Samples that are no rows of numbers form a vector; their kernels refuse to draw.
        n_columns = X.shape[-1]
        self.frequencies = kernel.draw_frequencies(n_columns, rank // 2, random)
        self.factor = float(kernel._diagonal(X[:1])[0])
        self.width = 2 * self.frequencies.shape[1]
        if isinstance(X, np.ndarray):
            self.center = X.mean(axis=0, dtype=np.float64)

    def features(self, X: MatrixLike) -> Block:
        """Return the features of samples, of shape (n, width), not normalised yet.

        X is an array, a sparse matrix or a tensor.
        """
        backend = backend_of(X)
        dtype = backend.dtype(X)
        frequencies = backend.asarray(self.frequencies, dtype)
        if sparse.issparse(X):
            # Centred samples would not be sparse: the product with the centre is subtracted.
            angles = np.asarray(safe_sparse_dot(X, frequencies, dense_output=True))
            centre = np.broadcast_to(self.center, X.shape[1:])
            angles -= np.asarray(centre @ self.frequencies, dtype=angles.dtype)
        else:
            angles = (X - backend.asarray(self.center, dtype)) @ frequencies
        Z: Block = backend.empty((len(angles), self.width), backend.dtype(angles))
        half = self.width // 2
        backend.xp.cos(angles, out=Z[:, :half])
        backend.xp.sin(angles, out=Z[:, half:])
        Z *= float(np.sqrt(self.factor / half))
        return Z


#: A map from samples as the kernel reads them to features, `width` of them.
FeatureMap = ColumnsMap | FourierMap


def explicit_map(
    approximation: str,
    kernel: Kernel,
    X: MatrixLike,
    rank: Any,
    random: np.random.RandomState,
    centred: bool = False,
) -> FeatureMap | None:
    """Return the map of a fitted kernel that needs no landmarks, or None if there is none.

    Parameters
    ----------
    approximation : str
        One of APPROXIMATIONS.
    kernel : Kernel
        The fitted kernel.
    X : array or sparse matrix
        Samples as the kernel reads them. Their columns, their mean and, for leading directions,
        their products are used.
    rank : int or float
        The number of features, see `check_ranks`.
    random : RandomState
        Draws frequencies.
    centred : bool
        Whether leading directions are those of the centred samples.
    """
    is_linear = isinstance(kernel, Linear)
    if is_linear and X.shape[1] <= rank:
        return ColumnsMap(X.shape[1])
    if approximation == "leading" and is_linear and X.shape[1] <= X.shape[0]:
        products = safe_sparse_dot(X.T, X, dense_output=True)
        squares = np.asarray(products, dtype=np.float64) / X.shape[0]
        mean = np.asarray(X.mean(axis=0)).ravel() if centred else np.zeros(X.shape[1])
        directions = leading_eigenvectors(squares - np.outer(mean, mean), rank)[1]
        return ColumnsMap(directions.shape[1], directions)
    if approximation != "fourier":
        return None
    if is_linear:
        raise ValueError(
            f"rank={rank}: approximation='fourier' keeps the {X.shape[1]} columns of a linear"
            " kernel as they are; raise the rank to their number, or use approximation='nystroem'."
        )
    if rank < 2:
        raise ValueError(f"rank={rank}: Fourier features come in pairs, so give at least 2.")
    return FourierMap(kernel, X, rank, random)


def _floating(block: Block) -> ArrayOrTensor:
    """Return the dtype of a block of floating-point numbers, and double precision for others."""
    dtype = backend_of(block).dtype(block)
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


# All kernels of a set -----------------------------------------------------------------------------


@dataclass(frozen=True)
class FeatureMaps:
    """The fitted kernels with their feature maps: K_m ≈ Z_m Z_mᵀ.

    Attributes
    ----------
    kernel_set : KernelSet
        The fitted kernels with their scales.
    maps : tuple of FeatureMap or NystroemMap
        The map of each kernel.
    landmarks : Views
        The landmarks as the kernels read them; empty if no map has any.
    centres, factors : list of ndarray, list of float
        For each kernel, what is subtracted from its features, and what they are multiplied by then.
    """

    #: How much of the training set is read.
    fit_options: ClassVar[FitOptions] = FitOptions()
    kernel_set: KernelSet
    maps: tuple[FeatureMap | NystroemMap, ...]
    landmarks: Views
    centres: list[Any]
    factors: list[float]

    @classmethod
    def fit(
        cls,
        specs: Sequence[KernelSpec],
        rows: RowSource,
        normalize: str | None,
        sample_weight: Array | None = None,
        approximation: str = "nystroem",
        rank: float | Sequence[float] = 500,
        random_state: Seed = None,
        budget: float = np.inf,
    ) -> FeatureMaps:
        """Return the feature maps of kernels that are fitted to a training set.

        Parameters
        ----------
        specs : sequence of KernelSpec
            The named kernels with their columns.
        rows : RowSource
            The training samples, which are read in blocks.
        normalize : str or None
            The rule that puts the kernels on one scale, see `make_normalization`.
        sample_weight : ndarray of shape (n,), optional
            Weights of the samples; those of weight zero are no landmarks.
        approximation : str
            One of APPROXIMATIONS.
        rank : int, float or sequence
            The number of features, for all kernels or for each, see `check_ranks`.
        random_state : int, RandomState or None
            Draws landmarks and frequencies.
        budget : float
            Bytes that the samples which kernels are fitted to may take.
        """
        make_normalization(normalize)  # raises for an unknown rule before anything is computed
        random = check_random_state(random_state)
        is_centred = normalize == "centered"

        # 1. Kernels are fitted to a random part of the samples.
        share = np.ones(rows.shape[0]) if sample_weight is None else sample_weight
        counted = np.flatnonzero(share)
        affordable_rows = max(budget / (32 * rows.row_width), cls.fit_options.least_rows)
        n_fitted = int(min(affordable_rows, cls.fit_options.most_rows))
        order = _random_order(rows, counted, random)
        fitted_rows = np.sort(order[:n_fitted])
        first_rule = "diagonal" if normalize == "diagonal" else None
        kernel_set = KernelSet.fit(specs, rows.take(fitted_rows), first_rule)
        if normalize == "trace":
            kernel_set = _unit_trace(kernel_set, rows, share)

        # 2. Landmarks. Kernels that read the same columns have landmarks of their own: similar
        # kernels on the same landmarks would span the same functions.
        check_choice("approximation", approximation, APPROXIMATIONS, ", or None for exact kernels")
        is_leading = approximation == "leading"
        ranks = sizes = check_ranks(rank, len(kernel_set), is_leading)
        if is_leading:
            sizes = [_landmarks_for(kernel_rank) for kernel_rank in ranks]
        view_numbers = [fitted_kernel.view for fitted_kernel in kernel_set.fitted]
        firsts, n_landmarks = _landmark_ranges(view_numbers, sizes, len(counted))
        # Rows of a file are read in order, and then brought into the random order again.
        landmark_rows = np.sort(order[:n_landmarks])
        sorted_landmarks = kernel_set.views(rows.take(landmark_rows))
        places = np.searchsorted(landmark_rows, order[:n_landmarks])
        landmarks = take_rows(sorted_landmarks, places)

        # 3. The maps.
        maps: list[FeatureMap | NystroemMap] = []
        for m, fitted_kernel in enumerate(kernel_set.fitted):
            with named(fitted_kernel.name):
                explicit = explicit_map(
                    approximation,
                    fitted_kernel.kernel,
                    sorted_landmarks[m],
                    ranks[m],
                    random,
                    is_centred,
                )
            if explicit is not None:
                maps.append(explicit)
                continue
            own_landmarks = slice(firsts[m], firsts[m] + sizes[m])
            view = take_rows(landmarks.take([m]), own_landmarks)
            block = next(kernel_set.take([m]).blocks(view, view, [0]))[1]
            if is_leading:
                maps.append(NystroemMap(block, firsts[m], ranks[m], is_centred))
            else:
                maps.append(NystroemMap(block, firsts[m]))
        if not _has_landmarks(maps):
            landmarks = Views()
        plain = cls(kernel_set, tuple(maps), landmarks, [0.0] * len(maps), [1.0] * len(maps))
        return plain._with_centred_features(rows, share / share.sum()) if is_centred else plain

    @property
    def names(self) -> list[str]:
        """The names of the kernels."""
        return self.kernel_set.names

    @property
    def widths(self) -> Indices:
        """The number of features of every kernel, of shape (P,)."""
        return np.array([feature_map.width for feature_map in self.maps], dtype=np.intp)

    def __len__(self) -> int:
        return len(self.maps)

    def take(self, active: Kernels) -> FeatureMaps:
        """Return the maps of these kernels, in this order."""
        maps = tuple(self.maps[m] for m in active)
        landmarks = self.landmarks.take(active) if _has_landmarks(maps) else Views()
        return FeatureMaps(
            self.kernel_set.take(active),
            maps,
            landmarks,
            [self.centres[m] for m in active],
            [self.factors[m] for m in active],
        )

    def blocks(
        self,
        X: MatrixLike,
        kernels: Kernels,
        dtype: DType = None,
        backend: Backend = NUMPY,
        landmarks: PlacedSamples | None = None,
    ) -> Iterator[tuple[int, Block]]:
        """Yield (m, features of the samples X) for these kernels, in no fixed order.

        Kernels that are functions of the same statistic share it. The backend evaluates kernels
        with a formula for its arrays; others are evaluated on the host, and their features copied.

        Parameters
        ----------
        X : array or sparse matrix
            The samples.
        kernels : sequence of int
            The kernels.
        dtype : dtype, optional
            The precision of the features; by default the one that they are computed in.
        backend : Backend
            Where to compute.
        landmarks : PlacedSamples, optional
            The result of `place_landmarks`, for callers of many blocks; by default they are placed
            here.
        """
        views = self.kernel_set.views(X)

        # 1. Maps without landmarks.
        placed_views: dict[int, Any] = {}
        nystroem: dict[int, NystroemMap] = {}
        for m in kernels:
            feature_map, view = self.maps[m], views[m]
            if isinstance(feature_map, NystroemMap):
                nystroem[m] = feature_map
                continue
            v = views.which[m]
            if v not in placed_views:
                # Sparse samples stay on the host.
                stays = backend is NUMPY or hasattr(view, "toarray")
                placed_views[v] = view if stays else backend.asarray(view)
            Z = feature_map.features(placed_views[v])
            if backend is not NUMPY:
                Z = backend.asarray(Z)
            rule = self.kernel_set.fitted[m].normalization
            scale = rule.row_scale(view)
            if scale is not None:
                scale = backend.asarray(scale)
            yield m, self._shifted_and_scaled(m, rule.features(Z, scale), dtype)
        if not nystroem:
            return

        # 2. Maps with landmarks; kernels of the same landmarks together.
        placed_landmarks = self.place_landmarks(backend) if landmarks is None else landmarks
        if placed_landmarks is None:
            return
        samples = self.kernel_set.place_samples(
            views, backend, list(nystroem), across=placed_landmarks
        )
        members_of_range: dict[tuple[int, int], list[int]] = {}
        for m, nystroem_map in nystroem.items():
            members_of_range.setdefault(nystroem_map.landmark_range, []).append(m)
        for landmark_range, members in members_of_range.items():
            range_landmarks = placed_landmarks.take(slice(*landmark_range))
            for m, block in self.kernel_set.blocks(samples, range_landmarks, members):
                yield m, self._shifted_and_scaled(m, nystroem[m].project(block), dtype)

    def place_landmarks(self, backend: Backend) -> PlacedSamples | None:
        """Return the landmarks on a backend; None if no map has any."""
        return self.kernel_set.place_samples(self.landmarks, backend) if self.landmarks else None

    def products(
        self, rows: RowSource, right: list[Array], device: str, entries: int | None = None
    ) -> Array:
        """Return Z_m right_m of every kernel, of shape (P, n, k), computed on a device.

        Parameters
        ----------
        rows : RowSource
            Samples.
        right : list of ndarray of shape (width, k)
            Coefficients, one array per kernel.
        device : str
            Where to compute.
        entries : int, optional
            Most entries of the features that are computed at once.
        """
        backend = torch_backend(device)
        landmarks = self.place_landmarks(backend)
        coefficients = [backend.asarray(kernel_right) for kernel_right in right]
        n_samples, all_kernels = rows.shape[0], range(len(self))
        out = np.empty((len(self), n_samples, right[0].shape[1]))
        width = max(rows.row_width, *map(int, self.widths), 1)
        strip_rows = (entries or device_entries(backend)) // width
        for strip in row_strips(n_samples, strip_rows):
            blocks = self.blocks(rows.take(strip), all_kernels, np.float64, backend, landmarks)
            for m, Z in blocks:
                out[m, strip] = backend.to_numpy(Z @ coefficients[m])
        return out

    def _shifted_and_scaled(self, m: int, Z: ArrayOrTensor, dtype: DType) -> ArrayOrTensor:
        """Return (Z − centre_m) · factor_m in this precision; None keeps that of Z."""
        backend, centre, factor = backend_of(Z), self.centres[m], self.factors[m]
        if factor != 1.0 or np.any(centre):
            Z = (Z - backend.asarray(centre)) * factor
        return Z if dtype is None else backend.astype(Z, dtype)

    def _with_centred_features(self, rows: RowSource, share: Array) -> FeatureMaps:
        """Return the maps with centred features whose mean square norm is one.

        Parameters
        ----------
        rows : RowSource
            The training samples.
        share : ndarray of shape (n,)
            Weights of the samples, of sum one.

        Raises
        ------
        ValueError
            If rounding leaves too few digits of a kernel that is not constant. One that is constant
            becomes zero, as exact kernels do.
        """
        # Centred on the features of the first sample before they are summed: what all samples have
        # in common would round the differences between them.
        all_kernels = range(len(self))
        first = dict(self.blocks(rows.take(slice(0, 1)), all_kernels, np.float64))
        apart = [np.zeros(width) for width in self.widths]
        squares = np.zeros(len(self))
        precision: list[Any] = [np.float64] * len(self)
        for strip in _strips(rows, int(self.widths.sum())):
            for m, Z in self.blocks(rows.take(strip), all_kernels):
                precision[m] = Z.dtype
                D = Z.astype(np.float64, copy=False) - first[m]
                apart[m] += share[strip] @ D
                squares[m] += share[strip] @ np.einsum("ij,ij->i", D, D)
        means = [first[m][0] + apart[m] for m in all_kernels]
        factors = []
        for m, mean in enumerate(means):
            trace = float(squares[m] - apart[m] @ apart[m])
            common = float(mean @ mean)
            error = self._centring_error(m, rows.shape[0], precision[m], trace, common)
            if error <= CENTRED_ERROR:
                factors.append(1.0 / np.sqrt(trace))
                continue
            factors.append(0.0)
            if self.kernel_set.fitted[m].kernel.input_kind == "numbers":
                constant = self._is_constant(m, rows)
            else:
                constant = squares[m] == 0
            if not constant:
                with named(self.names[m]):
                    raise_of_rounding()
        warn_of_constant([self.names[m] for m in all_kernels if factors[m] == 0.0])
        return replace(self, centres=means, factors=factors)

    def _is_constant(self, m: int, rows: RowSource) -> bool:
        """Return whether all samples are equal in the numbers that kernel m reads."""
        only = self.kernel_set.take([m])
        for strip in _strips(rows, 0):
            # The first sample of all is compared with those of every strip.
            strip_rows = np.append(0, np.arange(strip.start, strip.stop))
            if not is_constant(only.views(rows.take(strip_rows))[0]):
                return False
        return True

    def _centring_error(self, m: int, n: int, dtype: DType, trace: float, common: float) -> float:
        """Return the relative error that rounding causes in a centred kernel.

        Parameters
        ----------
        m : int
            The kernel.
        n : int
            The number of samples.
        dtype : dtype
            The precision of its features.
        trace : float
            The mean square norm of the centred features.
        common : float
            The square norm of the mean that was subtracted.
        """
        if trace <= 0:
            return np.inf
        ratio = (trace + common) / trace
        if not isinstance(self.maps[m], NystroemMap):
            # The features are rounded, and they are centred themselves: the root of the ratio of
            # their squares counts.
            return 2.0 * centring_noise(n, dtype) * float(np.sqrt(ratio))
        roundings = self.kernel_set.fitted[m].kernel.inner.entry_roundings(self.landmarks[m])
        return max(centring_noise(n, dtype, roundings), NystroemMap.rounding) * ratio


def _has_landmarks(maps: Sequence[FeatureMap | NystroemMap]) -> bool:
    """Return whether some map needs landmarks."""
    return any(isinstance(feature_map, NystroemMap) for feature_map in maps)


def _landmarks_for(rank: float) -> int:
    """Return the number of landmarks for this many leading features of a kernel, or a fraction.

    With as many landmarks as features, the last features would be noise.
    """
    if isinstance(rank, int):
        return max(LANDMARKS_PER_FEATURE * rank, LEAST_LANDMARKS)
    return LANDMARKS_FOR_FRACTION


def check_ranks(rank: Any, P: int, shares: bool = False) -> list[Any]:
    """Return the rank of each of the P kernels, as an int or a float.

    Parameters
    ----------
    rank : int, float or sequence
        One rank for all kernels, or a sequence with one for each.
    P : int
        The number of kernels.
    shares : bool
        Whether a rank may be the fraction of a kernel that its features may lack, below 1.

    Raises
    ------
    ValueError
        If a rank is neither a whole number of at least 1 nor such a fraction, or there are not P.
    """
    is_sequence = isinstance(rank, Sequence | np.ndarray) and not isinstance(rank, str)
    ranks = list(rank) if is_sequence else [rank] * P
    if len(ranks) != P:
        raise ValueError(
            f"rank={rank!r} has {len(ranks)} numbers, but there are {P} kernels: give one, or one"
            " each."
        )
    checked: list[Any] = []
    for kernel_rank in ranks:
        is_float = isinstance(kernel_rank, float | np.floating)
        if shares and is_float and 0.0 < kernel_rank < 1.0:
            checked.append(float(kernel_rank))
            continue
        is_number = isinstance(kernel_rank, int | np.integer) and not isinstance(kernel_rank, bool)
        if not is_number or kernel_rank < 1:
            also = ""
            if shares:
                also = ", or the share of a kernel that its features may lack, below 1"
            raise ValueError(
                f"rank={rank!r}: give a whole number of at least 1, or one a kernel{also}."
            )
        checked.append(int(kernel_rank))
    return checked


def _landmark_ranges(views: list[int], sizes: list[int], n: int) -> tuple[list[int], int]:
    """Return the place of the first landmark of each kernel, and how many landmarks there are.

    Kernels of one view have landmarks of their own; with too few samples their ranges overlap
    evenly.

    Parameters
    ----------
    views : list of int
        The number of the view of each kernel.
    sizes : list of int
        How many landmarks each kernel has.
    n : int
        The number of samples that landmarks are taken from.
    """
    firsts = []
    n_landmarks = 0
    for m, size in enumerate(sizes):
        of_view = [k for k in range(len(sizes)) if views[k] == views[m]]
        total = sum(sizes[k] for k in of_view)
        n_before = sum(sizes[k] for k in of_view if k < m)
        room = max(min(n, total) - size, 0)
        firsts.append(n_before * room // max(total - size, 1))
        n_landmarks = max(n_landmarks, min(n, total))
    return firsts, n_landmarks


def _random_order(rows: RowSource, counted: Indices, random: np.random.RandomState) -> Indices:
    """Return the counted samples in a random order of their contents, repeated ones last.

    The same samples in another order, in memory, on a disk or on other machines, thus have the same
    landmarks.
    """
    hashes = rows.content_hashes(int(random.randint(np.iinfo(np.int32).max)))
    order = counted[np.argsort(hashes[counted], kind="stable")]
    in_order = hashes[order]
    is_repeated = np.zeros(len(order), dtype=bool)
    is_repeated[1:] = in_order[1:] == in_order[:-1]
    return np.concatenate([order[~is_repeated], order[is_repeated]])


def _unit_trace(kernel_set: KernelSet, rows: RowSource, share: Array) -> KernelSet:
    """Return the kernels divided by the weighted mean of k(x, x) over all rows."""
    totals = np.zeros(len(kernel_set))
    for strip in _strips(rows, 1):
        totals += kernel_set.diagonals(kernel_set.views(rows.take(strip))) @ share[strip]
    means = totals / share.sum()
    fitted = []
    for fitted_kernel, mean in zip(kernel_set.fitted, means, strict=True):
        fitted.append(replace(fitted_kernel, normalization=UnitTrace().learn(float(mean))))
    return KernelSet(tuple(fitted))


def _strips(rows: RowSource, width: int) -> Iterator[slice]:
    """Yield strips of rows that fit the memory, with `width` numbers computed for each row."""
    row_bytes = 8 * (rows.row_width + width)
    return row_strips(rows.shape[0], FeatureMaps.fit_options.strip_bytes // row_bytes)
