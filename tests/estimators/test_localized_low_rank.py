"""Localized estimators in features: equal to the exact ones at full rank, wherever the samples are."""

from __future__ import annotations

import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from kernelmosaic import LocalizedMKLClassifier, LocalizedMKLOneClass, LocalizedMKLRegressor
from kernelmosaic.estimators._expansion import _BLOCK_BYTES
from kernelmosaic.estimators.localized import GateInputs
from kernelmosaic.gating import GATINGS, Softmax
from kernelmosaic.gram.factory import make_feature_stack
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.gram.options import FitOptions
from kernelmosaic.gram.row_blocks import open_rows
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, Precomputed, Projected, Spectrum
from kernelmosaic.kernels.views import lay_specs, read_kernels
from kernelmosaic.learning.gated import GatedProblem
from kernelmosaic.machines import SVC, SVR, OneClass
from kernelmosaic.machines.multiclass import CrammerSinger

RNG = np.random.RandomState(0)
X = RNG.standard_normal((120, 3))
F = np.where(X[:, 0] > 0, X[:, 1], -X[:, 2]) + 0.1 * RNG.standard_normal(120)
Y = (F > -0.5).astype(int) + (F > 0.5)
NEW = RNG.standard_normal((25, 3))
KERNELS = [Gaussian(1.5), Linear(), ("square", Polynomial(2), [0, 1])]
#: A few tightly solved steps: later ones would enlarge what rounding makes of the other form of the kernels.
FEW = {"tol": 1e-7, "max_iter": 2, "n_init": 2}
LOW = {"approximation": "nystroem", "rank": 20, "random_state": 0}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def outputs(model, samples):
    regressor = isinstance(model, LocalizedMKLRegressor)
    return model.predict(samples) if regressor else model.decision_function(samples)


def assert_same(model, other, samples, close):
    """The same gates, function and kernels, relative to the sizes of the latter."""
    assert model.objective_ == pytest.approx(other.objective_, rel=close)
    assert_allclose(model.gate(samples), other.gate(samples), atol=close)
    for method in ("contributions", "kernel_matrix"):
        ours, theirs = getattr(model, method)(samples), getattr(other, method)(samples)
        assert_allclose(ours, theirs, atol=close * np.abs(theirs).max())
    size = np.abs(outputs(other, samples)).max()
    assert_allclose(outputs(model, samples), outputs(other, samples), atol=close * size)


# ---- against the exact estimators

CASES = {
    "classes": (LocalizedMKLClassifier(KERNELS, **FEW), Y),
    "two classes": (LocalizedMKLClassifier(KERNELS, **FEW), Y > 0),
    "squared slack": (LocalizedMKLClassifier(KERNELS, slack=2, **FEW), Y > 0),
    "centred": (LocalizedMKLClassifier(KERNELS, normalize="centered", **FEW), Y > 0),
    "sigmoid": (LocalizedMKLClassifier(KERNELS, gating="sigmoid", class_weight="balanced", **FEW), Y > 0),
    "constant": (LocalizedMKLClassifier(KERNELS, gating="constant", **FEW), Y > 0),
    "some columns": (LocalizedMKLClassifier(KERNELS, gating_columns=[0], **FEW), Y > 0),
    "space of a kernel": (LocalizedMKLClassifier(KERNELS, gating_kernel=Gaussian(2.0), **FEW), Y > 0),
    "joint": (LocalizedMKLClassifier(KERNELS, multi_class="joint", **FEW), Y),
    "pairwise": (LocalizedMKLClassifier(KERNELS, multi_class="pairwise", **FEW), Y),
    "regression": (LocalizedMKLRegressor(KERNELS, **FEW), F),
    "regression diagonal": (LocalizedMKLRegressor(KERNELS, normalize="diagonal", gating="gaussian", **FEW), F),
    "one class": (LocalizedMKLOneClass(KERNELS, nu=0.3, **FEW), None),
}


