"""Localized estimators with projected kernels as transformers: names, containers, pipelines."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn import config_context
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from kernelmosaic import LocalizedMKLClassifier, LocalizedMKLOneClass, LocalizedMKLRegressor
from kernelmosaic.kernels import Gaussian, Linear, Projected

RNG = np.random.RandomState(0)
X = RNG.standard_normal((60, 4))
F = X[:, 0] + X[:, 1] * (X[:, 2] > 0)
Y = np.where(F > 0.5, "high", np.where(F > -0.5, "mid", "low"))
KERNELS = [("flat", Projected(Linear(), 2)), Gaussian(2.0), ("line", Projected(Gaussian(1.0), 1))]
QUICK = {"n_init": 1, "max_iter": 1}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize(
    ("model", "target", "names"),
    [
        (LocalizedMKLRegressor(KERNELS, **QUICK), F, ["flat_0", "flat_1", "line_0"]),
        (LocalizedMKLOneClass(KERNELS, **QUICK), None, ["flat_0", "flat_1", "line_0"]),
        (
            LocalizedMKLClassifier(KERNELS, multi_class="joint", **QUICK),
            Y,
            ["flat_0", "flat_1", "line_0"],
        ),
        (
            LocalizedMKLClassifier(KERNELS, **QUICK),
            Y,
            [
                f"{c}_{name}"
                for c in ("high", "low", "mid")
                for name in ("flat_0", "flat_1", "line_0")
            ],
        ),
    ],
    ids=["regressor", "one class", "joint", "one versus rest"],
)
def test_columns_are_named_after_kernels_and_classes(model, target, names):
    model.fit(X, target)
    assert list(model.get_feature_names_out()) == names
    plain = model.transform(X)
    assert type(plain) is np.ndarray
    assert plain.shape == (60, len(names))
    # What each name promises: the columns of that kernel's own projection.
    first = model.function_.expansions[0].kernel_set.fitted[2].kernel
    assert_array_equal(
        plain[:, names.index(next(n for n in names if n.endswith("line_0")))],
        first.transform(X)[:, 0],
    )


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_containers_are_those_asked_for(container):
    frames = pytest.importorskip(container)
    model = LocalizedMKLRegressor(KERNELS, **QUICK)
    assert model.set_output(transform=container) is model
    out = model.fit_transform(X, F)
    assert isinstance(out, frames.DataFrame)
    assert list(out.columns) == ["flat_0", "flat_1", "line_0"]
    assert isinstance(model.transform(X), frames.DataFrame)
    assert_array_equal(model.set_output(transform="default").transform(X), np.asarray(out))
    with config_context(transform_output=container):
        assert isinstance(
            LocalizedMKLRegressor(KERNELS, **QUICK).fit_transform(X, F), frames.DataFrame
        )


def test_rows_keep_their_index():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcd"), index=np.arange(100, 160))
    model = LocalizedMKLRegressor(KERNELS, **QUICK).set_output(transform="pandas").fit(frame, F)
    assert model.transform(frame).index.tolist() == list(range(100, 160))


def test_a_pipeline_goes_on_from_there():
    pd = pytest.importorskip("pandas")
    steps = make_pipeline(
        LocalizedMKLClassifier(KERNELS, **QUICK), KNeighborsClassifier(3)
    ).set_output(transform="pandas")
    steps.fit(X, Y == "high")
    assert isinstance(steps[:-1].transform(X), pd.DataFrame)
    assert list(steps[:-1].get_feature_names_out()) == ["flat_0", "flat_1", "line_0"]
    assert steps.score(X, Y == "high") > 0.7


@pytest.mark.parametrize(
    "kind", [LocalizedMKLClassifier, LocalizedMKLRegressor, LocalizedMKLOneClass]
)
def test_without_projections_there_is_nothing_to_transform(kind):
    model = kind([Linear(), Gaussian(1.0)])
    for method in ("transform", "fit_transform", "get_feature_names_out", "set_output"):
        assert not hasattr(model, method)
    with pytest.raises(AttributeError, match="transform"):
        model.transform(X)
    assert all(
        hasattr(kind(KERNELS), method) for method in ("transform", "fit_transform", "set_output")
    )
    assert not hasattr(kind("none of the kernels there are"), "transform")
