"""Gates as functions of the sample: what they read, how they are learned, and the function they
belong to."""

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

# What gates read ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelSpace:
    """Coordinates along the leading principal components of the training set in a kernel's feature
    space.

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
        K = np.asarray(
            self.kernel._block(self.kernel.validate(view), self.samples), dtype=np.float64
        )
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
        The kernel's space, if gates are functions on one.
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

        Samples in a RowSource are read in strips of about `strip_bytes`, and a kernel's space is
        learned from at most `space_rows` of them, drawn by `random_state`.
        """
        try:
            spec = lay_specs(
                [Entry("gating", Linear() if kernel is None else kernel, columns)], table
            )[0]
        except ValueError as error:
            raise ValueError(f"gating_columns={columns!r}: {error}") from error
        if kernel is not None:
            X, weight = _some(X, weight, random_state, space_rows)
            view = in_double(take_columns(X, spec.columns))
            space = KernelSpace.fit(kernel, view, weight)
            Z = space.coordinates(view)
            # One scale for all coordinates: the leading ones shall weigh more, as they do in the
            # kernel's space.
            leading = (
                float(np.sqrt(np.average(Z[:, 0] ** 2, weights=weight)))
                if standardize and Z.shape[1]
                else 1.0
            )
            return cls(
                spec.columns, space, np.zeros(Z.shape[1]), np.full(Z.shape[1], leading or 1.0)
            )
        dense = np.concatenate([_numbers(view) for view in _views(X, spec.columns, strip_bytes)])
        if not standardize:
            return cls(spec.columns, None, np.zeros(dense.shape[1]), np.ones(dense.shape[1]))
        mean = np.average(dense, axis=0, weights=weight)
        spread = np.sqrt(
            [np.average((x - m) ** 2, weights=weight) for x, m in zip(dense.T, mean, strict=True)]
        )
        # A column that does not vary is left out by a scale of one: it is zero after centring, up
        # to rounding.
        flat = spread <= 1e-12 * np.maximum(np.abs(mean), 1e-300)
        return cls(spec.columns, None, mean, np.where(flat, 1.0, spread))

    def __call__(self, X: MatrixLike, strip_bytes: int = 2**22) -> Array:
        """Return the standardised inputs, of shape (n, n_features)."""
        if self.blind:
            return np.zeros((X.shape[0], 0))
        read = _numbers if self.space is None else self.space.coordinates
        return np.concatenate(
            [(read(view) - self.mean) / self.scale for view in _views(X, self.columns, strip_bytes)]
        )


def _views(X: MatrixLike, columns: Indices | None, strip_bytes: int) -> Iterator[Any]:
    """Yield the columns that gates read, a strip of samples at a time where those need not be in
    memory."""
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
    """Return the columns as a dense matrix of finite numbers, or raise saying what gates can read
    instead."""
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


# Gates that are learned ---------------------------------------------------------------------------


@dataclass(frozen=True)
class GateReader:
    """The inputs of gates for samples that may lack views.

    Attributes
    ----------
    inputs : GateInputs
    missing : MissingViews or None
        Which views samples lack.
    means : ndarray of shape (n_features,) or None
        Of the columns, over the training samples that have them, which stand in for views that
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
        """Return samples with the training set's means for views that they lack, and which views
        they have."""
        if self.missing is None or (present := self.missing.present_in(X)) is None:
            return X, None
        if self.means is None:
            raise ValueError(
                "X: some samples lack a view, and gates then need numeric columns only; fill these"
                " views, or leave the samples out."
            )
        X = X.copy()
        for one, own in zip(self.missing.kernel_set.fitted, present.T, strict=True):
            columns = np.arange(X.shape[1]) if one.columns is None else one.columns
            X[np.ix_(~own, columns)] = self.means[columns]
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
        What gates read.
    own : list of Expansion
        One per machine where these have learned projections of their own, else none.
    """

    gating: Gating = field(kw_only=True)
    V: list[Array] = field(kw_only=True)
    reader: GateReader = field(kw_only=True)
    own: list[Expansion] = field(kw_only=True)

    @property
    def expansions(self) -> list[Expansion]:
        """One for all machines, or one each."""
        return self.own or [self.expansion]

    def gates(self, X: MatrixLike) -> Array:
        """Return the gates of validated samples, of shape (machines, n, P); classes of a joint
        machine share them."""
        Z, present = self.reader(X)
        gates = np.array([self.gating.values(V, Z) for V in self.V])
        return gates if present is None else gates * present

    def projections(self) -> Iterator[tuple[int, int, Projected]]:
        """Yield (class, number among the kernels, kernel) of every learned projection."""
        for c, expansion in enumerate(self.expansions):
            kernel_set: Any = getattr(expansion.kernel_set, "kernel_set", expansion.kernel_set)
            for m in projected_kernels(kernel_set):
                yield c, m, kernel_set.fitted[m].kernel

    def _parts(self, gates: Array) -> list[tuple[Expansion, Array]]:
        """Every expansion with the gates of its outputs, or the one set they share."""
        if len(self.expansions) == 1:
            return [(self.expansions[0], gates)]
        return [(part, gates[c : c + 1]) for c, part in enumerate(self.expansions)]

    def outputs(self, X: MatrixLike) -> Array:
        values = np.hstack([part.values(X, own) for part, own in self._parts(self.gates(X))])
        return np.asarray(values + self.intercept)

    def terms(self, X: MatrixLike) -> Array:
        return np.concatenate(
            [part.terms(X, own) for part, own in self._parts(self.gates(X))], axis=2
        )

    def combined(self, X: MatrixLike, Y: MatrixLike) -> Array:
        """Return Σ_m g_m(x) k_m(x, z) g_m(z), for every set of gates."""
        left = self.gates(X)
        right = left if Y is X else self.gates(Y)
        pairs = zip(self._parts(left), self._parts(right), strict=True)
        return np.concatenate([part.combined(X, Y, g, h) for (part, g), (_, h) in pairs])