#: Weights reach the machine, the normalisation and the landmarks; the other settings see nothing of them.
WEIGHTED = ("classes", "centred", "joint", "regression", "one class")


@pytest.mark.parametrize(
    ("name", "weighted"), [*((name, False) for name in CASES), *((name, True) for name in WEIGHTED)]
)
def test_full_rank_is_exact(name, weighted):
    model, y = CASES[name]
    weight = np.random.RandomState(1).randint(0, 3, len(X)).astype(float) if weighted else None
    exact = clone(model).fit(X, y, sample_weight=weight)
    full = clone(model).set_params(approximation="nystroem").fit(X, y, sample_weight=weight)
    assert full.duality_gap_ <= 1e-7
    # Samples of weight zero are no landmarks; of new ones landmarks see what the training set spans.
    counted = X if weight is None else X[weight > 0]
    assert_same(full, exact, counted, 2e-3)
    assert_allclose(outputs(full, NEW), outputs(exact, NEW), atol=2e-3 * np.abs(outputs(exact, X)).max())
    assert_allclose(full.weights_, exact.weights_, atol=2e-3)
    if name != "constant":  # its gates end at zero up to rounding, which decides whether a kernel costs anything
        assert full.cost(np.ones(3)) == pytest.approx(exact.cost(np.ones(3)), rel=0.05)


@pytest.mark.parametrize("approximation", ["nystroem", "fourier"])
@pytest.mark.parametrize("target", [Y, Y > 0], ids=["three classes", "two classes"])
def test_predictions_are_those_of_a_loop(approximation, target):
    kernels = [Gaussian(1.5), Linear()]
    model = LocalizedMKLClassifier(kernels, n_init=1, **(LOW | {"approximation": approximation})).fit(X, target)
    gates, there = np.atleast_3d(model.gate(NEW)), np.atleast_3d(model.gate(X))
    kernel_set = model._expansion.kernel_set
    new, known = (dict(kernel_set.blocks(samples, range(2))) for samples in (NEW, X))
    expected = np.zeros((len(NEW), len(model.dual_coef_)))
    for c, (beta, b) in enumerate(zip(model.dual_coef_, model.intercept_, strict=True)):
        for j in range(len(NEW)):
            expected[j, c] = b
            for i, s in zip(model.support_, beta, strict=True):
                for m in range(2):
                    expected[j, c] += s * there[i, m, c] * gates[j, m, c] * (known[m][i] @ new[m][j])
    assert_allclose(model.decision_function(NEW).reshape(expected.shape), expected, atol=1e-9)
    shares = np.atleast_3d(model.contributions(NEW)).sum(axis=1)
    assert_allclose(shares + model.intercept_, expected, atol=1e-9)
    K = model.kernel_matrix(NEW, X[model.support_]).reshape(len(expected.T), len(NEW), -1)
    assert_allclose(np.einsum("cij,cj->ic", K, model.dual_coef_) + model.intercept_, expected, atol=1e-9)


def feature_stack(rank=12, kernels=KERNELS):
    rows = open_rows(X)
    specs = lay_specs(read_kernels(kernels), X)
    kernel_set = FeatureMaps.fit(specs, rows, "trace", None, "nystroem", rank, 0)
    return make_feature_stack(kernel_set, rows)


MACHINES = {
    "svc": SVC(np.where(Y > 0, 1.0, -1.0), C=2.0),
    "svc, squared slack": SVC(np.where(Y > 0, 1.0, -1.0), C=2.0, slack=2),
    "svr": SVR(F, C=3.0, epsilon=0.05),
    "one class": OneClass(len(X), C=0.1),
    "joint": CrammerSinger(Y, C=2.0),
}


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("gating", [kind() for kind in GATINGS.values()], ids=GATINGS)
def test_slopes_equal_finite_differences(machine, gating):
    problem = GatedProblem(feature_stack(), machine, gating, X)
    V = gating.init(np.random.RandomState(3), 3, 3)
    V += 0.2 * np.random.RandomState(4).normal(size=V.shape)
    slopes = problem.slope(problem.evaluate(V, None, 1e-11))
    # Along directions of all parameters at once: one wrong slope shows in each of them.
    directions = np.random.RandomState(5).normal(size=(2, *V.shape))
    steps = 1e-5 * directions
    values = [[problem.evaluate(V + sign * h, None, 1e-11).upper for sign in (1, -1)] for h in steps]
    expected = [(above - below) / 2e-5 for above, below in values]
    assert np.abs(slopes).max() > 1e-3
    found = np.sum(directions * slopes, axis=(1, 2))
    assert_allclose(found, expected, rtol=1e-4, atol=3e-4 * np.abs(slopes).max())


