"""What a picture of a paper is, and how it is drawn once and kept in the run folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from kernelmosaic.experiments.lines import write_whole
from kernelmosaic.experiments.reading import Run
from kernelmosaic.experiments.units import Settings


@dataclass(frozen=True)
class Drawing:
    """One picture of a paper.

    Parameters
    ----------
    name : str
        Of its file: the paper's number, then the figure.
    paper : str
        It is drawn if the run has an experiment of this paper.
    alt, caption : str
        What it shows: for those who do not see it, and under it.
    draw : callable
        Takes the settings and the run and returns a matplotlib Figure, in seconds rather than minutes. It raises
        `LookupError` if the run lacks what it needs.
    version : int
        Raise it when the picture changes, so that a kept one is not taken for it.
    """

    name: str
    paper: str
    alt: str
    caption: str
    draw: Callable[[Settings, Run], Any]
    version: int = 1


@dataclass(frozen=True)
class Drawn:
    """A picture as PNG, or why there is none."""

    caption: str
    alt: str
    image: bytes | None
    problem: str = ""


def draw_pictures(run: Run, data_home: str | None = None) -> dict[str, list[Drawn]]:
    """Return the pictures of every paper that the run has experiments of."""
    from kernelmosaic.experiments.figures.gallery import DRAWINGS

    papers = {one.experiment.paper for one in run.results}
    found: dict[str, list[Drawn]] = {}
    for drawing in DRAWINGS:
        if drawing.paper in papers:
            found.setdefault(drawing.paper, []).append(_drawn(drawing, run, run.settings(data_home)))
    return found


def _drawn(drawing: Drawing, run: Run, settings: Settings) -> Drawn:
    path = _kept(drawing, run)
    if path is not None and path.exists():
        return Drawn(drawing.caption, drawing.alt, path.read_bytes())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few iterations are what some of the pictures are about
            figure = drawing.draw(settings, run)
    except (LookupError, OSError, ValueError) as error:
        return Drawn(drawing.caption, drawing.alt, None, " ".join(str(error).split()))
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110, facecolor="white")
    if path is not None:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, buffer.getvalue())
    return Drawn(drawing.caption, drawing.alt, buffer.getvalue())


def _kept(drawing: Drawing, run: Run) -> Path | None:
    # Beside records only: a folder of summaries is for small texts.
    if not any(run.folder.glob("*.jsonl")):
        return None
    return run.folder / "figures" / f"{drawing.name}-{drawing.version}.png"