@dataclass(frozen=True)
class GateMethod(Method):
    """One gate per kernel, from `n_init` random starts, side by side; the best of each machine is
    kept.

    Attributes
    ----------
    descent : GateLearner
        Which gates are learned, by which steps, and when to stop.
    columns, kernel, n_init, n_jobs, random_state
        Parameters of the localized estimators; `columns` and `kernel` are those of the gating.
    kinds : set of str
        What the kernels read.
    reader : GateReader or None
        What the gates read, known of a training set.
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
        gating, X, means = self.descent.gating, data.samples, None
        if missing is not None and isinstance(X, np.ndarray) and X.dtype.kind == "f":
            present = ~np.isnan(X)
            means = np.asarray(
                np.where(present, X, 0.0).sum(axis=0) / np.maximum(present.sum(axis=0), 1)
            )
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
        Z, present = self.reader(data.samples)[0], getattr(data, "present", None)
        seeds = check_random_state(self.random_state).randint(
            np.iinfo(np.int32).max, size=self.n_init
        )
        projected = not data.in_features and bool(projected_kernels(data.kernel_set))
        if projected and present is not None:
            raise ValueError(
                "X: some samples lack a view, and projected kernels need every view; fill these"
                " views, or leave the samples out."
            )
        shared: Any = None if projected else data.stack

        def attempt(machine: Machine, seed: int) -> LearnedGates:
            own: Projections | None = None
            stack = shared
            if projected:
                own = Projections(data.kernel_set, data.views, data.weight, data.budget)
                stack = own.stack
            found: LearnedGates = learner.learn(stack, machine, Z, np.random.RandomState(seed), own)
            return found if present is None else replace(found, gates=found.gates * present)

        tasks = [(machine, seed) for machine in machines for seed in seeds]
        workers = workers_of(self.n_jobs, data, allowed_threads(), self.descent.verbose)
        found = map_threads(lambda one: attempt(*one), tasks, workers)
        groups = [found[i : i + len(seeds)] for i in range(0, len(found), len(seeds))]
        learned = []
        for group in groups:
            best = min(group, key=lambda one: one.objective)
            mean = np.average(best.gates, axis=0, weights=data.weight)
            n_solves = sum(attempt.n_solves for attempt in group)
            # Kernels with projections that are learned are no part of the training set's entries.
            learned.append(replace(best, weights=mean, n_solves=n_solves, is_final=projected))
        if projected:
            return learned
        # Other starts would end elsewhere: gates are not learned again where this gap is above
        # `tol`.
        entries = Entries(data.stack, data.sizes())
        machine_pairs = zip(machines, learned, strict=True)
        return [gates.certified(entries, machine, learner) for machine, gates in machine_pairs]

    def function(self, fit: Fit) -> GatedFunction:
        data, support = fit.data, fit.support
        # One expansion for all machines; one each where they have learned projections of their own.
        machines = [(np.atleast_2d(one.solution.beta.T), one.gates) for one in fit.learned]
        each = zip(machines, [one.kernel_set for one in fit.learned], strict=True)
        own = [
            data.gated_expansion([one], support, kernels)
            for one, kernels in each
            if kernels is not None
        ]
        expansion = data.gated_expansion(machines, support)
        V = [one.V for one in fit.learned]
        return GatedFunction(
            expansion, fit.intercept, gating=self.descent.gating, V=V, reader=self.reader, own=own
        )

    def attributes(self, fit: Fit) -> Settings:
        inputs = self.reader.inputs
        units = [
            self.descent.gating.in_user_units(one.V, inputs.mean, inputs.scale)
            for one in fit.learned
        ]
        return {"gating_params_": units[0] if len(units) == 1 else units}

    def warning(self, fit: Fit, max_iter: int) -> str | None:
        tol = self.descent.tol
        if fit.gap > tol:
            return (
                f" stopped at a relative duality gap of {fit.gap:.2g} of the machine under its"
                f" gates, above tol={tol:g}: {ROUNDING}"
            )
        if all(one.converged for one in fit.learned):
            return None
        return (
            f": after max_iter={max_iter} iterations the objective still fell by more than"
            f" tol={tol:g} of itself each time; raise max_iter, or accept a larger tol."
        )
