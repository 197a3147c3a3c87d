"""Draw the picture of docs/architecture.md: faces on top, families on the core, an arrow for what
each may import.

python tools/architecture_picture.py docs/images/architecture.svg
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

#: What users meet, and what it is for.
FACES = (
    ("model_selection/", "searches"),
    ("inspection/", "what a fit shows"),
    ("plots/, reports", "pictures, pages"),
    ("persistence, stats", "model files, tests"),
    ("demo, cli/", "commands"),
)
#: Families in two rows; `pairs` holds kernels, matrices and a splitter.
FAMILIES = (
    ("ridge/", "multiclass/", "localized/", "discriminant/"),
    ("survival/", "bayesian/", "unlabelled/", "pairs/"),
)
#: The core from the top down, and what each part holds.
CORE = (
    ("estimators/", "scikit-learn's interface: parameters, samples in, predictions out"),
    ("engine/", "fits as values: Recipe, Task, Method, TrainingSet, Fit; searches, calibration"),
    ("learning/", "how weights are learned; certificates"),
    ("machines/", "which program: one class per loss"),
    ("solvers/", "arrays in, arrays out: the program and its solvers"),
    ("gram/", "matrices or features of all kernels: KernelSet, GramStack, Gram"),
    ("kernels/", "one formula per class; which columns each reads"),
)
WIDTH, EDGE, HEIGHT, GAP = 860, 20, 46, 10
FONT = "Helvetica, Arial, sans-serif"
GREEN, BLUE, SAND = ("#e6f4ea", "#2a7d46"), ("#e8f0fb", "#2b5fa8"), ("#fdf3e1", "#a8690b")
HEAD_OF_ARROW = (
    '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="4" refY="4" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>'
)


def _box(x: float, y: float, width: float, height: float, colours: tuple[str, str]) -> str:
    fill, stroke = colours
    shape = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8"'
    return f'<rect {shape} fill="{fill}" stroke="{stroke}"/>'


def _text(x: float, y: float, words: str, style: str = "", anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" {style}>{escape(words)}</text>'


def _title(y: float, words: str) -> str:
    return _text(EDGE, y, words, 'font-weight="bold"', "start")


def _row(
    y: float, names: tuple[str, ...], notes: tuple[str, ...], colours: tuple[str, str]
) -> Iterator[str]:
    """Yield boxes side by side, each with a name and, where there is one, a note below it."""
    width = (WIDTH - 2 * EDGE - GAP * (len(names) - 1)) / len(names)
    for place, name in enumerate(names):
        x = EDGE + place * (width + GAP)
        yield _box(x, y, width, HEIGHT, colours)
        middle = x + width / 2
        if notes:
            yield _text(middle, y + 20, name)
            yield _text(middle, y + 37, notes[place], 'font-size="12" fill="#555"')
        else:
            yield _text(middle, y + 28, name)


def _arrow(x: float, y: float, words: str) -> Iterator[str]:
    yield f'<path d="M{x:g} {y:g} l0 26" stroke="#555" stroke-width="1.5" marker-end="url(#head)"/>'
    yield _text(x + 12, y + 19, words, 'font-size="12" fill="#555"', "start")


def draw() -> str:
    """Return the picture as SVG, on a white ground that suits light and dark pages."""
    parts = [_title(32, "Faces")]
    names, notes = zip(*FACES, strict=True)
    y = 44.0
    parts += _row(y, names, notes, SAND)
    y += HEIGHT + 6
    parts += _arrow(WIDTH / 2, y, "import what is below; nothing below imports them")
    y += 62
    parts.append(_title(y - 12, "Families: one method, one folder"))
    for row in FAMILIES:
        parts += _row(y, row, (), GREEN)
        y += HEIGHT + GAP
    y -= 4
    parts += _arrow(WIDTH / 2, y, "import the core; the core imports no family")
    y += 62
    parts.append(_title(y - 12, "Core: what every method needs"))
    for name, note in CORE:
        parts.append(_box(EDGE, y, WIDTH - 2 * EDGE, HEIGHT - 8, BLUE))
        parts.append(_text(EDGE + 16, y + 24, name, anchor="start"))
        parts.append(_text(EDGE + 150, y + 24, note, 'font-size="13" fill="#555"', "start"))
        y += HEIGHT - 4
    y += 4
    parts.append(
        _text(
            WIDTH / 2,
            y + 12,
            "A part imports those below it, never one above it.",
            'font-size="13"',
        )
    )
    size = f'viewBox="0 0 {WIDTH} {y + 30:g}" font-family="{FONT}" font-size="15"'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            HEAD_OF_ARROW,
            ground,
            *parts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(), encoding="utf-8")
