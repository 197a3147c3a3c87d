"""Discriminant kernel learning via convex programming (Ye, Ji and Chen, 2008): tables 2 to 17."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from kernelmosaic.estimators import DiscriminantMKLClassifier, MKLClassifier
from kernelmosaic.kernels import Gaussian
from reproduction.cells import Gain
from reproduction.experiment import Experiment, Fit, Measurement, Method, Settings
from reproduction.protocols import RandomSplits
from reproduction.rows import Apart
from reproduction.sources import Dataset, Loaded, Samples, take

#: Ten widths, log-uniform on [0.1, 100]. The kernel is exp(−‖x − z‖² / σ), σ not squared, on inputs in [−1, 1]: of the
#: readings tried the one that gives the accuracies of the single kernels; see the study `readings`.
SIGMAS = tuple(map(float, np.logspace(-1, 2, 10)))
TEN = [(f"rbf{number:02d}", Gaussian(sigma**0.5)) for number, sigma in enumerate(SIGMAS, 1)]

_ALPHA, _TOL, _KIM_ALPHA = 5e-4, 5e-4, 1e-8
_ALPHAS = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2]
_PRICES = [0.1, 1.0, 10.0, 100.0, 1000.0]


@dataclass(frozen=True)
class SomeClasses:
    """A hundred samples of each of some classes.

    Parameters
    ----------
    name : str
        A set that `kernelmosaic.datasets.load` knows.
    classes : tuple of int
        Which, by their place in ascending order, from 0.
    per_class : int
    drawn : bool
        Draw them by the seed, or take the first of each class.
    """

    name: str
    classes: tuple[int, ...]
    per_class: int = 100
    drawn: bool = True

    def __call__(self, settings: Settings) -> Samples:
        """Return all samples."""
        # Thinning for a quick look would leave too few of a class; these sets are small as they are.
        whole = Loaded(self.name)(Settings(settings.seed, data_home=settings.data_home))
        random = np.random.RandomState(settings.seed_for(self.name, "draw"))
        members = [np.flatnonzero(whole.y == np.unique(whole.y)[place]) for place in self.classes]
        ordered = [random.permutation(rows) for rows in members] if self.drawn else members
        kept = np.concatenate([rows[: self.per_class] for rows in ordered])
        return Samples(take(whole.X, kept), whole.y[kept])


@dataclass(frozen=True)
class _Discriminant(Method):
    """Weights are printed as shares of the trace, a learned λ as the identity's share."""

    def describe(self, fit: Fit, setting: str = "") -> list[Measurement]:
        """Return time, shares and λ."""
        model, found = fit.model, {"time": fit.seconds, "factorisations": float(fit.model.n_solves_)}
        names = zip(model.kernel_names_, model.trace_shares_, strict=True)
        found |= {f"weight:{name}": float(share) for name, share in names}
        n_samples = len(model.support_) / model.support_fraction_
        found["lambda"] = float(model.alpha_) * (n_samples if model.alpha == "learn" else 1.0)
        return [Measurement(metric, value, setting) for metric, value in found.items()]


@dataclass(frozen=True)
class _VectorMachine(Method):
    """Weights are printed summing to ten, the number of kernels; support vectors are counted."""

    def describe(self, fit: Fit, setting: str = "") -> list[Measurement]:
        """Return time, weights and support vectors."""
        model, found = fit.model, {"time": fit.seconds}
        names = zip(model.kernel_names_, model.weights_, strict=True)
        found |= {f"weight:{name}": len(TEN) * float(weight) for name, weight in names}
        found |= {"n_sv": float(len(model.support_)), "sv_percent": 100 * float(model.support_fraction_)}
        if hasattr(model, "C_"):
            found["C"] = float(model.C_[0])
        return [Measurement(metric, value, setting) for metric, value in found.items()]


@dataclass(frozen=True)
class _Search(Method):
    """A grid by cross-validation; its time is that of the whole search."""

    def describe(self, fit: Fit, setting: str = "") -> list[Measurement]:
        """Return the time."""
        return [Measurement("time", fit.seconds, setting)]


def _learned(name: str, formulation: str, alpha: Any = _ALPHA, cost: float = 0.1) -> Method:
    model = DiscriminantMKLClassifier(TEN, formulation=formulation, alpha=alpha, tol=_TOL)
    return _Discriminant(name, "10 RBF", model, cost=cost)


def _searched_discriminant(name: str, kernels: str, numbers: list[int], cost: float) -> Method:
    model = DiscriminantMKLClassifier([("one", TEN[numbers[0]][1])], weights="uniform")
    grid = {"kernels__one__width": [TEN[number][1].width for number in numbers], "alpha": _ALPHAS}
    return _Search(name, kernels, GridSearchCV(model, grid, cv=5), cost=cost)


def _searched_machine(name: str, kernels: str, numbers: list[int], cost: float) -> Method:
    grid = {"gamma": [1.0 / SIGMAS[number] for number in numbers], "C": _PRICES}
    return _Search(name, kernels, GridSearchCV(SVC(), grid, cv=5), cost=cost)


def _vector_machine(name: str, **parameters: Any) -> Method:
    # Weights that sum to ten and C = 1 are weights that sum to one and C = 10.
    model = MKLClassifier(TEN, normalize=None, **{"C": float(len(TEN)), **parameters})
    return _VectorMachine(name, "10 RBF", model, cost=0.2)


