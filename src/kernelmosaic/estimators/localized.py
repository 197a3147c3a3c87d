"""Localized multiple kernel learning: one gate per kernel, as a function of the sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import TransformerMixin, clone
from sklearn.utils import Tags, TransformerTags, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._typing import AnyArray, Estimator, MatrixLike, Seed, TargetLike
from kernelmosaic.backend import allowed_threads, map_threads, row_strips
from kernelmosaic.estimators._base import BaseMKL, parameters
from kernelmosaic.estimators._input import DistinctSamples, FitInput
from kernelmosaic.estimators._path import PathRule, accuracy
from kernelmosaic.estimators._training_set import ExactSet, TrainingSet
from kernelmosaic.estimators.classifier import MKLClassifier
from kernelmosaic.estimators.one_class import MKLOneClass
from kernelmosaic.estimators.regressor import MKLRegressor
from kernelmosaic.gating import Constant, make_gating
from kernelmosaic.gram.kernel_set import in_double
from kernelmosaic.gram.missing import GATED, MissingViews
from kernelmosaic.gram.row_blocks import RowSource
from kernelmosaic.kernels.base import Kernel, suggest_kernel
from kernelmosaic.kernels.linear import Linear
from kernelmosaic.kernels.transformed import Projected
from kernelmosaic.kernels.views import Entry, lay_specs, take_columns
from kernelmosaic.learning import Parameters
from kernelmosaic.learning.gated import GateLearner, LearnedGates, projected_kernels
from kernelmosaic.learning.problem import ROUNDING
from kernelmosaic.learning.steps import make_step
from kernelmosaic.machines import Machine
from kernelmosaic.machines.base import check_count, check_positive

Array = NDArray[np.float64]


# What gates read -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelSpace:
    """Coordinates along the leading principal components of the training set in a kernel's feature space.

    Attributes
    ----------
    kernel : Kernel
        Fitted.
    samples : array
        The training set as the kernel reads it.
    directions : ndarray of shape (n, components)
        What turns centred similarities to the training set into coordinates.
    means : ndarray of shape (n,)
        Mean similarity of each training sample to the training set.
    share : ndarray of shape (n,)
        Weights of the training samples in that mean, summing to one.
    """

    kernel: Kernel
    samples: MatrixLike
    directions: Array
    means: Array
    share: Array

    @classmethod
    def fit(cls, kernel: Kernel, view: MatrixLike, weight: Array) -> KernelSpace:
        """Keep at most 20 components, of at least a millionth of the largest variance."""
        kernel = clone(kernel).fit(view)
        X = kernel.validate(view)
        share = weight / weight.sum()
        K = np.asarray(kernel._block(X, X), dtype=np.float64)
        means = K @ share
        root = np.sqrt(share)
        C = root[:, np.newaxis] * (K - means[:, np.newaxis] - means + share @ means) * root
        variances, U = np.linalg.eigh(0.5 * (C + C.T))
        kept = np.flatnonzero(variances > 1e-6 * max(variances[-1], 0.0))[::-1][:20]
        variances, U = variances[kept], U[:, kept]
        U = U * np.sign(U[np.abs(U).argmax(axis=0), np.arange(len(kept))])
        return cls(kernel, X, root[:, np.newaxis] * U / np.sqrt(variances), means, share)

    def coordinates(self, view: MatrixLike) -> Array:
        K = np.asarray(self.kernel._block(self.kernel.validate(view), self.samples), dtype=np.float64)
        centred = K - (K @ self.share)[:, np.newaxis] - self.means + self.share @ self.means
        return np.asarray(centred @ self.directions)


@dataclass(frozen=True)
class GateInputs:
    """From samples to the standardised inputs of the gates.

    Attributes
    ----------
    columns : ndarray or None
        The columns read; None for all.
    space : KernelSpace or None
        The kernel's space, if gates live in one.
    mean, scale : ndarray of shape (n_features,)
        Inputs are (x − mean) / scale.
    blind : bool
        Whether the gates read nothing.
    """

    columns: NDArray[np.intp] | None
    space: KernelSpace | None
    mean: Array
    scale: Array
    blind: bool = False

    @classmethod
    def none(cls) -> GateInputs:
        """For gates that do not depend on the sample."""
        return cls(None, None, np.zeros(0), np.ones(0), True)

    @classmethod
    def fit(
        cls,
        X: MatrixLike,
        table: Any,
        columns: Any,
        kernel: Kernel | None,
        weight: Array,
        random_state: Seed = None,
        standardize: bool = True,
        space_rows: int = 1000,
        strip_bytes: int = 2**22,
    ) -> GateInputs:
        """Learn the scale, or leave the inputs as they are; `table` has the names of X's columns.

        Samples in a RowSource are read in strips of about `strip_bytes`, and a kernel's space is learned from at most
        `space_rows` of them, drawn by `random_state`.
        """
        try:
            spec = lay_specs([Entry("gating", Linear() if kernel is None else kernel, columns)], table)[0]
        except ValueError as error:
            raise ValueError(f"gating_columns={columns!r}: {error}") from error
        if kernel is not None:
            X, weight = _some(X, weight, random_state, space_rows)
            view = in_double(take_columns(X, spec.columns))
            space = KernelSpace.fit(kernel, view, weight)
            Z = space.coordinates(view)
            if not standardize:
                return cls(spec.columns, space, np.zeros(Z.shape[1]), np.ones(Z.shape[1]))
            # One scale for all coordinates: the leading ones shall weigh more, as they do in the kernel's space.
            leading = float(np.sqrt(np.average(Z[:, 0] ** 2, weights=weight))) if Z.shape[1] else 1.0
            return cls(spec.columns, space, np.zeros(Z.shape[1]), np.full(Z.shape[1], leading or 1.0))
        dense = np.concatenate([_numbers(view) for view in _views(X, spec.columns, strip_bytes)])
        if not standardize:
            return cls(spec.columns, None, np.zeros(dense.shape[1]), np.ones(dense.shape[1]))
        mean = np.average(dense, axis=0, weights=weight)
        spread = np.sqrt([np.average((x - m) ** 2, weights=weight) for x, m in zip(dense.T, mean, strict=True)])
        # A column that does not vary is left out by a scale of one: it is zero after centring, up to rounding.
        flat = spread <= 1e-12 * np.maximum(np.abs(mean), 1e-300)
        return cls(spec.columns, None, mean, np.where(flat, 1.0, spread))

    def __call__(self, X: MatrixLike, strip_bytes: int = 2**22) -> Array:
        """Return the standardised inputs, of shape (n, n_features)."""
        if self.blind:
            return np.zeros((X.shape[0], 0))
        read = _numbers if self.space is None else self.space.coordinates
        return np.concatenate([(read(view) - self.mean) / self.scale for view in _views(X, self.columns, strip_bytes)])


def _views(X: MatrixLike, columns: NDArray[np.intp] | None, strip_bytes: int) -> Iterator[Any]:
    """Yield the columns that gates read, a strip of samples at a time where those need not be in memory."""
    if not isinstance(X, RowSource):
        yield in_double(take_columns(X, columns))
        return
    for strip in row_strips(X.shape[0], strip_bytes // (8 * X.row_width)):
        yield in_double(take_columns(X.take(strip), columns))


def _some(X: MatrixLike, weight: Array, random_state: Seed, most: int) -> tuple[Any, Array]:
    """Return the samples to learn a kernel's space from, with their weights."""
    if not isinstance(X, RowSource):
        return X, weight
    counted = np.flatnonzero(weight)
    if len(counted) > most:
        counted = np.sort(check_random_state(random_state).choice(counted, most, replace=False))
    return X.take(counted), weight[counted]


