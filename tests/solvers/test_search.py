"""The loop of all searches, and what ends it."""

from __future__ import annotations

import inspect
import pkgutil
from contextlib import contextmanager
from importlib import import_module

import pytest

import kernelmosaic.learning
import kernelmosaic.solvers
from kernelmosaic.solvers.search import Search


class Recorded(Search):
    """A search that writes down what is called."""

    def __init__(self, n_steps, most):
        self.n_steps, self.most, self.calls = n_steps, most, []

    @contextmanager
    def context(self):
        self.calls.append("enter")
        yield
        self.calls.append("exit")

    def begin(self):
        self.calls.append("begin")

    def goes_on(self):
        return self.calls.count("step") < self.most

    def step(self):
        self.calls.append("step")
        return self.calls.count("step") <= self.n_steps

    def end_step(self):
        self.calls.append("end")

    def finish(self):
        self.calls.append("finish")


def test_the_last_step_is_the_one_that_says_so():
    search = Recorded(n_steps=2, most=10)
    assert search.improve() is search
    steps = ["step", "end", "step", "end", "step"]
    assert search.calls == ["enter", "begin", *steps, "finish", "exit"]


def test_no_step_is_taken_where_the_search_does_not_go_on():
    assert Recorded(n_steps=10, most=1).improve().calls.count("step") == 1
    assert Recorded(n_steps=10, most=0).improve().calls == ["enter", "begin", "finish", "exit"]


@pytest.mark.parametrize("package", [kernelmosaic.solvers, kernelmosaic.learning])
def test_no_exception_is_there_to_end_a_loop(package):
    # What ends a search is a value; errors of the input are Python's own.
    raised = []
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if "numba" in module.name:
            continue
        for name, cls in inspect.getmembers(import_module(module.name), inspect.isclass):
            if issubclass(cls, Exception) and cls.__module__ == module.name:
                raised.append(name)
    assert raised == []
