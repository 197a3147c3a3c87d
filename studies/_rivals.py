"""The classifiers that `uci_classes.py` and `wide.py` compare, each fitted to one split and scored
on its test part.

`uci.py` has the regression of xRFM from here.

Recursive feature machines are written from the formulas of Radhakrishnan et al. (arXiv:2212.13881)
with the settings of the script that their figures on these sets are from; xRFM is the package of
that name, imported where it is fitted.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, Self

import numpy as np
from common import Row, cpu_time
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelmosaic import MKLRidgeClassifierCV

#: Of more training samples than this, so many, drawn at random by class, serve to search the
#: settings of SVM and trees.
MOST_SEARCHED = 4000
FOLDS = StratifiedKFold(3, shuffle=True, random_state=0)
#: 30 points for the SVM; gamma is divided by the number of columns.
CS, GAMMAS = np.logspace(-1, 4, 6), np.logspace(-2, 1, 5)
TREES = 500
BOOSTING_GRID = [
    {
        "learning_rate": [0.05, 0.2],
        "max_leaf_nodes": [4, 16],
        "min_samples_leaf": [5],
        "l2_regularization": [0, 10],
    },
    {"learning_rate": [0.05, 0.2], "max_leaf_nodes": [4, 16], "min_samples_leaf": [20]},
]
#: Where a tree per class on many columns takes long: classes × columns (one for two classes) above
#: MANY.
MANY, MANY_GRID = 1000, {"max_leaf_nodes": [4], "min_samples_leaf": [5, 20]}
#: Random settings of xRFM.
XRFM_SETTINGS = 30
#: Recursive feature machines as their script has them: width of the Laplacian, steps of the metric,
#: ridges.
WIDTH, STEPS, RIDGES = 10.0, 5, (10.0, 1.0, 0.1, 0.01, 0.001)


class Split(NamedTuple):
    """Samples and classes to train on (A, a) and to test on (B, b); X and y are all of them, for
    what leaks.

    `number` is that of the split, from which whatever is drawn at random is drawn.
    """

    A: np.ndarray
    a: np.ndarray
    B: np.ndarray
    b: np.ndarray
    X: np.ndarray
    y: np.ndarray
    number: int


def make_split(
    X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray, number: int
) -> Split:
    """Return a split without the columns that are constant in its training part."""
    X = X[:, X[train].min(axis=0) < X[train].max(axis=0)].astype(np.float64)
    return Split(X[train], y[train], X[test], y[test], X, y, number)


def take_share(y: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples that remain, and a share of every class, drawn at random.

    At least one sample of every class remains. If nothing would be taken, one sample of the largest
    class is.
    """
    rng = np.random.RandomState(seed)
    taken = []
    for label in np.unique(y):
        own = rng.permutation(np.flatnonzero(y == label))
        taken.append(own[: min(round(share * len(own)), len(own) - 1)])
    drawn = np.sort(np.concatenate(taken))
    if not len(drawn):
        labels, counts = np.unique(y, return_counts=True)
        drawn = np.flatnonzero(y == labels[counts.argmax()])[:1]
    return np.setdiff1d(np.arange(len(y)), drawn), drawn


# Recursive feature machines -----------------------------------------------------------------------


