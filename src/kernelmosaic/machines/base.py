"""Kernel machines: the dual program of some targets, and how to solve it for a given kernel."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmosaic._checks import check_C, check_positive
from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, Indices
from kernelmosaic.backend import NUMPY
from kernelmosaic.gram.gram import as_gram
from kernelmosaic.solvers.factored import solve_factored, solve_stored
from kernelmosaic.solvers.multiclass import solve_multiclass, step_limit
from kernelmosaic.solvers.program import MulticlassProgram, Program, Solution, Vector, certify
from kernelmosaic.solvers.smo import most_steps, solve_smo
from kernelmosaic.solvers.tuning import DEFAULTS, SolverOptions
from kernelmosaic.solvers.working_set import solve_on_demand, solve_working_set


class Machine:
    """A kernel machine with its targets: everything of the training problem but the kernel.

    Only β crosses from here to the learner of the kernel, one column per output where there are
    several: the value J of the program depends on the kernel through K alone, and ∂J/∂K = −½ββᵀ,
    summed over the outputs.

    Attributes
    ----------
    program : Program, MulticlassProgram or IndependentOutputs
        The dual program; its value times `objective_scale` is the problem's value as the papers
        write it.
    objective_scale : float
        See `program`.
    options : SolverOptions
        How the program is solved.
    can_be_subsampled : bool
        Whether some of the samples, each counting for several, have about the same solution.
    has_one_output : bool
        Whether there is one coefficient per sample, not one per sample and class.
    has_independent_outputs : bool
        Whether the outputs, if there are several, share nothing but the kernel.
    has_targets : bool
        Whether the samples have targets.
    has_labels : bool
        Whether these are the labels ±1 of two classes, and every coefficient has its label's sign.
    has_one_slack : bool
        Whether the loss is linear or quadratic in the slack, not one after the other.
    has_box : bool
        Whether the coefficients are in a box, and each point of it proves a bound; else the loss is
        smooth, and they are its slopes.
    """

    program: Any
    objective_scale: float = 1.0
    options: SolverOptions = DEFAULTS
    can_be_subsampled: bool = True
    has_one_output: bool = True
    has_independent_outputs: bool = True
    has_targets: bool = True
    has_labels: bool = False
    has_one_slack: bool = True
    has_box: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of β: one coefficient per sample, and per output where there are several."""
        return tuple(self.program.target.shape)

    @property
    def most_steps(self) -> int:
        """The steps after which a solve ends, converged or not."""
        return most_steps(self.program.n_samples)

    def solve(
        self, K: ArrayOrTensor, warm_start: Array | None = None, tol: float = 1e-3
    ) -> Solution:
        """Return the solution for the combined kernel K, a `Gram` or an array, to a relative
        duality gap of `tol`.

        A matrix in this process is read whole by sequential minimal optimisation, one on a device
        in working sets, factors by Newton steps in the features, working sets and interior points,
        and what is not stored in working sets as large as memory allows.
        """
        gram: Any = as_gram(K)
        if gram.factored:
            return solve_factored(gram, self.program, warm_start, tol, self.options)
        if gram.matrix is None:
            return solve_on_demand(gram, self.program, warm_start, tol, self.options)
        if gram.backend is not NUMPY:
            return solve_working_set(gram, self.program, warm_start, tol, options=self.options)
        solve = solve_stored if gram.n_samples <= self.options.few_samples else solve_smo
        return solve(gram.matrix, self.program, warm_start, tol, options=self.options)

    def continued(self, beta: Array, before: Machine) -> Array:
        """Return coefficients to start from where the solution of a like machine, with another C
        say, ended."""
        return np.asarray(self.program.continued(beta, before.program))

    def take(self, rows: Indices) -> Machine:
        """Return the machine of some samples, each of which stands for several; see
        `Program.subsampled`."""
        few = copy(self)
        few.program = self.program.subsampled(rows)
        return few

    def spread(self, rows: Indices, n_samples: int) -> Machine:
        """Return the machine among more samples, which hold these ones; see `Program.spread`."""
        among = copy(self)
        among.program = self.program.spread(rows, n_samples)
        return among

    def linear_value(self, solution: Any) -> float:
        """Return everything in the dual value of a solution that does not read the kernel."""
        return float(self.program.linear_value(solution.beta))

    def linear_bound(self, solution: Any) -> float:
        """Return the same less its rounding, and what the sum of the coefficients misses."""
        return float(self.program.linear_bound(solution.beta, solution.intercept))

    def primal_value(self, solution: Solution) -> float:
        """Return the primal value of a solution: no less than the optimum for its kernel."""
        quadratic = 0.5 * float(np.sum(solution.beta * solution.values))
        return float(self.program.primal_value(quadratic, solution.values, solution.intercept))


