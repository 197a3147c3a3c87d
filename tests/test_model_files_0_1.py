"""Model files written by version 0.1 are read as they were, whatever classes are called by now."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernelmosaic import MKLClassifier, load
from kernelmosaic.estimators._expansion import Expansion
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.persistence import _RENAMED, is_trusted

DATA = Path(__file__).parent / "data"
#: Outputs that version 0.1 itself gave, when it wrote the files.
GIVEN = json.loads((DATA / "outputs-0.1.json").read_text())

pytest.importorskip("skops")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.InconsistentVersionWarning")
@pytest.mark.parametrize("name", sorted(GIVEN["outputs"]))
def test_outputs_are_those_of_the_version_that_wrote_the_file(name):
    model = load(DATA / f"{name}-0.1.skops")
    X = np.array(GIVEN["X"])
    found = model.predict(X) if name == "product" else model.decision_function(X)
    np.testing.assert_allclose(found, GIVEN["outputs"][name], rtol=1e-9, atol=1e-12)
    # Parameters that came later have their defaults.
    defaults = type(model)().get_params(deep=False)
    assert {key: defaults[key] for key in defaults if key not in vars(model)}.items() <= model.get_params().items()


#: Full names, below `kernelmosaic.`, of what models of version 0.1 held beside the classes in the files here.
HELD = [
    "kernels.algebra.Product",
    "kernels.algebra.Scaled",
    "kernels.algebra.Sum",
    "kernels.correlation.Correlation",
    "kernels.diffusion.Diffusion",
    "kernels.family.PerColumn",
    "kernels.fft.FFT",
    "kernels.gaussian.Gaussian",
    "kernels.linear.Linear",
    "kernels.matrix_rows._Prepared",
    "kernels.polynomial.Polynomial",
    "kernels.precomputed.Precomputed",
    "kernels.projected.Projected",
    "kernels.smith_waterman.SmithWaterman",
    "kernels.spectrum.Spectrum",
    "kernels.weighted_degree.WeightedDegree",
    "gating.constant.Constant",
    "gating.gaussian.GaussianGating",
    "gating.sigmoid.Sigmoid",
    "gating.softmax.Softmax",
    "model_selection.five_by_two.FiveByTwoFold",
]


@pytest.mark.parametrize("name", HELD)
def test_what_models_held_is_still_rebuilt(name):
    name = f"kernelmosaic.{name}"
    new = _RENAMED.get(name, name)
    assert is_trusted(new)
    assert new.rpartition(".")[2] == name.rpartition(".")[2]


def test_every_new_name_is_that_of_a_class_that_is_rebuilt():
    assert all(map(is_trusted, _RENAMED.values()))
    assert not any(map(is_trusted, _RENAMED))


def test_weight_vectors_had_the_weights_in_them():
    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(40, 2)), np.arange(40) % 3
    model = MKLClassifier(
        [Gaussian(1.0), Linear()], weights="uniform", approximation="nystroem", rank=10, random_state=0
    )
    new = replace(model.fit(X, y)._expansion, eta=np.array([[0.5, 0.2], [0.0, 1.0], [0.3, 0.0]]))
    w = [one * weights for one, weights in zip(new.sums.w, new.eta.T, strict=True)]
    old = Expansion.__new__(Expansion)
    old.__setstate__({"kernel_set": new.kernel_set, "w": w, "eta": new.eta, "active": new.kept, "n_kernels": 2})
    np.testing.assert_allclose(old.terms(X), new.terms(X), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(old.combined(X, X), new.combined(X, X))
