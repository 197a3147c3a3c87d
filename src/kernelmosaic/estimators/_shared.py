"""Fits that share what they have in common: the kernels of the same samples, and solutions to start from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np
from joblib import hash as content_hash
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from kernelmosaic._typing import AnyArray, MatrixLike
from kernelmosaic.backend import default_budget
from kernelmosaic.estimators._input import DistinctSamples, FitInput, count_samples, is_streamed
from kernelmosaic.estimators._training_set import KernelOptions, TrainingSet, read_training_set
from kernelmosaic.learning import Learned, Learner
from kernelmosaic.learning.certificate import COLD, SharedProducts, Start
from kernelmosaic.learning.ridge_weights import RidgeTargets, learn_ridge
from kernelmosaic.machines.base import check_positive

Array = NDArray[np.float64]


@dataclass(frozen=True)
class KnownFit:
    """What a fit to nearly the same samples has found, where the next one starts.

    Attributes
    ----------
    weights : ndarray of shape (P,) or (outputs, P)
        Its weights.
    coefficients : ndarray of shape (outputs, n) or None
        Its coefficients of all samples given.
    slopes : list of ndarray of shape (P,), or None
        ½ βᵀK_mβ of every output, by which kernels are left to the certificate that all fits of a path share.
    """

    weights: Array
    coefficients: Array | None = None
    slopes: list[Array | None] | None = None

    def start(self, machine: Any, output: int, kept: NDArray[np.intp]) -> Start:
        """Return what a machine starts from: β, if known, and weights, of all outputs where it has several."""
        beta = None if self.coefficients is None else self.coefficients[:, kept].T
        if machine.has_one_output:
            like = None if self.slopes is None else self.slopes[output]
            return Start(np.atleast_2d(self.weights)[output], None if beta is None else beta[:, output], like=like)
        return Start(self.weights, beta)


class FitContext:
    """What fits to one training set share: its kernels, and the solutions that they start from.

    Attributes
    ----------
    known : KnownFit or None
        What the next fit starts from.
    owner : estimator or None
        Whose fits alone are within the context, such as the last step of a pipeline; None stands for all fits.
    """

    def __init__(self) -> None:
        self.known: KnownFit | None = None
        self.owner: Any = None
        self._sets: OrderedDict[str, TrainingSet] = OrderedDict()
        self._starts: WeakKeyDictionary[TrainingSet, dict[Any, Start]] = WeakKeyDictionary()
        self._by_loo: WeakKeyDictionary[TrainingSet, dict[str, Array]] = WeakKeyDictionary()
        self._entered: list[Token[FitContext | None]] = []

    def __enter__(self) -> Self:
        self._entered.append(_ACTIVE.set(self))
        return self

    def __exit__(self, *raised: object) -> None:
        _ACTIVE.reset(self._entered.pop())
        if not self._entered:
            self._sets.clear()

    @contextmanager
    def starting_from(self, known: KnownFit | None) -> Iterator[None]:
        """Let a fit within the block start from what another has found."""
        self.known, before = known, self.known
        try:
            with self:
                yield
        finally:
            self.known = before

    @property
    def training_sets(self) -> list[TrainingSet]:
        """The training sets kept, the last used at the end."""
        return list(self._sets.values())

    def counted(self, approximation: str | None, given: FitInput) -> DistinctSamples:
        """Return the samples that count."""
        return count_samples(approximation, given.X, given.y, given.weight)

    def classes(self, model: Any, given: FitInput) -> AnyArray:
        """Return the classes that a model finds."""
        found: AnyArray = model._find_classes(given.y, given.weight)
        return found

    @property
    def common_set(self) -> TrainingSet | None:
        """The training set that all fits have, once it is made; None where they may have different ones."""
        return None

    def training_set(
        self, options: KernelOptions, X: MatrixLike, original: Any, counted: DistinctSamples, key: str = ""
    ) -> TrainingSet:
        """Return the training set that a fit asks for, made anew only if none of this key is kept."""
        if key not in self._sets:
            self._sets[key] = read_training_set(options, X, original, counted)
        self._sets.move_to_end(key)
        return self._sets[key]

    def in_double(self, data: TrainingSet) -> TrainingSet | None:
        """Return a training set in double precision, kept in place of the one given; None if it is not to be had."""
        precise = data.in_double()
        if precise is not None:
            self._sets.update({key: precise for key, one in self._sets.items() if one is data})
            self._starts[precise] = {key: start.elsewhere() for key, start in self._starts.get(data, {}).items()}
        return precise

    def loo_weights(self, data: TrainingSet, targets: RidgeTargets) -> Array:
        """Return weights of sum one by the leave-one-out error of least squares, learned once for the same targets."""
        known, key = self._by_loo.setdefault(data, {}), str(content_hash([targets.Y, targets.weight]))
        if key not in known:
            with data.threads():
                weights = learn_ridge(data.stack, targets, n_init=2).weights
            known[key] = weights / weights.sum()
        return known[key]

    def starts(self, data: TrainingSet, learner: Learner, machines: Sequence[Any]) -> list[Start]:
        """Return the start of each machine of a fit: the weights of `known`, and what a like machine has learned."""
        known, starts = self._starts.get(data, {}), []
        for c, machine in enumerate(machines):
            start = known.get(_start_key(learner, machine, c), COLD)
            if self.known is not None:
                known_start = self.known.start(machine, c, data.kept)
                moved = known_start if start is COLD else start.at(np.asarray(known_start.weights))
                start = replace(moved, like=known_start.like)
            starts.append(start)
        return starts

    def keep(self, data: TrainingSet, learner: Learner, found: Sequence[Learned]) -> None:
        """Take note of where like fits to the same samples start: what each machine has learned."""
        starts = [one.start for one in found]
        known = self._starts.setdefault(data, {})
        known.update({_start_key(learner, start.machine, c): start for c, start in enumerate(starts)})

    def certified(
        self, model: Any, data: TrainingSet, machines: Sequence[Any], learner: Learner, found: list[Learned]
    ) -> list[Learned]:
        """Return what the machines of a model have learned, with what it proves."""
        sizes, each = data.sizes(), zip(machines, found, strict=True)
        return [one.certified(data.stack, sizes, machine, learner) for machine, one in each]


class PathContext(FitContext):
    """A context of fits to the same samples with the same kernels, which are certified together, after the last.

    Entries of kernels are computed once for all certificates.

    Attributes
    ----------
    is_open : bool
        Whether certificates wait for those of further fits.
    """

    #: Numbers of the products that are kept at once.
    numbers: ClassVar[int] = 2**24

    def __init__(self) -> None:
        super().__init__()
        self.is_open = True
        self._counted: DistinctSamples | None = None
        self._classes: AnyArray | None = None
        self._waiting: list[tuple[Any, TrainingSet, Sequence[Any], Learner, Sequence[Learned]]] = []

    def certified(
        self, model: Any, data: TrainingSet, machines: Sequence[Any], learner: Learner, found: list[Learned]
    ) -> list[Learned]:
        # What is more than weights and coefficients has a certificate of its own kind.
        plain = all(type(one) is Learned for one in found) and not data.stack.is_implicit
        if not self.is_open or data.device is not None or not plain:
            return super().certified(model, data, machines, learner, found)
        self._waiting.append((model, data, machines, learner, found))
        return found

    def counted(self, approximation: str | None, given: FitInput) -> DistinctSamples:
        self._counted = self._counted or super().counted(approximation, given)
        return self._counted

    def classes(self, model: Any, given: FitInput) -> AnyArray:
        self._classes = super().classes(model, given) if self._classes is None else self._classes
        return self._classes

    @property
    def common_set(self) -> TrainingSet | None:
        return next(iter(self._sets.values()), None)

    def certify(self) -> tuple[list[Any], dict[int, list[Array | None]]]:
        """Certify all fits that wait; return the models that prove less than what their learners had met, and slopes.

        The slopes ½ βᵀK_mβ, one array per output, are those of every certified model, by its `id`. Rounding hides what
        a model proves less. From now on fits are certified at once, in double precision where that helps.
        """
        self.is_open, failed, slopes = False, [], {}
        while self._waiting:
            data = self._waiting[0][1]
            group: list[tuple[Any, TrainingSet, Sequence[Any], Learner, Sequence[Learned]]] = []
            room = self.numbers // (data.stack.n_kernels * data.stack.n_samples)
            while self._waiting and self._waiting[0][1] is data and (room > 0 or not group):
                group.append(self._waiting.pop(0))
                room -= sum(one.solution.beta[0].size for one in group[-1][-1])
            with data.threads():
                sizes = data.sizes()
                products = SharedProducts(data.stack, [one.solution.beta for *_, found in group for one in found])
                for model, _, machines, learner, found in group:
                    each = list(zip(machines, found, strict=True))
                    learned = [one.certified(data.stack, sizes, machine, learner, products) for machine, one in each]
                    model._set_history(learned, [machine.objective_scale for machine in machines])
                    slopes[id(model)] = [one.slopes for one in learned]
                    if model.duality_gap_ > model.tol >= max(one.gap for one in found):
                        failed.append(model)
        return failed, slopes


def _start_key(learner: Learner, machine: Any, output: int) -> Any:
    """Return what tells starts apart: other targets may have other classes, and so coefficients of another shape."""
    return type(learner), str(learner.options.norm), type(machine), machine.shape, output


class SharedKernels(FitContext):
    """A context whose fits share kernels and solutions wherever they have the same samples.

    A fit within it takes the Gram matrices, or features, that an earlier fit to the same samples with the same kernels
    has computed, and starts from the weights and coefficients that it found. What is shared is looked up by content:
    widths, scales and landmarks are those of the samples of each fit, exactly as without the context. So are the
    certificates: results agree up to `tol`. A function within a kernel whose content cannot be read, such as a lambda,
    is the same if it is the same object.

    For searches of scikit-learn, where one estimator is fitted to the same folds over and over. Fits in other processes
    or threads, as with ``n_jobs``, do not see the context.

    Parameters
    ----------
    memory_budget : float, default=None
        Bytes that the kernels kept may take; None means a quarter of the free memory. The longest unused go first.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import GridSearchCV
    >>> from kernelmosaic import MKLClassifier
    >>> from kernelmosaic.model_selection import SharedKernels
    >>> X, y = load_iris(return_X_y=True)
    >>> with SharedKernels():
    ...     search = GridSearchCV(MKLClassifier(), {"C": [0.1, 1, 10]}, cv=3).fit(X, y)
    >>> search.best_params_["C"] in (0.1, 1, 10)
    True
    """

    def __init__(self, memory_budget: float | None = None) -> None:
        super().__init__()
        self.memory_budget = memory_budget
        self._given: TrainingSet | None = None
        self._told_apart: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if self.memory_budget is not None:
            check_positive("memory_budget", self.memory_budget)
        return super().__enter__()

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if not self._entered:
            self._told_apart.clear()

    def restart(self, known: KnownFit | None, data: TrainingSet | None = None) -> None:
        """Forget where fits have ended: the next one starts from `known` alone, and has the kernels of `data` if any.

        These are computed already, and have the names of those that it asks for.
        """
        self.known, self._given = known, data
        self._starts.clear()

    def training_set(
        self, options: KernelOptions, X: MatrixLike, original: Any, counted: DistinctSamples, key: str = ""
    ) -> TrainingSet:
        """Return the training set that a fit asks for, made anew only if none of the same content is kept."""
        if self._given is not None and self._given.kernel_set.names == [entry.name for entry in options.entries]:
            return self._given
        # Features drawn from a generator that moves on are new ones every time.
        fixed = options.approximation is None or isinstance(options.random_state, int | np.integer)
        if is_streamed(X) or not fixed:
            return read_training_set(options, X, original, counted)
        said = {one.name: getattr(options, one.name) for one in fields(options) if one.name != "estimator"}
        entries = [(entry.name, self._content(entry.kernel), self._content(entry.columns)) for entry in options.entries]
        names = [str(name) for name in getattr(original, "columns", ())]
        key = content_hash([said | {"entries": entries}, self._content(X), names, counted.rows, counted.weight])
        data = super().training_set(options, X, original, counted, str(key))
        # Every fit needs memory beside the kernels kept.
        allowed = 0.5 * default_budget() if self.memory_budget is None else self.memory_budget
        while len(self._sets) > 1 and sum(one.nbytes for one in self._sets.values()) > allowed:
            self._sets.popitem(last=False)
        return data

    def _content(self, value: object) -> Any:
        """Return what tells a value apart: its content, or, as that of a lambda cannot be read, which object it is."""
        try:
            return content_hash(value)
        except Exception:  # whatever an object raises when it is to be pickled
            pass
        if isinstance(value, BaseEstimator):
            params = value.get_params(deep=False)
            return [self._identity(type(value)), {name: self._content(one) for name, one in params.items()}]
        if isinstance(value, list | tuple):
            return [self._content(one) for one in value]
        return self._identity(value)

    def _identity(self, value: object) -> int:
        # Kept: another object could have the same number once this one is gone.
        self._told_apart[id(value)] = value
        return id(value)


_ACTIVE: ContextVar[FitContext | None] = ContextVar("kernelmosaic_fit_context", default=None)


def fit_context(model: Any) -> FitContext:
    """Return the innermost context that the fit of a model is within; without one it shares nothing with others."""
    context = _ACTIVE.get()
    return FitContext() if context is None or context.owner not in (None, model) else context