def slack_terms(
    C: float, slack: int, n_samples: int, sample_weight: Vector | None
) -> tuple[Vector, Vector, float]:
    """Return the bound of the coefficients, the ridge and the scale of the objective for a 1-norm
    or 2-norm slack.

    A 1-norm slack bounds the coefficients by the sample_C Cᵢ; a 2-norm slack leaves them unbounded
    and adds 1/Cᵢ to the kernel's diagonal, and the papers write its problem without the factor ½.
    """
    sample_C = check_C(C) * (np.ones(n_samples) if sample_weight is None else sample_weight)
    if slack == 1:
        return sample_C, np.zeros(n_samples), 1.0
    if slack == 2:
        ridge = np.divide(1.0, sample_C, out=np.ones(n_samples), where=sample_C > 0)
        return np.where(sample_C > 0, np.inf, 0.0), ridge, 2.0
    raise ValueError(
        f"slack={slack!r}: the slack is penalised in the 1-norm or the 2-norm, so give 1 or 2."
    )


# One output: each a choice of the numbers of one program ------------------------------------------


class SVC(Machine):
    """Two-class support vector machine.

    With ``slack=1``: min ½‖w‖² + Σ Cᵢ ξᵢ; with ``slack=2``: min ‖w‖² + Σ Cᵢ ξᵢ²; both subject to yᵢ
    f(xᵢ) ≥ 1 − ξᵢ.

    Parameters
    ----------
    y : array of shape (n,)
        −1 or +1.
    C : float
        Factor of the slack.
    slack : {1, 2}
        Its norm.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample; zero takes a sample out.
    """

    has_labels = True

    def __init__(
        self, y: AnyArray, C: float = 1.0, slack: int = 1, sample_weight: Array | None = None
    ) -> None:
        bound, ridge, self.objective_scale = slack_terms(C, slack, len(y), sample_weight)
        target = np.asarray(y, dtype=np.float64)
        lower, upper = np.where(target > 0, 0.0, -bound), np.where(target > 0, bound, 0.0)
        self.program = Program(target, lower, upper, ridge)


class SVR(Machine):
    """Support vector regression: min ½‖w‖² + Σ Cᵢ max(0, |yᵢ − f(xᵢ)| − ε).

    With ``slack=2`` the excess is squared: min ‖w‖² + Σ Cᵢ max(0, |yᵢ − f(xᵢ)| − ε)².

    Parameters
    ----------
    y : array of shape (n,)
        Targets.
    C : float
        Factor of the slack.
    epsilon : float
        Half-width of the tube in which errors are free.
    slack : {1, 2}
        Norm of the slack.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample.
    """

    def __init__(
        self,
        y: AnyArray,
        C: float = 1.0,
        epsilon: float = 0.1,
        slack: int = 1,
        sample_weight: Array | None = None,
    ) -> None:
        check_positive("epsilon", epsilon, zero=True)
        bound, ridge, self.objective_scale = slack_terms(C, slack, len(y), sample_weight)
        self.program = Program(
            np.asarray(y, dtype=np.float64), -bound, bound, ridge, epsilon=float(epsilon)
        )


class Huber(Machine):
    """Huber regression: min ½‖w‖² + Σ Cᵢ h(yᵢ − f(xᵢ)), where h(r) = r²/(2δ) up to |r| = δ and |r|
    − δ/2 beyond.

    A coefficient is Cᵢ/δ times its error, and at most Cᵢ: the program's ridge is δ/Cᵢ, its bounds
    are ±Cᵢ. As δ vanishes the loss becomes the absolute error, that of `SVR` without a tube.

    Parameters
    ----------
    y : array of shape (n,)
        Targets.
    C : float
        Factor of the loss.
    delta : float
        The error δ at which the loss turns from quadratic to linear.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample; zero takes a sample out.

    References
    ----------
    Huber (1964), "Robust estimation of a location parameter".
    """

    has_one_slack = False

    def __init__(
        self, y: AnyArray, C: float = 1.0, delta: float = 0.1, sample_weight: Array | None = None
    ) -> None:
        check_positive("delta", delta, zero=True)
        sample_C, _, _ = slack_terms(C, 1, len(y), sample_weight)
        ridge = np.divide(delta, sample_C, out=np.zeros(len(y)), where=sample_C > 0)
        self.program = Program(np.asarray(y, dtype=np.float64), -sample_C, sample_C, ridge)