class RecursiveFeatureMachine:
    """Ridge regression of indicators on a Laplacian kernel whose metric is learned by its own
    gradients.

    k(x, z) = exp(−‖x − z‖_M / 10), where ‖v‖²_M = vᵀMv. With the coefficients α that solve (K + λI)
    α = Y, f_c(x) = Σ_i α_ic k(x_i, x), and the next metric is the mean over the samples of Σ_c
    ∇f_c(x) ∇f_c(x)ᵀ; the first is M = I. λ, whether samples are scaled to length one, and the step
    to stop at are those of the highest accuracy on one half of the samples, the machine being
    learned on the other; the metric of that half is kept, and α solved on all.

    Here M = FᵀF, F having no more rows than there are samples times classes, and distances are
    those of z = Fx.

    Parameters
    ----------
    device : str, optional
        Where matrices are multiplied and systems solved, by PyTorch; without it NumPy does.
    seed : int
        What the halves are drawn by.
    """

    def __init__(self, device: str | None = None, seed: int = 0) -> None:
        self.device, self.seed = device, seed

    def fit(
        self, X: np.ndarray, y: np.ndarray, chosen_on: tuple[np.ndarray, np.ndarray] | None = None
    ) -> Self:
        """Solve the machine on samples, its metric and settings chosen on halves of them, or of
        those given."""
        X_all, y_all = (X, y) if chosen_on is None else chosen_on
        self.classes_ = np.unique(y_all)
        first, second = take_share(y_all, 0.5, self.seed)
        best = -1.0
        # A sample of length zero cannot be scaled; the script names the one set that has such
        # samples.
        lengths = (True, False) if np.all(np.linalg.norm(X_all, axis=1) > 0) else (False,)
        for ridge in RIDGES:
            for scaled in lengths:
                A, B = self._read(X_all[first], scaled), self._read(X_all[second], scaled)
                F = None
                for _ in range(STEPS):
                    alpha = self._solve(A, y_all[first], F, ridge)
                    outputs = self._host(kernel(self.xp, A, B, F)[0].T @ alpha)
                    accuracy = np.mean(self.classes_[outputs.argmax(axis=1)] == y_all[second])
                    if accuracy > best:
                        best, self.ridge_, self.scaled_, self.factor_ = accuracy, ridge, scaled, F
                    F = next_factor(self.xp, A, alpha, F)
        self.samples_ = self._read(X, self.scaled_)
        self.alpha_ = self._solve(self.samples_, y, self.factor_, self.ridge_)
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Return the outputs, one column per class; of two classes, by how much the second is above
        the first."""
        K, _ = kernel(self.xp, self.samples_, self._read(X, self.scaled_), self.factor_)
        outputs = self._host(K.T @ self.alpha_)
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict(self, X: np.ndarray) -> np.ndarray:
        outputs = self.decision_function(X)
        return self.classes_[
            (outputs > 0).astype(int) if outputs.ndim == 1 else outputs.argmax(axis=1)
        ]

    def _solve(self, A: Any, y: np.ndarray, F: Any, ridge: float) -> Any:
        K, _ = kernel(self.xp, A, A, F)
        indicators = (y[:, np.newaxis] == self.classes_).astype(np.float64)
        return self.xp.linalg.solve(
            K + self._array(ridge * np.eye(len(y))), self._array(indicators)
        )

    def _read(self, X: np.ndarray, scaled: bool) -> Any:
        if scaled:
            lengths = np.linalg.norm(X, axis=1, keepdims=True)
            X = X / np.where(lengths > 0, lengths, 1.0)
        return self._array(X)

    @property
    def xp(self) -> Any:
        if not self.device:
            return np
        import torch

        return torch

    def _array(self, values: np.ndarray) -> Any:
        return self.xp.as_tensor(values, device=self.device) if self.device else values

    def _host(self, values: Any) -> np.ndarray:
        return values.cpu().numpy() if self.device else values


def kernel(xp: Any, A: Any, B: Any, F: Any) -> tuple[Any, Any]:
    """Return exp(−d / 10) and the distances d of the metric FᵀF, Euclid's if F is None; `xp` is
    NumPy or PyTorch."""
    if F is not None:
        A, B = A @ F.T, B @ F.T
    squared = (A * A).sum(axis=1)[:, None] + (B * B).sum(axis=1)[None, :] - 2 * A @ B.T
    distances = xp.sqrt(squared.clip(min=0.0))
    return xp.exp(-distances / WIDTH), distances


def next_factor(xp: Any, A: Any, alpha: Any, F: Any) -> Any:
    """Return F of the next metric FᵀF = 1/n Σ_j Σ_c ∇f_c(x_j) ∇f_c(x_j)ᵀ.

    ∇f_c(x_j) = −1/10 Fᵀ Σ_i α_ic k_ij / d_ij (z_j − z_i). Samples that lie on each other have no
    gradient.
    """
    K, distances = kernel(xp, A, A, F)
    apart = distances > 1e-10
    ratios = xp.where(apart, K, 0 * K) / xp.where(apart, distances, 1 + 0 * K)
    Z = A if F is None else A @ F.T
    gradients = []
    for c in range(alpha.shape[1]):
        weighted = alpha[:, c][:, None] * ratios
        of_z = (weighted.T @ Z - weighted.sum(axis=0)[:, None] * Z) / WIDTH
        gradients.append(of_z if F is None else of_z @ F)
    return xp.linalg.qr(xp.concatenate(gradients) / len(A) ** 0.5)[1]


# xRFM ---------------------------------------------------------------------------------------------


def xrfm_settings(number: int) -> Row:
    """Return one random setting of the space that xRFM's authors search in their package of tuned
    models, pytabkit."""
    rng = np.random.default_rng(number)
    exponent = float(rng.uniform(0.7, 1.4))
    return {
        "bandwidth": float(np.exp(rng.uniform(np.log(0.5), np.log(200)))),
        "reg": float(np.exp(rng.uniform(np.log(1e-6), np.log(10)))),
        "exponent": exponent,
        "norm_p": float(exponent + (2 - exponent) * rng.uniform(0, 0.8)),
        "diag": bool(rng.integers(2)),
        "kernel": "lpq" if rng.uniform() < 0.8 else "l2",
    }


def best_xrfm(
    train: tuple[np.ndarray, np.ndarray],
    held: tuple[np.ndarray, np.ndarray],
    error: Callable[[Any], float],
    metric: str,
    *,
    device: str | None,
    seed: int,
    n_settings: int,
) -> Any:
    """Return the machine of the random settings with the least error on samples held out; xRFM
    stops early on them."""
    import xrfm

    # The kernel of p-norms holds an array of samples × batch × columns: two gigabytes of them, a
    # dozen at a time.
    batch = int(np.clip(2e9 / (48 * train[0].size), 1, 8192))
    least, best = np.inf, None
    for number in range(n_settings):
        settings = xrfm_settings(number)
        fit = {"reg": settings.pop("reg"), "iters": 5, "verbose": False, "early_stop_rfm": True}
        fit |= {"early_stop_multiplier": 1.1, "M_batch_size": batch, "solver": "solve"}
        model = xrfm.xRFM(
            {"model": settings | {"bandwidth_mode": "constant"}, "fit": fit},
            device=device or "cpu",
            tuning_metric=metric,
            classification_mode="prevalence",
            overlap_fraction=0.1,
            random_state=seed,
            verbose=False,
        )
        model.fit(*train, *held)
        found = error(model)
        if found < least:
            least, best = found, model
    return best


class TunedXRFM:
    """The best of `XRFM_SETTINGS` random settings of xRFM on a fifth of the training part, which is
    held out."""

    def __init__(
        self, device: str | None = None, seed: int = 0, n_settings: int = XRFM_SETTINGS
    ) -> None:
        self.settings: Row = {"device": device, "seed": seed, "n_settings": n_settings}

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        self.classes_, codes = np.unique(y, return_inverse=True)
        rows, held = take_share(codes, 0.2, self.settings["seed"])
        self.scaler_ = StandardScaler().fit(X[rows])
        A, B = (self.scaler_.transform(X[some]).astype(np.float32) for some in (rows, held))
        self.model_ = best_xrfm(
            (A, codes[rows]),
            (B, codes[held]),
            lambda model: float(np.mean(model.predict_proba(B).argmax(axis=1) != codes[held])),
            "accuracy",
            **self.settings,
        )
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        found = self.model_.predict_proba(self.scaler_.transform(X).astype(np.float32)).astype(
            np.float64
        )
        return found / found.sum(axis=1, keepdims=True)

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class TunedXRFMRegressor:
    """The same for numbers, which are standardised as the inputs are."""

    def __init__(
        self, device: str | None = None, seed: int = 0, n_settings: int = XRFM_SETTINGS
    ) -> None:
        self.settings: Row = {"device": device, "seed": seed, "n_settings": n_settings}

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        rows, held = take_share(np.zeros(len(y)), 0.2, self.settings["seed"])
        self.inputs_ = StandardScaler().fit(X[rows])
        self.targets_ = StandardScaler().fit(y[rows, np.newaxis])
        A, B = (self.inputs_.transform(X[some]).astype(np.float32) for some in (rows, held))
        a, b = (
            self.targets_.transform(y[some, np.newaxis]).astype(np.float32) for some in (rows, held)
        )
        self.model_ = best_xrfm(
            (A, a),
            (B, b),
            lambda model: float(np.mean((model.predict(B) - b) ** 2)),
            "mse",
            **self.settings,
        )
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        found = self.model_.predict(self.inputs_.transform(X).astype(np.float32)).astype(np.float64)
        return self.targets_.inverse_transform(found).ravel()


# Searches -----------------------------------------------------------------------------------------


def searched(split: Split) -> np.ndarray:
    """Return the training samples that serve to search: all, or `MOST_SEARCHED` of them."""
    rows = np.arange(len(split.a))
    return (
        rows
        if len(rows) <= MOST_SEARCHED
        else take_share(split.a, MOST_SEARCHED / len(rows), split.number)[1]
    )


def search(model: Any, grid: Any, split: Split) -> Row:
    """Return the best settings by three shuffled folds of the samples to search."""
    rows = searched(split)
    found = GridSearchCV(model, grid, cv=FOLDS, refit=False).fit(split.A[rows], split.a[rows])
    return dict(found.best_params_)


def gaussians(A: np.ndarray, B: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the kernels of `GAMMAS` between samples, from one matrix of distances."""
    squared = euclidean_distances(A, B, squared=True) / A.shape[1]
    return (np.exp(-gamma * squared) for gamma in GAMMAS)


