"""Several fitted kernels evaluated together: the same blocks as one by one, shared work done
once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.spatial import distance
from sklearn.base import clone

from kernelmosaic.gram.kernel_set import KernelSet, take_rows
from kernelmosaic.gram.stack import ComputedStack, make_stack
from kernelmosaic.kernels import (
    Correlation,
    Diffusion,
    Gaussian,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    Ranked,
    Spectrum,
    distances,
    family,
)
from kernelmosaic.kernels.distances import FitSamples
from kernelmosaic.kernels.views import lay_specs, read_kernels

RNG = np.random.RandomState(0)
X, Z = RNG.normal(size=(25, 4)), RNG.normal(size=(6, 4))
KERNELS = [
    ("line", Linear()),
    ("square", Polynomial()),
    ("narrow", Gaussian(0.5)),
    ("wide", Gaussian("median")),
    ("part", Gaussian("nearest"), [0, 2]),
    ("profile", Correlation()),
    ("sum", Linear() + Gaussian(1.0)),
]


def fit(kernels=KERNELS, samples=X, normalize=None):
    return KernelSet.fit(lay_specs(read_kernels(kernels), samples), samples, normalize)


@pytest.mark.parametrize("rows", ["train", "test"])
def test_blocks_are_those_of_the_kernels_one_by_one(rows):
    kernel_set = fit()
    left = X if rows == "train" else Z
    views, train = kernel_set.views(left), kernel_set.views(X)
    seen = dict(kernel_set.blocks(views, train, range(len(kernel_set))))
    assert sorted(seen) == list(range(len(KERNELS)))
    for m, (_, kernel, *columns) in enumerate(KERNELS):
        at = columns[0] if columns else slice(None)
        expected = kernel.__class__(**kernel.get_params(deep=False)).fit(X[:, at])(
            left[:, at], X[:, at]
        )
        np.testing.assert_allclose(seen[m], expected, atol=1e-12)
    np.testing.assert_allclose(
        kernel_set.diagonals(kernel_set.views(X)),
        [np.diag(K) for _, K in sorted(kernel_set.blocks(train, train, range(len(kernel_set))))],
        atol=1e-12,
    )


def test_only_the_kernels_asked_for():
    kernel_set = fit()
    assert sorted(
        m for m, _ in kernel_set.blocks(kernel_set.views(Z), kernel_set.views(X), [3, 1])
    ) == [1, 3]
    kept = kernel_set.take([4, 0])
    assert kept.names == ["part", "line"]
    np.testing.assert_allclose(dict(kept.blocks(kept.views(Z), kept.views(X), [1]))[1], Z @ X.T)


def test_kernels_on_the_same_columns_share_their_distances():
    read = []

    class RecordingGaussian(Gaussian):
        def from_statistic(self, S):
            read.append(S)
            return super().from_statistic(S)

    class RecordingPolynomial(Polynomial):
        def from_statistic(self, S):
            read.append(S)
            return super().from_statistic(S)

    kernels = [(f"all{i}", RecordingGaussian(w)) for i, w in enumerate((0.1, 1.0, 10.0))]
    squares = [("line", RecordingPolynomial(1)), ("square", RecordingPolynomial(2))]
    kernel_set = fit([*kernels, ("part", RecordingGaussian(1.0), [0, 1]), *squares])
    views = kernel_set.views(X)
    for strip in (views, take_rows(views, slice(0, 9))):
        read.clear()
        list(kernel_set.blocks(strip, views, range(len(kernel_set))))
        shared = [[id(S) for S in read].count(one) for one in dict.fromkeys(id(S) for S in read)]
        assert sorted(shared) == [1, 2, 3]


def test_distances_that_widths_follow_are_measured_once_a_set_of_columns(monkeypatch):
    measured = []
    for rule in ("_median", "_mean_nearest"):
        measure = getattr(FitSamples, rule)

        def counting(self, name, rule=rule, measure=measure):
            measured.append(rule)
            return measure(self, name)

        monkeypatch.setattr(FitSamples, rule, counting)
    kernels = [
        *(Gaussian(factor=factor) for factor in (0.5, 1.0, 2.0)),
        Gaussian("nearest"),
        2.0 * Gaussian(factor=3.0) + Linear(),
        Laplacian(),
        Gaussian(0.7),
    ]
    fitted = fit(
        [*kernels, ("part", Gaussian(), [0, 2]), ("same part", Gaussian(factor=2.0), [0, 2])]
    ).fitted
    # By Euclidean and by Manhattan distance, and on the other columns.
    assert sorted(measured) == ["_mean_nearest", "_median", "_median", "_median"]
    for one in fitted:
        at = slice(None) if one.columns is None else one.columns
        alone = clone(one.kernel).fit(X[:, at])
        assert getattr(alone, "width_", None) == getattr(one.kernel, "width_", None)
    # Another fit measures anew: its samples may have changed in place.
    before = len(measured)
    fit([Gaussian()])
    assert len(measured) == before + 1


@pytest.mark.parametrize("n_columns", [3, 40], ids=["few columns", "many columns"])
@pytest.mark.parametrize("n", [60, 300], ids=["NumPy", "compiled"])
def test_what_kernels_read_of_a_training_set_is_measured_once(n, n_columns, monkeypatch):
    calls = Counter()

    def count(owner, name):
        found = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *args, **kw: (calls.update([name]), found(*args, **kw))[1]
        )

    for owner, name in ((distance, "pdist"), (distance, "cdist"), (distances, "squared_distances")):
        count(owner, name)
    count(distances, "to_ranks")
    kernels = [
        *family(Gaussian(), factor=[0.5, 1, 2]),
        *family(Laplacian(), factor=[1, 3]),
        Linear(),
    ]
    kernels += [Ranked(kernel) for kernel in kernels]
    samples = np.random.RandomState(1).normal(size=(n, n_columns))
    samples[5] = samples[3]  # equal samples count once in a width
    given = KernelSet.fit_samples(
        lay_specs(read_kernels(kernels), samples), samples, "trace", room=1e9
    )
    stack = make_stack(given[0], given[1], dtype=np.float64, distances=given[2])
    # Of the columns and of their ranks, two distances each.
    assert calls["pdist"] + calls["squared_distances"] == 4
    assert calls["cdist"] == 0
    assert calls["to_ranks"] == 1
    assert len(given[1].distinct) == 2
    for m, kernel in enumerate(kernels):
        expected = clone(kernel).fit(samples)(samples)
        np.testing.assert_allclose(
            stack.matrices[m], expected / np.mean(np.diag(expected)), rtol=1e-9, atol=1e-12
        )
    part = stack.take(np.arange(3, n, 2)).exact
    for m, block in part.blocks([1, 4, 10], np.arange(4), slice(0, part.n_samples)):
        np.testing.assert_allclose(block, stack.matrices[m][3:11:2, 3::2], rtol=1e-9, atol=1e-12)


def test_distances_are_not_kept_without_room():
    specs = lay_specs(read_kernels([Gaussian(), Laplacian()]), X)
    assert sorted(KernelSet.fit_samples(specs, X, None, room=16 * len(X) ** 2)[2]) == [
        (0, "manhattan_distances"),
        (0, "squared_distances"),
    ]
    kernel_set, views, known = KernelSet.fit_samples(specs, X, None, room=16 * len(X) ** 2 - 1)
    assert not known
    known = KernelSet.fit_samples(specs, X, None, room=1e9)[2]
    for budget, kept in ((8 * 25**2 * 5, 2), (8 * 25**2 * 4, 0)):
        stack = make_stack(kernel_set, views, dtype=np.float64, budget=budget, distances=known)
        assert len(stack.computed.samples.distances) == kept


def test_kernels_of_one_given_matrix_prepare_it_once():
    made = []

    class Counted(Diffusion):
        def _prepare(self, given):
            made.append(given)
            return super()._prepare(given)

    chain = np.diag(np.ones(5), 1) + np.diag(np.ones(5), -1)
    rows = np.arange(6).reshape(-1, 1)
    kernel_set = fit([Counted(chain, 0.5), Counted(chain, 2.0), Counted(chain.copy(), 0.5)], rows)
    assert len(made) == 2
    views = kernel_set.views(rows)
    blocks = dict(kernel_set.blocks(views, views, range(3)))
    np.testing.assert_allclose(blocks[0], blocks[2])
    np.testing.assert_allclose(
        blocks[1], expm(-2.0 * (np.diag(chain.sum(axis=1)) - chain)), atol=1e-12
    )


@pytest.mark.parametrize("normalize", ["trace", "diagonal", "centered"])
def test_shared_statistics_survive_scaling_in_place(normalize):
    together = fit(
        [("line", Linear()), ("again", Linear()), ("square", Polynomial())], normalize=normalize
    )
    views = together.views(X)
    blocks = {m: K.copy() for m, K in together.blocks(views, views, range(3))}
    alone = fit([("square", Polynomial())], normalize=normalize)
    np.testing.assert_allclose(blocks[0], blocks[1])
    np.testing.assert_allclose(
        blocks[2], dict(alone.blocks(alone.views(X), alone.views(X), [0]))[0], atol=1e-12
    )


def test_the_given_kernels_are_not_fitted():
    kernel = Gaussian("median")
    fit([("k", kernel)])
    assert not hasattr(kernel, "width_")


def test_strings_and_row_numbers_beside_numbers():
    table = np.empty((4, 3), dtype=object)
    table[:, 0] = ["ab", "bb", "ba", "ab"]
    table[:, 1] = [3, 1, 0, 2]
    table[:, 2] = [0.5, 1.5, -1.0, 2.0]
    K = np.diag([1.0, 2.0, 3.0, 4.0])
    kernel_set = fit(
        [("text", Spectrum(1), [0]), ("rows", Precomputed(K), [1]), ("x", Linear(), [2])], table
    )
    views = kernel_set.views(table)
    blocks = dict(kernel_set.blocks(views, views, range(3)))
    np.testing.assert_array_equal(np.diag(blocks[1]), [4.0, 2.0, 1.0, 3.0])
    np.testing.assert_allclose(blocks[2], np.outer(table[:, 2], table[:, 2]).astype(float))
    np.testing.assert_allclose(blocks[0], Spectrum(1)(table[:, 0]))


def test_errors_say_which_kernel_they_are_about():
    with pytest.raises(ValueError, match="kernel 'bell': width=-1"):
        fit([("line", Linear()), ("bell", Gaussian(-1))])
    with pytest.raises(ValueError, match=r"kernel 'rows': X.*row numbers"):
        fit([("rows", Precomputed(np.eye(3)))])
    with pytest.raises(TypeError, match=r"kernel 'text': X.0. is"):
        fit([("text", Spectrum(1), [0])])


def test_rows_of_equal_views_stay_equal():
    kernel_set = fit()
    taken = take_rows(kernel_set.views(X), np.array([3, 1]))
    assert taken[0] is taken[1] is taken[2]
    assert taken[4] is not taken[0]
    np.testing.assert_array_equal(taken[0], X[[3, 1]])


@pytest.mark.parametrize("normalize", ["diagonal", "centered"])
def test_what_a_rule_knows_of_the_samples_is_computed_once_for_all_blocks(normalize):
    kernel_set = KernelSet.fit(
        lay_specs(read_kernels([Gaussian(2.0), Polynomial(2)]), X), X, normalize
    )
    K = [np.exp(-((X[:, None] - X) ** 2).sum(-1) / 4.0), (X @ X.T + 1.0) ** 2]
    H = np.eye(len(X)) - 1.0 / len(X)
    if normalize == "centered":
        expected = [H @ one @ H / np.mean(np.diag(H @ one @ H)) for one in K]
    else:
        expected = [one / np.sqrt(np.outer(np.diag(one), np.diag(one))) for one in K]
    rule = type(kernel_set.fitted[0].normalization)
    calls = []

    class Counted(rule):
        def row_scale(self, view):
            calls.append(len(view))
            return super().row_scale(view)

    def counted(one):
        normalization = Counted()
        vars(normalization).update(vars(one.normalization))
        return replace(one, normalization=normalization)

    kernel_set = KernelSet(tuple(map(counted, kernel_set.fitted)))
    stack = ComputedStack.of(
        kernel_set, kernel_set.views(X.copy()), np.dtype(np.float64), working_bytes=3000
    )
    assert len(list(stack.row_strips(len(X)))) > 3
    for weights in np.eye(2):
        np.testing.assert_allclose(
            stack.combine(weights), np.tensordot(weights, expected, 1), atol=1e-10
        )
    assert calls == [len(X), len(X)]