class Quantile(Machine):
    """Quantile regression: min ½‖w‖² + Σ Cᵢ max(q rᵢ, (q − 1) rᵢ) with the errors rᵢ = yᵢ − f(xᵢ).

    The pinball loss charges q for a target above f and 1 − q for one below it, so that about a
    share q of the targets is below. A coefficient is between Cᵢ(q − 1) and Cᵢq; there is no tube.

    Parameters
    ----------
    y : array of shape (n,)
        Targets.
    C : float
        Factor of the loss.
    quantile : float
        The share q, between 0 and 1.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample.

    References
    ----------
    Koenker and Bassett (1978), "Regression quantiles"; Takeuchi, Le, Sears and Smola (2006),
    "Nonparametric quantile estimation".
    """

    def __init__(
        self, y: AnyArray, C: float = 1.0, quantile: float = 0.5, sample_weight: Array | None = None
    ) -> None:
        bound, ridge, _ = slack_terms(C, 1, len(y), sample_weight)
        self.program = Program(
            np.asarray(y, dtype=np.float64), (quantile - 1.0) * bound, quantile * bound, ridge
        )


class OneClass(Machine):
    """One-class support vector machine: min ½‖w‖² + Σ Cᵢ ξᵢ + b subject to f(xᵢ) = ⟨w, φ(xᵢ)⟩ + b ≥
    −ξᵢ.

    Samples with f(x) < 0 are novel; at most 1/C training samples are, since the coefficients sum to
    one. With squared slacks, min ½‖w‖² + ½ Σ Cᵢ ξᵢ² + b, the coefficients are Cᵢ ξᵢ, and 1/C bounds
    nothing.

    Parameters
    ----------
    n_samples : int
        Number of training samples.
    C : float
        Factor of the slack; at least 1 over the sum of the sample weights, unless it is squared.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample.
    slack : {1, 2}
        Norm of the slack.
    """

    has_targets = False

    def __init__(
        self, n_samples: int, C: float = 1.0, sample_weight: Array | None = None, slack: int = 1
    ) -> None:
        bound, ridge, _ = slack_terms(C, slack, n_samples, sample_weight)
        zero = np.zeros(n_samples)
        self.program = Program(zero, zero, bound, ridge, total=1.0)


# Several outputs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class IndependentOutputs:
    """The sum of programs that share a kernel; β has one column per program."""

    programs: Sequence[Program]

    @property
    def n_samples(self) -> int:
        return self.programs[0].n_samples

    @property
    def target(self) -> Array:
        """The linear terms, of shape (n, outputs)."""
        return np.column_stack([one.target for one in self.programs])

    def linear_value(self, beta: Array) -> float:
        """Everything in the objective that does not read the kernel."""
        return sum(float(one.linear_value(b)) for one, b in zip(self.programs, beta.T, strict=True))

    def best_intercept(self, values: Array) -> Array:
        """Return the intercept of each output that minimises its primal objective given its Kβ."""
        return np.array(
            [one.best_intercept(f) for one, f in zip(self.programs, values.T, strict=True)]
        )

    def primal_value(self, quadratic: float, values: Array, intercept: Array) -> float:
        """Return the primal objective, where quadratic is the sum of ½βᵀKβ over the outputs."""
        outputs = zip(self.programs, values.T, intercept, strict=True)
        return quadratic + sum(one.primal_value(0.0, f, b) for one, f, b in outputs)

    def worst_losses(self, values: Array, intercept: Array, error: Array) -> Array:
        """Return the most that each sample's losses may add up to, where the outputs are `values`
        up to `error`."""
        each = zip(self.programs, values.T, intercept, error.T, strict=True)
        return np.asarray(np.sum([one.worst_losses(f, b, e) for one, f, b, e in each], axis=0))

    def primal_bound(
        self, quadratic: float, values: Array, intercept: Array, error: Array
    ) -> float:
        """Return a number that the primal objective does not exceed, for outputs up to `error`."""
        each = zip(self.programs, values.T, intercept, error.T, strict=True)
        return quadratic + sum(one.primal_bound(0.0, f, b, e) for one, f, b, e in each)

    def linear_bound(self, beta: Array, intercept: Array) -> float:
        """Return a number that `linear_value` exceeds by no less than its rounding and what the
        sums of β miss."""
        return sum(
            one.linear_bound(own, b)
            for one, own, b in zip(self.programs, beta.T, intercept, strict=True)
        )

    def continued(self, beta: Array, before: IndependentOutputs) -> Array:
        """Return a start near the solution β of programs with other bounds."""
        each = zip(self.programs, beta.T, before.programs, strict=True)
        return np.column_stack([one.continued(own, other) for one, own, other in each])


