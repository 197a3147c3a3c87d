"""Draw the flowchart of docs/choosing.md: questions from top to bottom, the answers beside them.

python tools/flowchart.py docs/images/choosing.svg
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

#: Question, and what to take where the answer is yes, one string per line.
STEPS = (
    (("No labels?",), ("MKLKernelPCA", "MKLClustering")),
    (("Labels of one class only?",), ("MKLOneClass",)),
    (("Times until an event, some censored?",), ("MKLSurvivalCV",)),
    (
        ("Sparse weights, few support vectors,", "a certificate, or another loss?"),
        ("MKLClassifierCV", "MKLRegressorCV"),
    ),
    (
        ("Weights that differ between regions", "of the input space?"),
        ("LocalizedMKLClassifier", "LocalizedMKLRegressor"),
    ),
    (("Weights that differ between classes?",), ("BilinearMKLClassifier",)),
    (("A projection to plot?",), ("DiscriminantMKLClassifier",)),
    (("Standard deviations of the weights?",), ("BayesianMKLClassifier",)),
)
LAST = ("Otherwise, the first choice:", "MKLRidgeClassifierCV (classes)", "MKLRidgeCV (numbers)")
WIDTH, LEFT, RIGHT, HEIGHT, GAP, LINE = 760, 350, 270, 58, 22, 19
FONT = "Helvetica, Arial, sans-serif"
HEAD_OF_ARROW = (
    '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="4" refY="4" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>'
)
BLUE, GREEN = ("#e8f0fb", "#2b5fa8"), ("#e6f4ea", "#2a7d46")


def _box(
    x: int, y: int, width: int, height: int, colours: tuple[str, str], lines: tuple[str, ...]
) -> Iterator[str]:
    fill, stroke = colours
    yield (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{fill}"'
        f' stroke="{stroke}"/>'
    )
    top = y + height / 2 - LINE * (len(lines) - 1) / 2 + 5
    for i, line in enumerate(lines):
        yield (
            f'<text x="{x + width / 2:g}" y="{top + i * LINE:g}"'
            f' text-anchor="middle">{escape(line)}</text>'
        )


def _arrow(x: int, y: int, dx: int, dy: int, word: str) -> Iterator[str]:
    yield (
        f'<path d="M{x} {y} l{dx} {dy}" stroke="#555" stroke-width="1.5" marker-end="url(#head)"/>'
    )
    yield (
        f'<text x="{x + dx // 2 + (8 if dy else -14)}"'
        f' y="{y + dy // 2 + (5 if dy else -6)}">{word}</text>'
    )


def draw() -> str:
    """Return the flowchart as SVG, on a white ground that suits light and dark pages."""
    parts: list[str] = []
    y, right = 20, WIDTH - RIGHT - 20
    for question, answer in STEPS:
        parts += _box(20, y, LEFT, HEIGHT, BLUE, question)
        parts += _box(right, y, RIGHT, HEIGHT, GREEN, answer)
        parts += _arrow(20 + LEFT, y + HEIGHT // 2, right - LEFT - 28, 0, "yes")
        parts += _arrow(20 + LEFT // 2, y + HEIGHT, 0, GAP - 7, "no")
        y += HEIGHT + GAP
    parts += _box(20, y, LEFT, 82, GREEN, LAST)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 102}"'
        f' font-family="{FONT}" font-size="16">'
    )
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, HEAD_OF_ARROW, ground, *parts, "</svg>\n"])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(), encoding="utf-8")
