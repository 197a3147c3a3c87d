"""Constructors of estimators, written as the list of their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

Estimator = TypeVar("Estimator")


@dataclass_transform()
def parameters(cls: type[Estimator]) -> type[Estimator]:
    """Give an estimator the constructor that `dataclass` writes for the parameters which the class itself lists.

    The parameters of its base classes are not added: a subclass lists all of its own, in the order of its signature.
    """
    made = dataclass(eq=False, repr=False, match_args=False)(cls)
    del made.__dataclass_fields__  # type: ignore[attr-defined]
    return made
