"""What the study of graphs computes by itself: graphs from its files, splits, and machines on their
matrices."""

from __future__ import annotations

import sys
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.svm import SVC


@pytest.fixture
def graphs(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "studies"))
    for name in ("common", "graphs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import graphs

    return graphs


@pytest.fixture
def file(tmp_path):
    """Forty graphs, in the form of the published ones; those of the second class have more
    edges."""
    rng = np.random.RandomState(0)
    y = np.arange(40) % 2
    sizes = rng.randint(4, 9, size=40)
    edges = [rng.randint(0, n, size=(n + 3 * own, 2)) for n, own in zip(sizes, y, strict=True)]
    path = tmp_path / "graphs_MUTAG.npz"
    np.savez(
        path,
        edges=np.concatenate(edges).astype(np.int16),
        edge_offsets=np.cumsum([0, *map(len, edges)]),
        node_labels=rng.randint(0, 3, size=sizes.sum()),
        node_offsets=np.cumsum([0, *sizes]),
        y=y,
        fold=np.repeat([-1, *range(10)], [10, *[3] * 10]),
    )
    return path, edges, sizes, y


def test_graphs_are_those_of_the_file_and_one_label_for_all_is_none(graphs, file, tmp_path):
    path, edges, sizes, y = file
    found, classes, fold = graphs.read_graphs(path)
    assert [len(labels) for _, labels in found] == sizes.tolist()
    for (ours, _), given in zip(found, edges, strict=True):
        np.testing.assert_array_equal(ours, given)
    np.testing.assert_array_equal(classes, y)
    assert fold.min() == -1
    with np.load(path) as content:
        np.savez(tmp_path / "bare.npz", **{**content, "node_labels": np.zeros(sizes.sum())})
    assert [labels for _, labels in graphs.read_graphs(tmp_path / "bare.npz")[0]] == sizes.tolist()


def test_every_split_tests_each_graph_once_and_chooses_inside_its_training_part(graphs, file):
    problem = graphs.read_problem(file[0], file[0].parent)
    for protocol, tested in ((graphs.FILE, 30), (graphs.RANDOM, 40)):
        parts = [
            graphs.split_of(problem, graphs.Unit("MUTAG", protocol, 1, k, graphs.RIDGE))
            for k in range(10)
        ]
        assert len(np.unique(np.concatenate([test for _, test, _, _ in parts]))) == tested
        for train, test, inside, tenth in parts:
            assert len(train) + len(test) == 40
            assert not set(train) & set(test)
            assert sorted([*inside, *tenth]) == list(range(len(train)))


def test_machines_on_given_matrices_are_those_of_the_graphs(graphs, file):
    """What normalize="diagonal" makes of graphs is in the matrices.

    Both are solved to rounding: a search starts from weights of folds, which are drawn by what
    samples hold, graphs here and row numbers there. Intercepts differ a little, as they rest on
    these folds.
    """
    problem, (found, y, _) = (
        graphs.read_problem(file[0], file[0].parent),
        graphs.read_graphs(file[0]),
    )
    train, test = np.arange(30), np.arange(30, 40)
    kernels = [
        graphs.WeisfeilerLehman(5, "subtree"),
        graphs.WeisfeilerLehman(5, "assignment"),
        graphs.ShortestPath(),
    ]
    direct = graphs.MKLRidgeClassifierCV(kernels, normalize="diagonal", random_state=0, tol=1e-9)
    direct.fit([found[i] for i in train], y[train])
    model = graphs.fit_ridge(problem, train, tol=1e-9)
    np.testing.assert_allclose(model.weights_, direct.weights_, atol=1e-6)
    np.testing.assert_allclose(
        model.contributions(test), direct.contributions([found[i] for i in test]), atol=1e-5
    )


def test_an_svm_is_chosen_on_the_tenth_alone(graphs):
    rng = np.random.RandomState(1)
    y = np.arange(60) % 2
    good = np.outer(2 * y - 1, 2 * y - 1) + 0.1 * np.eye(60)
    noise = rng.normal(size=(60, 60))
    train, test, inside, tenth = np.arange(40), np.arange(40, 60), np.arange(36), np.arange(36, 40)
    found = graphs.svm_labels([noise @ noise.T, good], y, train, test, inside, tenth)
    np.testing.assert_array_equal(found, y[40:])
    only = graphs.svm_labels([noise @ noise.T], y, train, test, inside, tenth)
    by_C = [
        SVC(C=C, kernel="precomputed").fit((noise @ noise.T)[:40, :40], y[:40]) for C in graphs.CS
    ]
    assert any(np.array_equal(only, one.predict((noise @ noise.T)[40:, :40])) for one in by_C)


@pytest.mark.parametrize(
    "method", ["ridge, uniform", "margin, learned", "best single kernel", "SVM, WL-OA"]
)
def test_a_unit_counts_the_test_graphs_that_are_right(graphs, file, method):
    unit = graphs.Unit("MUTAG", graphs.FILE, 0, 4, method)
    name, found = graphs.run_unit(unit, file[0], file[0].parent)
    assert name == unit.name
    assert found["test"] == 3
    assert 0 <= found["right"] <= 3
    assert ("weights" in found) == (method == graphs.MARGIN)
    assert set(found["kernels"]) == {"reading", "subtree", "assignment", "paths"}


def test_matrices_are_computed_once_and_read_by_all_processes(graphs, file, capsys):
    folder = file[0].parent
    units = [graphs.Unit("MUTAG", graphs.FILE, 0, k, graphs.WL) for k in range(2)]
    options = SimpleNamespace(data=str(folder), output=str(folder / "run"), only=["MUTAG"], jobs=2)
    graphs.run(options, units)
    found = graphs.Store(options.output, "graphs").units
    assert set(found) == {unit.name for unit in units}
    assert found[units[0].name]["kernels"] == found[units[1].name]["kernels"]
    problem = graphs.read_problem(file[0], folder / "run")
    assert problem.seconds == found[units[0].name]["kernels"]
    read, _, _ = graphs.read_graphs(file[0])
    for mode in graphs.MODES:
        terms = graphs.WeisfeilerLehman(5, mode).terms().values()
        for h, (K, summed) in enumerate(
            zip(accumulate(one(read) for one in terms), problem.sums[mode], strict=True)
        ):
            np.testing.assert_array_equal(summed, graphs.cosines(K))
            own = dict(problem.kernels)[f"{mode} {h}"].K
            np.testing.assert_allclose(own.diagonal(), 1.0)
    np.testing.assert_array_equal(
        problem.kernels[-1][1].K, graphs.cosines(graphs.ShortestPath()(read))
    )
    graphs.run(options, units)
    assert capsys.readouterr().out.count("MUTAG, folds") == 2


def test_weights_learned_from_some_graphs_serve_all(graphs, file):
    problem = graphs.read_problem(file[0], file[0].parent)
    train = np.arange(40)
    model = graphs.fit_ridge(problem, train, most=25)
    some = np.random.RandomState(0).permutation(40)[:25]
    learned = graphs.fit_ridge(problem, some)
    np.testing.assert_allclose(model.learned_weights_, learned.weights_)
    options = {"normalize": None, "scale": False, "random_state": 0}
    given = graphs.MKLRidgeClassifierCV(
        problem.kernels, weights=learned.weights_, alpha=learned.alpha_, **options
    )
    expected = given.fit(train, problem.y).decision_function(train)
    np.testing.assert_allclose(model.decision_function(train), expected, rtol=1e-6)


def test_units_have_names_of_their_own_and_what_takes_long_comes_last(graphs):
    units = graphs.all_units()
    assert len({unit.name for unit in units}) == len(units) == 8 * 11 * 10 * 7
    long = [unit.set in graphs.LAST for unit in units]
    assert long.index(True) == 50
    assert units[50].set == "NCI1"
    assert all(long[long.index(False, 60) + 5 * 11 * 10 * 7 - 50 :])
