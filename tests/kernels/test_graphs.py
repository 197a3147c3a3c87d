"""Kernels between graphs: naive loops, graphs given in many ways, bad input, and estimators that
weigh iterations."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from tests.reference import naive_kernels as naive

from kernelmosaic import (
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLClassifierCV,
    MKLRegressor,
    MKLRidgeClassifierCV,
    load,
    save,
)
from kernelmosaic.kernels import Gaussian, Linear, ShortestPath, WeisfeilerLehman
from kernelmosaic.model_selection import ResponseSurfaceSearchCV

rng = np.random.RandomState(0)
MODES = ["subtree", "assignment"]
KERNELS = [WeisfeilerLehman(2), WeisfeilerLehman(2, mode="assignment"), ShortestPath()]


def random_graph(n, letters="CNO", density=1.3):
    edges = rng.randint(0, max(n, 1), size=(int(density * n), 2))
    return edges, rng.choice(list(letters), n).tolist()


def many(n_graphs, **options):
    return [random_graph(n, **options) for n in rng.randint(2, 12, size=n_graphs)]


#: More of one label in one class, more edges in the other.
Y = np.arange(40) % 2
GRAPHS = [random_graph(rng.randint(5, 15), "CCN" if own else "CNN", 0.9 + 0.8 * own) for own in Y]


@pytest.mark.parametrize("mode", MODES)
def test_every_iteration_equals_the_naive_loop(mode):
    X, Z = many(12), many(5, letters="NOS")
    for h in range(5):
        kernel = WeisfeilerLehman([h], mode)
        expected = naive.block(lambda x, z: naive.weisfeiler_lehman(x, z, [h], mode), Z, X)  # noqa: B023
        assert_array_equal(kernel.fit(X)(Z, X), expected)
        assert_array_equal(kernel.diag(Z), [naive.weisfeiler_lehman(z, z, [h], mode) for z in Z])
    assert_array_equal(
        WeisfeilerLehman(4, mode)(X), sum(WeisfeilerLehman([h], mode)(X) for h in range(5))
    )


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_many_graphs_are_compared_as_few_are(kernel):
    X = many(300)  # more than compiled loops leave to NumPy
    K = kernel(X)
    rows = rng.choice(300, 20)
    assert_array_equal(K[np.ix_(rows, rows)], kernel([X[i] for i in rows]))
    assert_array_equal(K.diagonal(), kernel.diag(X))
    assert_array_equal(K, kernel(X, list(X)))


def test_shortest_paths_are_those_of_networkx():
    networkx = pytest.importorskip("networkx")
    X = [random_graph(n, density=density) for n in (1, 8, 15, 20) for density in (0.6, 1.5)]
    found = []
    for edges, labels in X:
        graph = networkx.Graph()
        graph.add_nodes_from(range(len(labels)))
        graph.add_edges_from(edges.tolist())
        counts = {}
        for u, lengths in networkx.all_pairs_shortest_path_length(graph):
            for v, length in lengths.items():
                key = (*sorted((labels[u], labels[v])), length)
                counts[key] = counts.get(key, 0) + (u < v)
        found.append(counts)
    expected = [[sum(n * b.get(path, 0) for path, n in a.items()) for b in found] for a in found]
    assert_array_equal(ShortestPath()(X), expected)


class Networkx:
    """What is read of a graph of networkx."""

    def __init__(self, nodes, edges, directed=False):
        self._nodes, self._edges, self.directed = nodes, edges, directed

    def is_directed(self):
        return self.directed

    def nodes(self, data=False):
        return list(self._nodes.items()) if data else list(self._nodes)

    def edges(self):
        return self._edges

    def __len__(self):
        return len(self._nodes)

    def __iter__(self):
        return iter(self._nodes)

    def __getitem__(self, node):
        return [v for u, v in self._edges if u == node]


def as_networkx(graph, own):
    edges, labels = graph
    nodes = {
        f"node {i}": {} if isinstance(labels, int) else {"label": label}
        for i, label in enumerate(labels)
    }
    links = [(f"node {u}", f"node {v}") for u, v in edges]
    if own:
        return Networkx(nodes, links)
    made = pytest.importorskip("networkx").Graph()
    made.add_nodes_from(nodes.items())
    made.add_edges_from(links)
    return made


@pytest.mark.parametrize("own", [True, False], ids=["stand-in", "networkx"])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_graphs_of_networkx_are_read(kernel, own):
    X = [as_networkx(graph, own) for graph in GRAPHS]
    assert_array_equal(kernel(X, X[:5]), kernel(GRAPHS, GRAPHS[:5]))
    model = MKLClassifier([kernel], weights="uniform").fit(X[:30], Y[:30])
    expected = MKLClassifier([kernel], weights="uniform").fit(GRAPHS[:30], Y[:30])
    assert_allclose(
        model.decision_function(X[30:]), expected.decision_function(GRAPHS[30:]), rtol=1e-9
    )


def test_networkx_without_labels_has_degrees_and_with_some_is_refused():
    path = [("a", "b"), ("b", "c")]
    bare = Networkx({"a": {}, "b": {}, "c": {}}, path)
    assert_array_equal(WeisfeilerLehman(1)([bare], [([(0, 1), (1, 2)], [1, 2, 1])]), [[10.0]])
    with pytest.raises(ValueError, match=r"X\[1\]: 2 of 3 nodes have no 'label'"):
        WeisfeilerLehman()([bare, Networkx({"a": {}, "b": {"label": "C"}, "c": {}}, path)])
    with pytest.raises(ValueError, match=r"X\[0\] is directed.*to_undirected"):
        ShortestPath()([Networkx({"a": {}, "b": {}}, [("a", "b")], directed=True)])


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_order_of_nodes_edges_and_ends_changes_nothing(kernel):
    shuffled = []
    for edges, labels in GRAPHS:
        order = rng.permutation(len(labels))
        edges = np.argsort(order)[edges]
        edges = np.concatenate([edges, edges[:, ::-1]])[rng.permutation(2 * len(edges))]
        shuffled.append((edges, [labels[i] for i in order]))
    assert_array_equal(kernel(shuffled, GRAPHS), kernel(GRAPHS))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_loops_and_repeated_edges_change_nothing(kernel):
    plain = ([(0, 1), (1, 2)], "CCO")
    other = ([(0, 1), (1, 0), (1, 2), (1, 2), (2, 2)], "CCO")
    assert_array_equal(kernel([plain], [other]), kernel([plain]))


def test_without_labels_degrees_are_labels():
    edges = [(0, 1), (0, 2), (0, 3)]
    assert_array_equal(
        WeisfeilerLehman(3)([(edges, 5)], [(edges, [3, 1, 1, 1, 0])]),
        WeisfeilerLehman(3)([(edges, 5)]),
    )


def test_a_whole_number_is_the_label_it_is_written_as():
    forms = [
        [1, 22],
        ["1", "22"],
        np.array([1, 22], dtype=np.int8),
        np.array([1.0, 22.0]),
        np.array(["1", "22"]),
    ]
    X = [([(0, 1)], labels) for labels in forms]
    assert_array_equal(WeisfeilerLehman(1)(X), np.full((5, 5), 4.0))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_isolated_nodes_and_empty_graphs(kernel):
    nothing, alone, two = ([], []), ([], ["C"]), (np.empty((0, 2)), ["C", "C"])
    K = kernel([nothing, alone, two])
    paths = isinstance(kernel, ShortestPath)
    subtree = getattr(kernel, "mode", "") == "subtree"
    assert_array_equal(K[0], np.zeros(3))
    assert_array_equal(
        K[1:, 1:],
        np.zeros((2, 2))
        if paths
        else 3 * np.array([[1, 2], [2, 4]] if subtree else [[1, 1], [1, 2]]),
    )
    assert_array_equal(kernel([nothing]), [[0.0]])


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_positive_semi_definite_for_every_iteration(kernel):
    X = many(60)
    for one in kernel.terms().values():
        values = np.linalg.eigvalsh(one(X))
        assert values[0] >= -1e-10 * values[-1]


def test_labels_are_the_same_in_every_process_and_version():
    """Model files hold them; Python's own hashes of strings differ from process to process."""
    X = WeisfeilerLehman().validate([([(0, 1), (1, 2)], ["C", "N", 7])])
    assert X.labels.values.tolist() == [
        809599947829910117,
        16938330391483325906,
        9407870976149377255,
    ]
    assert X.refined(2).values.tolist() == [
        4713344001490701299,
        9405817995584989319,
        14640632071834545952,
    ]
    assert sorted(X.paths().values.tolist()) == [
        1500445371763736386,
        7525033228709400156,
        12878691757359181728,
    ]


