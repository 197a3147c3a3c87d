"""The machines with one output: each a choice of the numbers of one program."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, ArrayOrTensor
from kernelmosaic.machines.base import Machine, check_positive, slack_terms
from kernelmosaic.solvers import Program, Solution, solve_unbounded
from kernelmosaic.solvers.program import Vector


class SVC(Machine):
    """Two-class support vector machine.

    With ``slack=1``: min ½‖w‖² + Σ Cᵢ ξᵢ; with ``slack=2``: min ‖w‖² + Σ Cᵢ ξᵢ²; both subject to yᵢ f(xᵢ) ≥ 1 − ξᵢ.

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
        self, y: AnyArray, C: float = 1.0, slack: int = 1, sample_weight: NDArray[np.float64] | None = None
    ) -> None:
        check_positive("C", C)
        reach, ridge, self.objective_scale = slack_terms(C, slack, len(y), sample_weight)
        target = np.asarray(y, dtype=np.float64)
        lower, upper = np.where(target > 0, 0.0, -reach), np.where(target > 0, reach, 0.0)
        self._program = Program(target, lower, upper, ridge)


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
        sample_weight: NDArray[np.float64] | None = None,
    ) -> None:
        check_positive("C", C)
        check_positive("epsilon", epsilon, zero=True)
        reach, ridge, self.objective_scale = slack_terms(C, slack, len(y), sample_weight)
        self._program = Program(np.asarray(y, dtype=np.float64), -reach, reach, ridge, epsilon=float(epsilon))


class Survival(Machine):
    """Censored regression: min ½‖w‖² + Σ Cᵢ lᵢ(f(xᵢ)) on the logarithms yᵢ of times, some of which are lower bounds.

    Where the event was observed, lᵢ(f) = max(0, |yᵢ − f| − ε), as in `SVR`; of a censored sample nothing more is known
    than that the event comes later, lᵢ(f) = max(0, yᵢ − f − ε), so that its coefficient is not negative. With
    ``slack=2`` the excess is squared: min ‖w‖² + Σ Cᵢ lᵢ².

    Parameters
    ----------
    y : array of shape (n,)
        Logarithms of the times.
    event : array of shape (n,)
        Whether the event was observed; else the time is censored.
    C : float
        Factor of the loss.
    epsilon : float
        Half-width of the tube in which errors are free.
    slack : {1, 2}
        Norm of the slack.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample.

    References
    ----------
    Shivaswamy, Chu and Jansche (2007), "A support vector approach to censored targets".
    """

    def __init__(
        self,
        y: AnyArray,
        event: AnyArray,
        C: float = 1.0,
        epsilon: float = 0.0,
        slack: int = 1,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> None:
        check_positive("C", C)
        check_positive("epsilon", epsilon, zero=True)
        reach, ridge, self.objective_scale = slack_terms(C, slack, len(y), sample_weight)
        target, lower = np.asarray(y, dtype=np.float64), np.where(np.asarray(event, dtype=bool), -reach, 0.0)
        self._program = Program(target, lower, reach, ridge, epsilon=float(epsilon))


class Huber(Machine):
    """Huber regression: min ½‖w‖² + Σ Cᵢ h(yᵢ − f(xᵢ)), where h(r) = r²/(2δ) up to |r| = δ and |r| − δ/2 beyond.

    A coefficient is Cᵢ/δ times its error, and at most Cᵢ: the program's ridge is δ/Cᵢ, its bounds are ±Cᵢ. As δ
    vanishes the loss becomes the absolute error, that of `SVR` without a tube.

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
        self,
        y: AnyArray,
        C: float = 1.0,
        delta: float = 0.1,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> None:
        check_positive("C", C)
        check_positive("delta", delta, zero=True)
        sample_C = C * (np.ones(len(y)) if sample_weight is None else sample_weight)
        ridge = np.divide(delta, sample_C, out=np.zeros(len(y)), where=sample_C > 0)
        self._program = Program(np.asarray(y, dtype=np.float64), -sample_C, sample_C, ridge)


class LeastSquares(Machine):
    """Regularised least squares: min Σ sᵢ (yᵢ − f(xᵢ))² + λ‖w‖².

    Parameters
    ----------
    y : array of shape (n,)
        Targets.
    alpha : float
        The regulariser λ.
    intercept : bool
        Whether f has a constant term.
    sample_weight : array of shape (n,), optional
        The sᵢ; zero takes a sample out.
    """

    def __init__(
        self,
        y: AnyArray,
        alpha: float = 1.0,
        intercept: bool = True,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> None:
        check_positive("alpha", alpha)
        n = len(y)
        if sample_weight is not None and np.any(sample_weight <= 0):
            raise ValueError("sample_weight must be positive here; leave out the samples of weight zero.")
        ridge = np.full(n, alpha) if sample_weight is None else alpha / sample_weight
        self.objective_scale = 2.0 * alpha
        bound = np.full(n, np.inf)
        total = 0.0 if intercept else None
        self._program = Program(np.asarray(y, dtype=np.float64), -bound, bound, ridge, total=total)

    def solve(self, K: ArrayOrTensor, warm_start: Vector | None = None, tol: float = 1e-3) -> Solution:
        """Return the exact solution; a warm start would not make the factorisation cheaper."""
        return solve_unbounded(K, self.program)


class OneClass(Machine):
    """One-class support vector machine: min ½‖w‖² + Σ Cᵢ ξᵢ + b subject to f(xᵢ) = ⟨w, φ(xᵢ)⟩ + b ≥ −ξᵢ.

    Samples with f(x) < 0 are novel; at most 1/C training samples are, since the coefficients sum to one. With squared
    slacks, min ½‖w‖² + ½ Σ Cᵢ ξᵢ² + b, the coefficients are Cᵢ ξᵢ, and 1/C bounds nothing.

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
        self, n_samples: int, C: float = 1.0, sample_weight: NDArray[np.float64] | None = None, slack: int = 1
    ) -> None:
        reach, ridge, _ = slack_terms(check_positive("C", C), slack, n_samples, sample_weight)
        if reach.sum() < 1 - 1e-9:
            raise ValueError(
                f"C={C:g}: the bounds C · sample_weight sum to {reach.sum():g}; raise C until they reach 1."
                " C = 1 / n_samples will do."
            )
        zero = np.zeros(n_samples)
        self._program = Program(zero, zero, reach, ridge, total=1.0)
