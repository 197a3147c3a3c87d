"""The loop of all searches: steps that are taken one after the other until one says that it is the
last."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Self


class Search:
    """A search that improves step by step; subclasses say what a step is, and when none is left to
    take."""

    def improve(self) -> Self:
        """Take steps until the search has reached what it is for, or nothing is left to try."""
        with self.context():
            self.begin()
            while self.goes_on() and self.step():
                self.end_step()
            self.finish()
        return self

    def context(self) -> AbstractContextManager[None]:
        """Return the context of the steps, which may show how far the search is; by default
        nothing."""
        return nullcontext()

    def begin(self) -> None:
        """Do what comes before the first step."""

    def goes_on(self) -> bool:
        """Whether another step is to be taken."""
        return True

    def step(self) -> bool:
        """Take a step; False if it was the last."""
        return False

    def end_step(self) -> None:
        """Take note of a step that was not the last."""

    def finish(self) -> None:
        """Do what comes after the last step."""