class TunedSVM:
    """SVC of standardised samples with the best of 30 settings by three shuffled folds, as a grid
    search has it.

    A fold's distances are computed once, by matrix products: LIBSVM computes those of every fit one
    by one, which takes minutes for a thousand samples of several thousand columns.
    """

    def fit(self, split: Split) -> Self:
        rows = searched(split)
        A, a, scores = split.A[rows], split.a[rows], np.zeros((len(GAMMAS), len(CS)))
        for train, test in FOLDS.split(A, a):
            scaler = StandardScaler().fit(A[train])
            Z = scaler.transform(A[train])
            for g, (K, k) in enumerate(
                zip(gaussians(Z, Z), gaussians(scaler.transform(A[test]), Z), strict=True)
            ):
                for c, C in enumerate(CS):
                    machine = SVC(C=C, kernel="precomputed").fit(K, a[train])
                    scores[g, c] += np.mean(machine.predict(k) == a[test])
        # Of equal scores the first of a grid search: the smallest C, and of these the smallest
        # gamma.
        c, self.gamma_ = (int(one) for one in np.unravel_index(scores.T.argmax(), scores.T.shape))
        self.scaler_ = StandardScaler().fit(split.A)
        self.samples_ = self.scaler_.transform(split.A)
        self.machine_ = SVC(C=CS[c], kernel="precomputed", probability=True, random_state=0)
        self.machine_.fit(list(gaussians(self.samples_, self.samples_))[self.gamma_], split.a)
        self.classes_ = self.machine_.classes_
        return self

    def _kernel(self, X: np.ndarray) -> np.ndarray:
        return list(gaussians(self.scaler_.transform(X), self.samples_))[self.gamma_]

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.machine_.predict(self._kernel(X))

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.machine_.predict_proba(self._kernel(X))

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return self.machine_.decision_function(self._kernel(X))


