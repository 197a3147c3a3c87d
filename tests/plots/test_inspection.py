"""Pictures of which kernels are real: what is drawn is what was found."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from kernelmosaic import MKLClassifier
from kernelmosaic.kernels import Gaussian
from kernelmosaic.plots import KernelImportanceDisplay, StabilityDisplay

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

X, Y = (part[::3] for part in load_iris(return_X_y=True))
TWO = Y > 0
MODEL = MKLClassifier([("sepal", Gaussian(), [0, 1]), ("petal", Gaussian(), [2, 3])])


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_classes_with_weights_of_their_own_are_a_map_or_one_of_them():
    stable = StabilityDisplay.from_estimator(MODEL, X, Y, n_resamples=2, random_state=0)
    np.testing.assert_allclose(stable.image_.get_array(), stable.result.selection_frequencies.T)
    assert StabilityDisplay(stable.result).plot(of_class=2).dots_.get_xdata() == pytest.approx(
        stable.result.weights[2]
    )
    with pytest.raises(ValueError, match="of_class=7: the classes are"):
        stable.plot(of_class=7)


def test_stability_and_importance_of_two_classes():
    stable = StabilityDisplay.from_estimator(MODEL, X, TWO, n_resamples=3, random_state=0)
    ends = np.array([[one[0][0], one[1][0]] for one in stable.lines_.get_segments()])
    np.testing.assert_allclose(ends, np.column_stack([stable.result.lower, stable.result.upper]))
    assert stable.dots_.get_xdata() == pytest.approx(stable.result.weights)
    assert texts(stable.ax_)[-1] == "selected"
    important = KernelImportanceDisplay.from_estimator(
        MODEL, X, TWO, cv=2, n_repeats=1, random_state=0
    )
    for name, mean in (
        ("dropped", important.result.drop_mean),
        ("permuted", important.result.permutation_mean),
    ):
        assert [bar.get_width() for bar in important.bars_[name]] == pytest.approx(mean.tolist())