def _numbers(view: MatrixLike) -> Array:
    """Return the columns as a dense matrix of finite numbers, or raise saying what gates can read instead."""
    dense = view.toarray() if sparse.issparse(view) else view
    try:
        numbers = np.asarray(dense, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            "gates read numbers, and these columns are not: name numeric gating_columns, or give a gating_kernel."
        ) from None
    if not np.all(np.isfinite(numbers)):
        raise ValueError("gates read finite numbers: the gating columns hold NaN or infinity.")
    return numbers


# Gates that are learned ----------------------------------------------------------------------------------------------


def _best_start(starts: Sequence[LearnedGates], weight: Array) -> LearnedGates:
    """Return the best, its weights being the gates' means over the samples that count; n_solves counts all starts."""
    best = min(starts, key=lambda one: one.objective)
    mean = np.average(best.gates, axis=0, weights=weight)
    return replace(best, weights=mean, n_solves=sum(one.n_solves for one in starts))


def _column_means(X: MatrixLike) -> Array | None:
    """Return the means of the columns over the samples that have them; None where they are not numbers."""
    if not isinstance(X, np.ndarray) or X.dtype.kind != "f":
        return None
    present = ~np.isnan(X)
    return np.asarray(np.where(present, X, 0.0).sum(axis=0) / np.maximum(present.sum(axis=0), 1))