def boosting_grid(split: Split) -> Any:
    n_classes = len(np.unique(split.a))
    return (
        MANY_GRID
        if (1 if n_classes == 2 else n_classes) * split.A.shape[1] > MANY
        else BOOSTING_GRID
    )


def tuned_boosting(split: Split) -> Any:
    model = HistGradientBoostingClassifier(random_state=0, early_stopping=False)
    return model.set_params(**search(model, boosting_grid(split), split)).fit(split.A, split.a)


def ours(split: Split, device: str | None, **settings: Any) -> Any:
    return MKLRidgeClassifierCV(**settings, device=device, random_state=0).fit(split.A, split.a)


OURS, EQUAL, SVM, FOREST, DEFAULT, BOOSTING, XRFM, RFM, LEAK = (
    *("ours", "equal", "svm", "forest", "boosting", "tuned-boosting", "xrfm", "rfm", "rfm-leak"),
)
#: By their names on the command line and in the tables.
FITS: dict[str, Callable[[Split, str | None], Any]] = {
    OURS: ours,
    EQUAL: lambda split, device: ours(split, device, weights="uniform"),
    SVM: lambda split, device: TunedSVM().fit(split),
    FOREST: lambda split, device: RandomForestClassifier(TREES, random_state=0).fit(
        split.A, split.a
    ),
    DEFAULT: lambda split, device: HistGradientBoostingClassifier(random_state=0).fit(
        split.A, split.a
    ),
    BOOSTING: lambda split, device: tuned_boosting(split),
    XRFM: lambda split, device: TunedXRFM(device, split.number).fit(split.A, split.a),
    RFM: lambda split, device: RecursiveFeatureMachine(device, split.number).fit(split.A, split.a),
    # As the script: one pair of halves of all samples for all splits, labels of test samples among
    # them.
    LEAK: lambda split, device: RecursiveFeatureMachine(device).fit(
        split.A, split.a, (split.X, split.y)
    ),
}
#: On the page.
TITLES = {
    OURS: "kernelmosaic",
    EQUAL: "equal weights",
    SVM: "tuned SVM",
    FOREST: "random forest",
    DEFAULT: "boosting, defaults",
    BOOSTING: "tuned boosting",
    XRFM: "xRFM",
    RFM: "RFM",
    LEAK: "RFM with label leak",
}
#: Those that compute on a device if one is named.
ON_DEVICE = (OURS, EQUAL, XRFM, RFM, LEAK)


