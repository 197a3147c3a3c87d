"""Reports: HTML pages that need no other file and no network."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from string import Template
from typing import Any

from kernelmosaic import __version__
from kernelmosaic.files import write_text


@dataclass(frozen=True)
class Cell:
    """A table's cell with a colour.

    Parameters
    ----------
    text : str or number
    tone : {"", "good", "warn", "bad"}
        Its colour, and a sign for those who do not see it.
    """

    text: Any
    tone: str = ""


class Page:
    """A page, written from top to bottom. Every text is escaped.

    Parameters
    ----------
    title : str
        The page's title and first heading.
    lead : str, default=""
        The paragraph under it.
    wide : bool, default=False
        Whether large screens give tables more room.

    Examples
    --------
    >>> page = Page("Weights", "Which kernels were chosen.")
    >>> page.heading("Kernels")
    >>> weights = [("linear", 0.25), ("gaussian", 0.75)]
    >>> page.table("Weight of each kernel.", ("kernel", "weight"), weights)
    >>> "gaussian" in page.html()
    True
    """

    def __init__(self, title: str, lead: str = "", wide: bool = False) -> None:
        self.title = title
        self.lead = lead
        self.wide = wide
        self._parts: list[str] = []
        self._headings: list[str] = []
        self._needs_script = False

    def heading(self, text: str, short: str = "") -> None:
        """Begin a section; `short` is what the list of contents calls it."""
        self._headings.append(short or text)
        self._parts.append(f'<h2 id="s{len(self._headings)}">{_text(text)}</h2>')

    def paragraph(self, text: str) -> None:
        """Add a paragraph; what stands between backticks is set as code."""
        self._parts.append(f"<p>{_with_code(text)}</p>")

    def bullets(self, items: Iterable[str]) -> None:
        """Add a list, its items as paragraphs."""
        self._parts.append(
            "<ul>" + "".join(f"<li>{_with_code(item)}</li>" for item in items) + "</ul>"
        )

    def table(
        self,
        caption: str,
        head: Sequence[str],
        rows: Sequence[Any],
        searchable: bool = False,
        folded: str = "",
    ) -> None:
        """Add a table.

        Parameters
        ----------
        caption : str
            Read before the table: what its rows and figures are.
        head : sequence of str
            Names of the columns.
        rows : sequence of sequences
            Texts, numbers, `Cell` or None for nothing; the first cell names the row. Columns of
            figures stand to the right.
        searchable : bool, default=False
            Whether a box above the table filters its rows.
        folded : str, default=""
            A line to click on that unfolds the table; paper shows it unfolded. Empty: always shown.
        """
        self._needs_script = self._needs_script or searchable or bool(folded)
        name, n = f"t{len(self._parts)}", len(rows)
        box = (
            '<p class="filter"><label>Show rows with <input type="search" aria-label="Filter rows:'
            f' {escape(caption)}"></label> <output aria-live="polite">{n} of {n}</output></p>\n'
        )
        whole = (
            f'<div class="table"><p class="caption" id="{name}">{_with_code(caption)}</p>\n'
            f"{box if searchable else ''}"
            f'<div class="scroll" role="region" aria-labelledby="{name}" tabindex="0">\n'
            f"{_table(head, rows, name)}\n</div></div>"
        )
        if folded:
            whole = f"<details><summary>{_text(folded)}</summary>\n{whole}\n</details>"
        self._parts.append(whole)

    def figure(self, figure: Any, alt: str, caption: str = "") -> None:
        """Add a picture.

        Parameters
        ----------
        figure : matplotlib Figure, bytes or str
            A figure (or anything with ``savefig``, or a display with ``figure_``), the bytes of a
            PNG or the text of an SVG.
        alt : str
            What it shows, for those who do not see it.
        caption : str, default=""
        """
        kind, data = _image(figure)
        source = f"data:image/{kind};base64,{b64encode(data).decode('ascii')}"
        below = f"<figcaption>{_with_code(caption)}</figcaption>" if caption else ""
        image = f'<img alt="{escape(alt)}" src="{source}">'
        self._parts.append(f'<div class="picture"><figure>{image}{below}</figure></div>')

    def html(self) -> str:
        """Return the page's text."""
        shell, script = (
            files("kernelmosaic").joinpath(f"report.{kind}").read_text("utf-8")
            for kind in ("html", "js")
        )
        links = (
            f'<li><a href="#s{i}">{_text(text)}</a></li>'
            for i, text in enumerate(self._headings, start=1)
        )
        contents = f'<nav aria-label="Contents"><ul>{"".join(links)}</ul></nav>'
        return Template(shell).substitute(
            title=_text(self.title),
            width="80rem" if self.wide else "60rem",
            lead=f'<p class="lead">{_with_code(self.lead)}</p>' if self.lead else "",
            contents=contents if len(self._headings) >= 4 else "",
            body="\n".join(self._parts),
            script=f"<script>\n{script}</script>\n" if self._needs_script else "",
            version=_text(__version__),
        )

    def write(self, path: str | Path) -> Path:
        """Write the page to a file, whole or not at all."""
        return write_text(path, self.html())


