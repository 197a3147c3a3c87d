"""Small wrong changes of the library's source, each of which some test must notice.

python tools/mutations.py --list                    # names and ideas
python tools/mutations.py --log before.jsonl        # run those that the log does not have yet
python tools/mutations.py --only softmax-slope      # run one; the option may be repeated
python tools/mutations.py --log after.jsonl --tests tests --timeout 3600
python tools/mutations.py --log before.jsonl --write   # put the log into tools/mutations.md, run nothing

A mutation is a piece of text that occurs exactly once in a file, and what replaces it. The runner
copies the tree to a temporary folder, changes one file there, runs the tests that should notice it,
and puts the file back; the checkout itself is never changed. A mutation is killed if a test fails,
and has survived if all pass. The share of the killed ones, before and after a change of the tests,
says whether they have kept their power.

Code that moves takes its mutations along: whoever moves it updates `file`, `old` and `new`, and
keeps the name and the idea. `tests/test_project.py` checks that every mutation applies.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOP = Path(__file__).parents[1]
PACKAGE = "src/kernelmosaic"
PAGE = TOP / "tools" / "mutations.md"
#: What the copies of the tree go without.
LEFT_OUT = (
    ".git",
    ".venv",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    "_build",
    "dist",
)
#: Where a log keeps the run of all selected tests on the unchanged tree.
BASELINE = "(unchanged)"


@dataclass(frozen=True)
class Mutation:
    """A wrong change.

    Attributes
    ----------
    name, idea : str
        What it is called, and what is wrong; both stay when the code moves.
    file : str
        The file, relative to the package.
    old, new : str
        A text that occurs exactly once in it, and what replaces it. Where its lines are broken does
        not matter.
    tests : tuple of str
        Test files that should notice, relative to ``tests``, the fastest first.
    """

    name: str
    idea: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def path(self, top: Path) -> Path:
        """Return the file in a tree."""
        return top / PACKAGE / self.file

    def applied(self, top: Path) -> str:
        """Return the text of the file with the change, or raise a ValueError that says why it does
        not apply."""
        path = self.path(top)
        if not path.is_file():
            raise ValueError(
                f"mutation {self.name} no longer applies: there is no file {PACKAGE}/{self.file}."
            )
        text = path.read_text(encoding="utf-8")
        places = list(spaced_pattern(self.old).finditer(text))
        count = len(places)
        if count != 1:
            raise ValueError(
                f"mutation {self.name} no longer applies: {PACKAGE}/{self.file} has its text"
                f" {count} times, not once: {self.old!r}. Update tools/mutations.py; the idea is:"
                f" {self.idea}."
            )
        place = places[0]
        return text[: place.start()] + self.new + text[place.end() :]


def spaced_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern of a piece of code however its lines are broken.

    Between two tokens there may be any blanks and ends of lines; before a closing bracket there may
    be the comma that a formatter adds. Blanks at the start and at the end of the text are part of it.
    """
    code = text.strip()
    start, end = text.split(code)
    lines = []
    for line in code.split("\n"):
        tokens = re.findall(r"\w+|[^\w\s]", line)
        pattern = ""
        for previous, token in zip(["", *tokens], tokens, strict=False):
            if previous:
                pattern += r"\s*"
            if token in ")]}" and previous != ",":
                pattern += r"(?:,\s*)?"
            pattern += re.escape(token)
        lines.append(pattern)
    return re.compile(re.escape(start) + r"\s*\n\s*".join(lines) + re.escape(end))


def _m(name: str, idea: str, file: str, old: str, new: str, *tests: str) -> Mutation:
    return Mutation(name, idea, file, old, new, tests)