def installed(methods: list[str], find: Callable[[str], Any] = find_spec) -> list[str]:
    """Return the methods whose packages are there, and say which are not."""
    if XRFM in methods and find("xrfm") is None:
        print("xRFM is left out: the package xrfm is not installed (pip install xrfm).")
        return [one for one in methods if one != XRFM]
    return methods


# Scores -------------------------------------------------------------------------------------------


def area(y: np.ndarray, scores: np.ndarray, classes: np.ndarray) -> float:
    """Return the area under the ROC curve, of several classes the mean of each against the rest."""
    if scores.ndim == 2 and scores.shape[1] == 2:
        scores = scores[:, 1]
    if scores.ndim == 1:
        return float(roc_auc_score(y == classes[1], scores))
    there = [c for c, label in enumerate(classes) if np.any(y == label)]
    return float(np.mean([roc_auc_score(y == classes[c], scores[:, c]) for c in there]))


def measure(method: str, split: Split, device: str | None = None, with_area: bool = False) -> Row:
    """Return accuracy, log-loss where the method has probabilities, and the times of one method on
    one split."""
    device = device if method in ON_DEVICE else None
    found: Row = {
        "train": len(split.a),
        "test": len(split.b),
        "columns": split.A.shape[1],
        "device": device or "",
    }
    if method == XRFM:  # what the package loads is no part of a fit
        import_module("xrfm")
    start = time.monotonic()
    with warnings.catch_warnings(), cpu_time(found, "cpu_seconds"):
        warnings.simplefilter("ignore")
        model = FITS[method](split, device)
    found["seconds"] = time.monotonic() - start
    found["accuracy"] = float(np.mean(model.predict(split.B) == split.b))
    if hasattr(model, "predict_proba"):
        found["log_loss"] = float(
            log_loss(split.b, model.predict_proba(split.B), labels=model.classes_)
        )
    if with_area:
        # The probabilities of a small SVM may be in another order than its outputs.
        outputs = getattr(model, "decision_function", None) or model.predict_proba
        found["auc"] = area(split.b, outputs(split.B), model.classes_)
    return found
