"""What every kernel must do. The classes are found in the package; each needs an example here."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import rankdata, zscore
from sklearn.base import clone
from tests.contracts.discovery import concrete_subclasses
from tests.reference import naive_kernels as naive

import kernelmosaic.kernels
from kernelmosaic.kernels import (
    FFT,
    Categorical,
    Clinical,
    Correlation,
    Diffusion,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Pairwise,
    Polynomial,
    Precomputed,
    Product,
    Projected,
    Ranked,
    Rescaled,
    Scaled,
    ShortestPath,
    SmithWaterman,
    Spectrum,
    Sum,
    Tanimoto,
    WeightedDegree,
    WeisfeilerLehman,
)
from kernelmosaic.kernels.distances import FitSamples
from kernelmosaic.kernels.graphs import GraphSet


@dataclass
class Example:
    """A kernel, samples, and the same formula for one pair of them in plain Python."""

    kernel: Kernel
    X: Any
    pair: Callable[[Any, Any], float]


rng = np.random.RandomState(0)
NUMBERS = rng.normal(size=(12, 5))
NUMBERS[7] = NUMBERS[2]
WITH_CONSTANT = np.vstack([NUMBERS, np.full((1, 5), 0.1)])
ROWS = np.array([[3], [0], [7], [3], [5], [11], [1], [2]])
FACTOR = rng.normal(size=(12, 4))
MATRIX = FACTOR @ FACTOR.T
WEIGHTS = np.triu(rng.randint(0, 3, size=(12, 12)), 1) * 0.7
ADJACENCY = WEIGHTS + WEIGHTS.T
HEAT = naive.diffusion(ADJACENCY.tolist(), 0.4)
DNA = np.array(
    ["".join(rng.choice(list("ACGT"), 30)) for _ in range(8)]
    + ["ACGTACGTACGTACGTACGTACGTACGTAC"] * 2
)
RAGGED = [s[: 30 - 3 * i] for i, s in enumerate(DNA)]
PROTEINS = ["".join(rng.choice(list("ACDW"), n)) for n in (5, 9, 14, 9, 20, 7, 12)]
BITS = (rng.rand(12, 9) < 0.4).astype(float)
BITS[4] = BITS[9] = 0.0
COUNTS = rng.poisson(0.8, size=(12, 7)) * rng.choice([1.0, 1.5], size=(12, 7))
COUNTS[3] = 0.0
CODES = rng.randint(0, 3, size=(12, 4)).astype(float)
PATIENTS = np.array(
    [[age, sex, stage, 7] for age in (31, 54, 60.5) for sex in "mf" for stage in ["low", "high"]],
    object,
)
LEVELS = ["low", "middle", "high"]
GRAPHS = np.empty(9, dtype=object)
for i, n_nodes in enumerate([1, 0, 4, 6, 6, 7, 9, 12, 5]):
    GRAPHS[i] = (
        rng.randint(0, max(n_nodes, 1), size=(n_nodes, 2)),
        rng.choice(["C", "N"], n_nodes).tolist(),
    )


def gaussian_pair(width):
    return lambda x, z: naive.gaussian(x, z, width)


def laplacian_pair(width):
    return lambda x, z: naive.laplacian(x, z, width)


def fft_pair(X, n_frequencies):
    width = naive.median_width([naive.magnitudes(x, n_frequencies) for x in X.tolist()])
    return lambda x, z: naive.gaussian(*(naive.magnitudes(v, n_frequencies) for v in (x, z)), width)


def projected_pair(X, n_components, inner):
    """The principal directions by a singular value decomposition; signs do not matter to these
    kernels."""
    W = np.linalg.svd(X - X.mean(axis=0))[2][:n_components]
    return lambda x, z: inner(
        *([sum(a * b for a, b in zip(w, v, strict=True)) for w in W.tolist()] for v in (x, z))
    )


def ranked_pair(X, inner):
    """Ranks by SciPy; the samples of a pair are among the training samples."""
    R = zscore(rankdata(X, axis=0), axis=0)
    rows = {tuple(x): r.tolist() for x, r in zip(X.tolist(), R, strict=True)}
    return lambda x, z: inner(*(rows[tuple(v)] for v in (x, z)))


EXAMPLES: dict[type[Kernel], list[Example]] = {
    Linear: [Example(Linear(), NUMBERS, naive.linear)],
    Polynomial: [
        Example(Polynomial(), NUMBERS, naive.polynomial),
        Example(
            Polynomial(degree=5, offset=0.0), NUMBERS, lambda x, z: naive.polynomial(x, z, 5, 0.0)
        ),
    ],
    Gaussian: [
        Example(Gaussian(width=1.7), NUMBERS, gaussian_pair(1.7)),
        Example(
            Gaussian(width="nearest"), NUMBERS, gaussian_pair(naive.nearest_width(NUMBERS.tolist()))
        ),
        Example(Gaussian(), NUMBERS, gaussian_pair(naive.median_width(NUMBERS.tolist()))),
        Example(
            Gaussian(factor=0.5), NUMBERS, gaussian_pair(0.5 * naive.median_width(NUMBERS.tolist()))
        ),
    ],
    Laplacian: [
        Example(Laplacian(width=1.7), NUMBERS, laplacian_pair(1.7)),
        Example(
            Laplacian("nearest"),
            NUMBERS,
            laplacian_pair(naive.nearest_width(NUMBERS.tolist(), naive.manhattan)),
        ),
        Example(
            Laplacian(factor=0.5),
            NUMBERS,
            laplacian_pair(0.5 * naive.median_width(NUMBERS.tolist(), naive.manhattan)),
        ),
    ],
    Tanimoto: [
        Example(Tanimoto(), BITS, naive.tanimoto),
        Example(Tanimoto(), COUNTS, naive.tanimoto),
    ],
    Categorical: [
        Example(Categorical(), CODES, naive.categorical),
        Example(Categorical(), PATIENTS, naive.categorical),
    ],
    Clinical: [
        Example(Clinical(), NUMBERS, lambda x, z: naive.clinical(x, z, np.ptp(NUMBERS, axis=0))),
        Example(Clinical(), PATIENTS, lambda x, z: naive.clinical(x, z, [29.5, None, None, None])),
        Example(
            Clinical(kinds=["continuous", "nominal", LEVELS, "ordinal"]),
            PATIENTS,
            lambda x, z: naive.clinical(
                *([v[0], v[1], LEVELS.index(v[2]), v[3]] for v in (x, z)), [29.5, None, 2, None]
            ),
        ),
    ],
    Correlation: [Example(Correlation(), WITH_CONSTANT, naive.correlation)],
    FFT: [
        Example(FFT(), NUMBERS, fft_pair(NUMBERS, None)),
        Example(FFT(n_frequencies=2), NUMBERS, fft_pair(NUMBERS, 2)),
    ],
    Precomputed: [Example(Precomputed(MATRIX), ROWS, lambda x, z: MATRIX[x[0], z[0]])],
    Diffusion: [Example(Diffusion(ADJACENCY, beta=0.4), ROWS, lambda x, z: HEAT[x[0]][z[0]])],
    Spectrum: [
        Example(Spectrum(), RAGGED, naive.spectrum),
        Example(Spectrum(length=7), RAGGED, lambda x, z: naive.spectrum(x, z, 7)),
    ],
    WeightedDegree: [
        Example(WeightedDegree(), DNA, naive.weighted_degree),
        Example(WeightedDegree(degree=40), DNA, lambda x, z: naive.weighted_degree(x, z, 40)),
    ],
    SmithWaterman: [
        Example(SmithWaterman(), PROTEINS, lambda x, z: naive.smith_waterman(x, z, PROTEINS))
    ],
    WeisfeilerLehman: [
        Example(WeisfeilerLehman(), GRAPHS, lambda x, z: naive.weisfeiler_lehman(x, z, range(6))),
        Example(
            WeisfeilerLehman([2, 0]), GRAPHS, lambda x, z: naive.weisfeiler_lehman(x, z, (0, 2))
        ),
        Example(
            WeisfeilerLehman(2, mode="assignment"),
            GRAPHS,
            lambda x, z: naive.weisfeiler_lehman(x, z, range(3), "assignment"),
        ),
    ],
    ShortestPath: [Example(ShortestPath(), GRAPHS, naive.shortest_path)],
    Sum: [
        Example(
            Sum(Gaussian(), Linear()),
            NUMBERS,
            lambda x, z: (
                naive.gaussian(x, z, naive.median_width(NUMBERS.tolist())) + naive.linear(x, z)
            ),
        ),
        Example(
            Spectrum() + WeightedDegree(),
            DNA,
            lambda x, z: naive.spectrum(x, z) + naive.weighted_degree(x, z),
        ),
    ],
    Product: [
        Example(
            Product(Polynomial(degree=3), Gaussian(width=2.0)),
            NUMBERS,
            lambda x, z: naive.polynomial(x, z, 3) * naive.gaussian(x, z, 2.0),
        ),
        Example(
            Precomputed(MATRIX) * Diffusion(ADJACENCY, beta=0.4),
            ROWS,
            lambda x, z: MATRIX[x[0], z[0]] * HEAT[x[0]][z[0]],
        ),
    ],
    Pairwise: [
        Example(
            Pairwise(Gaussian(1.7), Polynomial(), 3),
            NUMBERS,
            lambda x, z: naive.gaussian(x[:3], z[:3], 1.7) * naive.polynomial(x[3:], z[3:]),
        ),
        Example(
            Pairwise(Linear(), Linear(), 2, "sum"),
            NUMBERS[:, :4],
            lambda x, z: naive.linear(x, z),
        ),
        Example(
            Pairwise(Linear(), Gaussian(2.0), 1, "cartesian"),
            CODES[:, :2],
            lambda x, z: (
                x[0] * z[0] * (x[1] == z[1]) + (x[0] == z[0]) * naive.gaussian(x[1:], z[1:], 2.0)
            ),
        ),
        Example(
            Pairwise(Linear(), Linear(), 2, "antisymmetric"),
            NUMBERS[:, :4],
            lambda x, z: (
                (
                    naive.linear(x[:2], z[:2]) * naive.linear(x[2:], z[2:])
                    - naive.linear(x[:2], z[2:]) * naive.linear(x[2:], z[:2])
                )
                / 2
            ),
        ),
        Example(
            Pairwise(Linear(), Spectrum(2)),
            np.array([[x, s] for x, s in zip(NUMBERS[:7, 0], PROTEINS, strict=True)], dtype=object),
            lambda x, z: x[0] * z[0] * naive.spectrum(x[1], z[1], 2),
        ),
    ],
    Projected: [
        Example(Projected(Linear(), 2), NUMBERS, projected_pair(NUMBERS, 2, naive.linear)),
        Example(
            Projected(Gaussian(2.0), 3), NUMBERS, projected_pair(NUMBERS, 3, gaussian_pair(2.0))
        ),
    ],
    Ranked: [Example(Ranked(Laplacian(1.5)), NUMBERS, ranked_pair(NUMBERS, laplacian_pair(1.5)))],
    Rescaled: [
        Example(
            Rescaled(Gaussian(2.0), [1.0, 2.0, 3.0, 4.0, 5.0]),
            NUMBERS,
            lambda x, z: gaussian_pair(2.0)(
                *([v / (1.0 + j) for j, v in enumerate(one)] for one in (x, z))
            ),
        )
    ],
    Scaled: [
        Example(Scaled(2.5, Polynomial()), NUMBERS, lambda x, z: 2.5 * naive.polynomial(x, z))
    ],
}
EVERY = [example for examples in EXAMPLES.values() for example in examples]


def samples(X: Any) -> list[Any]:
    return X.tolist() if isinstance(X, np.ndarray) else X


def arrays(X: Any) -> list[Any]:
    return (
        [one for bags in (X.labels, X.arcs) for one in (bags.ends, bags.values)]
        if isinstance(X, GraphSet)
        else [X]
    )


def shown(example: Example) -> str:
    return repr(example.kernel).replace(" ", "")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "example" in metafunc.fixturenames:
        kind = getattr(metafunc.function, "input_kind", None)
        chosen = [e for e in EVERY if kind in (None, e.kernel.input_kind)]
        metafunc.parametrize("example", chosen, ids=map(shown, chosen))


def only(kind: str) -> Callable[[Any], Any]:
    def mark(function: Any) -> Any:
        function.input_kind = kind
        return function

    return mark


@pytest.mark.parametrize("kind", concrete_subclasses(Kernel))
def test_every_kernel_has_an_example_and_a_public_name(kind):
    assert kind in EXAMPLES, (
        f"give {kind.__name__} an example in EXAMPLES, so that the tests below cover it"
    )
    assert getattr(kernelmosaic.kernels, kind.__name__) is kind
    assert kind.__name__ in kernelmosaic.kernels.__all__


def test_block_equals_the_naive_loop(example):
    K = clone(example.kernel).fit(example.X)(example.X)
    expected = naive.block(example.pair, samples(example.X), samples(example.X))
    assert_allclose(K, expected, rtol=1e-9, atol=1e-10 * np.abs(expected).max())


def test_symmetric_and_positive_semi_definite(example):
    K = clone(example.kernel).fit(example.X)(example.X)
    assert_allclose(K, K.T, rtol=1e-12, atol=1e-14 * np.abs(K).max())
    eigenvalues = np.linalg.eigvalsh(K)
    assert eigenvalues[0] >= -1e-10 * eigenvalues[-1]


def test_block_between_two_sets_is_a_slice_of_the_whole(example):
    kernel = clone(example.kernel).fit(example.X)
    K = kernel(example.X)
    assert_allclose(
        kernel(example.X[:4], example.X[3:]), K[:4, 3:], rtol=1e-9, atol=1e-12 * np.abs(K).max()
    )
    assert kernel(example.X[:1], example.X[3:]).shape == (1, len(example.X) - 3)


def test_new_samples_are_compared_as_the_naive_loop_does(example):
    train, test = example.X[:-2], example.X[-2:]
    kernel = clone(example.kernel).fit(example.X)  # the examples' constants belong to the whole set
    expected = naive.block(example.pair, samples(test), samples(train))
    assert_allclose(kernel(test, train), expected, rtol=1e-9, atol=1e-10 * np.abs(expected).max())


def test_diagonal_is_that_of_the_block(example):
    kernel = clone(example.kernel).fit(example.X)
    diagonal = kernel.diag(example.X)
    assert diagonal.dtype == np.float64
    assert_allclose(diagonal, kernel(example.X).diagonal(), rtol=1e-9, atol=1e-12)
    assert_allclose(kernel.diag(example.X[2:5]), diagonal[2:5], rtol=1e-12)


def test_unfitted_kernel_takes_its_columns_for_the_training_set(example):
    fitted = clone(example.kernel).fit(example.X)
    assert_allclose(clone(example.kernel)(example.X), fitted(example.X), rtol=1e-10, atol=1e-13)
    assert_allclose(
        clone(example.kernel)(example.X[:3], example.X),
        fitted(example.X[:3], example.X),
        rtol=1e-10,
    )
    assert_allclose(clone(example.kernel).diag(example.X), fitted.diag(example.X), rtol=1e-10)


def test_a_derived_class_extends_fit(example):
    def fit(self, X, y=None):
        kind.fit(self, X, y)
        self.extended_ = True
        return self

    kind = type(example.kernel)
    kernel = clone(example.kernel)
    kernel.__class__ = type(f"Own{kind.__name__}", (kind,), {"fit": fit})
    K = clone(example.kernel).fit(example.X)(example.X)
    for own in (
        clone(kernel).fit(example.X),
        clone(kernel).fit_to(FitSamples(kernel.validate(example.X))),
    ):
        assert own.extended_
        assert_allclose(own(example.X), K)


def test_fit_leaves_samples_and_parameters_alone(example):
    X, kernel = pickle.dumps(example.X), clone(example.kernel)
    before = {name: (id(value), repr(value)) for name, value in kernel.get_params().items()}
    assert kernel.fit(example.X, np.zeros(len(example.X))) is kernel
    kernel(example.X)
    after = kernel.get_params()
    assert pickle.dumps(example.X) == X
    assert {name: (id(value), repr(value)) for name, value in after.items()} == before
    parts = [value for value in after.values() if isinstance(value, Kernel)]
    assert not any(name.endswith("_") for part in parts for name in vars(part)), (
        "a given kernel was fitted in place"
    )


def test_validated_samples_are_valid_and_slice_by_rows(example):
    once = example.kernel.validate(example.X)
    assert once.shape[0] == len(example.X)
    for one, other in (
        (example.kernel.validate(once), once),
        (once[2:4], example.kernel.validate(example.X[2:4])),
    ):
        for own, expected in zip(arrays(one), arrays(other), strict=True):
            assert_array_equal(own, expected)


def test_clone_and_set_params(example):
    kernel = clone(example.kernel).fit(example.X)
    K = kernel(example.X)
    other = clone(kernel)
    assert other is not kernel
    assert repr(other) == repr(kernel)
    assert not any(name.endswith("_") for name in vars(other))
    assert_allclose(other.fit(example.X)(example.X), K, rtol=1e-12)
    assert other.set_params(**kernel.get_params(deep=False)) is other
    with pytest.raises(ValueError, match="no_such_parameter"):
        other.set_params(no_such_parameter=1)


def test_pickle_keeps_what_was_learned(example):
    kernel = clone(example.kernel).fit(example.X)
    K = kernel(example.X[:3], example.X)
    back = pickle.loads(pickle.dumps(kernel))
    assert repr(back) == repr(kernel)
    assert_array_equal(back(example.X[:3], example.X), K)


def test_repr_is_python_that_builds_the_kernel(example):
    text = repr(example.kernel)
    assert "\n" not in text
    names = {name: getattr(kernelmosaic.kernels, name) for name in kernelmosaic.kernels.__all__}
    if example.kernel.input_kind == "rows":  # matrices are not printed
        text = text.replace("Precomputed(<12 x 12>)", "Precomputed(M)").replace(
            "Diffusion(<12 x 12>", "Diffusion(A"
        )
        names |= {"M": MATRIX, "A": ADJACENCY}
    built = eval(text, names)
    assert type(built) is type(example.kernel)
    assert repr(built) == repr(example.kernel)
    assert_allclose(
        built.fit(example.X)(example.X), clone(example.kernel).fit(example.X)(example.X), rtol=1e-12
    )


def test_inputs_of_one_kind_come_in_many_containers(example):
    import pandas as pd

    kernel = clone(example.kernel).fit(example.X)
    K = kernel(example.X)
    column = np.asarray(example.X)
    containers = [samples(example.X), pd.DataFrame(column.reshape(len(column), -1))]
    if example.kernel.input_kind == "rows":
        containers += [
            ROWS[:, 0],
            ROWS.astype(float),
            ROWS.astype(np.uint8),
            ROWS.astype(object),
            pd.Series(ROWS[:, 0]),
        ]
    if example.kernel.input_kind == "sequences":
        containers += [
            column.astype("S"),
            column.astype("U")[:, None],
            column.astype(object),
            pd.Series(samples(column)),
        ]
        containers += [[s.encode() for s in column.tolist()], tuple(column.tolist())]
    for X in containers:
        assert_allclose(kernel(X), K, rtol=1e-12)


@only("numbers")
def test_single_precision_stays_single(example):
    X = example.X.astype(np.float32)
    kernel = clone(example.kernel).fit(X)
    assert kernel(X).dtype == np.float32
    assert kernel(X, X[:3]).dtype == np.float32
    K = clone(example.kernel).fit(example.X)(example.X)
    assert_allclose(kernel(X), K, rtol=1e-3, atol=1e-4 * np.abs(K).max())


@only("numbers")
@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csr_array, sparse.coo_array])
def test_sparse_rows_where_the_formula_allows(example, container):
    X = np.where(np.abs(example.X) > 0.5, example.X, 0)
    kernel = clone(example.kernel)
    if not kernel.accepts_sparse:
        with pytest.raises(TypeError, match=r"[Ss]parse"):
            kernel.fit(container(X))
        return
    K = clone(kernel).fit(X)(X)
    kernel.fit(container(X))
    assert isinstance(kernel(container(X)), np.ndarray)
    for A, B in [(container(X), None), (container(X), X), (X, container(X))]:
        assert_allclose(kernel(A, B), K, rtol=1e-9, atol=1e-12)
    assert_allclose(kernel.diag(container(X)), kernel.diag(X), rtol=1e-12)


@only("numbers")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_missing_and_infinite_numbers_are_refused(example, bad):
    X = example.X.copy()
    X[3, 1] = bad
    for use in (clone(example.kernel).fit, clone(example.kernel), clone(example.kernel).diag):
        with pytest.raises(ValueError, match=r"X contains (NaN|infinity)"):
            use(X)
    with pytest.raises(ValueError, match=r"X contains (NaN|infinity)"):
        clone(example.kernel)(example.X, X)
