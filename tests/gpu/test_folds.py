"""Searches whose folds and values are learned together on a device, here the host's, against fits
one by one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification

from kernelmosaic import MKLClassifierCV, MKLRegressorCV
from kernelmosaic.estimators import _base, classifier
from kernelmosaic.gpu import folds as _together
from kernelmosaic.gpu.paths import Counts
from kernelmosaic.gpu.tuning import BatchOptions
from kernelmosaic.kernels import Gaussian, Linear

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RNG = np.random.RandomState(0)
X = RNG.randn(100, 4)
Y = (X[:, 0] + np.sin(3 * X[:, 1]) + 0.3 * RNG.randn(100) > 0).astype(int)
THREE = Y + (X[:, 2] > 0)
TARGET = np.sin(X[:, 0]) + 0.1 * RNG.randn(100)
GIVEN = [Gaussian(0.7), Gaussian(3.0), Linear()]
WEIGHT = RNG.randint(0, 3, 100).astype(float)
#: How many stacks a search of three folds makes: one where kernels learn nothing of a fold but a
#: factor.
SEARCHES = {
    "given widths": (
        MKLClassifierCV(GIVEN, norms=(1, "uniform"), near=None, scale=False),
        Y,
        None,
        1,
    ),
    "widths and scales of the fold": (
        MKLClassifierCV([Gaussian("median"), Linear()], norms=(1,)),
        Y,
        None,
        3,
    ),
    "squared slack": (MKLClassifierCV(GIVEN, norms=(1,), slack=2, scale=False), Y, None, 1),
    "three classes": (
        MKLClassifierCV(GIVEN, norms=(1,), scale=False, class_weight="balanced"),
        THREE,
        None,
        1,
    ),
    "penalties": (
        MKLClassifierCV(GIVEN, norms=(2,), penalties=[1, 2, 0.5], scale=False),
        Y,
        None,
        1,
    ),
    "weights and repetitions": (MKLClassifierCV(GIVEN, norms=(1,), scale=False), Y, WEIGHT, 1),
    "regression": (MKLRegressorCV(GIVEN, norms=(1,), epsilon=0.05, scale=False), TARGET, None, 1),
    "Huber": (MKLRegressorCV(GIVEN, norms=(2,), loss="huber", scale=False), TARGET, None, 1),
}


def searched(search, y, weight, device):
    model = type(search)(**{**search.get_params(deep=False), "device": device, "refit": False})
    return model.set_params(Cs=[1.0, 4.0], cv=3, tol=3e-4).fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("name", SEARCHES)
def test_scores_and_weights_are_those_of_fits_one_by_one(name, monkeypatch):
    search, y, weight, n_stacks = SEARCHES[name]
    made = []
    make = _together.make_stack
    monkeypatch.setattr(
        _together, "make_stack", lambda *args, **params: made.append(0) or make(*args, **params)
    )
    found, expected = (searched(search, y, weight, device) for device in ("cpu", None))
    assert len(made) == n_stacks
    assert found.duality_gaps_.max() <= 3e-4
    np.testing.assert_allclose(found.weights_paths_, expected.weights_paths_, rtol=0.1, atol=0.1)
    # A sample at the border may change sides.
    most = 1.5 / 33 if y.dtype.kind == "i" else 1e-2
    np.testing.assert_allclose(found.scores_, expected.scores_, atol=most)


def counted(monkeypatch, **options):
    """Return where the work of searches is counted, whose paths are followed by these options."""
    counts, learn = Counts(), _together.learn_paths
    given = {"options": BatchOptions(**options), "counts": counts}
    monkeypatch.setattr(_together, "learn_paths", lambda *args: learn(*args, **given))
    return counts


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"half_precision": True},
        {"max_block_entries": 1000},
        {"n_columns": 6, "n_steps": 10},
    ],
    ids=str,
)
@pytest.mark.parametrize("norm", [1, 2])
def test_all_problems_of_a_path_end_together(norm, options, monkeypatch):
    counts = counted(monkeypatch, **options)
    model = MKLClassifierCV(
        GIVEN, Cs=np.logspace(-2, 2, 10), cv=3, norms=(norm,), scale=False, device="cpu"
    )
    model.set_params(refit=False).fit(X, Y)
    assert model.duality_gaps_.max() <= 1e-3
    # None is learned by itself.
    assert counts.alone == 0
    assert 0 < counts.rounds <= 80


@pytest.mark.parametrize("C", [10.0, 1e3])
def test_half_precision_ends_where_it_would_round_more_than_the_ridge(C, monkeypatch):
    counts = counted(monkeypatch, half_precision=True)
    A, b = make_classification(600, 5, random_state=0)
    model = MKLClassifierCV(
        [Gaussian(3.0), Linear()], Cs=[C], cv=2, norms=(1,), slack=2, scale=False, device="cpu"
    )
    model.set_params(refit=False).fit(A, b)
    # Without bounds ρ starts at a thousandth, and steps in half precision alone leave both folds of
    # C = 10 unsolved.
    assert model.duality_gaps_.max() <= 1e-3
    assert C > 10.0 or counts.alone == 0


def test_rounds_that_gain_nothing_leave_a_problem_to_be_learned_alone(monkeypatch):
    counts = counted(
        monkeypatch, n_steps=0, max_idle_rounds=2, max_certificates=1, max_block_entries=1
    )
    model = MKLClassifierCV(GIVEN, Cs=[1.0], cv=3, norms=("uniform",), scale=False, device="cpu")
    model.set_params(refit=False).fit(X, Y)
    assert model.duality_gaps_.max() <= 1e-3
    assert counts.alone == 3
    assert counts.rounds <= 6


def test_gaps_hold_when_recomputed_from_the_definition(monkeypatch):
    kept = {}
    learn = _together.learn_paths

    def learned(stack, sizes, paths, learners):
        kept["paths"], kept["found"] = paths, learn(stack, sizes, paths, learners)
        return kept["found"]

    monkeypatch.setattr(_together, "learn_paths", learned)
    model = MKLClassifierCV(
        GIVEN[:2], Cs=[0.1, 3.0, 1000.0], cv=3, norms=(1,), scale=False, device="cpu"
    )
    model.set_params(refit=False).fit(X, Y)
    distances = ((X[:, np.newaxis].astype(np.longdouble) - X) ** 2).sum(-1)
    matrices = np.stack([np.exp(-distances / width**2) for width in (0.7, 3.0)])
    folds = model._splitter(model, Y).split(X, Y)
    for (train, _), path in zip(folds, kept["found"], strict=True):
        for C, one in zip(model.Cs_, path, strict=True):
            beta, t = one.solution.beta.astype(np.longdouble), 2 * Y - 1
            assert not np.delete(beta, train).any()
            assert np.all((beta * t >= 0) & (beta * t <= C))
            assert abs(beta.sum()) <= 1e-9 * C
            values, q = (
                np.tensordot(one.weights, matrices, axes=1) @ beta,
                0.5 * (matrices @ beta) @ beta,
            )
            slack = np.maximum(0.0, 1.0 - t * (values + one.solution.intercept))[train]
            primal, dual = one.weights @ q + C * slack.sum(), t @ beta - q.max()
            # As little as rounding tells the bounds apart, they may cross.
            assert -1e-12 <= (primal - dual) / primal <= one.gap + 1e-12
            assert one.gap <= 1e-3


def test_fits_that_a_batch_does_not_serve_are_taken_one_by_one():
    pipelines = (
        {"multi_class": "joint"},
        {"solver": "silp"},
        {"approximation": "nystroem", "rank": 20},
    )
    for params in pipelines:
        y = THREE if "multi_class" in params else Y
        model = MKLClassifierCV(
            GIVEN, Cs=[1.0], cv=3, norms=(1,), device="cpu", refit=False, **params
        ).fit(X, y)
        assert model.duality_gaps_.max() <= 1e-3


@pytest.mark.parametrize(
    "name", ["widths and scales of the fold", "three classes", "weights and repetitions", "Huber"]
)
def test_models_of_the_folds_are_those_that_the_batch_has_learned(name, monkeypatch):
    search, y, weight, _ = SEARCHES[name]
    fitted, fit = [], _base.fit
    monkeypatch.setattr(
        _base, "fit", lambda *args, **params: fitted.append(0) or fit(*args, **params)
    )
    monkeypatch.setattr(
        classifier, "fit", lambda *args, **params: fitted.append(0) or fit(*args, **params)
    )

    def predicted(device):
        model = type(search)(**{**search.get_params(deep=False), "device": device})
        model.set_params(Cs=[4.0], cv=3, tol=3e-4).fit(X, y, sample_weight=weight)
        return (
            model.predict_interval(X) if y.dtype.kind == "f" else model.predict_set(X, coverage=0.6)
        )

    found, expected = predicted("cpu"), predicted(None)
    assert not fitted  # but the model of all samples, by `cv`
    if y.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, atol=2e-2)
    else:
        assert np.mean(found != expected) <= 0.03
