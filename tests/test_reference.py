"""The reference lists every parameter of an estimator once, explained in place, everyday ones
first."""

from __future__ import annotations

import inspect

import pytest
from sklearn.base import BaseEstimator

from kernelmosaic import estimators, model_selection
from tools.reference import EVERYDAY, GROUPED, grouped

docscrape = pytest.importorskip("numpydoc.docscrape")  # of the extra "docs"

ESTIMATORS = [
    cls
    for module in (estimators, model_selection)
    for cls in (getattr(module, name) for name in module.__all__)
    if inspect.isclass(cls) and issubclass(cls, BaseEstimator)
]


def read(cls):
    return docscrape.NumpyDocString("\n".join(grouped(cls, inspect.getdoc(cls).splitlines())))


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_every_parameter_is_listed_once_and_explained(cls):
    page, before = read(cls), docscrape.NumpyDocString(inspect.getdoc(cls))
    listed = [*page["Parameters"], *page["Other Parameters"]]
    names = [name for one in listed for name in one.name.split(", ")]
    assert sorted(names) == sorted(inspect.signature(cls).parameters)
    assert [one.name for one in listed if not one.type or not " ".join(one.desc).strip()] == []
    assert [
        one.name for one in listed if " ".join(one.desc).strip().startswith("As in :class:`MKL")
    ] == []
    assert {key: page[key] for key in page if "Parameters" not in key} == {
        key: before[key] for key in before if "Parameters" not in key
    }


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_everyday_parameters_come_first(cls):
    page = read(cls)
    first, second = (
        {name for one in page[key] for name in one.name.split(", ")}
        for key in page
        if "Param" in key
    )
    if len(first | second) > GROUPED + 4:
        assert second
    if second:
        assert first <= EVERYDAY
        assert not second & EVERYDAY
        assert first & {"kernels", "estimator"}


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_a_default_is_that_of_the_class(cls):
    page = read(cls)
    for one in (*page["Parameters"], *page["Other Parameters"]):
        said = one.type.rpartition("default=")[2]
        if "," not in one.name and "default=" in one.type and said != "nan":
            assert eval(said, {}) == inspect.signature(cls).parameters[one.name].default, one.name


def test_every_everyday_name_is_a_parameter():
    assert {name for cls in ESTIMATORS for name in inspect.signature(cls).parameters} >= EVERYDAY