def has_projections(estimator: Estimator) -> bool:
    """Whether some kernel of the estimator is a projected one."""
    return any(isinstance(entry.kernel, Projected) for entry in estimator._read_kernels())


def has_learned_projections(estimator: Estimator) -> bool:
    """The same of the kernels that were fitted, whatever the parameters say now; of the parameters before a fit."""
    if not hasattr(estimator, "_expansions"):
        return has_projections(estimator)
    mosaics = (getattr(one.kernel_set, "kernel_set", one.kernel_set) for one in estimator._expansions)
    return any(projected_kernels(kernel_set) for kernel_set in mosaics)


class ProjectedSamples(TransformerMixin):
    """The methods of a transformer, in the containers `set_output` asks for.

    Localized estimators take them over one by one, each available only if there is a projected kernel; scikit-learn
    wraps them where they are defined, and would not leave a method that need not be there as it is.
    """

    def transform(self: Any, X: MatrixLike) -> MatrixLike:
        """Return the samples in the learned projections, side by side in the order of the kernels (and classes).

        Only estimators with a :class:`~kernelmosaic.kernels.Projected` kernel have this method.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_components), or a data frame if ``set_output`` asked for one
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        every = [expansion.kernel_set.views(X) for expansion in self._expansions]
        return np.hstack([kernel.transform(every[c][m]) for c, m, kernel in _learned(self)])

    def get_feature_names_out(self: Any, input_features: Any = None) -> AnyArray:
        """Return the names of the columns of :meth:`transform`: the kernel's, after the class's if each has its own.

        Parameters
        ----------
        input_features : ignored
            Every projection reads all columns of its kernel.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        names = []
        for c, m, kernel in _learned(self):
            owner = f"{self.classes_[c]}_" if len(self._expansions) > 1 else ""
            names += [f"{owner}{self.kernel_names_[m]}_{k}" for k in range(kernel.W_.shape[1])]
        return np.array(names, dtype=object)


def _learned(estimator: Estimator) -> Iterator[tuple[int, int, Projected]]:
    """Yield (class, number among the kernels, kernel) of every learned projection."""
    for c, expansion in enumerate(estimator._expansions):
        for m in projected_kernels(expansion.kernel_set):
            yield c, m, expansion.kernel_set.fitted[m].kernel


