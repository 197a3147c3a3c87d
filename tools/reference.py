"""Parameters on the pages of the reference: each explained where it is listed, everyday ones before
expert ones.

A docstring may say of a parameter "As in :class:`MKLClassifier`". On the page of the class stands
what is said there, with the default of the class itself. Docstrings are read and never written.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import kernelmosaic

#: What most fits set; everything else is for experts.
EVERYDAY = frozenset(
    (
        *(
            "kernels",
            "estimator",
            "C",
            "Cs",
            "norm",
            "norms",
            "weights",
            "loss",
            "epsilon",
            "quantile",
            "nu",
            "kappa",
        ),
        *(
            "alpha",
            "criterion",
            "per_target",
            "gating",
            "estimate",
            "on",
            "multi_class",
            "class_weight",
            "calibration",
        ),
        *("missing", "scale", "cv", "scoring", "n_jobs", "random_state", "verbose"),
    )
)
#: A class with fewer parameters is one group.
GROUPED = 8
ELSEWHERE = re.compile(r"As in (?::class:)?`(\w+)`")

Entry = tuple[str, list[str]]


def section(lines: list[str]) -> tuple[int, int]:
    """Return where the entries of the parameters begin and end; equal where there are none."""
    titles = [
        i for i in range(len(lines) - 1) if lines[i].strip() and set(lines[i + 1].strip()) == {"-"}
    ]
    found = [i for i in titles if lines[i].strip() == "Parameters"]
    if not found:
        return 0, 0
    end = next((i for i in titles if i > found[0]), len(lines))
    return found[0] + 2, end


def entries(lines: list[str]) -> list[Entry]:
    """Return the head of every entry with the lines below it."""
    found: list[Entry] = []
    for line in lines:
        if line.strip() and not line.startswith(" "):
            found.append((line, []))
        elif found and line.strip():
            found[-1][1].append(line)
    return found


def names_of(head: str) -> list[str]:
    """Return the parameters that an entry describes."""
    return head.partition(" : ")[0].replace(",", " ").split()


def with_default(head: str, default: Any) -> str:
    """Return the head of an entry with another default."""
    return re.sub(r"default=.*$", lambda _: f"default={default!r}".replace("'", '"'), head)


def explained(cls: type, lines: list[str]) -> list[Entry]:
    """Return one entry per parameter, what is said elsewhere included."""
    begin, end = section(lines)
    found: list[Entry] = []
    for head, text in entries(lines[begin:end]):
        said = " ".join(line.strip() for line in text)
        elsewhere = ELSEWHERE.match(said)
        if elsewhere is None or not hasattr(kernelmosaic, elsewhere[1]):
            found.append((head, text))
            continue
        other = getattr(kernelmosaic, elsewhere[1])
        whole = explained(other, (inspect.getdoc(other) or "").splitlines())
        there = {name: one for one in whole for name in names_of(one[0])}
        names = names_of(head)
        remark = said if said.rstrip(".") != elsewhere[0] else ""
        named = [name for name in names if re.search(rf"\b{name}\b", remark)] or names[:1]
        for name in names:
            above, below = there[name]
            here, then = (inspect.signature(one).parameters[name].default for one in (cls, other))
            own = head if " : " in head else above if here == then else with_default(above, here)
            found.append(
                (own, [*below, *(["", f"    {remark}"] if remark and name in named else [])])
            )
    return found


def grouped(cls: type, lines: list[str]) -> list[str]:
    """Return the lines of a docstring with its parameters explained, and in two groups if there are
    many."""
    begin, end = section(lines)
    found = explained(cls, lines)
    if begin == end:
        return lines
    first = [one for one in found if len(found) <= GROUPED or EVERYDAY & set(names_of(one[0]))]
    second = [one for one in found if one not in first]
    out = [line for head, text in first for line in (head, *text)] + [""]
    if second:
        out += [
            "Other Parameters",
            "----------------",
            *(line for head, text in second for line in (head, *text)),
            "",
        ]
    return [*lines[:begin], *out, *lines[end:]]
