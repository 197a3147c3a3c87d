"""Kernels in short: ``linear``, ``poly(3)``, ``gauss*5``, and sums of these with ``+``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmosaic.kernels import Correlation, Gaussian, Kernel, Linear, Polynomial, Spectrum, WeightedDegree

KNOWN = "linear, poly2, poly(3), gauss, gauss(median), gauss(1.5), gauss*5, correlation, spectrum(3), wd(5)"

_TERM = re.compile(r"(?P<word>[a-z]+)(?P<short>\d+)?(?:\((?P<argument>[^()]*)\))?(?:\*(?P<copies>\d+))?")
_SEQUENCES = ("spectrum", "wd")
_MOST_COPIES = 20


@dataclass(frozen=True)
class Spec:
    """One kernel, or a family of Gaussians around the median distance, still without data.

    Parameters
    ----------
    word : str
        Which formula.
    label : str
        How it is written.
    kernel : Kernel or None
        None for a family.
    copies : int
        Members of the family.
    """

    word: str
    label: str
    kernel: Kernel | None
    copies: int = 1

    @property
    def reads_sequences(self) -> bool:
        """Whether it compares strings, one column at a time."""
        return self.word in _SEQUENCES

    def kernels(self, X: Any) -> list[tuple[str, Kernel]]:
        """Return the kernels with their labels; X, the columns they will read, tells a family its widths."""
        if self.kernel is not None:
            return [(self.label, self.kernel)]
        middle = float(Gaussian("median").fit(X).width_)
        steps = 2.0 ** (np.arange(self.copies) - (self.copies - 1) / 2)
        widths = [float(f"{middle * step:.3g}") for step in steps]
        return [(f"gauss({width:g})", Gaussian(width)) for width in widths]


def read_specs(text: str) -> list[Spec]:
    """Return the kernels a text such as ``linear+gauss*5`` stands for, or raise naming those there are."""
    specs = [_read_term(term.strip(), text) for term in text.split("+")]
    labels = [spec.label for spec in specs]
    repeated = [label for label in labels if labels.count(label) > 1]
    if repeated:
        raise ValueError(f"kernel {repeated[0]!r} is named twice in {text!r}.")
    return specs


def _read_term(term: str, text: str) -> Spec:
    match = _TERM.fullmatch(term)
    reader = _READERS.get(match["word"]) if match else None
    if match is None or reader is None:
        raise ValueError(f"unknown kernel {term or text!r}: choose among {KNOWN}, or add them up with +.")
    if match["copies"] is not None:
        return _family(match, term)
    argument = match["short"] if match["argument"] is None else match["argument"].strip()
    try:
        return reader(argument)
    except (ValueError, TypeError):
        raise ValueError(f"kernel {term!r} cannot be read: write it like one of {KNOWN}.") from None


def _family(match: re.Match[str], term: str) -> Spec:
    copies = int(match["copies"])
    plain = match["argument"] in (None, "median") and match["short"] is None
    if match["word"] not in ("gauss", "gaussian", "rbf") or not plain or not 2 <= copies <= _MOST_COPIES:
        raise ValueError(
            f"kernel {term!r}: only Gaussians come as a family, gauss*2 to gauss*{_MOST_COPIES}, whose widths lie "
            "around the median distance."
        )
    return Spec("gauss", f"gauss*{copies}", None, copies)


def _linear(argument: str | None) -> Spec:
    _refuse(argument)
    return Spec("linear", "linear", Linear())


def _correlation(argument: str | None) -> Spec:
    _refuse(argument)
    return Spec("correlation", "correlation", Correlation())


def _refuse(argument: str | None) -> None:
    if argument is not None:
        raise ValueError(argument)


def _poly(argument: str | None) -> Spec:
    degree = _whole(argument or "2")
    return Spec("poly", f"poly{degree}", Polynomial(degree=degree))


def _quadratic(argument: str | None) -> Spec:
    _refuse(argument)
    return _poly("2")


def _gauss(argument: str | None) -> Spec:
    if argument is None or argument == "nearest":
        return Spec("gauss", "gauss", Gaussian("nearest"))
    if argument == "median":
        return Spec("gauss", "gauss(median)", Gaussian("median"))
    width = float(argument)
    if not 0 < width < np.inf:
        raise ValueError(argument)
    return Spec("gauss", f"gauss({width:g})", Gaussian(width))


def _spectrum(argument: str | None) -> Spec:
    length = _whole(argument or "3")
    return Spec("spectrum", f"spectrum({length})", Spectrum(length))


def _weighted_degree(argument: str | None) -> Spec:
    degree = _whole(argument or "3")
    return Spec("wd", f"wd({degree})", WeightedDegree(degree))


def _whole(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 100:
        raise ValueError(text)
    return number


_READERS: dict[str, Callable[[str | None], Spec]] = {
    "linear": _linear,
    "poly": _poly,
    "quadratic": _quadratic,
    "gauss": _gauss,
    "gaussian": _gauss,
    "rbf": _gauss,
    "correlation": _correlation,
    "spectrum": _spectrum,
    "wd": _weighted_degree,
}
