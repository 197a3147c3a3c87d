"""What every Gram must do, against the matrix written down. The classes are found; each needs an
example here."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.contracts.discovery import concrete_subclasses

from kernelmosaic.backend import NUMPY, Backend, torch_backend
from kernelmosaic.gram.factored import DenseFactors, FactoredGram
from kernelmosaic.gram.factory import make_feature_stack
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.gram import ClassGram, DenseGram, Gram, OnDemandGram, SomeRows
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.options import StackOptions
from kernelmosaic.gram.row_blocks import open_rows
from kernelmosaic.gram.stack import StackClasses, StoredStack, make_stack
from kernelmosaic.kernels import Linear, pairwise
from kernelmosaic.kernels.views import lay_specs, read_kernels
from kernelmosaic.pairs.stack import make_pair_stack
from kernelmosaic.solvers.multiclass import ClassMatrices

RNG = np.random.RandomState(0)
N = 23
X = RNG.standard_normal((N, 4))
COLUMNS = ([0, 1], [1, 2, 3], [0, 1, 2, 3])
#: One kernel has no weight, and no feature of it may be read.
WEIGHTS = np.array([0.5, 0.0, 2.0])
GATES = RNG.standard_normal((N, 3))
CLASS_WEIGHTS = np.array([[0.5, 0.0, 2.0], [0.0, 0.0, 0.0], [1.0, 3.0, 0.0], [0.2, 0.1, 0.4]])
BETA = np.where(RNG.rand(N, 4) < 0.6, RNG.standard_normal((N, 4)), 0.0)
#: The members of pairs.
RNG_PAIRS = RNG.randint(0, 4, (N, 2))
#: Samples in no order, once fewer and once more than there are features.
FEW, MANY = RNG.permutation(N)[:4], RNG.permutation(N)[:20]

Example = tuple[Any, np.ndarray]


def matrices() -> np.ndarray:
    """Linear kernels of some columns: what features give is then what the formula says, with fewer
    features than n."""
    return np.array([X[:, own] @ X[:, own].T for own in COLUMNS])


def fitted_maps() -> FeatureMaps:
    kernels = [(f"kernel {m}", Linear(), own) for m, own in enumerate(COLUMNS)]
    specs = lay_specs(read_kernels(kernels), X)
    return FeatureMaps.fit(specs, open_rows(X), None, None, "nystroem", 5, 0)


def combined(Ks: np.ndarray, gates: np.ndarray | None = None) -> np.ndarray:
    """Σ_m η_m K_m, or Σ_m (g_m g_mᵀ) ∘ K_m, entry by entry."""
    if gates is None:
        return sum(weight * K for weight, K in zip(WEIGHTS, Ks, strict=True))
    return sum(np.outer(gates[:, m], gates[:, m]) * K for m, K in enumerate(Ks))


def features(rows: Any = None, device: str | None = None) -> Any:
    return make_feature_stack(fitted_maps(), open_rows(X if rows is None else rows), device=device)


def dense(dtype: Any = np.float64) -> Example:
    K = combined(matrices()).astype(dtype)
    return DenseGram(K.copy()), K.astype(np.float64)


def dense_exact() -> Example:
    """Entries in single precision, and the product that knows better."""
    K = combined(matrices())
    return DenseGram(K.astype(np.float32), lambda rows, beta: K[:, rows] @ beta), K


def dense_torch() -> Example:
    torch = pytest.importorskip("torch")
    K = combined(matrices())
    return DenseGram(torch.from_numpy(K.copy())), K


def some_rows(backend: Backend = NUMPY) -> Example:
    """Rows of a matrix that has others between them."""
    K = combined(matrices())
    larger = np.full((2 * N + 1, 2 * N + 1), np.pi)
    which = np.arange(2 * N, 0, -2)
    larger[np.ix_(which, which)] = K
    gram = SomeRows(DenseGram(backend.asarray(larger)), backend.index(which))
    assert (gram.copy is None) == (backend is NUMPY)
    return gram, K


def some_rows_torch() -> Example:
    pytest.importorskip("torch")
    return some_rows(torch_backend("cpu"))


def on_demand(gates: np.ndarray | None = None, device: str | None = None) -> Example:
    if device is not None:
        pytest.importorskip("torch")
    kernels = [(f"kernel {m}", Linear(), own) for m, own in enumerate(COLUMNS)]
    kernel_set = KernelSet.fit(lay_specs(read_kernels(kernels), X), X, None)
    budget = 0.99 * N**2 * 8
    stack = make_stack(
        kernel_set, kernel_set.views(X), dtype=np.float64, budget=budget, device=device
    )
    gram = stack.combine(WEIGHTS if gates is None else gates)
    assert isinstance(gram, OnDemandGram)
    # Blocks as large as the tests take them.
    gram.block_samples = len(MANY)
    return gram, combined(matrices(), gates)


def of_pairs(gates: np.ndarray | None = None) -> Example:
    """Products and sums of linear kernels of members that the samples share."""
    members = np.random.RandomState(1).standard_normal((4, 4))
    pairs = np.hstack([members[RNG_PAIRS[:, 0], :2], members[RNG_PAIRS[:, 1], 2:]])
    modes, sides = (
        ("product", "sum", "cartesian"),
        ([("a", Linear(), [0, 1])], [("b", Linear(), [2, 3])]),
    )
    listed = [pairwise(*sides, mode=mode)[0] for mode in modes]
    kernel_set = KernelSet.fit(lay_specs(read_kernels(listed), pairs), pairs, None)
    views = kernel_set.views(pairs)
    stack = make_pair_stack(
        kernel_set, views, options=StackOptions(few_pairs=0, pair_factorised=10)
    )
    left, right = pairs[:, :2] @ pairs[:, :2].T, pairs[:, 2:] @ pairs[:, 2:].T
    same = [np.equal.outer(one, one) for one in RNG_PAIRS.T]
    Ks = np.array([left * right, left + right, left * same[1] + same[0] * right])
    return stack.combine(WEIGHTS if gates is None else gates), combined(Ks, gates)


def features_part() -> Example:
    return features().combine(WEIGHTS).take(np.arange(N)), combined(matrices())


def features_torch(gates: np.ndarray | None = None) -> Example:
    pytest.importorskip("torch")
    stack = features(device="cpu")
    gram = stack.combine(WEIGHTS if gates is None else gates)
    return gram, combined(matrices(), gates)


def features_dask(gates: np.ndarray | None = None) -> Example:
    stack = features(pytest.importorskip("dask.array").from_array(X, chunks=(9, 4)))
    gram = stack.combine(WEIGHTS if gates is None else gates)
    return gram, combined(matrices(), gates)


def per_class(Ks: np.ndarray) -> np.ndarray:
    return np.array(
        [sum(weight * K for weight, K in zip(own, Ks, strict=True)) for own in CLASS_WEIGHTS]
    )


#: How to make a Gram of every class there is, and the matrix that it stands for (one per class for
#: a ClassGram).
EXAMPLES: dict[str, Callable[[], Example]] = {
    "dense": dense,
    "dense in single precision": lambda: dense(np.float32),
    "dense with an exact product": dense_exact,
    "dense on a device": dense_torch,
    "rows of a matrix on a device": some_rows_torch,
    "rows of a matrix": some_rows,
    "on demand": on_demand,
    "on demand under gates": lambda: on_demand(GATES),
    "on demand on a device": lambda: on_demand(device="cpu"),
    "on demand under gates on a device": lambda: on_demand(GATES, "cpu"),
    "pairs": of_pairs,
    "pairs under gates": lambda: of_pairs(GATES),
    "features": lambda: (features().combine(WEIGHTS), combined(matrices())),
    "features under gates": lambda: (features().combine(GATES), combined(matrices(), GATES)),
    "features side by side": features_part,
    "features on a device": features_torch,
    "features under gates on a device": lambda: features_torch(GATES),
    "features on workers": features_dask,
    "features under gates on workers": lambda: features_dask(GATES),
    "classes in features": lambda: (
        features().combine_classes(CLASS_WEIGHTS),
        per_class(matrices()),
    ),
    "classes in this process": lambda: (
        ClassMatrices(per_class(matrices())),
        per_class(matrices()),
    ),
    "classes of a stack": lambda: (
        StackClasses(StoredStack(matrices()), CLASS_WEIGHTS),
        per_class(matrices()),
    ),
}
NEEDS = {"device": "torch", "workers": "dask"}


def marked(names: list[str]) -> list[Any]:
    return [
        pytest.param(name, marks=[pytest.mark.torch] if "device" in name else []) for name in names
    ]


every = pytest.mark.parametrize("name", marked(list(EXAMPLES)))
one_matrix = pytest.mark.parametrize(
    "name", marked([name for name in EXAMPLES if not name.startswith("classes")])
)


def test_every_gram_has_an_example():
    made = set()
    for name, make in EXAMPLES.items():
        # No class is of torch alone: those of a device are the same as those of the host.
        if all(
            importlib.util.find_spec(package) for word, package in NEEDS.items() if word in name
        ):
            made.add(type(make()[0]))
    missing = [kind.__name__ for kind in concrete_subclasses(ClassGram) if kind not in made]
    assert missing == [], (
        "add to EXAMPLES a function that makes one of each, and the matrix it stands for"
    )


def close_to(gram: ClassGram, K: np.ndarray) -> dict[str, float]:
    share = 1e-5 if gram.dtype == np.float32 else 1e-9
    return {"rtol": share, "atol": share * float(np.abs(K).max())}


def numbers(gram: ClassGram, found: Any) -> np.ndarray:
    return np.asarray(found if isinstance(found, np.ndarray) else gram.backend.to_numpy(found))


@every
def test_what_every_form_declares(name):
    gram, _ = EXAMPLES[name]()
    assert gram.n_samples == N
    assert isinstance(gram.dtype, np.dtype)
    assert isinstance(gram.block_samples, int)
    assert gram.matrix is None or gram.backend.dtype(gram.matrix) == gram.dtype
    if isinstance(gram, Gram):
        assert gram.factored == isinstance(gram, FactoredGram)
        assert type(gram.block(FEW)) is type(gram.backend.zeros((1,)))
    # A solver reads the entries itself where they are stored, and only there.
    assert (gram.matrix is not None) == isinstance(gram, DenseGram | ClassMatrices)


@every
def test_diagonal(name):
    gram, K = EXAMPLES[name]()
    diagonal = gram.diagonal()
    assert diagonal.dtype == np.float64
    assert_allclose(diagonal, np.einsum("...ii->i...", K), **close_to(gram, K))


@one_matrix
@pytest.mark.parametrize("beta", [BETA[:, 0], BETA], ids=["vector", "columns"])
def test_products(name, beta):
    gram, K = EXAMPLES[name]()
    before = beta.copy()
    assert_allclose(gram.products(beta), K @ beta, **close_to(gram, K))
    assert_allclose(
        gram.products(beta, exact=True), K @ beta, rtol=1e-9, atol=1e-9 * np.abs(K).max()
    )
    assert_allclose(gram.products(np.zeros_like(beta)), 0.0)
    np.testing.assert_array_equal(beta, before)


@one_matrix
def test_vectors_of_the_backend_come_back_as_such(name):
    gram, K = EXAMPLES[name]()
    placed = gram.backend.asarray(BETA[:, 0])
    found = gram.products(placed)
    assert type(found) is type(placed)
    assert_allclose(numbers(gram, found), K @ BETA[:, 0], **close_to(gram, K))


@one_matrix
@pytest.mark.parametrize("rows", [FEW, MANY], ids=["few", "many"])
def test_block_is_a_copy_of_the_entries(name, rows):
    gram, K = EXAMPLES[name]()
    block = gram.block(rows)
    assert_allclose(numbers(gram, block), K[np.ix_(rows, rows)], **close_to(gram, K))
    block[...] = np.nan
    assert_allclose(numbers(gram, gram.block(rows)), K[np.ix_(rows, rows)], **close_to(gram, K))


@one_matrix
@pytest.mark.parametrize("shifted", [False, True], ids=["as it is", "with a diagonal"])
@pytest.mark.parametrize("rows", [FEW, MANY, np.arange(N)[::-1].copy()], ids=["few", "many", "all"])
def test_the_kernel_of_some_samples(name, rows, shifted):
    """Taken by numbers of this process or of the backend, it is a Gram again."""
    gram, K = EXAMPLES[name]()
    if shifted:
        values = np.linspace(0.0, 3.0, N)
        gram, K = gram.add_diagonal(values), K + np.diag(values)
    for numbers_of_rows in (rows, gram.backend.index(rows)):
        part, own = gram.take(numbers_of_rows), K[np.ix_(rows, rows)]
        assert isinstance(part, Gram)
        assert (part.n_samples, part.backend) == (len(rows), gram.backend)
        beta = BETA[rows, 0]
        assert_allclose(part.diagonal(), own.diagonal(), **close_to(gram, K))
        assert_allclose(part.products(beta), own @ beta, **close_to(gram, K))
        at = np.arange(len(rows))[:4]
        assert_allclose(numbers(gram, part.block(at)), own[np.ix_(at, at)], **close_to(gram, K))
        assert_allclose(gram.products_of(part, rows, beta), K[:, rows] @ beta, **close_to(gram, K))


@one_matrix
def test_parts_that_are_too_large_for_a_copy(name):
    gram, K = EXAMPLES[name]()
    limits = [kind for kind in (DenseGram, OnDemandGram) if isinstance(gram, kind)]
    if not limits:
        pytest.skip("the form has no limit")
    gram.copied = gram.block_samples = 4
    part, own = gram.take(MANY), K[np.ix_(MANY, MANY)]
    assert part.matrix is None
    assert_allclose(part.products(BETA[MANY, 0]), own @ BETA[MANY, 0], **close_to(gram, K))
    few = part.take(np.array([3, 1]))
    assert_allclose(
        numbers(gram, few.block(np.array([0, 1]))), own[np.ix_([3, 1], [3, 1])], **close_to(gram, K)
    )
    if isinstance(gram, OnDemandGram):
        with pytest.raises(MemoryError, match=r"A block of 20 x 20 entries .* memory_budget"):
            gram.block(MANY)


@one_matrix
def test_low_rank_factors_are_below_the_kernel(name):
    """None, or Z with K − ZZᵀ positive semi-definite, as Nyström's is."""
    gram, K = EXAMPLES[name]()
    Z = gram.low_rank()
    if not isinstance(gram, OnDemandGram):
        assert Z is None
        return
    Z = numbers(gram, Z)
    assert len(Z) == N
    assert np.linalg.eigvalsh(K - Z @ Z.T).min() >= -1e-6 * np.abs(K).max()
    assert np.trace(Z @ Z.T) > 0.1 * np.trace(K)