class SharedMachines(Machine):
    """Machines on the same samples, one per output, whose objectives are added: min Σ_t J_t(K).

    At a given kernel they are solved one by one; only its weights are shared.

    Parameters
    ----------
    machines : sequence of Machine
        One per output.
    """

    has_one_output = False

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines, first = list(machines), machines[0]
        self.program = IndependentOutputs([one.program for one in machines])
        self.objective_scale, self.can_be_subsampled = (
            first.objective_scale,
            first.can_be_subsampled,
        )
        self.has_targets, self.has_one_slack = first.has_targets, first.has_one_slack

    def take(self, rows: Indices) -> Machine:
        """Return the machines of some samples, each of which stands for several."""
        return SharedMachines([one.take(rows) for one in self.machines])

    def solve(
        self, K: ArrayOrTensor, warm_start: Array | None = None, tol: float = 1e-3
    ) -> Solution:
        """Return the solutions for the combined kernel, side by side, each to a relative gap of
        `tol`."""
        starts = [None] * len(self.machines) if warm_start is None else warm_start.T
        each = [one.solve(K, start, tol) for one, start in zip(self.machines, starts, strict=True)]
        beta, values = (
            np.column_stack([getattr(one, name) for one in each]) for name in ("beta", "values")
        )
        intercept, n_iter = (
            np.array([one.intercept for one in each]),
            sum(one.n_iter for one in each),
        )
        return certify(self.program, beta, values, n_iter, intercept=intercept)


# All classes in one problem -----------------------------------------------------------------------


class MulticlassMachine(Machine):
    """A machine with one output per class: everything of the training problem but the kernel.

    Parameters
    ----------
    y : array of shape (n,)
        The classes, as numbers from zero.
    C : float
        Factor of the slack.
    n_classes : int, optional
        How many classes there are; by default as many as `y` shows.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample; zero takes a sample out.
    margins : array of shape (n, classes), optional
        By how much the sample's class should be ahead of each other class; by default `margin`.
    constants : bool, default=False
        Whether every output has a constant, f_c = ⟨w_c, φ⟩ + b_c.
    """

    can_be_subsampled = False
    has_one_output = False
    has_independent_outputs = False
    margin: float
    pairwise: bool

    def __init__(
        self,
        y: AnyArray,
        C: float = 1.0,
        n_classes: int | None = None,
        sample_weight: Array | None = None,
        margins: Array | None = None,
        *,
        constants: bool = False,
    ) -> None:
        labels = np.asarray(y, dtype=np.intp)
        k = int(labels.max()) + 1 if n_classes is None else n_classes
        if labels.min() < 0 or labels.max() >= k or k < 2:
            raise ValueError(f"y: give at least two classes, numbered from 0 to {k - 1}.")
        sample_C, _, _ = slack_terms(C, 1, len(labels), sample_weight)
        if margins is None:
            margins = np.full((len(labels), k), self.margin)
        if margins.shape != (len(labels), k):
            raise ValueError(
                f"margins has shape {margins.shape}; {len(labels)} samples of {k} classes are"
                " given."
            )
        margins = np.asarray(margins, dtype=np.float64)
        self.program = MulticlassProgram(labels, margins, sample_C, self.pairwise, constants)

    @property
    def most_steps(self) -> int:
        return step_limit(self.program.n_samples)

    def solve(
        self,
        K: ArrayOrTensor,
        warm_start: Array | None = None,
        tol: float = 1e-3,
        values: Array | None = None,
        inside: bool = False,
    ) -> Solution:
        """Return the solution for the kernel, one for all classes or one per class, to a relative
        gap of `tol`.

        `values` are the outputs of a feasible warm start, where they are known: the solver does not
        recompute them. With `inside`, interior points come before steps that solve one sample each.
        """
        return solve_multiclass(
            K, self.program, warm_start, tol, None, values, self.options, inside
        )


class CrammerSinger(MulticlassMachine):
    """One slack per sample: min ½ Σ_c ‖w_c‖² + C Σᵢ ξᵢ with f_y(xᵢ) − f_c(xᵢ) ≥ 1 − ξᵢ for every
    other class c."""

    margin = 1.0
    pairwise = False


class PairwiseSlack(MulticlassMachine):
    """One slack per sample and class: min ½ Σ_c ‖w_c‖² + C Σᵢ Σ_c ξᵢ_c with f_y(xᵢ) − f_c(xᵢ) ≥ 2 −
    ξᵢ_c (Weston and Watkins 1998; Bredensteiner and Bennett 1999). Two classes are worth twice the
    binary machine."""

    margin = 2.0
    pairwise = True