def test_different_surroundings_do_not_collide():
    # Two nodes with a and b leaves each: what is around every node is known.
    X = [
        ([(0, 1), *((0, 2 + i) for i in range(a)), *((1, 2 + a + i) for i in range(b))], 2 + a + b)
        for a in range(25)
        for b in range(a + 1)
    ]
    for h in range(4):
        expected = {label for graph in X for label in naive.refined_labels(graph, h)}
        assert len(set(WeisfeilerLehman().validate(X).refined(h).values.tolist())) == len(expected)


# Bad input ----------------------------------------------------------------------------------------

EDGE = [(0, 1)]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ([], ValueError, "X has no graphs"),
        (5, ValueError, "X has no graphs"),
        (None, ValueError, "X has no graphs"),
        ([1, 2], TypeError, r"X\[0\] is '1', a int: a graph is a tuple \(edges, labels\)"),
        ([(EDGE, "CN"), None], TypeError, r"X\[1\] is 'None', a NoneType"),
        ([(EDGE, "CN"), (EDGE,)], TypeError, r"X\[1\] is .*, a tuple"),
        (["CN", "CC"], TypeError, r"X\[0\] is 'CN', a str"),
        ([[(EDGE, "CN"), 1.0]], ValueError, r"X has shape \(1, 2\)"),
        ([[(EDGE, "CN")], []], ValueError, "rows of different lengths"),
        (np.zeros((3, 2)), ValueError, r"X has shape \(3, 2\)"),
        ([((0, 1), "CN")], ValueError, r"X\[0\]: the edges have shape \(2,\)"),
        ([([(0, 1, 2)], "CN")], ValueError, r"X\[0\]: the edges have shape \(1, 3\)"),
        ([([(0.5, 1.0)], "CN")], ValueError, r"X\[0\]: the edges have .* float64"),
        ([([("a", "b")], "CN")], ValueError, r"X\[0\]: the edges have "),
        ([([(0, 1), (1,)], "CN")], ValueError, r"X\[0\]: the edges have shape \(2,\)"),
        ([(EDGE, "CN"), (EDGE, "C")], ValueError, r"X\[1\] has an edge to node 1, and 1 nodes"),
        ([([(0, -1)], "CN")], ValueError, r"X\[0\] has an edge to node -1"),
        ([(EDGE, -2)], TypeError, r"X\[0\]: the labels are -2"),
        ([(EDGE, None)], TypeError, r"X\[0\]: the labels are None"),
        (
            [(EDGE, [0.5, 1.0])],
            TypeError,
            "the label 0.5, a float: labels are strings or whole numbers",
        ),
        ([(EDGE, [1, None])], TypeError, "the label None"),
        ([(EDGE, [1.0, np.nan])], TypeError, "the label nan"),
        ([(EDGE, [1.0, np.inf])], TypeError, "the label inf"),
        ([(EDGE, np.eye(2))], TypeError, r"the label \[1.0, 0.0\], a list"),
    ],
)
def test_bad_samples_are_named(kernel, X, error, message):
    for use in (kernel.fit, kernel, kernel.diag):
        with pytest.raises(error, match=message):
            use(X)


