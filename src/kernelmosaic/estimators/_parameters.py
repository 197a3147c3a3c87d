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
    names = ("__module__", "__qualname__", "__annotations__", *cls.__annotations__)
    listed = type(cls.__name__, (), {name: vars(cls)[name] for name in names if name in vars(cls)})
    cls.__init__ = dataclass(eq=False, repr=False, match_args=False)(listed).__init__  # type: ignore[method-assign, misc]
    return cls