# The methods of a transformer are wrapped already, and not all estimators have them.
@parameters
class BaseLocalized(TransformerMixin, BaseMKL, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """One gate per kernel, as a function of the sample, with the machine that a subclass names."""

    _: KW_ONLY
    gating: Any = "softmax"
    gating_columns: Any = None
    gating_kernel: Any = None
    step: Any = "armijo"
    n_init: int = 3
    slack: int = 1
    n_iter_no_change: int = 3
    n_jobs: int | None = None
    random_state: Seed = 0

    _first_iteration = 0
    # Of the columns of the training samples, where these may lack views.
    _means: Array | None = None
    _takes_subsets = False
    # The gate of a view that a sample lacks is zero.
    missing: ClassVar[str] = GATED  # type: ignore[misc]
    # Gates stand in the place of weights.
    norm: ClassVar[Any] = None
    l1_ratio: ClassVar[Any] = None  # type: ignore[misc]
    weights: ClassVar[Any] = None  # type: ignore[misc]
    fixed_weights: ClassVar[None] = None  # type: ignore[misc]
    penalties: ClassVar[Any] = None
    penalty_power: ClassVar[Any] = None
    solver: ClassVar[Any] = None
    _has_plain_outputs = False
    _has_plain_function = False

    def _host_samples(self) -> int:
        return 3000

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("n_init", "n_iter_no_change", "max_iter"):
            check_count(name, getattr(self, name))
        make_step(self.step)
        if self.approximation is not None and has_projections(self):
            raise ValueError(
                f"approximation={self.approximation!r}: projections are learned with exact kernels only; use "
                "approximation=None, or kernels that are not Projected."
            )
        if self.gating_kernel is not None and not isinstance(self.gating_kernel, Kernel):
            raise TypeError(
                f"gating_kernel={self.gating_kernel!r}: give a kernel or None; {suggest_kernel(self.gating_kernel)}"
            )

    def _training_set(self, given: FitInput, counted: DistinctSamples) -> TrainingSet:
        if given.device is not None and has_projections(self):
            raise ValueError(f"device={given.device!r}: projected kernels are learned on the host; use device=None.")
        return super()._training_set(given, counted)

    def _gate_inputs(self, data: TrainingSet) -> GateInputs:
        gating = make_gating(self.gating)
        if isinstance(gating, Constant):
            return GateInputs.none()
        kinds = set(super()._kernels_take("input_kind"))
        if self.gating_kernel is None and self.gating_columns is None and kinds != {"numbers"}:
            raise ValueError(
                f"gating: the kernels read {' and '.join(sorted(kinds))}, which gates cannot; give a gating_kernel to "
                "gate in its space, or name numeric gating_columns."
            )
        return GateInputs.fit(
            self._filled(data.samples, getattr(data, "missing", None)),
            data.table,
            self.gating_columns,
            self.gating_kernel,
            data.weight,
            self.random_state,
            gating.standardize,
        )

    def _learn(
        self, data: TrainingSet, machines: list[Machine], parameters: Parameters
    ) -> tuple[list[Any], str | None]:
        """Learn every machine's gates from `n_init` random starts, side by side, and keep the best of each."""
        missing: MissingViews | None = getattr(data, "missing", None)
        present: Any = getattr(data, "present", None)
        self._means = None if missing is None else _column_means(data.samples)
        self._inputs = self._gate_inputs(data)
        Z = self._inputs(self._filled(data.samples, missing))
        learner = GateLearner(
            make_gating(self.gating),
            self.step,
            self.tol,
            int(self.max_iter),
            bool(self.verbose),
            int(self.n_iter_no_change),
        )
        seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=int(self.n_init))
        projected = isinstance(data, ExactSet) and bool(projected_kernels(data.kernel_set))
        if projected and present is not None:
            raise ValueError("X lacks views of some samples, and projected kernels are learned from all of them.")
        shared = None if projected else data.stack

        def attempt(machine: Machine, seed: int) -> LearnedGates:
            own = data.projections() if isinstance(data, ExactSet) and projected else None
            stack = shared if own is None else own.stack
            assert stack is not None
            found = learner.learn(stack, machine, Z, np.random.RandomState(seed), own)
            return found if present is None else replace(found, gates=found.gates * present)

        tasks = [(machine, seed) for machine in machines for seed in seeds]
        with data.threads():
            found = map_threads(lambda task: attempt(*task), tasks, self._workers(data, allowed_threads()))
        starts = [found[i : i + len(seeds)] for i in range(0, len(found), len(seeds))]
        learned = [_best_start(group, data.weight) for group in starts]
        if not projected:
            each = zip(machines, learned, strict=True)
            learned = [one.certified(data.stack, data.sizes(), machine, learner) for machine, one in each]
        gap = max(one.gap for one in learned)
        if gap > self.tol:
            return learned, (
                f" stopped at a relative duality gap of {gap:.2g} of the machine under its gates, above "
                f"tol={self.tol:g}: {ROUNDING}"
            )
        if all(one.converged for one in learned):
            return learned, None
        return learned, (
            f": after max_iter={self.max_iter} iterations the objective still fell by more than tol={self.tol:g} of "
            "itself each time; raise max_iter, or accept a larger tol."
        )

    def _set_function(self, data: TrainingSet, learned: list[Any], beta: Array, support: NDArray[np.intp]) -> None:
        self._gating, self._V = make_gating(self.gating), [one.V for one in learned]
        units = [self._gating.in_user_units(V, self._inputs.mean, self._inputs.scale) for V in self._V]
        self.gating_params_ = units[0] if len(units) == 1 else units
        # One expansion for all machines; one each where they have learned projections of their own.
        machines = [(np.atleast_2d(one.solution.beta.T), one.gates) for one in learned]
        own = [
            data.gated_expansion([machine], support, one.kernel_set)
            for machine, one in zip(machines, learned, strict=True)
            if one.kernel_set is not None
        ]
        self._expansion = data.gated_expansion(machines, support)
        self._expansions = own or [self._expansion]

    # Samples in ----------------------------------------------------------------------------------------------------

    def _kernels_take(self, trait: str, X: MatrixLike = None) -> list[Any]:
        traits = super()._kernels_take(trait, X)
        return [*traits, getattr(self.gating_kernel, trait)] if isinstance(self.gating_kernel, Kernel) else traits

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        try:
            tags.transformer_tags = TransformerTags() if has_learned_projections(self) else None
        except (TypeError, ValueError):
            tags.transformer_tags = None
        return tags

    # Predictions out -----------------------------------------------------------------------------------------------

    def _gates(self, X: MatrixLike) -> Array:
        """Return the gates of validated samples, of shape (machines, n, P); classes of a joint machine share them."""
        missing = getattr(self._expansion.sums, "missing", None)
        Z = self._inputs(self._filled(X, missing))
        gates = np.array([self._gating.values(V, Z) for V in self._V])
        present = None if missing is None else missing.present_in(X)
        return gates if present is None else gates * present

    def _filled(self, X: MatrixLike, missing: MissingViews | None) -> MatrixLike:
        """Return samples as gates read them: with the training set's means for views that they lack."""
        present = None if missing is None else missing.present_in(X)
        if missing is None or present is None:
            return X
        if self._means is None:
            raise ValueError("X lacks views of some samples: gates then read tables of numbers only.")
        X = X.copy()
        for one, own in zip(missing.kernel_set.fitted, present.T, strict=True):
            columns = np.arange(X.shape[1]) if one.columns is None else one.columns
            X[np.ix_(~own, columns)] = self._means[columns]
        return X

    def _parts(self, gates: Array) -> list[tuple[Any, Array]]:
        """Every expansion with the gates of its outputs, or the one set they share."""
        if len(self._expansions) == 1:
            return [(self._expansions[0], gates)]
        return [(part, gates[c : c + 1]) for c, part in enumerate(self._expansions)]

    def _outputs_of(self, X: MatrixLike) -> Array:
        values = np.hstack([part.values(X, own) for part, own in self._parts(self._gates(X))])
        return np.asarray(values + self.intercept_)

    def gate(self, X: MatrixLike) -> Array:
        """Return how much each kernel counts for each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, P), or (n_samples, P, classes) where every class has gates of its own
        """
        check_is_fitted(self)
        gates: Array = np.moveaxis(self._gates(self._validate(X, reset=False)), 0, -1)
        return gates[:, :, 0] if gates.shape[2] == 1 else gates

    def _terms_of(self, X: MatrixLike) -> Array:
        return np.concatenate([part.terms(X, own) for part, own in self._parts(self._gates(X))], axis=2)

    def _combined(self, X: MatrixLike, Y: MatrixLike) -> Array:
        """Return Σ_m η_m(x) k_m(x, z) η_m(z), for every set of gates."""
        left = self._gates(X)
        right = left if Y is X else self._gates(Y)
        pairs = zip(self._parts(left), self._parts(right), strict=True)
        return np.concatenate([part.combined(X, Y, g, h) for (part, g), (_, h) in pairs])

    transform = available_if(has_learned_projections)(ProjectedSamples.transform)
    get_feature_names_out = available_if(has_learned_projections)(ProjectedSamples.get_feature_names_out)

    @available_if(has_projections)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: MatrixLike, y: TargetLike = None, **options: Any) -> MatrixLike:
        """Fit, then return the samples in the learned projections."""
        return self.fit(X, y, **options).transform(X)


