"""Heat on graphs, against SciPy's matrix exponential."""

from __future__ import annotations

import pickle
from typing import ClassVar

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import linalg, sparse
from sklearn.base import clone

from kernelmosaic.kernels import Diffusion, family

rng = np.random.RandomState(7)
UPPER = np.triu(rng.rand(30, 30) < 0.1, 1) * rng.rand(30, 30)
GRAPH = UPPER + UPPER.T
NODES = np.arange(30)


def heat(A, beta):
    return linalg.expm(beta * (A - np.diag(A.sum(axis=1))))


@pytest.mark.parametrize("beta", [1e-3, 0.5, 1, 20.0])
def test_equals_the_matrix_exponential(beta):
    kernel = Diffusion(GRAPH, beta=beta).fit(NODES)
    assert_allclose(kernel(NODES), heat(GRAPH, beta), rtol=1e-9, atol=1e-13)
    assert_allclose(
        kernel([4, 4, 0], [7]), heat(GRAPH, beta)[[4, 4, 0]][:, [7]], rtol=1e-9, atol=1e-13
    )
    assert_allclose(kernel.diag(NODES), heat(GRAPH, beta).diagonal(), rtol=1e-9)


@pytest.mark.parametrize(
    "container", [sparse.csr_array, sparse.coo_matrix, sparse.csc_matrix, np.ndarray.tolist]
)
def test_graphs_come_in_many_containers(container):
    assert_allclose(Diffusion(container(GRAPH))(NODES), heat(GRAPH, 1.0), rtol=1e-9, atol=1e-13)


def test_links_without_weights_and_loops():
    links = GRAPH > 0
    assert_allclose(Diffusion(links)(NODES), heat(links.astype(float), 1.0), rtol=1e-9, atol=1e-13)
    assert_allclose(
        Diffusion(GRAPH + np.diag(rng.rand(30)))(NODES), heat(GRAPH, 1.0), rtol=1e-9, atol=1e-13
    )


def test_no_heat_reaches_another_component():
    blocks = linalg.block_diag(GRAPH[:10, :10], np.ones((4, 4)))
    K = Diffusion(blocks, beta=100.0)(np.arange(14))
    assert_allclose(K[10:, :10], 0, atol=1e-13)
    assert_allclose(K[10:, 10:], 0.25, rtol=1e-12)


def test_a_family_and_its_clones_decompose_the_graph_once():
    class Counted(Diffusion):
        calls: ClassVar[list] = []

        def _prepare(self, given):
            self.calls.append(given)
            return super()._prepare(given)

    kernels = family(Counted(GRAPH), beta=[0.1, 1.0, 10.0])
    for kernel in [*map(clone, kernels), *kernels]:
        assert_allclose(kernel.fit(NODES)(NODES), heat(GRAPH, kernel.beta), rtol=1e-9, atol=1e-13)
    assert len(Counted.calls) == 1
    assert all(kernel.adjacency is GRAPH for kernel in map(clone, kernels))


def test_a_pickle_carries_the_decomposition():
    kernel = Diffusion(GRAPH, beta=0.1).fit(NODES)
    loaded = pickle.loads(pickle.dumps(kernel))
    loaded.adjacency[...] = -1.0  # a second decomposition would refuse it
    assert_allclose(loaded(NODES), heat(GRAPH, 0.1), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (UPPER, r"adjacency\[.*symmetric"),
        (-GRAPH, r"adjacency\[\d+, \d+\] is -.*negative"),
        (GRAPH[:, :20], r"adjacency has shape \(30, 20\)"),
        (np.where(GRAPH > 0.9, np.nan, GRAPH), r"adjacency\[\d+, \d+\] is nan"),
    ],
)
def test_bad_graphs_are_named(graph, message, container):
    assert np.any(graph != GRAPH[:, : graph.shape[1]]) or graph.shape != GRAPH.shape
    with pytest.raises(ValueError, match=message):
        Diffusion(container(graph)).fit(NODES)


@pytest.mark.parametrize("beta", [0, -1.0, np.nan, np.inf, "1", None, True])
def test_bad_times_are_named(beta):
    for use in (
        Diffusion(GRAPH, beta=beta).fit,
        Diffusion(GRAPH, beta=beta),
        Diffusion(GRAPH, beta=beta).diag,
    ):
        with pytest.raises(ValueError, match="beta="):
            use(NODES)


def test_node_numbers_are_checked_and_the_graph_is_not_printed():
    with pytest.raises(ValueError, match=r"X\[0\] is 30: X must hold row numbers of adjacency"):
        Diffusion(GRAPH).fit([30])
    assert repr(Diffusion(GRAPH, beta=0.5)) == "Diffusion(<30 x 30>, beta=0.5)"
    assert repr(Diffusion(sparse.csr_array(GRAPH))) == "Diffusion(<30 x 30>, beta=1.0)"
