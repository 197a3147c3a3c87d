"""What all estimators with one weight a kernel share: from samples to a stack, from weights to predictions."""

from __future__ import annotations

import reprlib
import warnings
from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from kernelmosaic.estimators._html import FittedSummaryMixin
from kernelmosaic.estimators._params import KernelListMixin
from kernelmosaic.estimators._repeats import Counted
from kernelmosaic.estimators._streamed import check_approximation, is_streamed, validate_rows
from kernelmosaic.estimators._training_set import TrainingSet, count_samples, read_training_set
from kernelmosaic.gram import GramStack
from kernelmosaic.gram.device import require_device, tensor_device, to_host
from kernelmosaic.kernels.text import refuse_text
from kernelmosaic.learning import Learned, Learner, Parameters, make_learner
from kernelmosaic.learning.penalties import numbers
from kernelmosaic.machines import Machine
from kernelmosaic.machines.base import check_positive


class BaseMKL(FittedSummaryMixin, KernelListMixin, ABC):
    """One weight a kernel, learned or given, with the machine that a subclass names."""

    normalize: Any
    weights: Any
    tol: Any
    max_iter: Any
    memory_budget: Any
    verbose: Any
    # Estimators that learn in features, too, have these for parameters.
    approximation: Any = None
    rank: Any = None
    # Of the Gram matrices; None leaves it to their number.
    _stack_dtype: Any = None
    _expansion: Any
    # Where to compute; and where the last fit did, which a tensor on a device may say, too.
    device: Any = None
    _fit_device: str | None = None
    # What samples the last fit took, which is what predictions take.
    _fit_input: dict[str, Any] | None = None

    # What a subclass names -----------------------------------------------------------------------------------------

    @abstractmethod
    def _machines(self, y: Any, weight: NDArray[np.float64]) -> list[Machine]:
        """Return one machine an output, for the targets and weights of distinct samples."""

    # Fitting -------------------------------------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any, sample_weight: NDArray[np.float64] | None, original: Any) -> None:
        """Fit to validated samples; `original` is X as it was given, for the names of its columns."""
        check_positive("tol", self.tol)
        if self.memory_budget is not None:
            check_positive("memory_budget", self.memory_budget)
        original = to_host(original)
        counted = count_samples(self, X, y, sample_weight)
        machines = self._machines(None if y is None else y[counted.rows], counted.weight)
        data = self._training_set(X, original, counted)
        learner = self._make_learner(data.stack, machines)
        learned = [learner.learn(data.stack, machine) for machine in machines]
        self.kernel_names_ = data.kernel_set.names
        self._keep(data, learned, machines)
        self._warn_if_loose(learner, learned)

    def _training_set(self, X: Any, original: Any, counted: Counted) -> TrainingSet:
        return read_training_set(self, X, original, counted)

    def _make_learner(self, stack: GramStack, machines: list[Any]) -> Any:
        return make_learner(Parameters.of(self), stack, machines)

    def _keep(self, data: TrainingSet, learned: list[Learned], machines: list[Machine]) -> None:
        # A joint machine has one column of coefficients a class, and weights that its classes may share.
        beta = np.concatenate([np.atleast_2d(one.solution.beta.T) for one in learned])
        eta = np.concatenate([np.atleast_2d(one.weights) for one in learned])
        eta = np.broadcast_to(eta, (len(beta), eta.shape[1]))
        support = np.flatnonzero(np.any(beta != 0, axis=0))
        support = support[np.argsort(data.kept[support])]
        self.support_ = data.kept[support]
        self.support_fraction_ = len(support) / len(data.kept)
        self.dual_coef_ = beta[:, support]
        self.intercept_ = np.concatenate([np.atleast_1d(one.solution.intercept) for one in learned])
        self.weights_ = learned[0].weights if len(learned) == 1 else np.array(eta)
        self._expansion = data.expansion(beta, support, eta)
        scales = [machine.objective_scale for machine in machines]
        self.objective_ = float(sum(s * one.objective for s, one in zip(scales, learned, strict=True)))
        self.duality_gap_ = max(one.gap for one in learned)
        self.n_iter_ = max(len(one.history) for one in learned)
        self.n_solves_ = sum(one.n_solves for one in learned)
        self.history_ = [
            {"output": c, "iteration": i, **asdict(step), "objective": scales[c] * step.objective}
            for c, one in enumerate(learned)
            for i, step in enumerate(one.history, start=1)
        ]

    def _warn_if_loose(self, learner: Learner, learned: list[Any]) -> None:
        if not self.duality_gap_ <= self.tol:
            loosest = max(learned, key=lambda one: one.gap)
            ended = len(loosest.history) >= self.max_iter or learner.stalled is None
            warnings.warn(
                f"{type(self).__name__} stopped at a relative duality gap of {self.duality_gap_:.2g}, above "
                f"tol={self.tol:g}: {learner.advice if ended else learner.stalled}",
                ConvergenceWarning,
                stacklevel=4,
            )

    # Samples in ----------------------------------------------------------------------------------------------------

    def _validate(self, X: Any, *y: Any, reset: bool, **checks: Any) -> Any:
        """Check samples as scikit-learn does; (X, y) if y is given, be it None, else X."""
        if reset:
            self._fit_device = tensor_device(X) if self.device is None else str(require_device(self.device))
            self._fit_input = self._input_rules()
        # Parameters may have changed since the fit. Models saved before the rules were kept have their parameters only.
        rules = self._input_rules() if self._fit_input is None else self._fit_input
        X, y = to_host(X), tuple(map(to_host, y))
        check_approximation(rules["approximation"], X)
        if rules["approximation"] is not None and is_streamed(X):
            return validate_rows(self, X, y, reset, **checks)
        if rules["kinds"] == ["numbers"] and not (rules["picked"] and hasattr(X, "columns")):
            dense = rules["dense"]
            if issparse(X) and dense is not None:
                raise TypeError(
                    f"X is sparse, which kernel {dense!r} does not read: give X.toarray(), or kernels that do, such as "
                    "Linear, Polynomial and Gaussian."
                )
            form: dict[str, Any] = {
                "accept_sparse": "csr" if dense is None else False,
                "dtype": (np.float64, np.float32),
            }
        else:
            # Row numbers, sequences, frames with columns nobody reads: leave each column to the kernel that reads it.
            form = {"dtype": None, "ensure_all_finite": False}
            X = _as_column(X)
        with refuse_text(X):
            return validate_data(self, X, *y, reset=reset, **form, **checks)

    def _input_rules(self) -> dict[str, Any]:
        """What samples may be, by the parameters as they are now: what the kernels read, and whether in features."""
        entries = self._read_kernels()
        # Past the kernels there may be the one gates live in.
        readers = zip(
            [*(entry.name for entry in entries), "gating_kernel"], self._kernels_take("accepts_sparse"), strict=False
        )
        return {
            "kinds": sorted(set(self._kernels_take("input_kind"))),
            "dense": next((name for name, sparse in readers if not sparse), None),
            "picked": all(entry.columns is not None for entry in entries),
            "approximation": self.approximation,
        }

    def _sample_weight(self, sample_weight: Any, X: Any) -> NDArray[np.float64] | None:
        if sample_weight is None:
            return None
        try:
            given = np.asarray(sample_weight, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"sample_weight={reprlib.repr(sample_weight)}: give one number a sample, or None."
            ) from None
        if given.size > 0 and not given.any():
            raise ValueError("sample_weight is zero everywhere: at least one sample must count.")
        return np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))

    # Predictions out -----------------------------------------------------------------------------------------------

    def _outputs(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        values: NDArray[np.float64] = self._expansion.values(self._validate(X, reset=False)) + self.intercept_
        return values

    def contributions(self, X: Any) -> NDArray[np.float64]:
        """Return each kernel's share of the decision.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, P), or (n_samples, P, classes) with several outputs
            Summed over the kernels, and with `intercept_` added, the decision function.
        """
        check_is_fitted(self)
        terms: NDArray[np.float64] = self._expansion.terms(self._validate(X, reset=False))
        return terms[:, :, 0] if terms.shape[2] == 1 else terms

    def kernel_matrix(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Return the combined kernel between X and Y.

        Parameters
        ----------
        X, Y : array-like of shape (n_samples, n_features)
            Samples; ``Y=None`` stands for X.

        Returns
        -------
        ndarray of shape (len(X), len(Y)), or (classes, len(X), len(Y)) where every class has weights of its own
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        K: NDArray[np.float64] = self._expansion.combined(X, X if Y is None else self._validate(Y, reset=False))
        return K[0] if self.weights_.ndim == 1 else K

    def cost(self, costs: Any) -> float:
        """Return what a prediction costs: the number of support vectors times the active kernels' share of all costs.

        Parameters
        ----------
        costs : array-like of shape (P,)
            What evaluating each kernel costs; a product of kernels counts as one.
        """
        check_is_fitted(self)
        given, costs = costs, numbers("costs", costs, len(self.kernel_names_))
        if np.any(costs < 0) or not costs.sum() > 0:
            raise ValueError(f"costs={given!r}: costs must not be negative, nor all zero.")
        return float(len(self.support_) * costs[self._expansion.active].sum() / costs.sum())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        try:
            tags.input_tags.sparse = all(self._kernels_take("accepts_sparse"))
            tags.input_tags.string = "sequences" in self._kernels_take("input_kind")
        except (TypeError, ValueError):
            tags.input_tags.sparse = False
        return tags


def _as_column(X: Any) -> Any:
    """Row numbers and strings may come as a plain list: one column then."""
    if hasattr(X, "shape") and len(X.shape) != 1:
        return X
    X = np.asarray(X, dtype=object) if not hasattr(X, "shape") else np.asarray(X)
    return X.reshape(-1, 1) if X.ndim == 1 else X
