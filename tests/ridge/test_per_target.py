"""MKLRidgeCV with weights and ridge of every target."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import r2_score

from kernelmosaic import MKLRidgeCV, load, save
from kernelmosaic.kernels import Categorical, Gaussian, Linear, Precomputed

COLUMNS = (20, 30, 10)
RNG = np.random.default_rng(11)
SHARES = RNG.dirichlet(np.full(3, 0.5), size=60)
X = RNG.normal(size=(260, 60))
ENDS = np.cumsum(COLUMNS)
KERNELS = [(f"view {m}", Linear(), list(range(ENDS[m] - COLUMNS[m], ENDS[m]))) for m in range(3)]
SIGNAL = sum(
    np.sqrt(SHARES[:, m])
    * (X[:, columns] @ RNG.normal(size=(len(columns), 60)))
    / np.sqrt(len(columns))
    for m, (_, _, columns) in enumerate(KERNELS)
)
Y = SIGNAL + 0.7 * RNG.normal(size=SIGNAL.shape) + 3.0
TRAIN, TEST = slice(0, 160), slice(160, 260)


def make(**params):
    return MKLRidgeCV(
        KERNELS, per_target=True, scale=False, normalize=None, random_state=0, **params
    )


@pytest.fixture(scope="module")
def model():
    return make().fit(X[TRAIN], Y[TRAIN])


def test_shares_are_recovered_and_predict_better_than_shared_weights(model):
    assert model.weights_.shape == (60, 3)
    assert model.alpha_.shape == (60,)
    assert_allclose(model.weights_.sum(axis=1), 1.0)
    # Kernels are not normalised: a view counts by its columns.
    shares = model.weights_ * COLUMNS
    shares /= shares.sum(axis=1, keepdims=True)
    assert np.corrcoef(shares.ravel(), SHARES.ravel())[0, 1] > 0.9
    shared = MKLRidgeCV(KERNELS, scale=False, normalize=None).fit(X[TRAIN], Y[TRAIN])
    assert model.score(X[TEST], Y[TEST]) > shared.score(X[TEST], Y[TEST]) + 0.01
    assert model.best_score_ > shared.best_score_


def test_scores_are_those_of_n_refits():
    n, t, every = 62, 7, np.arange(62)  # more samples than the 60 columns
    model = make().fit(X[:n], Y[:n, :10])
    one = MKLRidgeCV(
        KERNELS, weights=model.weights_[t], alpha=model.alpha_[t], scale=False, normalize=None
    )
    found = [
        clone(one).fit(X[:n][every != i], Y[:n][every != i, t]).predict(X[i : i + 1])[0]
        for i in every
    ]
    assert model.loo_scores_[t] == pytest.approx(r2_score(Y[:n, t], found), abs=1e-9)
    assert_allclose(
        model.predict(X[TEST])[:, t], one.fit(X[:n], Y[:n, t]).predict(X[TEST]), atol=1e-9
    )


@pytest.mark.parametrize("t", [0, 1])
def test_a_single_column_is_fitted_as_a_flat_target(t):
    own = make().fit(X[TRAIN], Y[TRAIN, t : t + 1])
    alone = MKLRidgeCV(KERNELS, scale=False, normalize=None).fit(X[TRAIN], Y[TRAIN, t])
    assert own.best_score_ == pytest.approx(alone.best_score_)
    assert own.weights_.shape == (1, 3)
    assert_allclose(own.predict(X[TEST]), alone.predict(X[TEST])[:, np.newaxis])


def test_few_targets_are_fitted_as_well_as_each_alone():
    own = make().fit(X[TRAIN], Y[TRAIN, :3])
    each = [
        MKLRidgeCV(KERNELS, scale=False, normalize=None).fit(X[TRAIN], Y[TRAIN, t]).best_score_
        for t in range(3)
    ]
    assert np.all(own.loo_scores_ > np.array(each) - 5e-3)


def test_a_flat_target_is_fitted_as_without():
    own, plain = (
        make().fit(X[TRAIN], Y[TRAIN, 0]),
        make().set_params(per_target=False).fit(X[TRAIN], Y[TRAIN, 0]),
    )
    assert_allclose(own.weights_, plain.weights_)
    assert_allclose(own.predict(X[TEST]), plain.predict(X[TEST]))


def test_contributions_and_shares_of_the_score_sum_up(model):
    outputs = model.predict(X[TEST])
    assert_allclose(
        model.contributions(X[TEST]).sum(axis=1) + model.intercept_, outputs, atol=1e-10
    )
    split = model.score_split(X[TEST], Y[TEST])
    assert split.shape == (3, 60)
    assert_allclose(
        split.sum(axis=0), r2_score(Y[TEST], outputs, multioutput="raw_values"), atol=1e-10
    )
    small = pickle.loads(pickle.dumps(model))
    small._targets_at_once = 7
    assert_allclose(small.predict(X[TEST]), outputs, atol=1e-12)
    assert_allclose(small.score_split(X[TEST], Y[TEST]), split, atol=1e-12)


def test_memory_maps_in_single_precision(model, device, tmp_path):
    np.save(tmp_path / "y.npy", Y[TRAIN].astype(np.float32))
    mapped = make(device=device).fit(X[TRAIN], np.load(tmp_path / "y.npy", mmap_mode="r"))
    assert mapped.dual_coef_.dtype == np.float32
    assert_allclose(mapped.loo_scores_, model.loo_scores_, atol=5e-3)
    off = mapped.predict(X[TEST]) - model.predict(X[TEST])
    assert np.sqrt(np.mean(off**2)) < 0.01 * Y.std()


def test_devices_agree(model, device):
    found = model if device is None else make(device=device).fit(X[TRAIN], Y[TRAIN])
    # Which candidates are tried may depend on rounding, and what is best between them hardly does.
    assert_allclose(found.loo_scores_, model.loo_scores_, atol=5e-3)
    for t in (0, 30):
        one = MKLRidgeCV(
            KERNELS, weights=found.weights_[t], alpha=found.alpha_[t], scale=False, normalize=None
        )
        one.fit(X[TRAIN], Y[TRAIN, t])
        assert found.loo_scores_[t] == pytest.approx(one.best_score_, abs=1e-9)
        assert_allclose(found.predict(X[TEST])[:, t], one.predict(X[TEST]), atol=1e-8)


def test_models_are_stored(model, tmp_path):
    outputs = model.predict(X[TEST])
    assert_allclose(pickle.loads(pickle.dumps(model)).predict(X[TEST]), outputs)
    save(model, tmp_path / "model.mosaic")
    assert_allclose(load(tmp_path / "model.mosaic").predict(X[TEST]), outputs)


def test_given_ridge_or_weights_are_kept():
    few = Y[TRAIN, :5]
    by_ridge = make(alpha=2.0).fit(X[TRAIN], few)
    assert_allclose(by_ridge.alpha_, 2.0)
    by_weights = make(weights=[1.0, 2.0, 0.0]).fit(X[TRAIN], few)
    assert_allclose(by_weights.weights_, np.tile([1.0, 2.0, 0.0], (5, 1)))
    assert len(np.unique(by_weights.alpha_)) > 1
    both = make(weights=[1.0, 2.0, 0.0], alpha=2.0).fit(X[TRAIN], few)
    assert_allclose(both.alpha_, 2.0)
    assert np.all(by_weights.loo_scores_ >= both.loo_scores_ - 1e-3)


def test_samples_without_weight_and_groups():
    Z, targets = X[:80], Y[:80, :2]
    weight = np.ones(80)
    weight[:10] = 0.0
    groups = np.repeat(np.arange(40), 2)
    some = make().fit(Z, targets, sample_weight=weight, groups=groups)
    # Last digits may differ: the search does not amplify what rounding leaves.
    last_digits = 1.0 + 1e-14 * np.random.default_rng(0).normal(size=(70, 60))
    rest = make().fit(last_digits * Z[10:], targets[10:], groups=groups[10:])
    assert_allclose(some.predict(X[TEST]), rest.predict(X[TEST]), rtol=1e-9, atol=1e-10)


def test_evidence_recovers_shares_too():
    found = make(criterion="evidence").fit(X[TRAIN], Y[TRAIN])
    shares = found.weights_ * COLUMNS
    assert (
        np.corrcoef((shares / shares.sum(axis=1, keepdims=True)).ravel(), SHARES.ravel())[0, 1]
        > 0.9
    )


def test_what_needs_shared_weights_says_so(model):
    with pytest.raises(ValueError, match="per_target=False"):
        model.predict(X[TEST], return_std=True)
    with pytest.raises(ValueError, match="per_target=False"):
        model.predict_interval(X[TEST])


def test_more_columns_than_samples_are_fitted_by_matrices():
    few = slice(0, 50)
    found = make().fit(X[few], Y[few, :8])
    for t in (0, 5):
        one = MKLRidgeCV(
            KERNELS, weights=found.weights_[t], alpha=found.alpha_[t], scale=False, normalize=None
        )
        one.fit(X[few], Y[few, t])
        assert found.loo_scores_[t] == pytest.approx(one.best_score_, abs=1e-9)
        assert_allclose(found.predict(X[TEST])[:, t], one.predict(X[TEST]), atol=1e-9)


@pytest.mark.parametrize("approximation", ["nystroem", "fourier"])
def test_features(approximation):
    views = [(name, Gaussian(), columns) for name, _, columns in KERNELS]
    params = {"approximation": approximation, "rank": 40, "random_state": 0}
    found = MKLRidgeCV(views, per_target=True, **params).fit(X[TRAIN], Y[TRAIN, :8])
    for t in (0, 5):
        one = MKLRidgeCV(views, weights=found.weights_[t], alpha=found.alpha_[t], **params).fit(
            X[TRAIN], Y[TRAIN, t]
        )
        assert found.loo_scores_[t] == pytest.approx(one.best_score_, abs=1e-6)
        assert_allclose(found.predict(X[TEST])[:, t], one.predict(X[TEST]), atol=1e-6)
    assert_allclose(
        found.contributions(X[TEST]).sum(axis=1) + found.intercept_,
        found.predict(X[TEST]),
        atol=1e-9,
    )
    with pytest.raises(AttributeError, match=r"Linear\(\)"):
        found.coef_  # noqa: B018


@pytest.mark.parametrize(
    "params",
    [
        {"per_target": True},
        {"scale": False},
        {"normalize": "centered"},
        {"approximation": "nystroem", "rank": 30, "random_state": 0},
    ],
)
def test_coefficients_of_linear_kernels(params):
    mixed = [*KERNELS, ("other", Gaussian(), [0, 1])]
    moved, few, train = 5.0 + 3.0 * X, Y[:, :4], slice(0, 80)
    found = MKLRidgeCV(mixed, **params).fit(moved[train], few[train])
    assert list(found.coef_) == ["view 0", "view 1", "view 2"]
    shares = found.contributions(moved[TEST])
    for m, (name, _, columns) in enumerate(KERNELS):
        off = moved[TEST][:, columns] @ found.coef_[name] - shares[:, m]
        assert_allclose(off, np.broadcast_to(off[0], off.shape), atol=1e-9)
    linear = found.coef_intercept_ + sum(
        moved[TEST][:, columns] @ found.coef_[name] for name, _, columns in KERNELS
    )
    assert found.coef_intercept_.shape == (4,)
    assert_allclose(linear + shares[:, -1], found.predict(moved[TEST]), atol=1e-8)
    flat = MKLRidgeCV(mixed, **params).fit(moved[train], few[train, 0])
    assert flat.coef_["view 1"].shape == (30,)
    linear = flat.coef_intercept_ + sum(
        moved[TEST][:, columns] @ flat.coef_[name] for name, _, columns in KERNELS
    )
    assert_allclose(
        linear + flat.contributions(moved[TEST])[:, -1], flat.predict(moved[TEST]), atol=1e-8
    )
    assert isinstance(flat.coef_intercept_, float)


@pytest.mark.parametrize("kind", ["sparse", "text", "missing"])
def test_the_constant_of_coefficients(kind):
    """Beside text, with missing views, and of sparse samples: one linear kernel is a plain linear
    function."""
    Z = 5.0 + 3.0 * X[:, :3]
    kernels, numbers, other = [("line", Linear(), [0, 1, 2])], Z, 0.0
    if kind == "sparse":
        given = sparse.csr_matrix(Z * (Z > 4))
        numbers = given.toarray()
    elif kind == "text":
        given = pd.DataFrame(Z).assign(letter=np.where(Z[:, 0] > 5, "a", "b"))
        kernels.append(("letter", Categorical(), ["letter"]))
    else:
        given = np.column_stack([Z, Z[:, 0] ** 2])
        given[::5, 3] = np.nan
        kernels.append(("other", Gaussian(), [3]))
    if kind == "text":
        given.columns = ["x0", "x1", "x2", "letter"]
        kernels[0] = ("line", Linear(), ["x0", "x1", "x2"])
    model = MKLRidgeCV(kernels).fit(given, Y[:, 0])
    if len(kernels) > 1:
        other = model.contributions(given)[:, 1]
    assert_allclose(
        numbers @ model.coef_["line"] + model.coef_intercept_ + other,
        model.predict(given),
        atol=1e-8,
    )


def test_targets_are_copied_once(tmp_path):
    np.save(tmp_path / "y.npy", np.tile(Y[TRAIN], 1500).astype(np.float32))
    y = np.load(tmp_path / "y.npy", mmap_mode="r")
    tracemalloc.start()
    fitted = make(weights=[1.0, 1.0, 1.0], alpha=1.0).fit(X[TRAIN], y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert fitted.dual_coef_.shape == (90_000, 160)
    # The copy, the coefficients, what is worked on in double precision, and numbers per target.
    assert peak < 2 * y.nbytes + 5 * 2**25 + 20 * 8 * y.shape[1]


def test_default_kernels_and_missing_views():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(80, 4))
    targets = np.column_stack([np.sin(2 * Z[:, 0]), Z[:, 1] ** 2, Z[:, 2]]) + 0.1 * rng.normal(
        size=(80, 3)
    )
    found = MKLRidgeCV(per_target=True, random_state=0).fit(Z, targets)
    assert np.all(found.loo_scores_ > 0.6)
    views = [("a", Gaussian(), [0, 1]), ("b", Linear(), [2, 3])]
    lacking = Z.copy()
    lacking[::9, 2:] = np.nan
    found = MKLRidgeCV(views, per_target=True, random_state=0).fit(lacking, targets)
    assert np.all(np.isfinite(found.predict(lacking)))


@pytest.mark.parametrize("normalize", ["trace", None])
def test_a_kernel_of_zeros_changes_nothing(normalize):
    kernels = [*KERNELS, ("nothing", Precomputed(np.zeros((60, 60))), [60])]
    numbered = np.column_stack([X[:60], np.arange(60)])
    options = {"per_target": True, "scale": False, "normalize": normalize, "random_state": 0}
    model = MKLRidgeCV(kernels, **options).fit(numbered, Y[:60, :3])
    without = MKLRidgeCV(KERNELS, **options).fit(numbered, Y[:60, :3])
    assert_allclose(model.loo_scores_, without.loo_scores_, atol=0.02)
    assert np.all(np.isfinite(model.predict(numbered[:5])))


# Digits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 1e-4], ids=["exact", "nearly-exact"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "settings", [{}, {"criterion": "evidence"}, {"approximation": "nystroem"}], ids=str
)
def test_targets_that_columns_explain_are_predicted_whatever_their_precision(
    noise, dtype, settings
):
    """Coefficients are small differences of large targets, and a ridge near zero multiplies their
    rounding."""
    random = np.random.default_rng(1)
    Z, B = random.standard_normal((180, 3)), random.standard_normal((3, 4))
    F = Z @ B
    targets = (F + noise * random.standard_normal(F.shape))[:60].astype(dtype)
    model = MKLRidgeCV([Linear()], per_target=True, random_state=0, **settings).fit(Z[:60], targets)
    off = model.predict(Z[60:]) - F[60:]
    assert (np.mean(off**2, axis=0) <= 1e-4 * F[60:].var(axis=0)).all()
    assert model.loo_scores_.min() > 0.999


# Samples that lack targets ------------------------------------------------------------------------


def with_gaps() -> np.ndarray:
    """Targets 0 and 1 of all samples, 2 and 3 of some, 4 of others; the last sample has none."""
    gaps = Y[:80, :5].copy()
    gaps[50:, 2:4], gaps[:30, 4], gaps[-1] = np.nan, np.nan, np.nan
    return gaps


@pytest.mark.parametrize(
    "params", [{"weights": [1.0, 2.0, 0.5], "alpha": 3.0}, {}], ids=["given", "learned"]
)
def test_targets_are_learned_from_the_samples_that_have_them(params):
    gaps = with_gaps()
    joint = make(**params).fit(X[:80], gaps)
    assert joint.weights_.shape == (5, 3)
    for columns in ([0, 1], [2, 3], [4]):
        rows = np.flatnonzero(~np.isnan(gaps[:, columns[0]]))
        alone = make(**params).fit(X[rows], gaps[np.ix_(rows, columns)])
        expected = alone.predict(X[TEST])
        scale = 1e-6 if params else 0.3
        assert np.abs(joint.predict(X[TEST])[:, columns] - expected).max() < scale * expected.std()
        assert_allclose(
            joint.loo_scores_[columns], alone.loo_scores_, atol=1e-6 if params else 0.05
        )
        if params:
            assert_allclose(joint.intercept_[columns], alone.intercept_, rtol=1e-6)


def test_groups_and_weights_stay_with_their_samples():
    gaps, random = with_gaps(), np.random.default_rng(5)
    groups, weight = (
        random.permutation(np.repeat(np.arange(40), 2)),
        random.integers(0, 3, 80).astype(float),
    )
    given = {"weights": [1.0, 2.0, 0.5], "alpha": 3.0}
    joint = make(**given).fit(X[:80], gaps, sample_weight=weight, groups=groups)
    for t in range(5):
        rows = np.flatnonzero(~np.isnan(gaps[:, t]))
        alone = make(**given).fit(X[rows], gaps[rows, t : t + 1], weight[rows], groups[rows])
        assert joint.loo_scores_[t] == pytest.approx(alone.loo_scores_[0], abs=1e-6)
        assert_allclose(joint.predict(X[TEST])[:, t], alone.predict(X[TEST])[:, 0], atol=1e-5)


def test_tables_with_gaps_are_read_in_every_form():
    gaps = with_gaps()
    expected = make(weights="uniform", alpha=1.0).fit(X[:80], gaps).predict(X[TEST])
    pd = pytest.importorskip("pandas")
    as_object = np.where(np.isnan(gaps), None, gaps)
    for given in (
        pd.DataFrame(gaps),
        pd.DataFrame(gaps).astype("Float64"),
        as_object,
        gaps.tolist(),
    ):
        model = make(weights="uniform", alpha=1.0).fit(X[:80], given)
        assert_allclose(model.predict(X[TEST]), expected, rtol=1e-8)


def test_gaps_that_are_refused():
    gaps = with_gaps()
    with pytest.raises(
        ValueError, match="targets that some samples lack are learned with exact kernels"
    ):
        make(approximation="nystroem").fit(X[:80], gaps)
    gaps[1:, 2] = np.nan
    with pytest.raises(ValueError, match="target 2 has 1 samples of positive weight"):
        make().fit(X[:80], gaps)
    with pytest.raises(ValueError, match="y contains NaN"):
        MKLRidgeCV(KERNELS).fit(X[:80], gaps)