@parameters
class LocalizedMKLClassifier(BaseLocalized, MKLClassifier):
    """Support vector classifier on a locally weighted sum of kernels.

    Minimises ½ Σ_m ‖w_m‖² + C Σ ξ_i over the gates and f(x) = Σ_m η_m(x) ⟨w_m, φ_m(x)⟩ + b, subject to y_i f(x_i) ≥ 1 −
    ξ_i. For given gates it is a support vector machine on k(x, z) = Σ_m η_m(x) k_m(x, z) η_m(z); over the gates the
    problem is not convex, so it is solved from `n_init` random starts. More than two classes are each separated from
    the rest, with gates of their own, or all in one problem with shared gates; see `multi_class`.

    Parameters
    ----------
    kernels : list, default=None
        Items are kernels, ``(name, kernel)`` or ``(name, kernel, columns)``, as in :class:`MKLClassifier`. One kernel
        may occur several times; :class:`~kernelmosaic.kernels.Projected` kernels have their projections learned.
    C : float, default=10.0
        Weight of the slack in the objective. Gates below one shrink the kernels; the default is therefore larger than
        that of :class:`MKLClassifier`.
    gating : {"softmax", "sigmoid", "constant", "gaussian"} or Gating, default="softmax"
        How a gate depends on the sample. ``"softmax"``: the gates of a sample sum to one. ``"sigmoid"``: each gate is
        independent of the others. ``"constant"``: not at all, a global combination whose weights are the squared gates.
        ``"gaussian"``: by a centre and widths.
    gating_columns : columns, default=None
        What the gates read, written as in :class:`~sklearn.compose.ColumnTransformer`; None means all columns. Gates
        that read many columns overfit where the kernels separate the classes without them; use one or two.
    gating_kernel : Kernel, default=None
        Gates in the space of this kernel: they read the leading coordinates (at most 20) of its kernel principal
        component analysis of the training set, so that sequences and precomputed kernels can be gated.
    step : {"armijo", "lbfgs", "fixed"}, default="armijo"
        How the gates are improved: steepest descent, or quasi-Newton steps in a third to a half of the time, whose
        gates predict a little worse, both with a line search; or fifty steps of 0.01, `max_iter` if that is less.
    n_init : int, default=3
        Random starts, of which the one with the least objective is kept; they run in parallel.
    slack : {1, 2}, default=1
        Norm of the slack.
    normalize : {"trace", "diagonal", "centered"} or None, default="trace"
        How kernels are put on one scale; see :class:`MKLClassifier`.
    approximation : {"nystroem", "fourier"} or None, default=None
        None computes the kernels exactly; else each becomes a block of features, as in :class:`MKLClassifier`, and X
        may stay in a file. What the gates read is kept in memory: of many columns, name a few `gating_columns`. The
        space of a `gating_kernel` is learned from at most a thousand samples then. Projected kernels must be exact.
    rank : int or sequence of P int, default=500
        Maximum number of features per kernel.
    tol : float, default=1e-3
        The convergence parameter τ: an iteration is short if J(t) > (1 − τ) J(t − 1), that is, if the objective J falls
        by less than this share of itself.
    n_iter_no_change : int, default=3
        The number of short iterations in a row at which to stop; 1 is the published rule, which may stop at once where
        the search starts on a plateau.
    max_iter : int, default=100
        Maximum number of iterations on the gates.
    memory_budget : float, default=None
        Bytes the Gram matrices, or features, may take, and what :class:`MKLClassifier` lists on top; None means half of
        the free memory.
    device : str, default=None
        As in `MKLClassifier`; projected kernels are learned on the host only.
    n_jobs : int, default=None
        Starts, and classes with gates of their own, learned at the same time, on threads; None means as many as the
        linear algebra may use, -1 all cores.
    verbose : bool, default=False
        Show the progress; starts then run one after the other.
    random_state : int, RandomState or None, default=0
        Of the starts, and of the landmarks or frequencies of kernels that are approximated.
    multi_class : {"ovr", "ovr-shared", "joint", "pairwise"}, default="ovr"
        How more than two classes are handled: one versus rest, each with gates of its own; or all in one problem with
        shared gates and a constant per class, as in :class:`MKLClassifier`.
    class_weight : dict, "balanced" or None, default=None
        Factors of C, class by class.
    calibration : {"sigmoid", "isotonic"} or None, default=None
        How decision values become the probabilities of :meth:`predict_proba`; see :class:`MKLClassifier`.

    Attributes
    ----------
    weights_ : ndarray of shape (P,), or (classes, P) for more than two classes, one versus rest
        The mean gate of each kernel over the training set.
    gating_params_ : dict, or list of dict for more than two classes, one versus rest
        Parameters of the gates in the units of the columns they read (which are standardised inside): ``coef`` and
        ``intercept`` of softmax and sigmoid scores, ``centres`` and ``widths``, or ``weights``.
    kernel_names_ : list of str
        Names of the kernels; copies are numbered.
    dual_coef_, support_, n_support_, support_fraction_, intercept_, classes_, n_features_in_, feature_names_in_
        As in :class:`MKLClassifier`.
    objective_ : float
        Primal value of the training problem at the returned gates, coefficients and constants; summed over the classes.
    duality_gap_ : float
        Certified relative duality gap of the machine under the final gates; the largest over the classes.
    n_iter_, n_solves_ : int
        Iterations on the gates of the best start, and how often a machine was solved in all starts.
    history_ : list of dict
        Objective and the machine's gap after every iteration of the best start, from the start itself on.

    References
    ----------
    Gönen and Alpaydın (2008), "Localized multiple kernel learning".

    Examples
    --------
    >>> from kernelmosaic import LocalizedMKLClassifier
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.kernels import Linear
    >>> X, y = make_gaussians(n_components=4, n_samples=300, random_state=0)
    >>> model = LocalizedMKLClassifier([Linear(), Linear(), Linear()]).fit(X, y)
    >>> model.kernel_names_
    ['linear-1', 'linear-2', 'linear-3']
    >>> model.gate(X).shape
    (300, 3)
    """

    _: KW_ONLY
    C: float = 10.0

    # Gates below one shrink the kernels.
    _path_rule: ClassVar[PathRule | None] = PathRule(range=(0.1, 1e3), score=accuracy)

    def _machines(self, y: TargetLike, weight: NDArray[np.float64]) -> list[Any]:
        # A learned C is a weight of the identity, and there are no weights here.
        check_positive("C", self.C)
        return super()._machines(y, weight)