MUTATIONS = (
    # Solvers --------------------------------------------------------------------------------------
    _m(
        "pair-residual-sign",
        "sign of the change of the slopes after a pair step",
        "solvers/smo.py",
        "np.subtract(residual, slopes, out=residual)",
        "np.add(residual, slopes, out=residual)",
        "solvers/test_pair_steps.py",
        "solvers/test_smo.py",
    ),
    _m(
        "compiled-pair-residual-sign",
        "the same in the compiled loop",
        "solvers/_numba_smo.py",
        "value = r[s] - (change_i * k_i[s] + change_j * k_j[s])",
        "value = r[s] - (change_i * k_i[s] - change_j * k_j[s])",
        "solvers/test_pair_steps.py",
        "solvers/test_smo.py",
    ),
    _m(
        "tube-slope-sign",
        "sign of the tube in the slopes of growing coefficients",
        "solvers/program.py",
        "residual - xp.where(beta >= 0, e, -e), -np.inf)",
        "residual + xp.where(beta >= 0, e, -e), -np.inf)",
        "solvers/test_pair_steps.py",
        "solvers/test_smo.py",
    ),
    _m(
        "bound-halved",
        "upper bound C halved",
        "machines/base.py",
        "return sample_C, np.zeros(n_samples), 1.0",
        "return 0.5 * sample_C, np.zeros(n_samples), 1.0",
        "contracts/test_machines.py",
        "estimators/test_against_libsvm.py",
    ),
    _m(
        "ridge-of-squared-slack",
        "ridge of squared slacks twice as large",
        "machines/base.py",
        "ridge = np.divide(1.0, sample_C,",
        "ridge = np.divide(2.0, sample_C,",
        "contracts/test_machines.py",
        "estimators/test_objective.py",
    ),
    _m(
        "refused-fits-stay",
        "fits of a path that their shared certificate refuses are not learned again",
        "engine/fit.py",
        "    settled = [_settled(rough, fit) for rough, fit in zip(fits, certified_fits,"
        " strict=True)]\n",
        "    settled = certified_fits\n",
        "estimators/test_path_work.py",
    ),
    _m(
        "intercept-missing",
        "solutions without their intercept",
        "solvers/program.py",
        "        intercept = program.best_intercept(values, **near)\n",
        "        intercept = 0.0\n",
        "solvers/test_program.py",
        "solvers/test_working_set.py",
    ),
    _m(
        "intercept-at-an-end",
        "the best intercept is the lower end of a range, not its middle",
        "solvers/program.py",
        "return float(np.mean(ends)) if ends else 0.0",
        "return float(min(ends)) if ends else 0.0",
        "solvers/test_program.py",
        "solvers/test_smo.py",
    ),
    _m(
        "conjugate-clip",
        "the conjugate clipped to the wrong lower bound",
        "solvers/program.py",
        "return xp.clip(u, self.lower, self.upper)",
        "return xp.clip(u, -self.upper, self.upper)",
        "solvers/test_program.py",
        "contracts/test_machines.py",
    ),
    _m(
        "feasible-ignores-a-short-sum",
        "the nearest feasible point may sum to less than the total",
        "solvers/program.py",
        "self.excess_sum(clipped) == 0:",
        "self.excess_sum(clipped) <= 0:",
        "solvers/test_program.py",
    ),
    _m(
        "free-set",
        "samples at their lower bound counted as free",
        "solvers/program.py",
        "inside = (beta > self.lower) & (beta < self.upper)",
        "inside = (beta >= self.lower) & (beta < self.upper)",
        "learning/test_newton.py",
        "solvers/test_smo.py",
        "solvers/test_cholesky.py",
    ),
    _m(
        "free-newton-sign",
        "sign of the Newton step on the free samples",
        "solvers/free_newton.py",
        "        return x\n",
        "        return -x\n",
        "solvers/test_cholesky.py",
        "solvers/test_smo.py",
        "solvers/test_extremes.py",
    ),
    _m(
        "proximal-newton-sign",
        "sign of the Newton step in features",
        "solvers/proximal_newton.py",
        "direction = -Cholesky(H).solve(gradient)",
        "direction = Cholesky(H).solve(gradient)",
        "solvers/test_proximal_newton.py",
    ),
    _m(
        "interior-step-sign",
        "interior point steps go the wrong way",
        "solvers/interior_point.py",
        "self.x = self.x + size * d.x",
        "self.x = self.x - size * d.x",
        "solvers/test_interior_point.py",
    ),
    _m(
        "interior-step-too-long",
        "interior point steps go beyond the bounds",
        "solvers/tuning.py",
        "FRACTION_TO_BOUNDARY = 0.995",
        "FRACTION_TO_BOUNDARY = 1.5",
        "solvers/test_interior_point.py",
    ),
    _m(
        "weight-path-sign",
        "interior points over weights and machine move the weights the wrong way with gamma",
        "solvers/weight_path.py",
        "theta = k + w * (along - gamma)",
        "theta = k + w * (along + gamma)",
        "learning/test_interior_points.py",
    ),
    _m(
        "weight-path-never-follows",
        "Newton steps do not hand over to interior points",
        "learning/interior_points.py",
        "self.successor = successor if options.max_iter > options.min_path_steps else None",
        "self.successor = None",
        "learning/test_interior_points.py",
    ),
    _m(
        "multiclass-interior-sums",
        "interior point steps of joint machines do not restore the samples' sums",
        "solvers/interior_point.py",
        "sums = -self.x.sum(axis=1)\n        totals = -self.x.sum(axis=0)",
        "sums = self.x.sum(axis=1)\n        totals = self.x.sum(axis=0)",
        "solvers/test_class_constants.py",
    ),
    _m(
        "stale-residual-after-newton",
        "residual not brought up to date after Newton steps",
        "solvers/smo.py",
        "self._place(free, new)",
        "self.beta[free], self.refreshed_at = new, self.n_iter",
        "solvers/test_smo.py",
        "solvers/test_extremes.py",
    ),
    _m(
        "stale-residual-of-the-pinned",
        "residual not brought up to date after steps of the active samples alone",
        "solvers/smo.py",
        "self._place(active, beta)",
        "self.beta[active], self.refreshed_at = beta, self.n_iter",
        "solvers/test_smo.py",
        "solvers/test_extremes.py",
    ),
    _m(
        "working-set-residual-sign",
        "sign of the change of the residual after a working set",
        "solvers/working_set.py",
        "self.residual -= self.gram.products(change)",
        "self.residual += self.gram.products(change)",
        "solvers/test_working_set.py",
    ),
    # Certificates ---------------------------------------------------------------------------------
    _m(
        "rounding-dropped",
        "certificates without the bound of their rounding",
        "gram/linear_algebra.py",
        "return 2.0 * float(np.finfo(dtype).eps * np.sqrt(n))",
        "return 0.0",
        "estimators/test_certificate.py",
    ),
    _m(
        "certified-losses-in-the-middle",
        "losses of the certificate at the middle of the residuals' intervals",
        "learning/certificate.py",
        "program.primal_bound(quadratic + forms.quadratic_error, forms.values, intercept,"
        " forms.values_error)",
        "program.primal_bound(quadratic + forms.quadratic_error, forms.values, intercept, 0.0 *"
        " forms.values_error)",
        "estimators/test_certificate.py",
    ),
    _m(
        "certified-forms-at-their-lower-end",
        "lower bound from quadratic forms without their rounding",
        "learning/certificate.py",
        "q = (forms.q + forms.q_error).reshape(",
        "q = (forms.q - forms.q_error).reshape(",
        "estimators/test_certificate.py",
    ),
    _m(
        "lower-bound-of-another-norm",
        "lower bound of a certificate from the norm of sums whatever the norm",
        "learning/problem.py",
        "return constant - self.options.norm.support(q / self.options.penalties**2)",
        "return constant - float(np.max(q / self.options.penalties**2))",
        "estimators/test_missing_views.py",
    ),
    _m(
        "search-bound-of-another-norm",
        "lower bound of a search from the norm of sums whatever the norm",
        "learning/problem.py",
        "return constant - self.norm.support(q[evaluation.computed_kernels])",
        "return constant - float(q[evaluation.computed_kernels].max())",
        "contracts/test_norms.py",
        "learning/test_newton.py",
    ),
    _m(
        "witness-infeasible",
        "witness of class-wise weights not scaled into the feasible set",
        "learning/certificate.py",
        "lower: float = self.machine.program.linear_bound(tau, solution.intercept) / scale",
        "lower: float = self.machine.program.linear_bound(tau, solution.intercept)",
        "estimators/test_joint.py",
    ),
    _m(
        "gap-clipped",
        "bounds that cross are a gap of zero",
        "learning/certificate.py",
        "    if not (np.isfinite(upper) and np.isfinite(lower)) or upper < lower:\n",
        "    upper = max(upper, lower)\n    if not (np.isfinite(upper) and np.isfinite(lower)):\n",
        "estimators/test_certificate.py",
    ),
    _m(
        "gap-relative-to-the-sum",
        "gap relative to the sum of both bounds",
        "learning/certificate.py",
        "scale = max(abs(lower), min(abs(objective), abs(upper)) - abs(upper - objective))",
        "scale = abs(lower) + abs(objective)",
        "estimators/test_certificate.py",
    ),
    _m(
        "exact-entries-ignored",
        "certificates from entries in single precision taken for exact ones",
        "learning/certificate.py",
        "products = stack.exact_products(beta, rows)",
        "products = stack.products(beta)[:, rows]",
        "estimators/test_certificate.py",
    ),
    _m(
        "gated-bound-without-quadratic",
        "lower bound of localized fits without the quadratic term",
        "localized/learning.py",
        "constant - forms.quadratic - forms.quadratic_error",
        "constant - forms.quadratic_error",
        "localized/test_objective.py",
        "estimators/test_certificate.py",
    ),
    _m(
        "worst-loss-is-the-least",
        "worst losses at the better end of a residual's interval",
        "solvers/program.py",
        "ends = np.stack([residual + error, residual - error])",
        "ends = np.stack([residual, residual])",
        "solvers/test_program.py",
        "estimators/test_certificate.py",
    ),
    _m(
        "linear-bound-ignores-the-sum",
        "linear bound without what the sum of the coefficients misses of its total",
        "solvers/program.py",
        "sum_rounding(self.n_samples) * size - missed",
        "sum_rounding(self.n_samples) * size",
        "solvers/test_program.py",
        "estimators/test_certificate.py",
    ),
    _m(
        "multiclass-worst-loss-one-sided",
        "worst losses of joint machines without the error of the sample's own class",
        "solvers/program.py",
        "shortfalls += error + error[self.own][:, np.newaxis]",
        "shortfalls += error",
        "machines/test_multiclass.py",
        "estimators/test_certificate.py",
    ),
    _m(
        "multiclass-linear-bound-ignores-the-sums",
        "linear bound of joint machines without what the classes' sums miss",
        "solvers/program.py",
        "rounding - float(np.abs(constants) @ missed)",
        "rounding",
        "machines/test_multiclass.py",
    ),
    # Normalising ----------------------------------------------------------------------------------
    _m(
        "trace-is-a-sum",
        "kernels divided by their trace, not by the mean diagonal",
        "gram/normalizing.py",
        "np.average(kernel._diagonal(X), weights=sample_weight)",
        "np.sum(kernel._diagonal(X))",
        "gram/test_normalizing.py",
        "gram/test_kernel_set.py",
    ),
    _m(
        "unit-diagonal-not-rooted",
        "kernels divided by k(x, x), not by its root",
        "gram/normalizing.py",
        "norms = np.sqrt(self.kernel_.diag(X))",
        "norms = self.kernel_.diag(X)",
        "gram/test_normalizing.py",
    ),
    _m(
        "centring-mean-missing",
        "centred kernels without the mean of all entries",
        "gram/normalizing.py",
        "D -= right - self.mean_",
        "D -= right",
        "gram/test_normalizing.py",
    ),
    _m(
        "centring-sees-new-samples",
        "new samples centred by their own mean",
        "gram/normalizing.py",
        "return np.asarray(self.kernel_(X, self.X_) @ self.share_, dtype=np.float64)",
        "return np.asarray(self.kernel_(X, X).mean(axis=1), dtype=np.float64)",
        "gram/test_normalizing.py",
        "contracts/test_grams.py",
    ),
    _m(
        "scaling-sees-held-out-rows",
        "columns of a fold scaled by all samples, those held out included",
        "engine/search.py",
        "            yield paths, steps, problem.samples, train, held, problem.scale, starts\n",
        "            samples = replace(problem.samples,"
        " X=problem.samples.standardizer(problem.model.read_kernels())(problem.samples.X))\n"
        "            yield paths, steps, samples, train, held, False, starts\n",
        "estimators/test_cv.py",
    ),
    # Kernels --------------------------------------------------------------------------------------
    _m(
        "width-not-squared",
        "width of the Gaussian kernel not squared",
        "kernels/numeric.py",
        "power: ClassVar[int] = 2",
        "power: ClassVar[int] = 1",
        "kernels/test_gaussian.py",
    ),
    _m(
        "width-factor-missing",
        "factor of a given width ignored",
        "kernels/numeric.py",
        "return float(self.factor) * float(self.width)",
        "return float(self.width)",
        "kernels/test_gaussian.py",
        "kernels/test_family.py",
    ),
    _m(
        "offset-missing",
        "polynomial kernel without its offset",
        "kernels/numeric.py",
        "base = S + float(self.offset)",
        "base = S + 0.0",
        "contracts/test_kernels.py",
        "kernels/test_offsets.py",
    ),
    _m(
        "stale-kernel",
        "shared kernels looked up without the parameters of the kernels",
        "engine/training_set.py",
        "(entry.name, self._content(entry.kernel), self._content(entry.columns))",
        "(entry.name, type(entry.kernel).__name__, self._content(entry.columns))",
        "estimators/test_shared_content.py",
    ),
    # Warm starts ----------------------------------------------------------------------------------
    _m(
        "start-of-another-fold",
        "start taken from a fold that has other classes",
        "engine/paths.py",
        "if leads is not None and not np.array_equal(np.asarray(leads[0][0].classes), classes):",
        "if False:",
        "estimators/test_rare_classes.py",
        "estimators/test_cv.py",
    ),
    _m(
        "continued-at-the-old-bound",
        "coefficients at a bound do not move with it",
        "solvers/program.py",
        "moved = np.where((beta >= before.upper) & (beta > 0), self.upper, beta)",
        "moved = np.where((beta >= before.upper) & (beta > 0), before.upper, beta)",
        "learning/test_start.py",
        "solvers/test_program.py",
        "contracts/test_machines.py",
    ),
    _m(
        "multiclass-continued-at-the-old-bound",
        "the same for joint machines",
        "solvers/program.py",
        "np.where(is_at_bound, ratio, 1.0)[:, np.newaxis]",
        "np.where(is_at_bound, 1.0, 1.0)[:, np.newaxis]",
        "machines/test_multiclass.py",
        "contracts/test_machines.py",
    ),
    _m(
        "combined-kernel-of-other-weights",
        "combined kernel not made anew when the weights change",
        "learning/certificate.py",
        "if self._weights is None or not np.array_equal(self._weights, weights):",
        "if self._weights is None:",
        "learning/test_start.py",
        "contracts/test_learners.py",
    ),
    # Learners -------------------------------------------------------------------------------------
    _m(
        "line-search-sign",
        "line search takes the steps that it should refuse",
        "solvers/line_search.py",
        "if rise <= ARMIJO * size * slope:",
        "if rise >= ARMIJO * size * slope:",
        "learning/test_newton.py",
        "contracts/test_learners.py",
    ),
    _m(
        "slopes-doubled",
        "slopes of the value in the weights twice as steep",
        "learning/problem.py",
        "0.5 * np.tensordot(new_products, beta[support]",
        "1.0 * np.tensordot(new_products, beta[support]",
        "learning/test_newton.py",
        "contracts/test_learners.py",
    ),
    _m(
        "curvature-of-the-intercept",
        "sign of what the intercept adds to the curvature",
        "gram/linear_algebra.py",
        "return H - shift[..., :, None] * _share",
        "return H + shift[..., :, None] * _share",
        "learning/test_newton.py",
    ),
    _m(
        "weights-of-classes-exchanged",
        "weights of the classes listed in reverse order",
        "engine/fit.py",
        "return np.array([learned.weights for learned in self.learned])",
        "return np.array([learned.weights for learned in self.learned[::-1]])",
        "estimators/test_predictions.py",
    ),
    _m(
        "function-of-exchanged-weights",
        "decision functions with the weights of other classes",
        "engine/fit.py",
        "eta = np.concatenate([np.atleast_2d(learned.weights) for learned in self.learned])",
        "eta = np.concatenate([np.atleast_2d(learned.weights) for learned in self.learned[::-1]])",
        "estimators/test_predictions.py",
        "estimators/test_cv.py",
    ),
    _m(
        "penalties-ignored",
        "penalties of the kernels ignored",
        "learning/problem.py",
        "self.scale = 1.0 / options.penalties**2",
        "self.scale = np.ones_like(options.penalties)",
        "learning/test_penalties.py",
        "contracts/test_norms.py",
    ),
    _m(
        "dual-exponent",
        "exponent of a p-norm for that of its dual",
        "learning/norms.py",
        "dual = self.p / (self.p - 1.0)",
        "dual = self.p",
        "contracts/test_norms.py",
    ),
    _m(
        "p-norm-of-two",
        "weights put back on the set of the 2-norm whatever p is",
        "learning/norms.py",
        "return theta / np.linalg.norm(theta, ord=self.p)",
        "return theta / np.linalg.norm(theta, ord=2)",
        "contracts/test_norms.py",
    ),
    _m(
        "simplex-support",
        "largest slope over the simplex replaced by the mean slope",
        "learning/norms.py",
        "        return float(q.max())\n",
        "        return float(q.mean())\n",
        "contracts/test_norms.py",
        "contracts/test_learners.py",
    ),
    _m(
        "class-wise-balance",
        "class-wise weights rescaled by the inverse factor",
        "multiclass/learning.py",
        "theta = np.where(usable[:, np.newaxis], theta / s[:, np.newaxis], 0.0)",
        "theta = np.where(usable[:, np.newaxis], theta * s[:, np.newaxis], 0.0)",
        "multiclass/test_learning.py",
    ),
    # Several classes ------------------------------------------------------------------------------
    _m(
        "margin-off-by-one",
        "margin of the joint machine 2, not 1",
        "machines/base.py",
        "    margin = 1.0\n    pairwise = False\n",
        "    margin = 2.0\n    pairwise = False\n",
        "machines/test_multiclass.py",
        "estimators/test_joint.py",
    ),
    _m(
        "labels-shifted",
        "labels of the joint machine shifted by one class",
        "engine/tasks.py",
        "labels = self.labels(y)\n        return JOINT",
        "labels = (self.labels(y) + 1) % len(self.classes)\n        return JOINT",
        "estimators/test_joint.py",
    ),
    _m(
        "one-against-rest-sign",
        "signs of the labels of one class against the rest exchanged",
        "engine/tasks.py",
        "return [np.where(y == c, 1.0, -1.0) for c in positive_classes]",
        "return [np.where(y == c, -1.0, 1.0) for c in positive_classes]",
        "estimators/test_predictions.py",
        "estimators/test_against_libsvm.py",
    ),
    _m(
        "constants-dropped",
        "joint machines without the constants of their classes",
        "solvers/program.py",
        "return np.asarray(b - b.mean())",
        "return np.asarray(0.0 * b)",
        "solvers/test_class_constants.py",
    ),
    _m(
        "balanced-by-size",
        "balanced classes weighted by their size, not by its inverse",
        "engine/tasks.py",
        "(weight.sum() / (len(totals) * totals))[labels]",
        "((len(totals) * totals) / weight.sum())[labels]",
        "estimators/test_against_libsvm.py",
        "estimators/test_objective.py",
        "estimators/test_repeats.py",
        "estimators/test_params.py",
    ),
    # Gates ----------------------------------------------------------------------------------------
    _m(
        "softmax-slope",
        "slope of softmax gates without the term of the other kernels",
        "localized/gating.py",
        "return np.asarray(eta * (G - np.sum(eta * G, axis=1, keepdims=True)))",
        "return np.asarray(eta * G)",
        "contracts/test_gates.py",
        "localized/test_gating.py",
    ),
    _m(
        "sigmoid-slope",
        "slope of sigmoid gates without the factor 1 − η",
        "localized/gating.py",
        "return scores_vjp(Z, G * eta * (1.0 - eta))",
        "return scores_vjp(Z, G * eta)",
        "contracts/test_gates.py",
        "localized/test_gating.py",
    ),
    _m(
        "gate-slope-sign",
        "sign of the slope of the objective in the gates",
        "localized/learning.py",
        "G[support] = -np.sum(each,",
        "G[support] = np.sum(each,",
        "localized/test_learning.py",
    ),
    # Missing views --------------------------------------------------------------------------------
    _m(
        "stand-in-of-another-sample",
        "stand-ins made of the wrong training samples",
        "gram/missing.py",
        "places = rows[row_numbers], candidates[columns]",
        "places = rows[row_numbers], columns",
        "estimators/test_missing_views.py",
    ),
    _m(
        "length-of-few-views",
        "factor of samples with few views not rooted",
        "gram/missing.py",
        "factors *= np.sqrt(factors.shape[1] / factors.sum(axis=1, keepdims=True))",
        "factors *= factors.shape[1] / factors.sum(axis=1, keepdims=True)",
        "estimators/test_missing_views.py",
    ),
    # Low rank -------------------------------------------------------------------------------------
    _m(
        "fourier-scale",
        "Fourier features too short by the root of two",
        "gram/feature_maps.py",
        "Z *= float(np.sqrt(self.factor / half))",
        "Z *= float(np.sqrt(self.factor / self.width))",
        "gram/test_features.py",
    ),
    _m(
        "nystroem-root",
        "features of landmarks with the inverse, not its root",
        "gram/feature_maps.py",
        "V[:, keep] / np.sqrt(eigenvalues[keep])",
        "V[:, keep] / eigenvalues[keep]",
        "gram/test_features.py",
    ),
    _m(
        "frequencies-of-another-width",
        "frequencies of the Gaussian kernel without the factor √2",
        "kernels/numeric.py",
        "np.sqrt(2.0) / self.width_ * random.standard_normal",
        "1.0 / self.width_ * random.standard_normal",
        "gram/test_features.py",
        "contracts/test_kernels.py",
    ),
    _m(
        "centred-features-trace",
        "trace of centred features that of the features before",
        "gram/feature_maps.py",
        "trace = float(squares[m] - apart[m] @ apart[m])",
        "trace = float(squares[m])",
        "gram/test_features.py",
        "gram/test_centring_noise.py",
    ),
    # Predictions ----------------------------------------------------------------------------------
    _m(
        "decision-without-intercept",
        "decision function without its intercept",
        "engine/expansion.py",
        "self.expansion.values(X) + self.intercept)",
        "self.expansion.values(X))",
        "estimators/test_predictions.py",
        "estimators/test_against_libsvm.py",
    ),
    _m(
        "contributions-unweighted",
        "contributions of the kernels without their weights",
        "engine/expansion.py",
        "            out[rows, m] = values\n",
        "            out[rows, m] = values / np.maximum(self.eta[:, int(np.searchsorted(self.kept,"
        " m))], 1e-12)\n",
        "estimators/test_predictions.py",
    ),
    _m(
        "prediction-unweighted",
        "sums of the kernels without their weights",
        "engine/expansion.py",
        "yield strip, int(self.kept[k]), values * self.eta[:, k]",
        "yield strip, int(self.kept[k]), values + 0.0 * self.eta[:, k]",
        "estimators/test_predictions.py",
    ),
    # Calibration ----------------------------------------------------------------------------------
    _m(
        "calibration-slope-sign",
        "sign of the slope of the likelihood",
        "engine/calibration.py",
        "(np.exp(log_p) - T)",
        "(T - np.exp(log_p))",
        "estimators/test_calibration.py",
    ),
    _m(
        "platt-targets",
        "probabilities fitted to 0 and 1, not to Platt's targets",
        "engine/calibration.py",
        "own_targets = (class_weights + 1.0) / (class_weights + 2.0)",
        "own_targets = (class_weights + 1.0) / (class_weights + 1.0)",
        "estimators/test_calibration.py",
    ),
    _m(
        "calibrated-on-training-samples",
        "probabilities learned from samples that the fits have seen",
        "engine/cross_calibration.py",
        "inside = crossed.samples.take(train)\n            starts = [start.take(train) for start"
        " in all_starts]\n            recipes",
        "inside = crossed.samples.take(np.union1d(train, held))\n            starts = None\n"
        "            recipes",
        "estimators/test_calibration.py",
    ),
    # Cross-validation -----------------------------------------------------------------------------
    _m(
        "folds-overlap",
        "folds trained on the samples they hold out",
        "engine/search.py",
        "    inside, outside = samples.take(train), _safe_indexing(samples.X, held)\n",
        "    inside, outside = samples.take(np.union1d(train, held)), _safe_indexing(samples.X,"
        " held)\n",
        "estimators/test_cv.py",
    ),
    _m(
        "path-reversed",
        "fits of a path kept at the values of the other end",
        "engine/search.py",
        "for number, fit in zip(stretch.numbers, path, strict=True):",
        "for number, fit in zip(reversed(stretch.numbers), path, strict=True):",
        "estimators/test_cv.py",
    ),
    _m(
        "window-at-the-value-of-equal-weights",
        "norms tried at the best value of equal weights, whatever the scale of their combined"
        " kernel",
        "engine/search.py",
        "middle = self._nearest(self.problem.Cs[best] / self._scale_of(norm))",
        "middle = self._nearest(self.problem.Cs[best])",
        "estimators/test_path_work.py",
    ),
    _m(
        "window-not-extended",
        "norms tried at the first values alone, though the best is the last of them",
        "engine/search.py",
        "open_norms = [norm for norm in open_norms if extended[norm] != windows[norm]]",
        "open_norms = [norm for norm in open_norms if extended[norm] != extended[norm]]",
        "estimators/test_path_work.py",
    ),
    _m(
        "steps-of-a-fold-fitted-again",
        "models of folds with steps of a pipeline that are fitted once more",
        "engine/choice.py",
        "self._read(training, params, prepared=held_out.prepared)",
        "self._read(training, params, prepared=None)",
        "estimators/test_cv.py",
    ),
    _m(
        "worst-score-chosen",
        "choice of the lowest score",
        "engine/choice.py",
        "tied = means >= np.nanmax(means) - margin",
        "tied = means <= np.nanmin(means) + margin",
        "estimators/test_plateaus.py",
    ),
    _m(
        "weights-judged-by-themselves",
        "weights of a fold learned from the fold, too",
        "ridge/cross_fitting.py",
        "        folds.append(Fold(learned_from, np.flatnonzero(fold_of_row == k)))",
        "        folds.append(Fold(np.arange(len(targets.Y)), np.flatnonzero(fold_of_row == k)))",
        "ridge/test_cross_fitting.py",
    ),
    _m(
        "folds-by-samples-alone",
        "weights judged by themselves however many there are",
        "ridge/cross_fitting.py",
        "return n_units < FOLDS.rows_per_parameter * n_parameters",
        "return n_units < FOLDS.rows_per_parameter",
        "ridge/test_cross_fitting.py",
    ),
    _m(
        "samples-for-groups",
        "samples counted as what weights are learned from where whole groups are left out",
        "ridge/learning.py",
        "return len(self.Y) if self.groups is None else len(self.groups)",
        "return len(self.Y)",
        "ridge/test_cross_fitting.py",
    ),
    _m(
        "prior-of-one-table-for-all",
        "strength of the prior that does not rise with kernels that differ",
        "ridge/cross_fitting.py",
        "by_kernels = self.least * (n_effective / self.base) ** self.power",
        "by_kernels = self.least",
        "ridge/test_cross_fitting.py",
    ),
    _m(
        "scores-of-training-printed",
        "outputs left out by weights that had seen the sample",
        "ridge/method.py",
        "unseen_residuals[search.judged] = search.unseen * targets.unit",
        "pass",
        "ridge/test_cross_fitting.py",
    ),
    _m(
        "learned-weights-by-chance",
        "learned weights chosen where they win by less than the noise of the folds",
        "engine/choice.py",
        "return float(differences.mean()) > max(error, margin)",
        "return float(differences.mean()) > margin",
        "estimators/test_plateaus.py",
    ),
    _m(
        "folds-not-paired",
        "noise of learned weights measured by scores rather than by what they gain in every fold",
        "engine/choice.py",
        "differences.std(ddof=1)",
        "learned[norm, :, value].std(ddof=1)",
        "estimators/test_plateaus.py",
    ),
    _m(
        "roughest-of-a-plateau",
        "the largest C of those whose scores tie",
        "engine/choice.py",
        "values[-1 if descending else 0]",
        "values[0 if descending else -1]",
        "estimators/test_plateaus.py",
    ),
    _m(
        "held-out-without-intercept",
        "outputs of held-out samples without the intercept",
        "engine/fit.py",
        "return [values + fit.intercept for values, fit",
        "return [values + 0.0 * fit.intercept for values, fit",
        "estimators/test_cv.py",
    ),
    _m(
        "scores-of-a-fold-calibrated-by-it",
        "scores of a fold from probabilities that the fold itself has calibrated",
        "engine/search.py",
        "folds = [f for f in range(len(self.folds)) if f != without]",
        "folds = [f for f in range(len(self.folds))]",
        "estimators/test_cv.py",
        "estimators/test_calibration.py",
    ),
    # Statistics -----------------------------------------------------------------------------------
    _m(
        "t-test-one-sided",
        "p-value of the corrected t test halved",
        "stats.py",
        "float(2 * t_distribution.sf(",
        "float(t_distribution.sf(",
        "stats/test_resampled_t_test.py",
    ),
    _m(
        "signed-ranks-one-sided",
        "exact p-value of the signed ranks halved",
        "stats.py",
        "min(1.0, 2 * shares[",
        "min(1.0, shares[",
        "stats/test_signed_rank.py",
    ),
    _m(
        "t-test-uncorrected",
        "t test without the correction for shared training samples",
        "stats.py",
        "np.sqrt((1 / len(a) + n_test / n_train) * variance)",
        "np.sqrt((1 / len(a)) * variance)",
        "stats/test_resampled_t_test.py",
    ),
    # Command line and model files -----------------------------------------------------------------
    _m(
        "target-among-the-features",
        "target left among the columns that are learned from",
        "cli/training_table.py",
        'dict.fromkeys(target.columns, "the target")\n    roles = {\n        "the event": request.event,',
        "{}\n    roles = {",
        "cli/test_targets.py",
        "cli/test_fit.py",
    ),
    _m(
        "codes-taken-for-numbers",
        "texts of later tables read by the type that they seem to have",
        "schema.py",
        "[column for column in self.columns if column.is_text]",
        "[column for column in self.columns if not column.name]",
        "cli/test_schema.py",
    ),
    _m(
        "copies-of-the-target-unnoticed",
        "columns with the order of the target not warned of",
        "cli/training_table.py",
        "if abs(np.corrcoef(ranks, target_ranks)[0, 1]) > _SAME_ORDER:",
        "if False:",
        "cli/test_leaks.py",
    ),
    _m(
        "single-samples-stay-single",
        "kernels of samples in single precision rounded otherwise in predictions than in the fit",
        "gram/kernel_set.py",
        'return X.astype(np.float64) if getattr(X, "dtype", None) == np.float32 else X',
        "return X",
        "estimators/test_single_precision.py",
    ),
    _m(
        "distances-of-other-rows",
        "known distances of some samples read at the wrong rows",
        "gram/kernel_set.py",
        "rows=cut(self.rows),",
        "rows=cut(np.arange(self.n_samples)),",
        "gram/test_kernel_set.py",
    ),
    _m(
        "views-of-other-columns",
        "kernels on different columns read the same samples",
        "gram/kernel_set.py",
        "view_numbers.append(numbers.setdefault((kernel_number, form, columns, rows), len(numbers)))",
        "view_numbers.append(numbers.setdefault((kernel_number, form, rows), len(numbers)))",
        "gram/test_kernel_set.py",
    ),
    _m(
        "rounded-before-scaled",
        "large entries rounded to single precision before they are scaled",
        "gram/normalizing.py",
        "return not 1 / _MODERATE <= self.scale_ <= _MODERATE",
        "return False",
        "estimators/test_single_precision.py",
    ),
    _m(
        "hidden-kernels-are-zeros",
        "kernels that vary, but whose digits centring takes, taken for constant",
        "gram/normalizing.py",
        "if not constant: raise_of_rounding() self.removed",
        "self.removed",
        "gram/test_centring_noise.py",
    ),
    _m(
        "repeated-pairs-on-both-sides",
        "a pair given twice in both parts of a split",
        "pairs/splits.py",
        "pairs = Members.of(table).codes",
        "pairs = np.arange(n)",
        "pairs/test_splits.py",
    ),
    _m(
        "other-versions-read",
        "model files of another version read as if known",
        "persistence.py",
        "    if _release(writer)[:2] != release:\n",
        "    if False:\n",
        "test_persistence.py",
    ),
    # Least squares by leave-one-out and evidence --------------------------------------------------
    _m(
        "left-out-residual",
        "residuals of the fit for those of samples left out",
        "solvers/least_squares.py",
        "return beta / place(self.diagonal)[:, None]",
        "return beta * place(self.diagonal)[:, None]",
        "solvers/test_least_squares.py",
    ),
    _m(
        "left-out-constant",
        "the constant is not eliminated",
        "solvers/least_squares.py",
        "A -= ones[:, None] * (ones / ones.sum())",
        "A -= 0.0 * ones[:, None] * (ones / ones.sum())",
        "solvers/test_least_squares.py",
    ),
    _m(
        "left-out-slope-sign",
        "sign of a term of the slope matrix",
        "solvers/least_squares.py",
        "G -= across\n",
        "G += across\n",
        "solvers/test_least_squares.py",
    ),
    _m(
        "ridge-of-all-samples-slope",
        "sign of a term of the slope in the ridge of all samples",
        "solvers/least_squares.py",
        "backend.to_numpy(squares) - np.sum(across * beta, axis=1)",
        "backend.to_numpy(squares) + np.sum(across * beta, axis=1)",
        "ridge/test_subsample.py",
    ),
    _m(
        "narrower-kernel-wrong-power",
        "a radial kernel of half the width is the square, not the fourth power",
        "gram/kernel_set.py",
        "if following == 4:",
        "if following == 8:",
        "gram/test_kernel_set.py",
    ),
    _m(
        "views-screened-by-themselves",
        "a view depends on itself, and none is left out",
        "unlabelled/learning.py",
        "(similarity.pvalues <= level) & ~np.eye(V, dtype=bool)",
        "(similarity.pvalues <= level) | np.eye(V, dtype=bool)",
        "unlabelled/test_learning.py",
    ),
    _m(
        "left-out-group-block",
        "a group's samples are left out one by one in the slopes",
        "solvers/least_squares.py",
        "outer = u[S] @ r[S].T",
        "outer = np.diag((u[S] * r[S]).sum(axis=1))",
        "solvers/test_least_squares.py",
    ),
    _m(
        "evidence-determinant",
        "the evidence without its determinant",
        "solvers/least_squares.py",
        "0.5 * c * log_det + ",
        "",
        "solvers/test_least_squares.py",
    ),
    _m(
        "ridge-sample-weight",
        "the ridge does not read the sample weights",
        "solvers/least_squares.py",
        "        ridge = point.alpha / self.weight\n        in_scale = 0.0\n",
        "        ridge = point.alpha + 0.0 * self.weight\n        in_scale = 0.0\n",
        "ridge/test_learning.py",
    ),
    _m(
        "ridge-width-slope",
        "slopes in widths without the weight of the kernel",
        "solvers/least_squares.py",
        "in_widths.append(point.weights[m] * ",
        "in_widths.append(1.0 * ",
        "ridge/test_learning.py",
    ),
    _m(
        "ridge-column-prior",
        "the prior of columns pulls away from their mean",
        "ridge/learning.py",
        "in_widths = options.column_prior * columns",
        "in_widths = -options.column_prior * columns",
        "ridge/test_learning.py",
    ),
    _m(
        "ridge-feature-leverage",
        "leverages of features without the constant",
        "solvers/least_squares.py",
        "to_numpy((self.T * self.Phi).sum(1))",
        "to_numpy((self.T * self.Phi)[:, :-1].sum(1))",
        "ridge/test_learning.py",
    ),
    _m(
        "ridge-intercept-offset",
        "the constant of a centred kernel",
        "solvers/least_squares.py",
        "self.ones.sum() - solved_offset)",
        "self.ones.sum())",
        "ridge/test_estimator.py",
    ),
    _m(
        "width-formula",
        "Laplacian widths by squares",
        "kernels/numeric.py",
        "return np.array([p * float((S * abs(z[:, None] - z)).sum()) for z in Z.T])",
        "return np.array([p * float((S * (z[:, None] - z) ** 2).sum()) for z in Z.T])",
        "ridge/test_learning.py",
    ),
    _m(
        "interval-quantile",
        "intervals by the median of residuals",
        "engine/conformal.py",
        "k = max(int(np.ceil(coverage * (n + 1) - ROUNDING_OF_RANK)), 1)",
        "k = max(int(np.ceil(0.5 * (n + 1) - ROUNDING_OF_RANK)), 1)",
        "ridge/test_estimator.py",
    ),
    _m(
        "conditional-intercept",
        "leave-one-out errors without the intercept",
        "inspection/conditional.py",
        "self.eigenvectors: Array = eigenvectors - eigenvectors.mean(axis=0)",
        "self.eigenvectors: Array = eigenvectors",
        "inspection/test_conditional.py",
    ),
    _m(
        "exchanged-stand-ins",
        "samples that lack a view exchange it, too",
        "inspection/importance.py",
        "having = np.flatnonzero(present[:, m])",
        "having = np.arange(len(terms))",
        "inspection/test_importance.py",
    ),
)


