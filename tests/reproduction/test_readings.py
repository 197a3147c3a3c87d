"""The study of readings: it finds the reading that made the figures, and says what it rests on."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import polynomial_kernel

from kernelmosaic.kernels import Gaussian
from reproduction import EXPERIMENTS, FULL, QUICK, Record, Settings
from reproduction.executors import Task, execute
from reproduction.papers.readings import Halves, Question, Reading, Study, Trial, normalised
from reproduction.rows import AWAY, Figure, published_figures
from reproduction.sources import Dataset, Samples


class Stretched:
    """Two classes told apart by a column that another one, a thousand times as long, hides until it
    is scaled."""

    def __call__(self, settings):
        random = np.random.RandomState(settings.seed)
        y = np.arange(120) % 2
        X = random.randn(120, 2) * [0.3, 1000.0]
        X[:, 0] += y
        return Samples(X, y)


PRINTED = {("x", "t", name, "SVM", "kL", "accuracy"): Figure(95.0, None) for name in ("one", "two")}
READINGS = (Reading("as given", "mean diagonal 1"), Reading("standardised", "mean diagonal 1"))


def make_study(taken=1):
    """A study of two sets whose printed figures are those of standardised columns."""

    def trial(name):
        return Trial(
            ("x", "t"),
            "SVM",
            "accuracy",
            (Dataset(name, Stretched(), quick=True),),
            Halves((("kL", 1),)),
        )

    question = Question("paper x", READINGS, (trial("one"),), (trial("two"),), READINGS[taken].name)
    return Study((question,), repeats=3)


def run(study):
    records = [execute(Task(study, unit, Settings())) for unit in study.units("readings", FULL)]
    assert [one.failure for one in records] == [None] * 12
    return records


def test_the_reading_that_made_the_figures_is_found_and_confirmed():
    study = make_study()
    rows = study.summarise(run(study), PRINTED)
    away = {(row.dataset, row.method): row.mean for row in rows if row.metric == AWAY}
    figures = {(row.dataset, row.method): row for row in rows if row.metric == "accuracy"}
    for key, row in figures.items():
        assert row.published == 95.0
        assert row.count == 3
        assert away[key] == pytest.approx(abs(row.mean - 95.0))
    (said,) = study.findings(rows)
    assert "“standardised, mean diagonal 1” is nearest on one" in said
    assert (
        f"On two what is taken is {away['paper x: two', READINGS[1].name]:.2f} from print, the"
        " nearest." in said
    )


def test_what_is_taken_against_the_figures_is_said():
    study = make_study(taken=0)
    (said,) = study.findings(study.summarise(run(study), PRINTED))
    assert "The experiments take “as given, mean diagonal 1”" in said
    assert "place 2, the nearest is “standardised, mean diagonal 1”" in said
    # Without the sets it is chosen on there is nothing to say.
    assert study.findings([]) == []


def test_the_kernels_are_the_papers():
    X, Z = np.random.RandomState(0).randn(2, 6, 3)
    own, other = normalised(2, "mean diagonal 1", [X, Z])
    K = polynomial_kernel(X, degree=2, gamma=1, coef0=1)
    np.testing.assert_allclose(own, K / np.trace(K) * 6)
    np.testing.assert_allclose(
        other, polynomial_kernel(Z, X, degree=2, gamma=1, coef0=1) / np.trace(K) * 6
    )
    whole = normalised(3, "unit diagonal", [np.vstack([X, Z])])[0]
    np.testing.assert_allclose(np.diag(whole), 1.0)
    np.testing.assert_allclose(normalised(3, "unit diagonal", [X, Z])[1], whole[6:, :6])
    np.testing.assert_allclose(
        normalised("nearest", "trace 1", [X, Z])[1], Gaussian("nearest").fit(X)(Z, X)
    )
    (alone,) = normalised(slice(1, 3), "unit diagonal", [X])
    cosine = X[:, 1:] @ X[:, 1:].T / np.outer(*[np.linalg.norm(X[:, 1:], axis=1)] * 2)
    np.testing.assert_allclose(alone, cosine, rtol=1e-6)


def test_the_readings_of_the_experiments_are_among_those_tried():
    study = EXPERIMENTS["readings"].protocol
    for one in study.questions:
        assert one.taken in [reading.name for reading in one.readings]
        for trial, data in one.trials():
            assert any(
                key[:4] == (*trial.table, data.name, trial.method) for key in published_figures()
            )
    assert len(study.units("readings", QUICK)) < len(study.units("readings", FULL))
    assert study.summarise([Record(study.units("readings", QUICK)[0])]) == []
