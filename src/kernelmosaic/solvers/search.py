"""The loop of all searches, which take steps until one says that it is the last."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Self


class Search:
    """A search that improves its state step by step; subclasses override the methods below.

    `improve` calls them in this order: `context`, `begin`, then `goes_on`, `step` and `end_step` in
    turns, and `finish`.
    """

    def improve(self) -> Self:
        """Take steps until `goes_on` or `step` returns False, and return the search itself."""
        with self.context():
            self.begin()
            while self.goes_on() and self.step():
                self.end_step()
            self.finish()
        return self

    def context(self) -> AbstractContextManager[None]:
        """Return the context manager within which all steps are taken; by default an empty one."""
        return nullcontext()

    def begin(self) -> None:
        """Prepare the first step."""

    def goes_on(self) -> bool:
        """Return whether another step is to be taken."""
        return True

    def step(self) -> bool:
        """Take a step, and return False if it was the last."""
        return False

    def end_step(self) -> None:
        """Record a step that was not the last."""

    def finish(self) -> None:
        """Complete the result after the last step."""
