"""What the localized estimators share: gates learned with the machine, and predictions under them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils import TransformerTags, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kernelmosaic.estimators._base import BaseMKL
from kernelmosaic.estimators._gate_inputs import GateInputs
from kernelmosaic.estimators._projected_samples import ProjectedSamples, has_learned_projections, has_projections
from kernelmosaic.estimators._training_set import ExactSet, TrainingSet
from kernelmosaic.gating import Constant, make_gating
from kernelmosaic.gram import KernelSet
from kernelmosaic.gram.threads import allowed_threads
from kernelmosaic.kernels.base import Kernel
from kernelmosaic.kernels.spelling import suggest_kernel
from kernelmosaic.learning import Learned
from kernelmosaic.learning.gated import GateLearner, LearnedGates
from kernelmosaic.learning.projections import projected_kernels
from kernelmosaic.learning.steps import make_step
from kernelmosaic.machines import Machine
from kernelmosaic.machines.base import check_count

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class _LearnedUnderGates(Learned):
    """What the best start gave: the weights are the mean gates; n_solves counts all starts."""

    gates: Array
    V: Array
    converged: bool
    kernel_set: KernelSet | None


def _best_start(starts: Sequence[LearnedGates], weight: Array) -> _LearnedUnderGates:
    best = min(starts, key=lambda one: one.look.value)
    solution, gates = best.look.solution, best.look.gates
    return _LearnedUnderGates(
        np.average(gates, axis=0, weights=weight),
        solution,
        best.look.value,
        solution.gap,
        sum(one.n_solves for one in starts),
        best.history,
        gates=gates,
        V=best.V,
        converged=best.converged,
        kernel_set=best.kernel_set,
    )


# The methods of a transformer are wrapped already, and not all estimators have them.
class BaseLocalized(TransformerMixin, BaseMKL, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """A gate a kernel, as a function of the sample, with the machine that a subclass names."""

    weights = None
    gating: Any
    gating_columns: Any
    gating_kernel: Any
    step: Any
    n_init: Any
    n_iter_no_change: Any
    random_state: Any

    _first_iteration = 0

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

    def _gate_inputs(self, data: TrainingSet) -> GateInputs:
        if isinstance(make_gating(self.gating), Constant):
            return GateInputs.none()
        kinds = set(super()._kernels_take("input_kind"))
        if self.gating_kernel is None and self.gating_columns is None and kinds != {"numbers"}:
            raise ValueError(
                f"gating: the kernels read {' and '.join(sorted(kinds))}, which gates cannot; give a gating_kernel to "
                "gate in its space, or name numeric gating_columns."
            )
        return GateInputs.fit(
            data.samples, data.table, self.gating_columns, self.gating_kernel, data.weight, self.random_state
        )

    def _learn(self, data: TrainingSet, machines: list[Machine]) -> tuple[list[Any], str | None]:
        """Learn every machine's gates from `n_init` random starts, side by side, and keep the best of each."""
        self._inputs = self._gate_inputs(data)
        Z = self._inputs(data.samples)
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
        if projected and self._fit_device is not None:
            raise ValueError(
                f"device={self._fit_device!r}: projected kernels are learned on the host; use device=None."
            )
        shared = None if projected else data.stack

        def attempt(machine: Machine, seed: int) -> LearnedGates:
            own = data.projections() if isinstance(data, ExactSet) and projected else None
            stack = shared if own is None else own.stack
            assert stack is not None
            return learner.learn(stack, machine, Z, np.random.RandomState(seed), own)

        tasks = [(machine, seed) for machine in machines for seed in seeds]
        workers = 1 if self.verbose or not data.shareable else max(1, min(allowed_threads(), len(tasks)))
        found = Parallel(n_jobs=workers, require="sharedmem")(delayed(attempt)(*task) for task in tasks)
        starts = [found[i : i + len(seeds)] for i in range(0, len(found), len(seeds))]
        learned = [_best_start(group, data.weight) for group in starts]
        if all(one.converged for one in learned):
            return learned, None
        return learned, (
            f": after max_iter={self.max_iter} iterations the objective still fell by more than tol={self.tol:g} of "
            "itself each time; raise max_iter, or accept a larger tol."
        )

    def _keep_function(self, data: TrainingSet, learned: list[Any], beta: Array, support: NDArray[np.intp]) -> None:
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

    def _kernels_take(self, trait: str) -> list[Any]:
        traits = super()._kernels_take(trait)
        return [*traits, getattr(self.gating_kernel, trait)] if isinstance(self.gating_kernel, Kernel) else traits

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        try:
            tags.transformer_tags = TransformerTags() if has_learned_projections(self) else None
        except (TypeError, ValueError):
            tags.transformer_tags = None
        return tags

    # Predictions out -----------------------------------------------------------------------------------------------

    def _gates(self, X: Any) -> Array:
        """Return the gates of validated samples, of shape (machines, n, P); classes of a joint machine share them."""
        Z = self._inputs(X)
        return np.array([self._gating.values(V, Z) for V in self._V])

    def _parts(self, gates: Array) -> list[tuple[Any, Array]]:
        """Every expansion with the gates of its outputs, or the one set they share."""
        if len(self._expansions) == 1:
            return [(self._expansions[0], gates)]
        return [(part, gates[c : c + 1]) for c, part in enumerate(self._expansions)]

    def _outputs(self, X: Any) -> Array:
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        values = np.hstack([part.values(X, own) for part, own in self._parts(self._gates(X))])
        return np.asarray(values + self.intercept_)

    def gate(self, X: Any) -> Array:
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

    def contributions(self, X: Any) -> Array:
        """Return each kernel's share of the decision; see :meth:`MKLClassifier.contributions`."""
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        terms = np.concatenate([part.terms(X, own) for part, own in self._parts(self._gates(X))], axis=2)
        return terms[:, :, 0] if terms.shape[2] == 1 else terms

    def kernel_matrix(self, X: Any, Y: Any = None) -> Array:
        """Return the locally combined kernel Σ_m η_m(x) k_m(x, z) η_m(z) between X and Y.

        Parameters
        ----------
        X, Y : array-like of shape (n_samples, n_features)
            Samples; ``Y=None`` stands for X.

        Returns
        -------
        ndarray of shape (len(X), len(Y)), or (classes, len(X), len(Y)) where every class has gates of its own
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        Y = X if Y is None else self._validate(Y, reset=False)
        left = self._gates(X)
        right = left if Y is X else self._gates(Y)
        pairs = zip(self._parts(left), self._parts(right), strict=True)
        K = np.concatenate([part.combined(X, Y, g, h) for (part, g), (_, h) in pairs])
        return K[0] if len(K) == 1 else K

    def cost(self, costs: Any) -> float:
        """Return what a prediction costs; a kernel is active if some support vector's gate for it is not zero."""
        return super().cost(costs)

    transform = available_if(has_learned_projections)(ProjectedSamples.transform)
    get_feature_names_out = available_if(has_learned_projections)(ProjectedSamples.get_feature_names_out)

    @available_if(has_projections)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> Any:
        """Fit, then return the samples in the learned projections."""
        return self.fit(X, y, **options).transform(X)
