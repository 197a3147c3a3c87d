"""Kernel machines: the dual program of given targets, and how it is solved for a given kernel."""

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

    A learner of the kernel reads only β, one column per output where there are several: the value J
    of the program depends on the kernel through K alone, and ∂J/∂K = −½ββᵀ, summed over the
    outputs.

    Attributes
    ----------
    program : Program, MulticlassProgram or IndependentOutputs
        The dual program.
    objective_scale : float
        The value of the program times this is the problem's value as the papers write it.
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
        Whether the targets are the labels ±1 of two classes, and every coefficient has its label's
        sign.
    has_one_slack : bool
        Whether the loss is either linear or quadratic in the slack everywhere, unlike Huber's.
    has_box : bool
        Whether the coefficients are in a box, each point of which proves a bound. Otherwise the
        loss is smooth, and they are minus its gradient.
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
        """The number of steps after which a solve ends, converged or not."""
        return most_steps(self.program.n_samples)

    def solve(
        self, K: ArrayOrTensor, warm_start: Array | None = None, tol: float = 1e-3
    ) -> Solution:
        """Return the solution for a combined kernel, to a relative duality gap of `tol`.

        K is a `Gram` or an array, `warm_start` any coefficients near the solution. The solver
        depends on the form of the kernel: a matrix in this process is read whole by sequential
        minimal optimisation, one on a device in working sets, factors by Newton steps in the
        features, working sets and interior points, and a kernel that is not stored in working sets
        as large as memory allows.
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
        """Return coefficients from which to start, near the solution β of the machine `before`.

        That machine differs from this one in C or another parameter.
        """
        return np.asarray(self.program.continued(beta, before.program))

    def take(self, rows: Indices) -> Machine:
        """Return the machine of some samples, each of which stands for several.

        See `Program.subsampled`.
        """
        subsampled = copy(self)
        subsampled.program = self.program.subsampled(rows)
        return subsampled

    def spread(self, rows: Indices, n_samples: int) -> Machine:
        """Return the machine of more samples, in which those of this machine have given rows.

        The other samples have no coefficient; see `Program.spread`.
        """
        spread = copy(self)
        spread.program = self.program.spread(rows, n_samples)
        return spread

    def linear_value(self, solution: Any) -> float:
        """Return the part of a solution's dual value that does not depend on the kernel."""
        return float(self.program.linear_value(solution.beta))

    def linear_bound(self, solution: Any) -> float:
        """Return a lower bound on the exact `linear_value`.

        It takes off the rounding, and what the missing sum of the coefficients may cost.
        """
        return float(self.program.linear_bound(solution.beta, solution.intercept))

    def primal_value(self, solution: Solution) -> float:
        """Return the primal value of a solution, which is at least the optimum for its kernel."""
        quadratic = 0.5 * float(np.sum(solution.beta * solution.values))
        return float(self.program.primal_value(quadratic, solution.values, solution.intercept))


def slack_terms(
    C: float, slack: int, n_samples: int, sample_weight: Vector | None
) -> tuple[Vector, Vector, float]:
    """Return the bounds of the coefficients, their ridge, and the scale of the objective.

    A slack of the 1-norm bounds the coefficients by Cᵢ, C times the sample's weight; a slack of the
    2-norm leaves them unbounded and adds 1/Cᵢ to the kernel's diagonal, and the papers write its
    problem without the factor ½. Samples of weight zero have the bound zero.
    """
    weight = np.ones(n_samples) if sample_weight is None else sample_weight
    sample_C = check_C(C) * weight
    if slack == 1:
        return sample_C, np.zeros(n_samples), 1.0
    if slack == 2:
        ridge = np.divide(1.0, sample_C, out=np.ones(n_samples), where=sample_C > 0)
        return np.where(sample_C > 0, np.inf, 0.0), ridge, 2.0
    raise ValueError(
        f"slack={slack!r}: the slack is penalised in the 1-norm or the 2-norm, so give 1 or 2."
    )