def test_slopes_take_two_passes_whatever_the_number_of_kernels():
    stack = feature_stack(kernels=[Gaussian(width) for width in (0.5, 1.0, 2.0, 4.0, 8.0)])
    problem = GatedProblem(stack, MACHINES["svc"], Softmax(), X)
    at = problem.evaluate(Softmax().init(np.random.RandomState(0), 3, 5), None, 1e-6)
    before = stack.rows_read
    problem.gate_slopes(at)
    assert stack.rows_read - before == 2 * np.count_nonzero(at.solution.beta)


def test_slopes_of_a_joint_machine_sum_over_its_classes():
    stack, gates = feature_stack(), np.random.RandomState(0).uniform(size=(len(X), 3))
    beta = np.random.RandomState(1).standard_normal((len(X), 4)) * (np.arange(len(X)) % 3 > 0)[:, np.newaxis]
    problem = GatedProblem(stack, CrammerSinger(Y, C=1.0), Softmax(), X)
    K = [next(stack.blocks([m], slice(0, 120), slice(0, 120)))[1] for m in range(3)]

    class Solution:
        pass

    at = Solution()
    at.gates, at.solution = gates, Solution()
    at.solution.beta = beta
    expected = np.stack([-np.sum(beta * (K[m] @ (gates[:, [m]] * beta)), axis=1) for m in range(3)], axis=1)
    assert_allclose(problem.gate_slopes(at), expected, atol=1e-9)


# ---- wherever the samples are


@pytest.fixture
def mapped(tmp_path):
    def write(samples, name="samples.dat"):
        written = np.memmap(tmp_path / name, dtype=samples.dtype, mode="w+", shape=samples.shape)
        written[:] = samples
        written.flush()
        return np.memmap(tmp_path / name, dtype=samples.dtype, mode="r", shape=samples.shape)

    return write


STREAMED = {
    "classes": (LocalizedMKLClassifier(KERNELS, gating_columns=[0, 2], **FEW, **LOW), Y),
    "space of a kernel": (LocalizedMKLClassifier(KERNELS, gating_kernel=Gaussian(2.0), **FEW, **LOW), Y > 0),
    "regression": (LocalizedMKLRegressor(KERNELS, **FEW, **LOW), F),
    "one class": (LocalizedMKLOneClass(KERNELS, nu=0.3, **FEW, **LOW), None),
}


@pytest.mark.parametrize("name", sorted(STREAMED))
def test_a_memory_map_is_worth_its_array(mapped, monkeypatch, name):
    model, y = STREAMED[name]
    stored = clone(model).fit(X, y)
    # Features that are computed anew in every pass.
    monkeypatch.setitem(_BLOCK_BYTES, "features", 2**13)
    streamed = clone(model).set_params(memory_budget=1.9e5).fit(mapped(X), y)
    assert_same(streamed, stored, NEW, 2e-3)
    assert_allclose(streamed.gate(mapped(NEW, "new.dat")), streamed.gate(NEW), rtol=1e-12)
    assert_allclose(outputs(streamed, mapped(NEW, "new.dat")), outputs(streamed, NEW), atol=1e-10)


