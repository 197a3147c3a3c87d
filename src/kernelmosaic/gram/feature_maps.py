"""The kernel set in features: named kernels, each approximated by the inner products of a few
numbers a sample."""

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
from kernelmosaic.kernels.base import Block, Kernel, named
from kernelmosaic.kernels.numeric import Linear
from kernelmosaic.kernels.views import KernelSpec

#: "leading" stays beside "nystroem" since few of its features are better: with 10 to 30 per kernel
#: it is 0.2 to 1.2 points more accurate in about the same time (multifeat, spambase and satimage,
#: means of two or three splits), and 100 of them are as accurate as 200 landmarks on satimage, in a
#: third of the time. At 100 features it gains nothing on the other two. Predictions, from 400
#: landmarks and more, take two to eleven times as long. The study of single cells uses it
#: (studies/single_cell.py).
APPROXIMATIONS = ("nystroem", "leading", "fourier")

# One kernel ---------------------------------------------------------------------------------------


class NystroemMap:
    """Z = K(X, L) K(L, L)^(−½) with landmarks L: the projection onto the span of their images in
    feature space.

    What it needs of the samples is a block of the kernel, so it serves every kernel there is. With
    every sample for a landmark the features give the kernel itself.

    Parameters
    ----------
    block : ndarray of shape (r, r)
        K(L, L), normalised as later blocks will be.
    first : int
        Where L begin among the landmarks of all kernels; `own` is from where to where they are.
    rank : int or float, optional
        Of the features, those of so many largest eigenvalues of K(L, L) are kept; or as many as
        leave at most this share of its trace out. By default all are.
    centred : bool
        Whether these are eigenvalues of the centred matrix: what all samples have in common is then
        no feature.
    """

    #: Eigenvalues of K(L, L) below this share of the largest, and below four roundings of its
    #: numbers a landmark, are rounding.
    rounding: ClassVar[float] = 1e-12

    def __init__(
        self, block: Block, first: int, rank: float | None = None, centred: bool = False
    ) -> None:
        K = np.asarray(block, dtype=np.float64)
        K = K - K.mean(axis=0) - K.mean(axis=1, keepdims=True) + K.mean() if centred else K
        eigenvalues, V = leading_eigenvectors(0.5 * (K + K.T), rank)
        rounding = max(self.rounding, 4.0 * len(K) * float(np.finfo(_floating(block)).eps))
        keep = eigenvalues > rounding * max(float(eigenvalues[-1]), 0.0)
        # A kernel of zeros has one feature, which is zero.
        self.root = (
            V[:, keep] / np.sqrt(eigenvalues[keep]) if np.any(keep) else np.zeros((len(K), 1))
        )
        self.own, self.width = (first, first + len(K)), self.root.shape[1]

    def project(self, block: ArrayOrTensor) -> ArrayOrTensor:
        """Return the features of samples from their block with the landmarks."""
        return block @ backend_of(block).asarray(self.root, _floating(block))


def leading_eigenvectors(K: AnyArray, rank: Any) -> tuple[AnyArray, AnyArray]:
    """Return eigenvalues, ascending, and eigenvectors: all, the `rank` largest, or those but a
    share of the trace."""
    n = len(K)
    if isinstance(rank, int):
        values, V = eigh(K, check_finite=False, subset_by_index=[max(n - rank, 0), n - 1])
        return values, V
    values, V = eigh(K, check_finite=False)
    first = (
        0
        if rank is None
        else int(np.searchsorted(np.cumsum(values), rank * values.sum(), side="right"))
    )
    return values[min(first, n - 1) :], V[:, min(first, n - 1) :]