# Machines with one output: each is a choice of the numbers of one program -------------------------


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
        Norm of the slack.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample; zero takes a sample out.
    """

    has_labels = True

    def __init__(
        self, y: AnyArray, C: float = 1.0, slack: int = 1, sample_weight: Array | None = None
    ) -> None:
        bound, ridge, self.objective_scale = slack_terms(C, slack, len(y), sample_weight)
        target = np.asarray(y, dtype=np.float64)
        lower = np.where(target > 0, 0.0, -bound)
        upper = np.where(target > 0, bound, 0.0)
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
        target = np.asarray(y, dtype=np.float64)
        self.program = Program(target, -bound, bound, ridge, epsilon=float(epsilon))


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
        target = np.asarray(y, dtype=np.float64)
        self.program = Program(target, -sample_C, sample_C, ridge)


class Quantile(Machine):
    """Quantile regression: min ½‖w‖² + Σ Cᵢ max(q rᵢ, (q − 1) rᵢ) with the errors rᵢ = yᵢ − f(xᵢ).

    The pinball loss charges q for a target above f and 1 − q for one below it, so that about a
    fraction q of the targets is below. A coefficient is between Cᵢ(q − 1) and Cᵢq; there is no
    tube.

    Parameters
    ----------
    y : array of shape (n,)
        Targets.
    C : float
        Factor of the loss.
    quantile : float
        The fraction q, between 0 and 1.
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
        target = np.asarray(y, dtype=np.float64)
        lower = (quantile - 1.0) * bound
        upper = quantile * bound
        self.program = Program(target, lower, upper, ridge)