def _text(value: object) -> str:
    return escape(str(value), quote=False)


def _with_code(text: str) -> str:
    plain, *rest = _text(text).split("`")
    if len(rest) % 2:  # a backtick without a partner is one
        return _text(text)
    fitted = (
        f"<code>{code}</code>{after}" for code, after in zip(rest[::2], rest[1::2], strict=True)
    )
    return plain + "".join(fitted)


def _table(head: Sequence[str], given: Sequence[Sequence[Any]], name: str) -> str:
    """The table called by the element of this name; narrow screens show a row of many and long
    cells cell by cell."""
    rows = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in given]
    columns: Any = zip(*rows, strict=True) if rows else [()] * len(head)
    figures = [_is_figures([cell.text for cell in column]) for column in columns]
    is_long = len(head) > 3 and any(len(str(cell.text)) > 20 for row in rows for cell in row[1:])
    heads = [f' data-head="{escape(text)}"' if is_long and text else "" for text in head]
    names = "".join(
        f'<th scope="col"{_classes("n" if n else "")}>{_text(t)}</th>'
        for n, t in zip(figures, head, strict=True)
    )
    body = "\n".join(
        "<tr>" + "".join(_cell(c, j, figures[j], heads[j]) for j, c in enumerate(row)) + "</tr>"
        for row in rows
    )
    return (
        f'<table{_classes("long" if is_long else "")} aria-labelledby="{name}">\n'
        f"<thead><tr>{names}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    )


def _cell(cell: Cell, column: int, is_figure: bool, head: str) -> str:
    nothing = cell.text is None or cell.text == ""
    text = "–" if nothing else _text(cell.text)
    attributes = _classes("n" if is_figure else "", cell.tone) + head
    if column > 0:
        return f"<td{attributes}>{text}</td>"
    # Where a line may end: a narrow screen breaks the name of a kernel before its width.
    text = re.sub(r"(?<=\S)\(", "<wbr>(", text)
    return f'<th scope="row"{attributes}>{text}</th>'


def _classes(*names: str) -> str:
    used = " ".join(filter(None, names))
    return f' class="{escape(used)}"' if used else ""


def _is_figures(cells: list[Any]) -> bool:
    """Whether a column holds figures, in every cell that is not empty."""
    texts = [str(cell) for cell in cells if cell is not None and cell not in ("", "–")]
    # A figure begins as numbers do and has no words; units and powers are short.
    number = r"[-−+±<>≤≥≈~]?\s*\.?\d(?!.*[^\W\d_]{3})"
    return bool(texts) and all(re.match(number, text) for text in texts)


def _image(figure: Any) -> tuple[str, bytes]:
    if isinstance(figure, bytes):
        return "png", figure
    if isinstance(figure, str):
        return "svg+xml", figure.encode("utf-8")
    drawn, buffer = getattr(figure, "figure_", figure), BytesIO()
    drawn.savefig(buffer, format="png", dpi=140, facecolor="white")
    if drawn is not figure:
        import matplotlib.pyplot as plt

        plt.close(drawn)  # a display's figure, which pyplot would keep
    return "png", buffer.getvalue()
