"""The lines are the history, the gap on a log axis."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.svm import SVC

from kernelmosaic import (
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
)
from kernelmosaic.kernels import Gaussian, family
from kernelmosaic.plots import ConvergenceDisplay
from kernelmosaic.plots.searches import Course

mpl.use("Agg")

X, Y = load_iris(return_X_y=True)
X, Y = X[::3], np.array(["a", "b", "c"])[Y[::3]]
KERNELS = family(Gaussian(), width=[0.5, 2.0, 8.0])


@pytest.fixture(autouse=True)
def closed_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


@pytest.mark.filterwarnings("ignore:Localized:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "model",
    [
        BilinearMKLClassifier(KERNELS),
        DiscriminantMKLClassifier(KERNELS),
        LocalizedMKLClassifier(KERNELS, n_init=1, max_iter=4),
        MKLClassifier(KERNELS),
    ],
    ids=lambda model: type(model).__name__,
)
def test_lines_are_the_history(model):
    model.fit(X, Y == "c")
    display = ConvergenceDisplay.from_estimator(model)
    (objective,), (gap,) = display.objective_lines_, display.gap_lines_
    np.testing.assert_allclose(
        objective.get_xdata(), [step["iteration"] for step in model.history_]
    )
    np.testing.assert_allclose(
        objective.get_ydata(), [step["objective"] for step in model.history_]
    )
    np.testing.assert_allclose(
        gap.get_ydata(), np.maximum([step["gap"] for step in model.history_], 1e-16)
    )
    above, below = display.axes_
    assert (above.get_yscale(), below.get_yscale()) == ("linear", "log")
    assert display.ax_ is below
    assert below.get_xlabel() == "iteration"
    assert above.get_legend() is None
    asked = [line.get_ydata()[0] for line in below.lines[1:]]
    assert asked == ([] if hasattr(model, "gate") else [model.tol])
    display.figure_.canvas.draw()
    assert all(float(tick).is_integer() for tick in below.get_xticks())


def test_a_line_a_class():
    model = MKLClassifier(KERNELS).fit(X, Y)
    display = ConvergenceDisplay.from_estimator(model)
    legend = display.axes_[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["class a", "class b", "class c"]
    for c, line in enumerate(display.gap_lines_):
        steps = [step for step in model.history_ if step["output"] == c]
        np.testing.assert_allclose(
            line.get_ydata(), np.maximum([step["gap"] for step in steps], 1e-16)
        )
    # Told apart without colour too.
    looks = {(line.get_linestyle(), line.get_marker()) for line in display.gap_lines_}
    assert len(looks) == 3


def test_many_classes_and_starts_differ_in_their_lines():
    courses = [
        Course(f"class {c}", np.arange(3.0), np.ones(3), 10.0 ** -np.arange(3.0)) for c in range(20)
    ]
    display = ConvergenceDisplay(courses).plot()
    looks = {
        (line.get_linestyle(), line.get_marker(), line.get_color()) for line in display.gap_lines_
    }
    assert len(looks) == 20


def test_starts_are_lines_of_their_own():
    model = MKLClassifier(KERNELS).fit(X, Y == "c")
    model.history_ = [
        {"start": start, "iteration": i, "objective": 10.0 * start - i, "gap": 0.1}
        for start in (0, 1)
        for i in (1, 2)
    ]
    display = ConvergenceDisplay.from_estimator(model)
    assert [line.get_label() for line in display.objective_lines_] == ["start 0", "start 1"]
    np.testing.assert_allclose(display.objective_lines_[1].get_ydata(), [9.0, 8.0])


def test_gaps_of_zero_and_infinity_do_not_break_the_axis():
    course = Course(
        "", np.arange(1.0, 4.0), np.array([3.0, 2.0, 2.0]), np.array([np.inf, 0.1, 0.0])
    )
    display = ConvergenceDisplay([course], tol=1e-3).plot()
    display.figure_.canvas.draw()
    np.testing.assert_allclose(display.gap_lines_[0].get_ydata(), [np.nan, 0.1, 1e-16])
    low, high = display.ax_.get_ylim()
    assert 0 < low <= 1e-16
    assert 0.1 <= high < np.inf


def test_axes_given():
    import matplotlib.pyplot as plt

    model = MKLClassifier(KERNELS).fit(X, Y)
    _, pair = plt.subplots(2, 1)
    display = ConvergenceDisplay.from_estimator(model, ax=pair, linewidth=3.0)
    assert list(display.axes_) == list(pair)
    assert display.gap_lines_[0].get_linewidth() == 3.0
    figure, ax = plt.subplots()
    inside = ConvergenceDisplay.from_estimator(model, ax=ax)
    assert inside.figure_ is figure
    figure.canvas.draw()
    legend = inside.axes_[0].get_legend().get_window_extent()
    assert legend.x1 <= figure.bbox.x1
    with pytest.raises(ValueError, match="3 axes"):
        ConvergenceDisplay.from_estimator(model, ax=plt.subplots(3)[1])


def test_what_has_no_history_is_refused():
    with pytest.raises(TypeError, match="SVC has no history_"):
        ConvergenceDisplay.from_estimator(SVC().fit(X, Y))
    model = MKLClassifier(KERNELS).fit(X, Y)
    model.history_ = []
    with pytest.raises(ValueError, match="empty history_"):
        ConvergenceDisplay.from_estimator(model)