# Running ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What became of a mutation: killed, survived, timeout or error, by which test, and after how
    many seconds."""

    status: str
    by: str
    seconds: float


def selected(mutation: Mutation, tests: list[str] | None, top: Path = TOP) -> list[str]:
    """Return the tests to run, or raise a ValueError if one is gone."""
    chosen = tests or [f"tests/{name}" for name in mutation.tests]
    for name in chosen:
        if not (top / name.partition("::")[0]).exists():
            raise ValueError(
                f"mutation {mutation.name}: there is no {name}; name the tests that notice it now."
            )
    return chosen


@contextmanager
def copied_tree() -> Iterator[Path]:
    """Yield a copy of the tree, which goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(TOP, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
        yield copy


@contextmanager
def changed(mutation: Mutation, tree: Path) -> Iterator[None]:
    """Return a context in which a copy of the tree has the change."""
    path, text = mutation.path(tree), mutation.applied(tree)
    before, times = path.read_bytes(), path.stat()
    path.write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        path.write_bytes(before)
        # Compiled code is known by the time of its source.
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def run_tests(tree: Path, tests: Iterable[str], timeout: float) -> Outcome:
    """Run tests in a copy of the tree up to the first that fails."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not torch and not campaign",
        *tests,
    ]
    path = os.pathsep.join(filter(None, [str(tree / "src"), os.environ.get("PYTHONPATH", "")]))
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    # Bytecode is written, if only here: most of it serves the next run.
    environment = {**os.environ, **threads, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""}
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Outcome("timeout", "", time.monotonic() - began)
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
    by = failed[1] if failed else ""
    # Tests that cannot be collected say that the changed source cannot be imported, or that no test
    # was found.
    status = {0: "survived", 1: "killed"}.get(process.returncode, "error")
    return Outcome(status, by, time.monotonic() - began)


def read_log(path: Path | None) -> dict[str, dict[str, Any]]:
    """Return the last line of every mutation in a log, by name."""
    if path is None or not path.exists():
        return {}
    lines = [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    return {line["name"]: line for line in lines}


def is_known(mutation: Mutation, tests: list[str] | None, log: dict[str, dict[str, Any]]) -> bool:
    """Whether a log has this mutation with the same change and the same tests."""
    line = log.get(mutation.name)
    return line is not None and [line["old"], line["new"], line["tests"]] == [
        mutation.old,
        mutation.new,
        selected(mutation, tests),
    ]


def run_all(
    mutations: Iterable[Mutation], tests: list[str] | None, timeout: float, jobs: int
) -> Iterator[tuple[Mutation, Outcome]]:
    """Yield mutations as they are done; every job has a copy of the tree of its own."""
    trees: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def run(mutation: Mutation) -> Outcome:
        tree = trees.get()
        try:
            with changed(mutation, tree):
                return run_tests(tree, selected(mutation, tests), timeout)
        finally:
            trees.put(tree)

    with ThreadPoolExecutor(jobs) as pool:
        copies = [copied_tree() for _ in range(jobs)]
        try:
            for copy in copies:
                trees.put(copy.__enter__())
            tasks = {pool.submit(run, mutation): mutation for mutation in mutations}
            for task in as_completed(tasks):
                yield tasks[task], task.result()
        finally:
            pool.shutdown(cancel_futures=True)
            for copy in copies:
                copy.__exit__(None, None, None)


def run_unchanged(
    mutations: Iterable[Mutation], tests: list[str] | None, timeout: float
) -> Outcome:
    """Run all tests that the mutations name on an unchanged copy: they must pass, or killing means
    nothing."""
    chosen = sorted({name for mutation in mutations for name in selected(mutation, tests)})
    with copied_tree() as tree:
        return run_tests(tree, chosen, timeout)


def page(log: dict[str, dict[str, Any]]) -> str:
    """Return the table of a log."""
    rows = [
        (one, log.get(one.name, {"status": "not run", "by": "", "seconds": 0.0}))
        for one in MUTATIONS
    ]
    counts = {
        status: sum(row["status"] == status for _, row in rows)
        for status in sorted({r["status"] for _, r in rows})
    }
    said = ", ".join(f"{count} {status}" for status, count in counts.items())
    unchanged = (
        log.get(BASELINE, {"status": "not run"})["status"]
        .replace("survived", "passed")
        .replace("killed", "failed")
    )
    lines = [
        "# Mutations of the library, and the tests that notice them",
        "",
        (
            "Written by `python tools/mutations.py --log FILE --write`. A mutation is killed if a"
            " test fails, and has"
        ),
        (
            "survived if all tests selected for it pass; a timeout is neither. The test named is"
            " the first that fails."
        ),
        "",
        f"{len(rows)} mutations: {said}. The same tests on the unchanged source: {unchanged}.",
        "",
        "| mutation | idea | result | first test that fails |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {one.name} | {one.idea} | {row['status']} |"
        f" {'`' + row['by'] + '`' if row['by'] else ''} |"
        for one, row in rows
    ]
    return "\n".join(lines) + "\n"


def chosen_mutations(names: list[str]) -> list[Mutation]:
    """Return the mutations of these names, all if there are none, or raise a ValueError naming an
    unknown one."""
    known = {one.name: one for one in MUTATIONS}
    for name in names:
        if name not in known:
            raise ValueError(f"--only {name}: there is no such mutation; --list shows their names.")
    return [known[name] for name in names] or list(MUTATIONS)


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="show the mutations, run nothing")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="run this one; may be repeated"
    )
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="JSON lines to add to; what it has is not run again",
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="how many run at the same time"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        metavar="S",
        help="seconds for the tests of a mutation",
    )
    parser.add_argument(
        "--tests",
        nargs="+",
        metavar="PATH",
        help="run these, not the tests that each mutation names",
    )
    parser.add_argument(
        "--unchanged", action="store_true", help="first run all these tests on the unchanged source"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the log into tools/mutations.md, run nothing"
    )
    given = parser.parse_args(arguments)
    try:
        mutations = chosen_mutations(given.only)
        for mutation in mutations:
            mutation.applied(TOP)
            selected(mutation, given.tests)
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    log = read_log(given.log)
    if given.list:
        print("\n".join(f"{one.name:44}{one.idea}" for one in mutations))
        return 0
    if given.write:
        PAGE.write_text(page(log), encoding="utf-8")
        return 0

    def note(name: str, outcome: Outcome, **more: Any) -> None:
        line = {
            "name": name,
            "status": outcome.status,
            "by": outcome.by,
            "seconds": round(outcome.seconds, 1),
            **more,
        }
        log[name] = line
        print(f"{name:44}{outcome.status:10}{outcome.seconds:6.1f} s  {outcome.by}", flush=True)
        if given.log is not None:
            with given.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")

    if given.unchanged:
        note(BASELINE, run_unchanged(mutations, given.tests, len(mutations) * given.timeout))
        if log[BASELINE]["status"] != "survived":
            return 1
    left = [one for one in mutations if not is_known(one, given.tests, log)]
    for mutation, outcome in run_all(left, given.tests, given.timeout, given.jobs):
        note(
            mutation.name,
            outcome,
            old=mutation.old,
            new=mutation.new,
            tests=selected(mutation, given.tests),
        )
    results = [log[one.name]["status"] for one in mutations]
    print(
        f"{results.count('killed')} of {len(results)} killed, {results.count('survived')} survived"
    )
    return 0 if results.count("killed") == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