@parameters
class LocalizedMKLRegressor(BaseLocalized, MKLRegressor):
    """Support vector regression on a locally weighted sum of kernels.

    Minimises ½ Σ_m ‖w_m‖² + C Σ max(0, |y_i − f(x_i)| − ε) over the gates and f(x) = Σ_m η_m(x) ⟨w_m, φ_m(x)⟩ + b.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`LocalizedMKLClassifier`.
    C : float, default=10.0
        Weight of the slack in the objective.
    epsilon : float, default=0.1
        Half-width of the tube in which errors are free.
    loss, quantile
        As in :class:`MKLRegressor`.
    gating, gating_columns, gating_kernel, step, n_init, slack, normalize, approximation, rank
        As in :class:`LocalizedMKLClassifier`.
    tol, n_iter_no_change, max_iter, memory_budget, device, n_jobs, verbose, random_state
        As in :class:`LocalizedMKLClassifier`.

    Attributes
    ----------
    weights_, gating_params_, kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_, \
objective_, duality_gap_, n_iter_, n_solves_, history_
        As in :class:`LocalizedMKLClassifier`.

    References
    ----------
    Gönen and Alpaydın (2010), "Localized multiple kernel regression".

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import LocalizedMKLRegressor
    >>> from kernelmosaic.kernels import Linear
    >>> X = np.linspace(-1, 1, 60)[:, np.newaxis]
    >>> model = LocalizedMKLRegressor([Linear(), Linear()], C=10, random_state=0)
    >>> model = model.fit(X, np.abs(X[:, 0]))
    >>> model.score(X, np.abs(X[:, 0])) > 0.9, model.gate(X).shape
    (True, (60, 2))
    """

    _: KW_ONLY
    C: float = 10.0
    epsilon: float = 0.1
    loss: str = "epsilon"