@pytest.mark.parametrize("iterations", [-1, 1.5, "5", True, [], [0, 0], [1, -1], None])
def test_bad_iterations_are_named(iterations):
    kernel = WeisfeilerLehman(iterations)
    for use in (kernel.fit, kernel, kernel.diag, MKLClassifier(kernel).fit):
        with pytest.raises(ValueError, match=r"iterations=.*give the last iteration"):
            use(GRAPHS, Y) if use not in (kernel, kernel.diag) else use(GRAPHS)


def test_an_unknown_mode_is_named():
    with pytest.raises(
        ValueError,
        match="mode='tree': choose one of 'subtree', 'assignment'; did you mean 'subtree'",
    ):
        WeisfeilerLehman(mode="tree")(GRAPHS)


def test_an_estimator_names_the_kernel_of_bad_graphs():
    with pytest.raises(TypeError, match=r"kernel 'paths': X\[1\] is '3'"):
        MKLClassifier([("paths", ShortestPath())]).fit([GRAPHS[0], 3], [0, 1])


# In estimators ------------------------------------------------------------------------------------


def test_an_estimator_weighs_every_iteration():
    model = MKLClassifier(WeisfeilerLehman(3), normalize="diagonal", norm=2).fit(GRAPHS, Y)
    assert model.kernel_names_ == [f"weisfeilerlehman[{h}]" for h in range(4)]
    assert model.weights_.shape == (4,)
    assert model.duality_gap_ <= 1e-3
    K = [
        naive.block(lambda x, z, h=h: naive.weisfeiler_lehman(x, z, [h]), GRAPHS, GRAPHS)
        for h in range(4)
    ]
    cosines = [A / np.sqrt(np.outer(np.diagonal(A), np.diagonal(A))) for A in map(np.array, K)]
    assert_allclose(
        model.kernel_matrix(GRAPHS), np.tensordot(model.weights_, cosines, axes=1), rtol=1e-9
    )


