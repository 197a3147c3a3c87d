"""Kernels in short: ``linear``, ``poly(3)``, ``gauss*5``, and sums of these with ``+``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernelmosaic.kernels import Correlation, Gaussian, Kernel, Linear, Polynomial, Spectrum, WeightedDegree
from kernelmosaic.kernels.views import default_kernels, one_class_kernels

KNOWN = "linear, poly2, poly(3), gauss, gauss(2*median), gauss(1.5), gauss*5, correlation, spectrum(3), wd(5)"

_TERM = re.compile(r"(?P<word>[a-z]+)(?P<short>\d+)?(?:\((?P<argument>[^()]*)\))?(?:\*(?P<copies>\d+))?")
_SEQUENCES = ("spectrum", "wd")
_MOST_COPIES = 20


@dataclass(frozen=True)
class Spec:
    """One kernel, or a family of Gaussians around the median distance.

    Parameters
    ----------
    word : str
        Which formula.
    label : str
        How it is written.
    kernels : tuple of (str, Kernel)
        The kernels with their labels.
    """

    word: str
    label: str
    kernels: tuple[tuple[str, Kernel], ...]

    @classmethod
    def one(cls, word: str, label: str, kernel: Kernel) -> Spec:
        return cls(word, label, ((label, kernel),))

    @property
    def reads_sequences(self) -> bool:
        """Whether it compares strings, one column at a time."""
        return self.word in _SEQUENCES


def default_specs(one_class: bool, few: bool) -> list[Spec]:
    """Return the library's default kernels on numbers; if few, of several Gaussians only the one of the median."""
    if one_class:
        return [_default_spec(kernel) for kernel in one_class_kernels()]
    return [_default_spec(k) for k in default_kernels() if not (few and isinstance(k, Gaussian) and k.factor != 1)]


def _default_spec(kernel: Kernel) -> Spec:
    if isinstance(kernel, Gaussian):
        return _gaussian(kernel)
    return _poly(str(kernel.degree)) if isinstance(kernel, Polynomial) else _linear(None)


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
    factors = 2.0 ** (np.arange(copies) - (copies - 1) / 2)
    members = tuple(_gaussian(Gaussian(factor=float(factor))).kernels[0] for factor in factors)
    return Spec("gauss", f"gauss*{copies}", members)


def _linear(argument: str | None) -> Spec:
    _refuse(argument)
    return Spec.one("linear", "linear", Linear())


def _correlation(argument: str | None) -> Spec:
    _refuse(argument)
    return Spec.one("correlation", "correlation", Correlation())


def _refuse(argument: str | None) -> None:
    if argument is not None:
        raise ValueError(argument)


def _poly(argument: str | None) -> Spec:
    degree = _whole(argument or "2")
    return Spec.one("poly", f"poly{degree}", Polynomial(degree=degree))


def _quadratic(argument: str | None) -> Spec:
    _refuse(argument)
    return _poly("2")


def _gauss(argument: str | None) -> Spec:
    if argument == "median":
        return Spec.one("gauss", "gauss(median)", Gaussian())
    factor, star, rule = (argument or "median").rpartition("*")
    if rule.strip() in ("median", "nearest"):
        return _gaussian(Gaussian(rule.strip(), _positive(factor) if star else 1.0))
    return _gaussian(Gaussian(_positive(argument or "")))


def _gaussian(kernel: Gaussian) -> Spec:
    """Write the width as the user would: nothing, a number, a rule, or a multiple of one."""
    width = kernel.width if isinstance(kernel.width, str) else f"{kernel.width:g}"
    if kernel.factor != 1:
        width = f"{kernel.factor:.3g}*{width}"
    return Spec.one("gauss", "gauss" if width == "median" else f"gauss({width})", kernel)


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < np.inf:
        raise ValueError(text)
    return number


def _spectrum(argument: str | None) -> Spec:
    length = _whole(argument or "3")
    return Spec.one("spectrum", f"spectrum({length})", Spectrum(length))


def _weighted_degree(argument: str | None) -> Spec:
    degree = _whole(argument or "3")
    return Spec.one("wd", f"wd({degree})", WeightedDegree(degree))


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
