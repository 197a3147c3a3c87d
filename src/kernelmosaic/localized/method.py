"""Gates as functions of the sample.

`GateInputs` are the numbers that gates read of samples, `GateMethod` learns gates in a fit, and
`GatedFunction` is the fitted function.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_random_state

from kernelmosaic._typing import Array, Indices, MatrixLike, Seed, Settings
from kernelmosaic.backend import allowed_threads, map_threads, row_strips
from kernelmosaic.engine.expansion import Expansion, Function
from kernelmosaic.engine.fit import Fit, Method, workers_of
from kernelmosaic.engine.tasks import Task
from kernelmosaic.engine.training_set import TrainingSet
from kernelmosaic.gram.kernel_set import in_double
from kernelmosaic.gram.missing import MissingViews
from kernelmosaic.gram.row_blocks import RowSource
from kernelmosaic.kernels.base import Kernel
from kernelmosaic.kernels.numeric import Linear
from kernelmosaic.kernels.transformed import Projected
from kernelmosaic.kernels.views import Entry, lay_specs, take_columns
from kernelmosaic.learning.certificate import Entries, Start
from kernelmosaic.learning.problem import ROUNDING
from kernelmosaic.localized.gating import Constant, Gating
from kernelmosaic.localized.learning import (
    GateLearner,
    LearnedGates,
    Projections,
    projected_kernels,
)
from kernelmosaic.machines.base import Machine

#: The largest number of coordinates in a kernel's space. Chosen by hand.
_MAX_COMPONENTS = 20
#: Variance of a coordinate, relative to the largest, up to which it is left out. Chosen by hand.
_LEAST_VARIANCE = 1e-6
#: Deviation of a column, relative to its mean, up to which the column is taken for constant.
_CONSTANT = 1e-12
#: Samples of a `RowSource` from which a kernel's space is learned; their Gram matrix takes 8 MB.
_SPACE_ROWS = 1000
#: Bytes of the strips in which a `RowSource` is read, 4 MB. Chosen by hand.
_STRIP_BYTES = 2**22

# Inputs of gates ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelSpace:
    """Coordinates along the leading principal components in a kernel's feature space.

    The components are those of the training set.

    Attributes
    ----------
    kernel : Kernel
        Fitted.
    samples : array
        The training set as the kernel reads it.
    directions : ndarray of shape (n, components)
        The factors that turn centred similarities to the training set into coordinates.
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
        """Return the space of a training set, by kernel principal component analysis.

        At most `_MAX_COMPONENTS` components are used, whose variances exceed `_LEAST_VARIANCE` of
        the largest.

        Parameters
        ----------
        kernel : Kernel
            The kernel, which is cloned and fitted.
        view : array
            The columns of the training set that the kernel reads.
        weight : ndarray of shape (n,)
            Weights of the samples.
        """
        kernel = clone(kernel).fit(view)
        X = kernel.validate(view)
        share = weight / weight.sum()
        K = np.asarray(kernel._block(X, X), dtype=np.float64)
        means = K @ share
        root = np.sqrt(share)
        C = root[:, np.newaxis] * (K - means[:, np.newaxis] - means + share @ means) * root
        variances, U = np.linalg.eigh(0.5 * (C + C.T))
        is_leading = variances > _LEAST_VARIANCE * max(variances[-1], 0.0)
        # Eigenvalues come in ascending order.
        components = np.flatnonzero(is_leading)[::-1][:_MAX_COMPONENTS]
        variances = variances[components]
        U = U[:, components]
        # The entry of largest absolute value in each eigenvector is positive, which fixes the sign.
        U = U * np.sign(U[np.abs(U).argmax(axis=0), np.arange(len(components))])
        return cls(kernel, X, root[:, np.newaxis] * U / np.sqrt(variances), means, share)

    def coordinates(self, view: MatrixLike) -> Array:
        """Return the coordinates of samples, of shape (n, components)."""
        block = self.kernel._block(self.kernel.validate(view), self.samples)
        K = np.asarray(block, dtype=np.float64)
        centred = K - (K @ self.share)[:, np.newaxis] - self.means + self.share @ self.means
        return np.asarray(centred @ self.directions)