class OneClass(Machine):
    """One-class support vector machine: min ½‖w‖² + Σ Cᵢ ξᵢ + b subject to f(xᵢ) = ⟨w, φ(xᵢ)⟩ + b ≥
    −ξᵢ.

    Samples with f(x) < 0 are novel; at most 1/C training samples are, since the coefficients sum to
    one. With squared slacks, min ½‖w‖² + ½ Σ Cᵢ ξᵢ² + b, the coefficients are Cᵢ ξᵢ, and the number
    of novel training samples has no such bound.

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
    """The sum of programs that share a kernel, one per output; β has one column per program."""

    programs: Sequence[Program]

    @property
    def n_samples(self) -> int:
        return self.programs[0].n_samples

    @property
    def target(self) -> Array:
        """The linear terms, of shape (n, outputs)."""
        return np.column_stack([program.target for program in self.programs])

    def linear_value(self, beta: Array) -> float:
        """Return the part of the objective that does not depend on the kernel."""
        outputs = zip(self.programs, beta.T, strict=True)
        return sum(float(program.linear_value(b)) for program, b in outputs)

    def best_intercept(self, values: Array) -> Array:
        """Return the intercept of each output that minimises its primal objective given its Kβ."""
        outputs = zip(self.programs, values.T, strict=True)
        return np.array([program.best_intercept(f) for program, f in outputs])

    def primal_value(self, quadratic: float, values: Array, intercept: Array) -> float:
        """Return the primal objective, where quadratic is the sum of ½βᵀKβ over the outputs."""
        outputs = zip(self.programs, values.T, intercept, strict=True)
        return quadratic + sum(program.primal_value(0.0, f, b) for program, f, b in outputs)

    def worst_losses(self, values: Array, intercept: Array, error: Array) -> Array:
        """Return upper bounds on each sample's losses, added over the outputs.

        They hold where Kβ is `values` up to `error`.
        """
        outputs = zip(self.programs, values.T, intercept, error.T, strict=True)
        losses = [program.worst_losses(f, b, e) for program, f, b, e in outputs]
        return np.asarray(np.sum(losses, axis=0))

    def primal_bound(
        self, quadratic: float, values: Array, intercept: Array, error: Array
    ) -> float:
        """Return a number that the primal objective does not exceed, for outputs up to `error`."""
        outputs = zip(self.programs, values.T, intercept, error.T, strict=True)
        return quadratic + sum(program.primal_bound(0.0, f, b, e) for program, f, b, e in outputs)

    def linear_bound(self, beta: Array, intercept: Array) -> float:
        """Return a lower bound on the exact `linear_value`.

        It takes off the rounding, and what the missing sums of the coefficients may cost.
        """
        outputs = zip(self.programs, beta.T, intercept, strict=True)
        return sum(program.linear_bound(beta_t, b) for program, beta_t, b in outputs)

    def continued(self, beta: Array, before: IndependentOutputs) -> Array:
        """Return a start near the solution β of programs with other bounds."""
        outputs = zip(self.programs, beta.T, before.programs, strict=True)
        starts = [program.continued(beta_t, previous) for program, beta_t, previous in outputs]
        return np.column_stack(starts)


class SharedMachines(Machine):
    """Machines on the same samples, one per output, whose objectives are added: min Σ_t J_t(K).

    They share the weights of the kernels only: for a given kernel they are solved one by one.

    Parameters
    ----------
    machines : sequence of Machine
        One per output.
    """

    has_one_output = False

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = list(machines)
        self.program = IndependentOutputs([machine.program for machine in machines])
        first = machines[0]
        self.objective_scale = first.objective_scale
        self.can_be_subsampled = first.can_be_subsampled
        self.has_targets = first.has_targets
        self.has_one_slack = first.has_one_slack

    def take(self, rows: Indices) -> Machine:
        """Return the machines of some samples, each of which stands for several."""
        return SharedMachines([machine.take(rows) for machine in self.machines])

    def solve(
        self, K: ArrayOrTensor, warm_start: Array | None = None, tol: float = 1e-3
    ) -> Solution:
        """Return the solutions of all machines in one, each to a relative gap of `tol`.

        Coefficients and outputs have one column per machine.
        """
        starts: Any = [None] * len(self.machines)
        if warm_start is not None:
            starts = warm_start.T
        solutions = [
            machine.solve(K, start, tol)
            for machine, start in zip(self.machines, starts, strict=True)
        ]
        beta = np.column_stack([solution.beta for solution in solutions])
        values = np.column_stack([solution.values for solution in solutions])
        intercept = np.array([solution.intercept for solution in solutions])
        n_iter = sum(solution.n_iter for solution in solutions)
        return certify(self.program, beta, values, n_iter, intercept=intercept)


# All classes in one problem -----------------------------------------------------------------------


class MulticlassMachine(Machine):
    """A machine with one output per class, whose program is that of all classes together.

    Parameters
    ----------
    y : array of shape (n,)
        The classes, as numbers from zero.
    C : float
        Factor of the slack.
    n_classes : int, optional
        The number of classes; by default one more than the largest number in `y`.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample; zero takes a sample out.
    margins : array of shape (n, classes), optional
        By how much the output of the sample's class should exceed that of each other class; by
        default `margin`.
    constants : bool, default=False
        Whether every output has a constant, f_c = ⟨w_c, φ⟩ + b_c.

    Attributes
    ----------
    margin : float
        The margin of all samples and classes, unless `margins` are given.
    pairwise : bool
        Whether a sample has one slack per other class, or a single one.
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
        """Return the solution for a kernel, to a relative gap of `tol`.

        Parameters
        ----------
        K : ClassGram, or ndarray of shape (n, n) or (classes, n, n)
            The kernel, one for all classes or one per class.
        warm_start : ndarray of shape (n, classes), optional
            Any coefficients near the solution.
        tol : float
            Relative duality gap.
        values : ndarray of shape (n, classes), optional
            The outputs of a feasible warm start, if they are known; the solver does not compute
            them then.
        inside : bool
            Whether interior points are tried before steps that solve one sample each.
        """
        return solve_multiclass(
            K, self.program, warm_start, tol, None, values, self.options, inside
        )


class CrammerSinger(MulticlassMachine):
    """The machine with one slack per sample (Crammer and Singer 2001).

    min ½ Σ_c ‖w_c‖² + C Σᵢ ξᵢ subject to f_y(xᵢ) − f_c(xᵢ) ≥ 1 − ξᵢ for every other class c.
    """

    margin = 1.0
    pairwise = False


class PairwiseSlack(MulticlassMachine):
    """The machine with one slack per sample and class.

    min ½ Σ_c ‖w_c‖² + C Σᵢ Σ_c ξᵢ_c subject to f_y(xᵢ) − f_c(xᵢ) ≥ 2 − ξᵢ_c (Weston and Watkins
    1998; Bredensteiner and Bennett 1999). With two classes its value is twice that of the binary
    machine.
    """

    margin = 2.0
    pairwise = True
