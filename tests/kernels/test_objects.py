"""Kernels between objects that are no numbers, sets or bags of vectors: they reach the kernel's own
`validate`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kernelmosaic import MKLClassifier, MKLClassifierCV, MKLRidgeClassifierCV
from kernelmosaic.kernels import Kernel, Linear, Precomputed

RNG = np.random.RandomState(0)
N = 40
Y = np.arange(N) % 2
SETS = [set(RNG.choice(8, 3, replace=False).tolist()) | {20 + int(label)} for label in Y]
#: Bags of two to four vectors each, and bags that are all of one size.
BAGS = [RNG.standard_normal((RNG.randint(2, 5), 3)) + label for label in Y]
EVEN_BAGS = [RNG.standard_normal((3, 3)) + label for label in Y]
NUMBERS = RNG.standard_normal(N)


class Objects(Kernel):
    """A kernel of objects, each in a cell of its own."""

    input_kind = "objects"

    def validate(self, X):
        table = np.asarray(X, dtype=object)
        if table.ndim != 2 or table.shape[1] != 1:
            raise ValueError(f"X has shape {table.shape}: give one object per sample.")
        return table


class Overlap(Objects):
    """The share of elements that two sets have in common."""

    def _block(self, X, Y):
        return np.array([[overlap(a, b) for b in Y[:, 0]] for a in X[:, 0]])


class MeanProduct(Objects):
    """The mean inner product of the members of two bags."""

    def _block(self, X, Y):
        return np.array([[float(np.mean(a @ b.T)) for b in Y[:, 0]] for a in X[:, 0]])


def overlap(a, b):
    return len(a & b) / len(a | b)


def cells(objects):
    table = np.empty(len(objects), dtype=object)
    for i, one in enumerate(objects):
        table[i] = one
    return table


FORMS = {"list": list, "array": cells, "column": lambda objects: cells(objects)[:, np.newaxis]}
MODELS = {
    "machine": MKLClassifier,
    "ridge": MKLRidgeClassifierCV,
    "search": lambda kernels: MKLClassifierCV(kernels, Cs=[1.0], norms=[1], cv=2),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("kernel", "objects"),
    [(Overlap(), SETS), (MeanProduct(), BAGS), (MeanProduct(), EVEN_BAGS)],
    ids=["sets", "bags", "even bags"],
)
def test_objects_are_worth_their_matrix(form, model, kernel, objects):
    K = np.array(
        [
            [kernel._block(cells([a])[:, None], cells([b])[:, None])[0, 0] for b in objects]
            for a in objects
        ]
    )
    expected = MODELS[model]([Precomputed(K)]).fit(np.arange(N), Y).decision_function(np.arange(N))
    X = FORMS[form](objects)
    found = MODELS[model]([kernel]).fit(X, Y).decision_function(X)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_objects_beside_numbers_in_a_frame():
    X = pd.DataFrame({"set": cells(SETS), "number": NUMBERS})
    kernels = [("sets", Overlap(), ["set"]), ("numbers", Linear(), ["number"])]
    model = MKLRidgeClassifierCV(kernels).fit(X, Y)
    assert model.kernel_names_ == ["sets", "numbers"]
    np.testing.assert_allclose(model.kernels_[0][1](X[["set"]])[0, 1], overlap(SETS[0], SETS[1]))
    assert model.score(X, Y) == 1.0


@pytest.mark.parametrize("form", ["list", "array"])
def test_objects_for_kernels_of_numbers_are_an_error_that_says_how(form):
    message = (
        r"column 0 holds a set .* where numbers are needed.*input_kind = 'objects'.*float\(\)"
        r" argument must be"
    )
    with pytest.raises(TypeError, match=message):
        MKLClassifier([Linear()]).fit(FORMS[form](SETS), Y)
    frame = pd.DataFrame({"number": NUMBERS, "set": cells(SETS)})
    with pytest.raises(TypeError, match=r"column 'set' holds a set .*input_kind = 'objects'"):
        MKLClassifier().fit(frame, Y)