@one_matrix
@pytest.mark.parametrize("rows", [FEW, MANY], ids=["few", "many"])
def test_linear_systems_in_a_block(name, rows):
    gram, K = EXAMPLES[name]()
    ridge, right = np.linspace(0.5, 2.0, len(rows)), BETA[rows][:, :2] + 1.0
    expected = np.linalg.solve(K[np.ix_(rows, rows)] + np.diag(ridge), right)
    found = gram.solve_free(rows, ridge, right)
    assert found.dtype == np.float64
    # "Roughly": the diagonal is lifted by at most 1e-5 of its mean, and the ridge keeps the system
    # well-conditioned.
    assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("n_features", [2, 2 * N], ids=["few features", "many features"])
def test_a_block_of_zeros_has_no_inverse_and_is_not_asked_for_one(n_features):
    gram = DenseFactors(np.zeros((N, n_features)))
    np.testing.assert_array_equal(gram.solve_free(MANY, np.zeros(len(MANY)), BETA[MANY]), 0.0)
    # With a ridge there is one.
    assert_allclose(
        gram.solve_free(MANY, np.full(len(MANY), 2.0), BETA[MANY]), BETA[MANY] / 2.0, rtol=1e-4
    )


@one_matrix
def test_numbers_added_to_the_diagonal(name):
    gram, K = EXAMPLES[name]()
    # Each shift may take the place of the Gram it is added to, so only the last one is asked.
    values = np.linspace(0.0, 3.0, N)
    shifted = gram.add_diagonal(values).add_diagonal(np.ones(N))
    K = K + np.diag(values) + np.eye(N)
    assert_allclose(shifted.diagonal(), K.diagonal(), **close_to(gram, K))
    assert_allclose(shifted.products(BETA[:, 1]), K @ BETA[:, 1], **close_to(gram, K))
    # Single precision alone knows no better than its entries.
    exact = (
        close_to(gram, K)
        if name == "dense in single precision"
        else {"atol": 1e-9 * np.abs(K).max()}
    )
    assert_allclose(shifted.products(BETA, exact=True), K @ BETA, **exact)
    assert_allclose(numbers(gram, shifted.block(FEW)), K[np.ix_(FEW, FEW)], **close_to(gram, K))
    expected = np.linalg.solve(K[np.ix_(MANY, MANY)] + np.eye(len(MANY)), BETA[MANY])
    found = shifted.solve_free(MANY, np.ones(len(MANY)), BETA[MANY])
    assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.startswith("classes")])
def test_one_matrix_per_class(name):
    gram, Ks = EXAMPLES[name]()
    assert isinstance(gram, ClassGram)
    assert (gram.n_samples, gram.n_classes) == (N, len(CLASS_WEIGHTS))
    expected = np.column_stack([K @ column for K, column in zip(Ks, BETA.T, strict=True)])
    assert_allclose(gram.products(BETA), expected, **close_to(gram, Ks))
    assert_allclose(gram.products(BETA, exact=True), expected, **close_to(gram, Ks))
    for rows in (FEW, MANY):
        assert_allclose(
            np.asarray(gram.block(rows)), [K[np.ix_(rows, rows)] for K in Ks], **close_to(gram, Ks)
        )