@parameters
class LocalizedMKLOneClass(BaseLocalized, MKLOneClass):
    """One-class support vector machine on a locally weighted sum of kernels.

    Minimises ½ Σ_m ‖w_m‖² + 1/(ν n) Σ ξ_i + b over the gates and f(x) = Σ_m η_m(x) ⟨w_m, φ_m(x)⟩ + b, subject to
    f(x_i) ≥ −ξ_i.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLOneClass`.
    nu : float, default=0.5
        In (0, 1]: at most this share of the training samples is called novel, at least this share supports the
        boundary.
    gating : {"softmax", "sigmoid", "constant", "gaussian"} or Gating, default="sigmoid"
        As in :class:`LocalizedMKLClassifier`. Softmax gates divide the one class into regions that no longer resemble
        one another, and detect less for it.
    slack : {1, 2}, default=1
        As in :class:`MKLOneClass`.
    gating_columns, gating_kernel, step, n_init, normalize, approximation, rank
        As in :class:`LocalizedMKLClassifier`, except that ``normalize="centered"`` is refused.
    tol, n_iter_no_change, max_iter, memory_budget, device, n_jobs, verbose, random_state
        As in :class:`LocalizedMKLClassifier`.

    Attributes
    ----------
    offset_ : float
        ``decision_function = score_samples - offset_``.
    weights_, gating_params_, kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_, \
objective_, duality_gap_, n_iter_, n_solves_, history_
        As in :class:`LocalizedMKLClassifier`.

    Examples
    --------
    >>> from kernelmosaic import LocalizedMKLOneClass
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, _ = make_gaussians(n_samples=100, random_state=0)
    >>> model = LocalizedMKLOneClass(nu=0.1, random_state=0).fit(X)
    >>> model.predict([[50.0, 50.0]]), model.gate(X).shape
    (array([-1]), (100, 3))
    """

    _: KW_ONLY
    nu: float = 0.5
    gating: Any = "sigmoid"
