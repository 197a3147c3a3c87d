"""Kernels that need no weight have none, and equal weights that the folds choose stand beside the
learned ones."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score
from sklearn.model_selection import cross_val_predict

from kernelmosaic import MKLClassifier, MKLClassifierCV, MKLRegressor, MKLSurvival
from kernelmosaic.kernels import Gaussian, Linear, by_group
from kernelmosaic.model_selection import PathSearchCV

X = np.random.RandomState(0).standard_normal((80, 8))
NOISE = np.random.RandomState(1).standard_normal(80)
GROUPS = {"genes": [0, 1], "proteins": [2, 3], "clinic": [4, 5], "noise": [6, 7]}


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (MKLClassifier(), X[:, 0] + 0.5 * NOISE > 0),
        (MKLClassifier(C=0.1), np.digitize(X[:, 0] + 0.5 * NOISE, [-0.5, 0.5])),
        (MKLRegressor(epsilon=0.1), X[:, 0] + X[:, 4] + 0.5 * NOISE),
        (MKLSurvival(loss="cox"), np.exp(X[:, 0] + 0.5 * NOISE)),
    ],
    ids=["classes", "three classes", "numbers", "times"],
)
def test_a_kernel_that_the_certificate_allows_to_be_zero_is_zero(model, y):
    kernels = by_group(GROUPS, [Linear(), Gaussian()])
    loose = model.set_params(kernels=kernels).fit(X, y)
    exact = type(model)(**model.get_params(deep=False) | {"tol": 1e-7, "max_iter": 1000}).fit(X, y)
    assert loose.duality_gap_ <= loose.tol
    # The certificate is of the weights returned: the optimum is within the gap.
    assert (
        exact.objective_ <= loose.objective_ * (1 + 1e-9) <= exact.objective_ * (1 + 2 * loose.tol)
    )
    small = (loose.weights_ > 0) & (
        loose.weights_ < 0.05 * loose.weights_.max(axis=-1, keepdims=True)
    )
    assert not np.any(small & (exact.weights_ == 0))


def test_weights_that_must_stay_are_kept():
    y = X[:, 0] + 0.5 * NOISE > 0
    for params in (
        {"norm": 2},
        {"weights": "uniform"},
        {"fixed_weights": {"noise": 0.01}},
        {"C": np.inf},
    ):
        model = MKLClassifier(by_group(GROUPS, Gaussian()), **params).fit(X, y)
        assert model.duality_gap_ <= model.tol
        assert model.weights_[3] > 0 or "C" in params


def test_the_choice_of_equal_weights_shows_the_learned_ones():
    plots = pytest.importorskip("kernelmosaic.plots")
    pytest.importorskip("matplotlib")
    y = X[:, 0] + X[:, 2] + X[:, 4] + X[:, 6] + 0.5 * NOISE > 0
    model = MKLClassifierCV(by_group(GROUPS, Linear()), Cs=[1.0], cv=3, norms=("uniform", 1)).fit(
        X, y
    )
    means = {norm: own.mean() for norm, own in model.scores_by_norm_.items()}
    assert model.norm_ == max(means, key=means.get) == "uniform"
    np.testing.assert_allclose(model.weights_by_norm_["uniform"], 0.25)
    assert not np.allclose(model.weights_by_norm_[1], 0.25)
    np.testing.assert_allclose(model.weights_by_norm_[1].sum(), 1)
    display = plots.KernelWeightsDisplay.from_estimator(model)
    np.testing.assert_allclose(
        display.points_["learned, norm 1"].get_xdata(), model.weights_by_norm_[1]
    )
    path = plots.WeightsPathDisplay.from_estimator(model)
    assert list(path.beside_) == [1]
    for m, line in zip(path.shown_, path.beside_[1], strict=True):
        np.testing.assert_allclose(
            line.get_ydata(), np.mean(model.weights_path_by_norm_[1][:, [m]], axis=1)
        )
    np.testing.assert_allclose([line.get_ydata() for line in path.lines_], 0.25)
    names = [text.get_text() for text in path.ax_.get_legend().get_texts()]
    assert names == ["equal weights, chosen", *model.kernel_names_, "learned, norm 1"]
    html = model._repr_html_()
    own = model.scores_by_norm_["uniform"][:, 0]
    error = own.std(ddof=1) / len(own) ** 0.5
    assert f"equal weights {means['uniform']:.3f} ± {error:.3f} scored best over the folds" in html
    assert f"learned weights of norm 1 {means[1]:.3f}" in html


def test_a_score_of_ranks_chooses_no_model_that_never_names_a_rare_class():
    rng = np.random.RandomState(0)
    X, y = rng.standard_normal((150, 3)), np.zeros(150, dtype=int)
    y[:12], X[:12] = 1, X[:12] + 1.5
    options = {
        "Cs": [1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0],
        "norms": 1,
        "cv": 3,
        "rule": "one_standard_error",
    }
    model = MKLClassifierCV(Linear(), scoring="roc_auc", **options).fit(X, y)
    named = [
        f1_score(y, cross_val_predict(MKLClassifier(Linear(), C=C), X, y, cv=3)) > 0
        for C in model.Cs_
    ]
    assert not named[0]  # where the areas would have it
    assert model.scores_[:, 0].mean() > model.scores_.mean(axis=0).max() - 0.05
    assert model.Cs_[np.argmax(named)] == model.C_
    assert f1_score(y, model.predict(X)) > 0
    assert (
        MKLClassifierCV(Linear(), scoring="roc_auc", **options | {"Cs": [1e-4]}).fit(X, y).C_
        == 1e-4
    )
    search = PathSearchCV(MKLClassifier(Linear()), scoring="roc_auc", **options).fit(X, y)
    assert search.C_ == model.C_