def test_names_tell_several_apart_and_one_iteration_is_one_kernel():
    kernels = [
        WeisfeilerLehman(1),
        WeisfeilerLehman(1, "assignment"),
        ("paths", ShortestPath()),
        WeisfeilerLehman(0),
    ]
    model = MKLClassifier(kernels, weights="uniform").fit(GRAPHS, Y)
    assert model.kernel_names_ == [
        "weisfeilerlehman(iterations=1, mode=subtree)[0]",
        "weisfeilerlehman(iterations=1, mode=subtree)[1]",
        "weisfeilerlehman(iterations=1, mode=assignment)[0]",
        "weisfeilerlehman(iterations=1, mode=assignment)[1]",
        "paths",
        "weisfeilerlehman(iterations=0, mode=subtree)",
    ]


@pytest.mark.parametrize(
    "model",
    [
        MKLRidgeClassifierCV([WeisfeilerLehman(2), ShortestPath()], normalize="diagonal"),
        MKLClassifierCV(WeisfeilerLehman(2, "assignment"), Cs=[1, 10], norms=(1, "uniform"), cv=2),
        MKLClassifier(
            [WeisfeilerLehman(1) * ShortestPath(), 2.0 * WeisfeilerLehman(2)], normalize="centered"
        ),
        MKLClassifier(WeisfeilerLehman(2), approximation="nystroem", rank=20, random_state=0),
        MKLClassifier(WeisfeilerLehman(2), memory_budget=1),
        LocalizedMKLClassifier(
            WeisfeilerLehman(1), gating_kernel=WeisfeilerLehman(1), n_init=1, random_state=0
        ),
    ],
    ids=["ridge", "folds", "algebra", "features", "on demand", "localized"],
)
def test_models_are_fitted_copied_and_stored(model, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(model).fit(GRAPHS[:30], Y[:30])
    new = [*GRAPHS[30:], ([(0, 1)], ["Xe", "C"]), ([], ["Xe"]), ([], [])]
    expected = model.decision_function(new)
    assert model.score(GRAPHS[30:], Y[30:]) > 0.5
    assert np.isfinite(expected).all()
    save(model, tmp_path / "model.skops")
    for back in (pickle.loads(pickle.dumps(model)), load(tmp_path / "model.skops")):
        assert_allclose(back.decision_function(new), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(
        clone(model).fit(GRAPHS[:30], Y[:30]).predict(GRAPHS), model.predict(GRAPHS)
    )


def test_weights_of_iterations_are_chosen_among_norms():
    model = MKLClassifierCV(WeisfeilerLehman(2), Cs=[1.0], norms=(1, "uniform"), cv=2).fit(
        GRAPHS, Y
    )
    assert set(model.scores_by_norm_) == {1, "uniform"}
    assert len(model.weights_) == 3


def test_parameters_are_reached_from_a_search():
    grid = {
        "kernels__weisfeilerlehman__iterations": [0, 2],
        "kernels__weisfeilerlehman__mode": MODES,
    }
    search = GridSearchCV(MKLClassifier(WeisfeilerLehman(), weights="uniform"), grid, cv=2).fit(
        GRAPHS, Y
    )
    assert (
        len(search.best_estimator_.weights_)
        == search.best_params_["kernels__weisfeilerlehman__iterations"] + 1
    )
    assert cross_val_score(MKLClassifier(WeisfeilerLehman(1)), GRAPHS, Y, cv=2).shape == (2,)


def test_penalties_of_iterations_are_searched_one_by_one():
    search = ResponseSurfaceSearchCV(
        MKLClassifier(WeisfeilerLehman(1)), on="penalties", cv=2, max_iter=1
    )
    assert len(search.fit(GRAPHS, Y).best_params_["penalties"]) == 2


def test_graphs_are_a_column_among_others():
    frame = pd.DataFrame({"size": rng.normal(size=40), "graph": GRAPHS})
    kernels = [("graph", WeisfeilerLehman(1), ["graph"]), ("size", Linear(), ["size"])]
    model = MKLClassifier(kernels, weights="uniform", normalize=None).fit(frame, Y)
    assert model.kernel_names_ == ["graph[0]", "graph[1]", "size"]
    size = frame["size"].to_numpy()
    expected = (WeisfeilerLehman(1)(GRAPHS) + np.outer(size, size)) / 3
    assert_allclose(model.kernel_matrix(frame), expected, rtol=1e-9)
    rows = [[graph, one] for one, graph in zip(size, GRAPHS, strict=True)]
    numbered = [("graph", WeisfeilerLehman(1), [0]), ("size", Linear(), [1])]
    listed = MKLClassifier(numbered, weights="uniform", normalize=None).fit(rows, Y)
    assert_allclose(listed.kernel_matrix(rows[:3]), expected[:3, :3], rtol=1e-9)


def test_a_sample_may_lack_its_graph():
    frame = pd.DataFrame({"size": rng.normal(size=40), "graph": GRAPHS})
    frame.loc[3, "graph"] = None
    kernels = [("graph", WeisfeilerLehman(1), ["graph"]), ("size", Gaussian(), ["size"])]
    model = MKLClassifier(kernels, missing="neighbors").fit(frame, Y)
    assert np.isfinite(model.decision_function(frame)).all()


def test_iterations_share_their_labels():
    kernel = WeisfeilerLehman(3)
    X = kernel.validate(GRAPHS)
    kernel(X)
    labels = dict(X.cache)
    assert sorted(labels) == [1, 2, 3]
    WeisfeilerLehman(3, "assignment")(X)
    assert all(X.cache[h] is labels[h] for h in labels)
    assert not pickle.loads(pickle.dumps(X)).cache
    assert not X[[1, 1]].cache
    assert_array_equal(kernel(X[[1, 1, 4]]), kernel([GRAPHS[i] for i in (1, 1, 4)]))


def test_regression_of_the_number_of_nodes():
    size = np.array([len(labels) for _, labels in GRAPHS], dtype=float)
    model = MKLRegressor(WeisfeilerLehman(0, "assignment"), C=100.0).fit(GRAPHS[:30], size[:30])
    assert model.score(GRAPHS[30:], size[30:]) > 0.7