class ColumnsMap:
    """The linear kernel's own columns, which are exact, or the directions in which they are
    largest."""

    def __init__(self, width: int, directions: AnyArray | None = None) -> None:
        self.width, self.directions = width, directions

    def features(self, X: MatrixLike) -> ArrayOrTensor:
        """Return the features of samples, (n, width), not normalised yet; X is an array, sparse or
        a tensor."""
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

    #: What is subtracted from every sample: angles far from zero have few digits left.
    center: Any = 0.0

    def __init__(
        self, kernel: Kernel, X: MatrixLike, rank: int, random: np.random.RandomState
    ) -> None:
        self.frequencies = kernel.draw_frequencies(X.shape[1], rank // 2, random)
        self.factor = float(kernel._diagonal(X[:1])[0])
        self.width = 2 * self.frequencies.shape[1]
        if isinstance(X, np.ndarray):
            self.center = X.mean(axis=0, dtype=np.float64)

    def features(self, X: MatrixLike) -> Block:
        """Return the same as of `ColumnsMap`."""
        backend = backend_of(X)
        dtype = backend.dtype(X)
        frequencies = backend.asarray(self.frequencies, dtype)
        if sparse.issparse(X):
            angles = np.asarray(safe_sparse_dot(X, frequencies, dense_output=True))
            angles -= np.asarray(
                np.broadcast_to(self.center, X.shape[1:]) @ self.frequencies, dtype=angles.dtype
            )
        else:
            angles = (X - backend.asarray(self.center, dtype)) @ frequencies
        Z: Block = backend.empty((len(angles), self.width), backend.dtype(angles))
        half = self.width // 2
        backend.xp.cos(angles, out=Z[:, :half])
        backend.xp.sin(angles, out=Z[:, half:])
        Z *= float(np.sqrt(self.factor / half))
        return Z


#: From samples as the kernel reads them to features, `width` of them.
FeatureMap = ColumnsMap | FourierMap


def explicit_map(
    approximation: str,
    kernel: Kernel,
    X: MatrixLike,
    rank: Any,
    random: np.random.RandomState,
    centred: bool = False,
) -> FeatureMap | None:
    """Return the map of a fitted kernel that needs no landmarks, None if the kernel has none.

    `X` are samples as the kernel sees them, of which the number of columns and the mean count.
    """
    if isinstance(kernel, Linear) and X.shape[1] <= rank:
        return ColumnsMap(X.shape[1])
    if approximation == "leading" and isinstance(kernel, Linear) and X.shape[1] <= X.shape[0]:
        squares = (
            np.asarray(safe_sparse_dot(X.T, X, dense_output=True), dtype=np.float64) / X.shape[0]
        )
        mean = np.asarray(X.mean(axis=0)).ravel() if centred else np.zeros(X.shape[1])
        directions = leading_eigenvectors(squares - np.outer(mean, mean), rank)[1]
        return ColumnsMap(directions.shape[1], directions)
    if approximation != "fourier":
        return None
    if isinstance(kernel, Linear):
        raise ValueError(
            f"rank={rank}: approximation='fourier' keeps the {X.shape[1]} columns of a linear"
            " kernel as they are; raise the rank to their number, or use approximation='nystroem'."
        )
    if rank < 2:
        raise ValueError(f"rank={rank}: Fourier features come in pairs, so give at least 2.")
    return FourierMap(kernel, X, rank, random)


def _floating(block: Block) -> ArrayOrTensor:
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
        One a kernel.
    landmarks : Views
        The landmarks as the kernels read them.
    centres, factors : list of ndarray, list of float
        What is taken off the features, and what they are multiplied with then.
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
        """Fit the kernels and learn their features and scales, reading the samples in blocks within
        the budget."""
        make_normalization(normalize)
        random, centred = check_random_state(random_state), normalize == "centered"
        share = np.ones(rows.shape[0]) if sample_weight is None else sample_weight
        counted = np.flatnonzero(share)
        looked_at = min(
            max(budget / (32 * rows.row_width), cls.fit_options.least_rows),
            cls.fit_options.most_rows,
        )
        order = _random_order(rows, counted, random)
        looked_at_rows = np.sort(order[: int(looked_at)])
        kernel_set = KernelSet.fit(
            specs, rows.take(looked_at_rows), "diagonal" if normalize == "diagonal" else None
        )
        if normalize == "trace":
            kernel_set = _unit_trace(kernel_set, rows, share)
        check_choice("approximation", approximation, APPROXIMATIONS, ", or None for exact kernels")
        ranks = sizes = check_ranks(rank, len(kernel_set), approximation == "leading")
        if (
            approximation == "leading"
        ):  # with as many landmarks as features, the last features would be noise
            sizes = [max(4 * one, 400) if isinstance(one, int) else 500 for one in ranks]
        # Kernels that see the same columns have landmarks of their own: kernels alike span the same
        # functions else.
        firsts, count = _apart([one.view for one in kernel_set.fitted], sizes, len(counted))
        landmark_rows = np.sort(order[:count])
        landmarks = kernel_set.views(rows.take(landmark_rows))
        shuffled = take_rows(landmarks, np.searchsorted(landmark_rows, order[:count]))
        maps: list[FeatureMap | NystroemMap] = []
        for m, one in enumerate(kernel_set.fitted):
            with named(one.name):
                explicit = explicit_map(
                    approximation, one.kernel, landmarks[m], ranks[m], random, centred
                )
            if explicit is not None:
                maps.append(explicit)
                continue
            view = take_rows(shuffled.take([m]), slice(firsts[m], firsts[m] + sizes[m]))
            block = next(kernel_set.take([m]).blocks(view, view, [0]))[1]
            kept = (ranks[m], centred) if approximation == "leading" else ()
            maps.append(NystroemMap(block, firsts[m], *kept))
        landmarks = shuffled if any(isinstance(one, NystroemMap) for one in maps) else Views()
        plain = cls(kernel_set, tuple(maps), landmarks, [0.0] * len(maps), [1.0] * len(maps))
        return plain._centred(rows, share / share.sum()) if centred else plain

    @property
    def names(self) -> list[str]:
        return self.kernel_set.names

    @property
    def widths(self) -> Indices:
        """The number of features of every kernel."""
        return np.array([one.width for one in self.maps], dtype=np.intp)

    def __len__(self) -> int:
        return len(self.maps)

    def take(self, active: Kernels) -> FeatureMaps:
        """Keep only these kernels, in this order."""
        kernel_set = self.kernel_set.take(active)
        maps = tuple(self.maps[m] for m in active)
        needs = any(isinstance(one, NystroemMap) for one in maps)
        landmarks = self.landmarks.take(active) if needs else Views()
        return FeatureMaps(
            kernel_set,
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
        """Yield (m, features of the samples X) for each given m; kernels of one statistic share it.

        A backend evaluates what has a formula for its arrays; the rest is evaluated on the host,
        and copied. The landmarks are what `place_landmarks` returns: a caller of many blocks places
        them once.
        """
        views = self.kernel_set.views(X)
        placed: dict[int, Any] = {}
        nystroem: dict[int, NystroemMap] = {}
        for m in kernels:
            one, view = self.maps[m], views[m]
            if isinstance(one, NystroemMap):
                nystroem[m] = one
                continue
            v = views.which[m]
            if v not in placed:
                # Sparse samples stay on the host.
                placed[v] = (
                    view if backend is NUMPY or hasattr(view, "toarray") else backend.asarray(view)
                )
            Z = one.features(placed[v])
            rule = self.kernel_set.fitted[m].normalization
            scale = rule.row_scale(view)
            scaled = rule.features(
                Z if backend is NUMPY else backend.asarray(Z),
                None if scale is None else backend.asarray(scale),
            )
            yield m, self._finish(m, scaled, dtype)
        known = self.place_landmarks(backend) if landmarks is None and nystroem else landmarks
        if known is None or not nystroem:
            return
        samples = self.kernel_set.samples(views, backend, list(nystroem), across=known)
        for own in dict.fromkeys(one.own for one in nystroem.values()):
            members = [m for m, one in nystroem.items() if one.own == own]
            for m, block in self.kernel_set.blocks(samples, known.take(slice(*own)), members):
                yield m, self._finish(m, nystroem[m].project(block), dtype)

    def place_landmarks(self, backend: Backend) -> PlacedSamples | None:
        """Return the landmarks on a backend; None where no map has any."""
        return self.kernel_set.samples(self.landmarks, backend) if self.landmarks else None

    def products(
        self, rows: RowSource, right: list[Array], device: str, entries: int | None = None
    ) -> Array:
        """Return Z_m right_m of every kernel, of shape (P, n, k), computed on a device.

        Parameters
        ----------
        rows : RowSource
            Samples.
        right : list of ndarray of shape (features, k)
            Coefficients, one array per kernel.
        device : str
            Where to compute.
        entries : int, optional
            Of the features worked on at once.
        """
        backend = torch_backend(device)
        landmarks, coefficients = (
            self.place_landmarks(backend),
            [backend.asarray(one) for one in right],
        )
        out = np.empty((len(self), rows.shape[0], right[0].shape[1]))
        width = max(rows.row_width, *map(int, self.widths), 1)
        for strip in row_strips(rows.shape[0], (entries or device_entries(backend)) // width):
            for m, Z in self.blocks(
                rows.take(strip), range(len(self)), np.float64, backend, landmarks
            ):
                out[m, strip] = backend.to_numpy(Z @ coefficients[m])
        return out

    def _finish(self, m: int, Z: ArrayOrTensor, dtype: DType) -> ArrayOrTensor:
        """Take the centre off the features and scale them, in the given precision."""
        backend, centre, factor = backend_of(Z), self.centres[m], self.factors[m]
        if factor != 1.0 or np.any(centre):
            Z = (Z - backend.asarray(centre)) * factor
        return Z if dtype is None else backend.astype(Z, dtype)

    def _centred(self, rows: RowSource, share: Array) -> FeatureMaps:
        """Take the mean off the features, and give what is left a mean square norm of one."""
        # Off the first sample's features first: what all have in common would round what they have
        # not.
        first = dict(self.blocks(rows.take(slice(0, 1)), range(len(self)), np.float64))
        apart = [np.zeros(width) for width in self.widths]
        squares = np.zeros(len(self))
        precision: list[Any] = [np.float64] * len(self)
        for strip in _strips(rows, int(self.widths.sum())):
            for m, Z in self.blocks(rows.take(strip), range(len(self))):
                precision[m] = Z.dtype
                D = Z.astype(np.float64, copy=False) - first[m]
                apart[m] += share[strip] @ D
                squares[m] += share[strip] @ np.einsum("ij,ij->i", D, D)
        means = [first[m][0] + apart[m] for m in range(len(self))]
        factors, numbers = (
            [],
            [one.kernel.input_kind == "numbers" for one in self.kernel_set.fitted],
        )
        for m, mean in enumerate(means):
            trace = float(squares[m] - apart[m] @ apart[m])
            kept = (
                self._centring_error(m, rows.shape[0], precision[m], trace, float(mean @ mean))
                <= CENTRED_ERROR
            )
            factors.append(1.0 / np.sqrt(trace) if kept else 0.0)
            # As of exact kernels, one that is constant becomes zero.
            if not kept and not (self._is_constant(m, rows) if numbers[m] else squares[m] == 0):
                with named(self.names[m]):
                    raise_of_rounding()
        warn_of_constant(
            [name for name, factor in zip(self.names, factors, strict=True) if factor == 0.0]
        )
        return replace(self, centres=means, factors=factors)

    def _is_constant(self, m: int, rows: RowSource) -> bool:
        """Whether all samples are equal in what a kernel of numbers reads."""
        only = self.kernel_set.take([m])
        strips = (np.append(0, np.arange(strip.start, strip.stop)) for strip in _strips(rows, 0))
        return all(is_constant(only.views(rows.take(strip))[0]) for strip in strips)

    def _centring_error(self, m: int, n: int, dtype: DType, trace: float, common: float) -> float:
        """Return the relative error of centred features with this mean square norm, `common` having
        been taken off."""
        if trace <= 0:
            return np.inf
        share = (trace + common) / trace
        if not isinstance(self.maps[m], NystroemMap):
            # Rounded are the features, which are centred themselves, and not their squares.
            return 2.0 * centring_noise(n, dtype) * float(np.sqrt(share))
        roundings = self.kernel_set.fitted[m].kernel.inner.entry_roundings(self.landmarks[m])
        return max(centring_noise(n, dtype, roundings), NystroemMap.rounding) * share


def check_ranks(rank: Any, P: int, shares: bool = False) -> list[Any]:
    """Return the rank of each of the P kernels, or raise saying what a rank is; `shares` are
    numbers below 1."""
    ranks = (
        list(rank)
        if isinstance(rank, Sequence | np.ndarray) and not isinstance(rank, str)
        else [rank] * P
    )
    if len(ranks) != P:
        raise ValueError(
            f"rank={rank!r} has {len(ranks)} numbers, but there are {P} kernels: give one, or one"
            " each."
        )
    for one in ranks:
        if shares and isinstance(one, float | np.floating) and 0.0 < one < 1.0:
            continue
        if isinstance(one, bool) or not isinstance(one, int | np.integer) or one < 1:
            also = (
                ", or the share of a kernel that its features may lack, below 1" if shares else ""
            )
            raise ValueError(
                f"rank={rank!r}: give a whole number of at least 1, or one a kernel{also}."
            )
    return [float(one) if isinstance(one, float | np.floating) else int(one) for one in ranks]


def _apart(views: list[int], ranks: list[int], n: int) -> tuple[list[int], int]:
    """Return where each kernel's landmarks begin, and how many are needed; with too few samples
    they overlap."""
    firsts, count = [], 0
    for m, rank in enumerate(ranks):
        alike = [k for k in range(len(ranks)) if views[k] == views[m]]
        before, total = sum(ranks[k] for k in alike if k < m), sum(ranks[k] for k in alike)
        room = max(min(n, total) - rank, 0)
        firsts.append(before * room // max(total - rank, 1))
        count = max(count, min(n, total))
    return firsts, count


def _random_order(rows: RowSource, counted: Indices, random: np.random.RandomState) -> Indices:
    """Return the samples that count in a random order of their contents, repeated ones last.

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
    """Return the kernels on the scale of a unit trace, over all rows."""
    totals = np.zeros(len(kernel_set))
    for strip in _strips(rows, 1):
        totals += kernel_set.diagonals(kernel_set.views(rows.take(strip))) @ share[strip]
    means = zip(kernel_set.fitted, totals / share.sum(), strict=True)
    return KernelSet(
        tuple(replace(one, normalization=UnitTrace().learn(float(mean))) for one, mean in means)
    )


def _strips(rows: RowSource, width: int) -> Iterator[slice]:
    return row_strips(
        rows.shape[0], FeatureMaps.fit_options.strip_bytes // (8 * (rows.row_width + width))
    )