def test_parquet_is_worth_its_array(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(X, columns=list("abc"))
    path = str(tmp_path / "samples.parquet")
    frame.to_parquet(path, row_group_size=50)
    kernels = [("bell", Gaussian(1.5), ["a", "c"]), Linear()]
    model = LocalizedMKLClassifier(kernels, gating_columns=["b"], **FEW, **LOW)
    stored, streamed = clone(model).fit(frame, Y > 0), clone(model).fit(path, Y > 0)
    assert_allclose(streamed.gating_params_["coef"], stored.gating_params_["coef"], atol=2e-3)
    assert_allclose(streamed.decision_function(path), stored.decision_function(frame), atol=2e-2)
    assert_allclose(streamed.gate(path), stored.gate(frame), atol=2e-3)
    with pytest.raises(ValueError, match=r"gating_columns=\['d'\]"):
        clone(model).set_params(gating_columns=["d"]).fit(path, Y > 0)


def test_a_dask_array_is_worth_its_array():
    dask = pytest.importorskip("dask")
    da = pytest.importorskip("dask.array")
    with dask.config.set(scheduler="synchronous"):
        spread = da.from_array(X, chunks=(70, 3))
        model, y = STREAMED["regression"]
        model = clone(model).set_params(n_init=1, max_iter=2)
        home, away = clone(model).fit(X, y), clone(model).fit(spread, y)
        assert_same(away, home, NEW, 2e-3)
        assert_allclose(outputs(away, spread), outputs(away, X), atol=1e-10)


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(STREAMED))
def test_a_device_takes_the_same_steps(name):
    pytest.importorskip("torch")
    model, y = STREAMED[name]
    here, there = clone(model).fit(X, y), clone(model).set_params(device="cpu").fit(X, y)
    assert there._expansion.device == "cpu"
    assert_same(there, here, NEW, 2e-3)


# ---- promises


def test_one_seed_draws_landmarks_and_starts():
    model = LocalizedMKLClassifier(KERNELS[:2], n_init=2, **(LOW | {"random_state": 3}))
    first, again = clone(model).fit(X, Y > 0), clone(model).fit(X, Y > 0)
    assert_array_equal(first.decision_function(NEW), again.decision_function(NEW))
    other = clone(model).set_params(random_state=4).fit(X, Y > 0)
    assert not np.array_equal(other.gate(NEW), first.gate(NEW))
    assert not np.allclose(other._expansion.kernel_set.landmarks[0], first._expansion.kernel_set.landmarks[0])
    drawn = [clone(model).set_params(random_state=np.random.RandomState(5)).fit(X, Y > 0) for _ in range(2)]
    assert_array_equal(drawn[0].decision_function(NEW), drawn[1].decision_function(NEW))
    # The starts are those of the exact estimator: from one of them, both take the first step alike.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        full = clone(model).set_params(max_iter=1, rank=120, tol=1e-6).fit(X, Y > 0)
        exact = clone(full).set_params(approximation=None).fit(X, Y > 0)
    assert_allclose(full.gate(NEW), exact.gate(NEW), atol=1e-3)


def test_a_fitted_model_travels():
    model = LocalizedMKLClassifier(KERNELS, n_init=1, **LOW).fit(X, Y)
    expected = model.decision_function(NEW)
    assert_array_equal(pickle.loads(pickle.dumps(model)).decision_function(NEW), expected)
    assert not hasattr(model._expansion.sums, "samples")


def test_a_model_file_holds_it(tmp_path):
    pytest.importorskip("skops")
    from kernelmosaic import load, save

    model = LocalizedMKLRegressor(KERNELS, n_init=1, **LOW).fit(X, F)
    save(model, tmp_path / "model.skops")
    assert_array_equal(load(tmp_path / "model.skops").predict(NEW), model.predict(NEW))