_ALL = list(range(len(TEN)))
_LEARNED = (
    _learned("SDP_theta", "sdp_approximate", cost=1.5),
    _learned("SDP_theta_lambda", "sdp_approximate", "learn", cost=1.5),
    _learned("QCQP_theta", "qcqp"),
    _learned("QCQP_theta_lambda", "qcqp", "learn"),
    _learned("SILP_theta", "silp"),
    _learned("SILP_theta_lambda", "silp", "learn"),
    _learned("Newton_theta", "newton"),
    _searched_discriminant("RKDA_K_lambda", "10 RBF", _ALL, cost=3),
    _searched_machine("SVM_K_C", "10 RBF", _ALL, cost=3),
)
_SINGLE = tuple(
    method
    for number in _ALL
    for method in (
        _searched_discriminant("RKDA_lambda", TEN[number][0], [number], cost=0.3),
        _searched_machine("SVM_C", TEN[number][0], [number], cost=0.2),
    )
)
_SLOW = ("SDP_theta", "SDP_theta_lambda", "SDP_Kim", "RKDA_K_lambda", "SVM_K_C", "RKDA_lambda", "SVM_C")
_NOTES = (
    "exp(−‖x − z‖²/σ) with σ not squared, inputs scaled to [−1, 1] by the training part, classes by the least-squares "
    "rule: the paper is silent on all three, and the first two were found by the study `readings`. Double "
    "cross-validation has five folds and five regularisers. SDP is the approximate program for several classes, which "
    "is exact for two. Newton is ours. 30 splits, ten of each of three split seeds; semi-definite programs and "
    "searches by cross-validation get two of each, for time. "
)


def _gains(machines: tuple[str, ...] = ()) -> tuple[Gain, ...]:
    """Return every learned kernel over the one that double cross-validation chooses for the same machine."""
    by_discriminant = tuple(Gain((one.name, "10 RBF"), ("RKDA_K_lambda", "10 RBF")) for one in _LEARNED[:6])
    return by_discriminant + tuple(Gain((name, "10 RBF"), ("SVM_K_C", "10 RBF")) for name in machines)


BINARY = Experiment(
    name="004-binary",
    title="Discriminant and support vector kernel learning on four two-class sets",
    paper="004",
    table="Tables 2-5, 17",
    protocol=RandomSplits(
        datasets=(
            Dataset("sonar", Loaded("sonar"), cost=1, quick=True),
            Dataset("heart", Loaded("heart"), cost=1),
            Dataset("ionosphere", Loaded("ionosphere"), cost=2),
            Dataset("cancer", Loaded("breast_cancer_original"), cost=5),
        ),
        sizes=(167, 216, 281, 546),
        methods=(
            *_LEARNED,
            _Discriminant(
                "SDP_Kim",
                "10 RBF",
                DiscriminantMKLClassifier(TEN, formulation="kim", alpha=_KIM_ALPHA, tol=_TOL),
                cost=1.5,
            ),
            _vector_machine("SM1", slack=1),
            _vector_machine("SM2", slack=2),
            _vector_machine("SM2_C", slack=2, C="learn"),
            *_SINGLE,
        ),
        repeats=10,
        fewer=tuple((name, 2) for name in _SLOW),
        gains=_gains(("SM1", "SM2", "SM2_C")),
        inputs="[-1, 1]",
    ),
    notes=_NOTES + "The weights of SM1 and SM2 sum to ten as printed.",
    splits=30,
    apart=(Apart("the program of Kim et al. failed numerically in the paper, by its accuracy", "cancer", "SDP_Kim"),),
    version=2,
)


def _classes(name: str, count: int) -> SomeClasses:
    # Of six classes, numbered 1 to 5 and 7, the paper's five are those without the fourth, by its accuracies.
    places = (0, 1, 2, 4, 5) if (name, count) == ("satimage", 5) else tuple(range(count))
    return SomeClasses(name, places, drawn=name != "usps")


_CLASSES = (("usps", "USPS", (3, 6, 8)), ("satimage", "satimage", (3, 5, 6)), ("segment", "segment", (3, 4)))

MULTICLASS = Experiment(
    name="004-multiclass",
    title="Discriminant kernel learning on ten multi-class sets",
    paper="004",
    table="Tables 6-16",
    protocol=RandomSplits(
        datasets=(
            *(
                Dataset(
                    f"{printed}({count})",
                    _classes(name, count),
                    cost=count / 2,
                    quick=(name, count) == ("segment", 3),
                )
                for name, printed, counts in _CLASSES
                for count in counts
            ),
            Dataset("wine(3)", Loaded("wine"), cost=1),
            Dataset("waveform(3)", SomeClasses("waveform", (0, 1, 2)), cost=1.5),
        ),
        sizes=(180, 360, 480, 180, 300, 360, 180, 240, 107, 180),
        methods=_LEARNED,
        repeats=10,
        fewer=tuple((name, 2) for name in _SLOW),
        gains=_gains(),
        inputs="[-1, 1]",
    ),
    notes=_NOTES
    + "Sets but wine have 100 samples of each of their first classes (satimage(5): all but the fourth), drawn anew for "
    "every split seed, of USPS the first 100 in the file; the paper does not say how. USPS is not settled: in [−1, 1] "
    "the widest kernel gets all the weight, in [0, 1] the eighth and ninth, in print mostly the last two.",
    splits=30,
    version=2,
)

EXPERIMENTS = (BINARY, MULTICLASS)
