"""Programs side by side on a device, here the host's, against the same programs one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelmosaic.backend import torch_backend
from kernelmosaic.gpu.products import (
    ColumnKernels,
    CombinedColumns,
    HalfMatrix,
    HalfRows,
    SingleMatrix,
    solve_blocks,
)
from kernelmosaic.gpu.programs import Iterate, ProgramBatch, SharedInverse, take_steps
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.machines.base import SVC, SVR, Huber
from kernelmosaic.solvers.smo import solve_smo

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RNG = np.random.RandomState(0)
N = 60
LABELS, TARGETS = np.where(RNG.rand(N) > 0.4, 1.0, -1.0), RNG.randn(N)
HALF = np.arange(0, N, 2)
PROGRAMS = {
    "classes": [SVC(LABELS, C).program for C in (0.1, 1.0, 10.0)],
    "a fold": [SVC(LABELS[HALF], C).spread(HALF, N).program for C in (0.1, 1.0, 10.0)],
    "squared slack": [SVC(LABELS, C, slack=2).program for C in (0.1, 1.0, 10.0)],
    "tube": [SVR(TARGETS, C, 0.2).program for C in (0.1, 1.0, 10.0)],
    "Huber": [Huber(TARGETS, C, 0.5).program for C in (0.1, 1.0, 10.0)],
}
BACKEND = torch_backend("cpu")


def kernels(dtype=np.float64, half=None):
    X = RNG.randn(N, 3)
    distances = ((X[:, np.newaxis] - X) ** 2).sum(-1)
    matrices = np.stack([np.exp(-distances / width) for width in (0.5, 20.0)]).astype(dtype)
    return ColumnKernels(StoredStack(torch.tensor(matrices)), half)


@pytest.mark.parametrize("name", PROGRAMS)
def test_intercepts_and_nearest_points_are_those_of_each_program(name):
    programs = PROGRAMS[name]
    batch = ProgramBatch.of(programs, BACKEND)
    beta, values = RNG.randn(3, N), RNG.randn(3, N)
    near = batch.nearest(torch.tensor(beta)).numpy()
    intercepts = batch.intercepts(batch.target - torch.tensor(values))
    losses = batch.losses(torch.tensor(values), intercepts).numpy()
    linear = batch.linear_value(torch.tensor(near)).numpy()
    for k, program in enumerate(programs):
        np.testing.assert_allclose(near[k], program.feasible(beta[k]), atol=1e-8)
        assert abs(near[k].sum()) < 1e-10
        # An intercept may be any of a range; the least loss is one number.
        best = program.primal_value(0.0, values[k], program.best_intercept(values[k]))
        np.testing.assert_allclose(losses[k], best, rtol=1e-7)
        np.testing.assert_allclose(linear[k], program.linear_value(near[k]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_lead_to_the_solution_of_each_program(name, monkeypatch):
    programs, columns = PROGRAMS[name], kernels()
    eta = np.array([[1.0, 0.0], [0.5, 0.5], [0.2, 0.9]])
    batch = ProgramBatch.of(programs, BACKEND)
    zero = torch.zeros((3, N), dtype=torch.float64)
    iterate = Iterate(zero, zero, zero, zero, torch.zeros((2, 3, N), dtype=torch.float64))
    shared = SharedInverse.of(columns, eta.max(axis=0), 1.0)
    sent = []
    send = type(BACKEND).asarray
    monkeypatch.setattr(type(BACKEND), "asarray", lambda *args: sent.append(0) or send(*args))
    with Counted() as counted:
        iterate, _ = take_steps(columns, batch, iterate, eta, shared, 20)
    # No step waits for the device: nothing comes from it, and what goes there goes before the
    # first.
    assert counted.waits == 0
    assert len(sent) <= 2
    iterate, _ = take_steps(columns, batch, iterate, eta, shared, 600)
    matrices = columns.matrices.numpy()
    for k, program in enumerate(programs):
        solved = solve_smo(np.tensordot(eta[k], matrices, axes=1), program, tol=1e-12)
        np.testing.assert_allclose(
            iterate.z[k].numpy(), solved.beta, atol=2e-4 * max(1.0, abs(solved.beta).max())
        )


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_in_half_precision_lead_to_the_solution_from_products_that_are_known(name):
    programs, columns = PROGRAMS[name], kernels(np.float32, half=True)
    eta = np.array([[1.0, 0.0], [0.5, 0.5], [0.2, 0.9]])
    batch = ProgramBatch.of(programs, BACKEND)
    zero = torch.zeros((3, N), dtype=torch.float64)
    iterate = Iterate(zero, zero, zero, zero, torch.zeros((2, 3, N), dtype=torch.float64))
    shared = SharedInverse.of(columns, eta.max(axis=0), 1.0)
    for _ in range(20):
        iterate, _ = take_steps(columns, batch, iterate, eta, shared, 30, half=True)
        iterate = replace(iterate, base=iterate.z, base_products=columns.each(iterate.z))
    matrices = columns.matrices.numpy().astype(np.float64)
    for k, program in enumerate(programs):
        solved = solve_smo(np.tensordot(eta[k], matrices, axes=1), program, tol=1e-12)
        np.testing.assert_allclose(
            iterate.z[k].numpy(), solved.beta, atol=2e-4 * max(1.0, abs(solved.beta).max())
        )


@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
def test_halves_of_any_size_keep_three_digits(size):
    A = RNG.randn(N + 1, 5)
    A, rows = (
        torch.tensor(size * (A @ A.T)).float(),
        torch.tensor(RNG.randn(4, N + 1) / size).float(),
    )
    found, expected = HalfMatrix.of(A, BACKEND).times(HalfRows.of(rows)), rows.double() @ A.double()
    assert torch.linalg.norm(found.double() - expected) <= 1e-3 * torch.linalg.norm(expected)
    # The diagonal is not rounded.
    alone = HalfMatrix.of(torch.diag(A.diagonal()), BACKEND).times(HalfRows.of(rows))
    np.testing.assert_allclose(alone.numpy(), (rows * A.diagonal()).numpy(), rtol=1e-6)


def test_a_small_ridge_is_not_left_to_half_precision():
    columns, weights = kernels(np.float32, half=True), np.ones(2)
    K = columns.matrices.numpy().astype(np.float64).sum(axis=0)
    largest = np.linalg.eigvalsh(K)[-1]
    rough, single = columns.inverse(weights, largest / 1e3), columns.inverse(weights, largest / 1e5)
    assert (type(rough), type(single)) == (HalfMatrix, SingleMatrix)
    np.testing.assert_allclose(
        single.entries.numpy() @ (K + largest / 1e5 * np.eye(N)), np.eye(N), atol=0.02
    )


def test_a_large_factor_is_inverted_by_quarters():
    A = RNG.randn(2100, 30)
    factor = np.linalg.cholesky(A @ A.T + 10.0 * np.eye(2100))
    inverse = BACKEND.invert_lower(torch.tensor(factor)).numpy()
    np.testing.assert_allclose(inverse @ factor, np.eye(2100), atol=1e-10)
    assert not np.triu(inverse, 1).any()


@pytest.mark.parametrize("large", [1, 8192])
def test_products_are_those_of_each_column(large):
    columns = kernels()
    columns.large = large
    beta, eta = RNG.randn(3, N), np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 0.9]])
    matrices = columns.matrices.numpy()
    each = np.einsum("mij,bj->mbi", matrices, beta)
    np.testing.assert_allclose(columns.each(torch.tensor(beta)).numpy(), each, atol=1e-12)
    np.testing.assert_allclose(columns.exact(torch.tensor(beta)).numpy(), each, atol=1e-12)
    found = CombinedColumns(columns, eta).products(torch.tensor(beta)).numpy()
    np.testing.assert_allclose(found, np.einsum("bm,mbi->bi", eta, each), atol=1e-12)
    columns.halves = [HalfMatrix.of(K, BACKEND) for K in columns.matrices]
    rough = CombinedColumns(columns, eta, half=True).products(torch.tensor(beta)).numpy()
    assert 0.0 < np.linalg.norm(rough - found) <= 1e-3 * np.linalg.norm(found)
    # Of large matrices, each is multiplied with the columns it has a weight in.
    assert columns.n_products == 6 + 6 + 2 * (4 if large == 1 else 6)
    rows = np.array([[3, 1], [5, 8], [0, 59]])
    blocks = CombinedColumns(columns, eta).blocks(torch.tensor(rows)).numpy()
    for b, own in enumerate(rows):
        K = np.tensordot(eta[b], matrices, axes=1)
        np.testing.assert_allclose(blocks[b], K[np.ix_(own, own)], atol=1e-12)


@pytest.mark.parametrize("width", [1, 7, 64])
def test_blocks_are_solved_in_panels_of_any_width(width):
    A = RNG.randn(3, 40, 40)
    A = torch.tensor(A @ A.transpose(0, 2, 1) + np.eye(40))
    right = torch.tensor(RNG.randn(3, 40, 2))
    np.testing.assert_allclose(
        solve_blocks(A.clone(), right, width), torch.linalg.solve(A, right), atol=1e-10
    )


class Counted(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts the operations that bring a number to the host."""

    def __init__(self):
        super().__init__()
        self.waits = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        waits = ("_local_scalar_dense", "nonzero", "item", "is_nonzero", "masked_select")
        self.waits += any(name in str(func) for name in waits)
        return func(*args, **(kwargs or {}))