def test_samples_need_not_be_numbers():
    rng = np.random.RandomState(0)
    words = np.array(["".join(rng.choice(list("ACGT"), 20)) for _ in range(40)])[:, np.newaxis]
    y = np.array([word.count("A") > 5 for word in words[:, 0]])
    model = LocalizedMKLClassifier([Spectrum(2), Spectrum(3)], gating_kernel=Spectrum(1), n_init=1, **LOW).fit(words, y)
    assert model.gate(words).shape == (40, 2)
    assert model.score(words, y) > 0.8
    K = [np.asarray(kernel(X)) for kernel in (Linear(), Polynomial())]
    numbers = np.arange(len(X))[:, np.newaxis]
    given = LocalizedMKLClassifier(
        [Precomputed(K[0]), Precomputed(K[1])], gating_kernel=Precomputed(K[0]), n_init=1, **LOW
    ).fit(numbers, Y > 0)
    assert given.decision_function(numbers).shape == (120,)


def test_gates_read_strips_of_a_few_rows(mapped):
    weight, few = np.arange(120) % 3.0, {"strip_bytes": 8 * 3 * 11}
    for columns, kernel in (([0, 2], None), (None, Gaussian(2.0))):
        whole = GateInputs.fit(X, X, columns, kernel, weight)
        strips = GateInputs.fit(open_rows(mapped(X)), X, columns, kernel, weight, **few)
        assert_allclose(strips(open_rows(mapped(NEW, "new.dat")), **few), whole(NEW), rtol=1e-9, atol=1e-12)


def test_the_space_of_a_kernel_is_learned_from_a_part_of_many_samples():
    samples, weight = open_rows(X), np.ones(120)
    some, again = (GateInputs.fit(samples, X, None, Gaussian(2.0), weight, 0, space_rows=50) for _ in range(2))
    assert some.space.samples.shape == (50, 3)
    assert_array_equal(some(NEW), again(NEW))
    for given in (X, samples):  # in memory, or few enough
        assert GateInputs.fit(given, X, None, Gaussian(2.0), weight, 0).space.samples.shape == (120, 3)


def test_memory_stays_within_the_budget(mapped, monkeypatch):
    monkeypatch.setattr(FeatureMaps, "fit_options", FitOptions(least_rows=200))
    n, d, budget = 3000, 600, 6e6
    samples = mapped(np.random.RandomState(0).standard_normal((n, d)))
    y = np.where(samples[:, 0] > 0, samples[:, 1], -samples[:, 1]) > 0
    kernels = [("one", Gaussian(2.0), [0, 1]), ("line", Linear(), [0, 1]), ("all", Gaussian(25.0))]
    model = LocalizedMKLClassifier(
        kernels, gating_columns=[0, 1], approximation="nystroem", rank=60, n_init=2, max_iter=3, memory_budget=budget
    )
    model.fit(samples[:400], y[:400])  # compiled code is loaded before memory is watched
    tracemalloc.start()
    model.fit(samples, y)
    score = np.mean(model.predict(samples) == y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert score > 0.9
    # Beside the stack there are vectors of n numbers and the few samples that the kernels are fitted to.
    assert peak < budget + 80 * 8 * n + 2 * 8 * 200 * d < 0.75 * samples.nbytes


def test_starts_run_side_by_side_only_where_they_may():
    few = feature_stack()
    assert isinstance(few, StoredFeatures)
    assert few.shareable
    assert not StoredFeatures([Z.astype(np.float32) for Z in few.arrays]).shareable
    assert not StoredFeatures([np.zeros((5, 400))]).shareable


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match=r"approximation='nystroem': projections are learned with exact kernels only"):
        LocalizedMKLClassifier([Projected(Linear(), 1)], approximation="nystroem").fit(X, Y)
    with pytest.raises(ValueError, match=r"approximation='best'.*'nystroem', 'fourier'"):
        LocalizedMKLRegressor(approximation="best").fit(X, F)
    with pytest.raises(ValueError, match="rank=0"):
        LocalizedMKLOneClass(approximation="nystroem", rank=0).fit(X)
    with pytest.raises(ValueError, match=r"kernel 'polynomial'.*nystroem"):
        LocalizedMKLClassifier([Polynomial(2)], approximation="fourier").fit(X, Y)