@dataclass(frozen=True)
class GateInputs:
    """The map from samples to the standardised inputs of the gates.

    Attributes
    ----------
    columns : ndarray or None
        The numbers of the columns that gates read; None for all.
    space : KernelSpace or None
        The kernel's space, if gates are functions of coordinates in one.
    mean, scale : ndarray of shape (n_features,)
        Inputs are (x − mean) / scale.
    blind : bool
        Whether the gates read nothing.
    """

    columns: Indices | None
    space: KernelSpace | None
    mean: Array
    scale: Array
    blind: bool = False

    @classmethod
    def none(cls) -> GateInputs:
        """Return the inputs of gates that do not depend on the sample."""
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
        space_rows: int = _SPACE_ROWS,
        strip_bytes: int = _STRIP_BYTES,
    ) -> GateInputs:
        """Return the inputs whose scale is learned from a training set.

        Samples in a RowSource are read in strips of about `strip_bytes`, and a kernel's space is
        learned from at most `space_rows` of them, drawn by `random_state`.

        Parameters
        ----------
        X : array, sparse matrix or RowSource
            The training set.
        table : array or data frame
            The same samples with the names of the columns.
        columns : list, str, slice or None
            The columns that gates read, as the user wrote them.
        kernel : Kernel or None
            A kernel whose feature space has the inputs; None for the columns themselves.
        weight : ndarray of shape (n,)
            Weights of the samples.
        standardize : bool
            Whether to learn the scale; if not, the inputs are not changed.
        """
        try:
            entry = Entry("gating", Linear() if kernel is None else kernel, columns)
            spec = lay_specs([entry], table)[0]
        except ValueError as error:
            raise ValueError(f"gating_columns={columns!r}: {error}") from error
        if kernel is not None:
            X, weight = _sample_rows(X, weight, random_state, space_rows)
            view = in_double(take_columns(X, spec.columns))
            space = KernelSpace.fit(kernel, view, weight)
            Z = space.coordinates(view)
            n_inputs = Z.shape[1]
            # All coordinates have one scale, the deviation of the first, so that the leading ones
            # keep their larger weight.
            deviation = 1.0
            if standardize and n_inputs:
                deviation = float(np.sqrt(np.average(Z[:, 0] ** 2, weights=weight))) or 1.0
            return cls(spec.columns, space, np.zeros(n_inputs), np.full(n_inputs, deviation))
        dense = np.concatenate([_numbers(view) for view in _views(X, spec.columns, strip_bytes)])
        n_inputs = dense.shape[1]
        if not standardize:
            return cls(spec.columns, None, np.zeros(n_inputs), np.ones(n_inputs))
        mean = np.average(dense, axis=0, weights=weight)
        variances = [
            np.average((x - m) ** 2, weights=weight) for x, m in zip(dense.T, mean, strict=True)
        ]
        deviations = np.sqrt(variances)
        # A constant column has a scale of one: centring makes it zero, up to rounding.
        is_constant = deviations <= _CONSTANT * np.maximum(np.abs(mean), 1e-300)
        return cls(spec.columns, None, mean, np.where(is_constant, 1.0, deviations))

    def __call__(self, X: MatrixLike, strip_bytes: int = _STRIP_BYTES) -> Array:
        """Return the standardised inputs, of shape (n, n_features)."""
        if self.blind:
            return np.zeros((X.shape[0], 0))
        read = _numbers if self.space is None else self.space.coordinates
        views = _views(X, self.columns, strip_bytes)
        return np.concatenate([(read(view) - self.mean) / self.scale for view in views])


def _views(X: MatrixLike, columns: Indices | None, strip_bytes: int) -> Iterator[Any]:
    """Yield the columns that gates read, for a `RowSource` in strips of rows."""
    if not isinstance(X, RowSource):
        yield in_double(take_columns(X, columns))
        return
    for strip in row_strips(X.shape[0], strip_bytes // (8 * X.row_width)):
        yield in_double(take_columns(X.take(strip), columns))


def _sample_rows(
    X: MatrixLike, weight: Array, random_state: Seed, max_rows: int
) -> tuple[Any, Array]:
    """Return the samples from which a kernel's space is learned, with their weights.

    For a `RowSource` these are at most `max_rows` samples with a weight, drawn at random.
    """
    if not isinstance(X, RowSource):
        return X, weight
    rows = np.flatnonzero(weight)
    if len(rows) > max_rows:
        rows = np.sort(check_random_state(random_state).choice(rows, max_rows, replace=False))
    return X.take(rows), weight[rows]


def _numbers(view: MatrixLike) -> Array:
    """Return columns as a dense matrix of doubles, or raise a ValueError that names a remedy."""
    dense = view.toarray() if sparse.issparse(view) else view
    try:
        numbers = np.asarray(dense, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            "gates need numbers, but these columns hold others: name numeric gating_columns, or"
            " give a gating_kernel."
        ) from None
    if not np.all(np.isfinite(numbers)):
        raise ValueError(
            "gates need finite numbers, but the gating columns hold NaN or infinity: correct them."
        )
    return numbers


# Learning gates, and the function they belong to --------------------------------------------------


@dataclass(frozen=True)
class GateReader:
    """The inputs of gates for samples that may lack views.

    Attributes
    ----------
    inputs : GateInputs
    missing : MissingViews or None
        Which views samples lack.
    means : ndarray of shape (n_features,) or None
        The means of the columns over the training samples that have them, which replace views that
        samples lack; None where the columns are not numbers.
    """

    inputs: GateInputs
    missing: MissingViews | None = None
    means: Array | None = None

    def __call__(self, X: MatrixLike) -> tuple[Array, Any]:
        """Return the standardised inputs, and which views the samples have; None if all."""
        filled, present = self.filled(X)
        return self.inputs(filled), present

    def filled(self, X: MatrixLike) -> tuple[MatrixLike, Any]:
        """Return samples with means in place of views that they lack, and which views they have.

        The second value is an array of shape (n, P), or None if no sample lacks a view.
        """
        present = None if self.missing is None else self.missing.present_in(X)
        if self.missing is None or present is None:
            return X, None
        if self.means is None:
            raise ValueError(
                "X: some samples lack a view, and gates then need numeric columns only; fill these"
                " views, or leave the samples out."
            )
        X = X.copy()
        for fitted, has_view in zip(self.missing.kernel_set.fitted, present.T, strict=True):
            columns = np.arange(X.shape[1]) if fitted.columns is None else fitted.columns
            X[np.ix_(~has_view, columns)] = self.means[columns]
        return X, present


@dataclass(frozen=True)
class GatedFunction(Function):
    """f_c(x) = Σ_m g_cm(x) Σ_i β_ci g_cm(x_i) k_m(x, x_i) + b_c.

    Attributes
    ----------
    gating : Gating
    V : list of ndarray
        The parameters of the gates of every machine.
    reader : GateReader
        Turns samples into the inputs of gates.
    own : list of Expansion
        One per machine if every machine has learned its own projections, else empty.
    """

    gating: Gating = field(kw_only=True)
    V: list[Array] = field(kw_only=True)
    reader: GateReader = field(kw_only=True)
    own: list[Expansion] = field(kw_only=True)

    @property
    def expansions(self) -> list[Expansion]:
        """One expansion for all machines, or one for each."""
        return self.own or [self.expansion]

    def gates(self, X: MatrixLike) -> Array:
        """Return the gates of validated samples, of shape (machines, n, P).

        The classes of a joint machine share their gates.
        """
        Z, present = self.reader(X)
        gates = np.array([self.gating.values(V, Z) for V in self.V])
        return gates if present is None else gates * present

    def projections(self) -> Iterator[tuple[int, int, Projected]]:
        """Yield (class, number among the kernels, kernel) of every learned projection."""
        for c, expansion in enumerate(self.expansions):
            kernel_set: Any = getattr(expansion.kernel_set, "kernel_set", expansion.kernel_set)
            for m in projected_kernels(kernel_set):
                yield c, m, kernel_set.fitted[m].kernel

    def _expansions_with_gates(self, gates: Array) -> list[tuple[Expansion, Array]]:
        """Return every expansion with the gates of its machine.

        A single expansion has the gates of all machines.
        """
        if len(self.expansions) == 1:
            return [(self.expansions[0], gates)]
        return [(expansion, gates[c : c + 1]) for c, expansion in enumerate(self.expansions)]

    def outputs(self, X: MatrixLike) -> Array:
        pairs = self._expansions_with_gates(self.gates(X))
        values = np.hstack([expansion.values(X, gates) for expansion, gates in pairs])
        return np.asarray(values + self.intercept)

    def terms(self, X: MatrixLike) -> Array:
        pairs = self._expansions_with_gates(self.gates(X))
        return np.concatenate([expansion.terms(X, gates) for expansion, gates in pairs], axis=2)

    def combined(self, X: MatrixLike, Y: MatrixLike) -> Array:
        """Return Σ_m g_m(x) k_m(x, z) g_m(z), for every set of gates."""
        left = self.gates(X)
        right = left if Y is X else self.gates(Y)
        left_pairs = self._expansions_with_gates(left)
        right_pairs = self._expansions_with_gates(right)
        blocks = [
            expansion.combined(X, Y, g, h)
            for (expansion, g), (_, h) in zip(left_pairs, right_pairs, strict=True)
        ]
        return np.concatenate(blocks)


@dataclass(frozen=True)
class GateMethod(Method):
    """Learns one gate per kernel, for every machine from `n_init` random starts.

    The starts run side by side; the best result of each machine is returned.

    Attributes
    ----------
    descent : GateLearner
        Which gates are learned, by which steps, and when to stop.
    columns, kernel, n_init, n_jobs, random_state
        Parameters of the localized estimators; `columns` and `kernel` are those of the gating.
    kinds : set of str
        The input kinds of the kernels.
    reader : GateReader or None
        The inputs of the gates; None before `resolved`.
    """

    descent: GateLearner
    columns: Any
    kernel: Kernel | None
    n_init: int
    n_jobs: Any
    random_state: Seed
    kinds: set[str]
    reader: Any = None

    first_iteration: ClassVar[int] = 0
    is_plain: ClassVar[bool] = False

    def resolved(self, task: Task, data: TrainingSet, y: Any) -> GateMethod:
        missing: MissingViews | None = data.missing
        gating = self.descent.gating
        X = data.samples
        means = None
        if missing is not None and isinstance(X, np.ndarray) and X.dtype.kind == "f":
            present = ~np.isnan(X)
            sums = np.where(present, X, 0.0).sum(axis=0)
            means = np.asarray(sums / np.maximum(present.sum(axis=0), 1))
        reader = GateReader(GateInputs.none(), missing, means)
        if isinstance(gating, Constant):
            return replace(self, reader=reader)
        if self.kernel is None and self.columns is None and self.kinds != {"numbers"}:
            raise ValueError(
                f"gating: the kernels read {' and '.join(sorted(self.kinds))}, which gates cannot"
                " read; give a gating_kernel to gate in its space, or name numeric gating_columns."
            )
        filled = reader.filled(X)[0]
        inputs = GateInputs.fit(
            filled,
            data.table,
            self.columns,
            self.kernel,
            data.weight,
            self.random_state,
            gating.standardize,
        )
        return replace(self, reader=replace(reader, inputs=inputs))

    def learner(self, task: Task, data: TrainingSet, machines: Sequence[Any]) -> GateLearner:
        return self.descent

    def learn(
        self, task: Task, data: TrainingSet, machines: list[Any], learner: Any, starts: list[Start]
    ) -> list[Any]:
        """Return the learned gates of every machine, the best of all random starts.

        Gates are certified by entries of the kernels of the training set. Those with learned
        projections are not: every start makes projected kernels of its own.

        `starts`, which are weights to start from, are not read.
        """
        Z, _ = self.reader(data.samples)
        present = data.present
        random = check_random_state(self.random_state)
        seeds = random.randint(np.iinfo(np.int32).max, size=self.n_init)
        is_projected = not data.in_features and bool(projected_kernels(data.kernel_set))
        if is_projected and present is not None:
            raise ValueError(
                "X: some samples lack a view, and projected kernels need every view; fill these"
                " views, or leave the samples out."
            )
        shared_stack: Any = None if is_projected else data.stack

        def learn_from_start(start: tuple[Machine, int]) -> LearnedGates:
            machine, seed = start
            projections: Projections | None = None
            stack = shared_stack
            if is_projected:
                projections = Projections(data.kernel_set, data.views, data.weight, data.budget)
                stack = projections.stack
            rng = np.random.RandomState(seed)
            learned: LearnedGates = learner.learn(stack, machine, Z, rng, projections)
            if present is None:
                return learned
            return replace(learned, gates=learned.gates * present)

        tasks = [(machine, seed) for machine in machines for seed in seeds]
        workers = workers_of(self.n_jobs, data, allowed_threads(), self.descent.verbose)
        results = map_threads(learn_from_start, tasks, workers)
        learned_gates = []
        for first in range(0, len(results), len(seeds)):
            results_of_machine = results[first : first + len(seeds)]
            best = min(results_of_machine, key=lambda result: result.objective)
            mean = np.average(best.gates, axis=0, weights=data.weight)
            n_solves = sum(result.n_solves for result in results_of_machine)
            # A final result gets no certificate, neither here nor in the fit.
            learned_gates.append(
                replace(best, weights=mean, n_solves=n_solves, is_final=is_projected)
            )
        if is_projected:
            return learned_gates
        # Gates whose certified gap is above `tol` are not learned again, since another start would
        # end at other gates.
        entries = Entries(data.stack, data.sizes())
        machine_pairs = zip(machines, learned_gates, strict=True)
        return [gates.certified(entries, machine, learner) for machine, gates in machine_pairs]

    def function(self, fit: Fit) -> GatedFunction:
        data = fit.data
        support = fit.support
        machines = [
            (np.atleast_2d(learned.solution.beta.T), learned.gates) for learned in fit.learned
        ]
        # Machines that learned their own projections have their own expansions.
        own_expansions = []
        for machine, learned in zip(machines, fit.learned, strict=True):
            if learned.kernel_set is not None:
                own_expansions.append(data.gated_expansion([machine], support, learned.kernel_set))
        return GatedFunction(
            data.gated_expansion(machines, support),
            fit.intercept,
            gating=self.descent.gating,
            V=[learned.V for learned in fit.learned],
            reader=self.reader,
            own=own_expansions,
        )

    def attributes(self, fit: Fit) -> Settings:
        gating = self.descent.gating
        inputs = self.reader.inputs
        params = [gating.in_user_units(gates.V, inputs.mean, inputs.scale) for gates in fit.learned]
        return {"gating_params_": params[0] if len(params) == 1 else params}

    def warning(self, fit: Fit, max_iter: int) -> str | None:
        tol = self.descent.tol
        if fit.gap > tol:
            return (
                f" stopped at a relative duality gap of {fit.gap:.2g} of the machine under its"
                f" gates, above tol={tol:g}: {ROUNDING}"
            )
        if all(gates.converged for gates in fit.learned):
            return None
        return (
            f": after max_iter={max_iter} iterations the objective still fell by more than"
            f" tol={tol:g} of itself each time; raise max_iter, or accept a larger tol."
        )
