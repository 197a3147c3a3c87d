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

#: The fewest sections for which a page has a list of contents.
_LEAST_SECTIONS_OF_CONTENTS = 4

#: The fewest columns of a table, and the least length of a cell, in letters, with which a narrow
#: screen shows the rows cell by cell. Chosen by hand: such rows do not fit beside each other.
_LEAST_COLUMNS_OF_LONG_ROWS = 4
_LEAST_LETTERS_OF_LONG_CELLS = 21

#: The dots per inch of pictures, about two for each point. Chosen by hand.
_DOTS_PER_INCH = 140


@dataclass(frozen=True)
class Cell:
    """A cell of a table, with a colour.

    Parameters
    ----------
    text : str or number
    tone : {"", "good", "warn", "bad"}
        The colour, and a sign for readers who do not see colours.
    """

    text: Any
    tone: str = ""


class Page:
    """A page, written from top to bottom. Every text is escaped.

    Parameters
    ----------
    title : str
        The title and first heading of the page.
    lead : str, default=""
        The paragraph under the heading.
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
        """Begin a section; the list of contents calls it `short`, or by its text if empty."""
        self._headings.append(short or text)
        self._parts.append(f'<h2 id="s{len(self._headings)}">{_text(text)}</h2>')

    def paragraph(self, text: str) -> None:
        """Add a paragraph; texts between backticks are set as code."""
        self._parts.append(f"<p>{_with_code(text)}</p>")

    def bullets(self, items: Iterable[str]) -> None:
        """Add a list; texts between backticks are set as code."""
        lines = "".join(f"<li>{_with_code(item)}</li>" for item in items)
        self._parts.append(f"<ul>{lines}</ul>")

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
            What the rows and figures of the table are; it stands above the table.
        head : sequence of str
            Names of the columns.
        rows : sequence of sequences
            Cells: texts, numbers, `Cell`, or None for an empty one. The first cell names the row.
            Columns of figures are aligned to the right.
        searchable : bool, default=False
            Whether a box above the table filters its rows.
        folded : str, default=""
            A line to click on that unfolds the table; paper shows it unfolded. Empty: always shown.
        """
        if searchable or folded:
            self._needs_script = True
        name = f"t{len(self._parts)}"
        search_box = ""
        if searchable:
            n = len(rows)
            search_box = (
                '<p class="filter"><label>Show rows with <input type="search" aria-label="Filter'
                f' rows: {escape(caption)}"></label> <output aria-live="polite">{n} of {n}</output>'
                "</p>\n"
            )
        block = (
            f'<div class="table"><p class="caption" id="{name}">{_with_code(caption)}</p>\n'
            f"{search_box}"
            f'<div class="scroll" role="region" aria-labelledby="{name}" tabindex="0">\n'
            f"{_table(head, rows, name)}\n</div></div>"
        )
        if folded:
            block = f"<details><summary>{_text(folded)}</summary>\n{block}\n</details>"
        self._parts.append(block)

    def figure(self, figure: Any, alt: str, caption: str = "") -> None:
        """Add a picture.

        Parameters
        ----------
        figure : matplotlib Figure, bytes or str
            A figure (or anything with ``savefig``, or a display with ``figure_``), the bytes of a
            PNG or the text of an SVG.
        alt : str
            What the picture shows, for readers who do not see it.
        caption : str, default=""
        """
        kind, data = _image(figure)
        source = f"data:image/{kind};base64,{b64encode(data).decode('ascii')}"
        image = f'<img alt="{escape(alt)}" src="{source}">'
        caption_line = f"<figcaption>{_with_code(caption)}</figcaption>" if caption else ""
        self._parts.append(f'<div class="picture"><figure>{image}{caption_line}</figure></div>')

    def html(self) -> str:
        """Return the page as HTML, with everything it needs."""
        folder = files("kernelmosaic")
        shell = folder.joinpath("report.html").read_text("utf-8")
        contents = ""
        if len(self._headings) >= _LEAST_SECTIONS_OF_CONTENTS:
            links = "".join(
                f'<li><a href="#s{i}">{_text(heading)}</a></li>'
                for i, heading in enumerate(self._headings, start=1)
            )
            contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>'
        script = ""
        if self._needs_script:
            script = f"<script>\n{folder.joinpath('report.js').read_text('utf-8')}</script>\n"
        lead = ""
        if self.lead:
            lead = f'<p class="lead">{_with_code(self.lead)}</p>'
        return Template(shell).substitute(
            title=_text(self.title),
            width="80rem" if self.wide else "60rem",
            lead=lead,
            contents=contents,
            body="\n".join(self._parts),
            script=script,
            version=_text(__version__),
        )

    def write(self, path: str | Path) -> Path:
        """Write the page to a file, whole or not at all, and return the path."""
        return write_text(path, self.html())


def _text(value: object) -> str:
    """Return a value as text between tags."""
    return escape(str(value), quote=False)


def _with_code(text: str) -> str:
    """Return a text between tags, with the texts between backticks set as code."""
    parts = _text(text).split("`")
    if len(parts) % 2 == 0:  # an odd number of backticks, which are left as they are
        return _text(text)
    # Every second part stands between two backticks.
    parts[1::2] = [f"<code>{code}</code>" for code in parts[1::2]]
    return "".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]], name: str) -> str:
    """Return the table that is described by the element of the given name.

    If there are many columns and long cells, narrow screens show every row cell by cell: for that
    the cells carry the names of their columns.
    """
    cell_rows = [list(map(_as_cell, row)) for row in rows]
    columns: Any = [()] * len(head)
    if cell_rows:
        columns = zip(*cell_rows, strict=True)
    longest = 0
    for row in cell_rows:
        longest = max([longest, *(len(str(cell.text)) for cell in row[1:])])
    has_many_columns = len(head) >= _LEAST_COLUMNS_OF_LONG_ROWS
    is_long = has_many_columns and longest >= _LEAST_LETTERS_OF_LONG_CELLS

    head_cells = []
    head_attributes = []
    figure_classes = []
    for text, column in zip(head, columns, strict=True):
        figure_class = "n" if _holds_figures(column) else ""
        figure_classes.append(figure_class)
        head_cells.append(f'<th scope="col"{_class_attribute(figure_class)}>{_text(text)}</th>')
        head_attributes.append(f' data-head="{escape(text)}"' if is_long and text else "")
    lines = []
    for row in cell_rows:
        row_cells = [
            _cell(cell, j, figure_classes[j], head_attributes[j]) for j, cell in enumerate(row)
        ]
        lines.append(f"<tr>{''.join(row_cells)}</tr>")
    body = "\n".join(lines)
    table_class = "long" if is_long else ""
    return (
        f'<table{_class_attribute(table_class)} aria-labelledby="{name}">\n'
        f"<thead><tr>{''.join(head_cells)}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )


def _as_cell(value: Any) -> Cell:
    """Return a value as a cell without a colour; cells are returned unchanged."""
    return value if isinstance(value, Cell) else Cell(value)


def _cell(cell: Cell, column: int, figure_class: str, head_attribute: str) -> str:
    """Return a cell of a table; that of the first column names the row.

    Parameters
    ----------
    cell : Cell
    column : int
    figure_class : {"", "n"}
        The class of cells in columns of figures.
    head_attribute : str
        The attribute with the name of the column; empty if narrow screens show rows as rows.
    """
    is_empty = cell.text is None or cell.text == ""
    text = "–" if is_empty else _text(cell.text)
    attributes = _class_attribute(figure_class, cell.tone) + head_attribute
    if column > 0:
        return f"<td{attributes}>{text}</td>"
    # A line may end here: a narrow screen breaks the name of a kernel before its width.
    text = re.sub(r"(?<=\S)\(", "<wbr>(", text)
    return f'<th scope="row"{attributes}>{text}</th>'


def _class_attribute(*names: str) -> str:
    """Return the attribute with the class names that are not empty; empty without one."""
    classes = " ".join(filter(None, names))
    return f' class="{escape(classes)}"' if classes else ""


def _holds_figures(column: Iterable[Cell]) -> bool:
    """Return whether a column holds figures, in every cell that is not empty."""
    texts = [str(cell.text) for cell in column if cell.text not in (None, "", "–")]
    # A figure begins like a number and has no words; units and powers have less than three letters.
    number = r"[-−+±<>≤≥≈~]?\s*\.?\d(?!.*[^\W\d_]{3})"
    return bool(texts) and all(re.match(number, text) for text in texts)


def _image(figure: Any) -> tuple[str, bytes]:
    """Return the subtype of a picture's media type, as in ``image/png``, and its bytes.

    Bytes are those of a PNG, and a str is the text of an SVG. A figure, or that of a display, is
    saved as a PNG. pyplot would keep the figure of a display in memory, so that it is closed; a
    figure of the caller is left open.
    """
    if isinstance(figure, bytes):
        return "png", figure
    if isinstance(figure, str):
        return "svg+xml", figure.encode("utf-8")
    drawing = getattr(figure, "figure_", figure)
    buffer = BytesIO()
    drawing.savefig(buffer, format="png", dpi=_DOTS_PER_INCH, facecolor="white")
    if drawing is not figure:
        import matplotlib.pyplot as plt

        plt.close(drawing)
    return "png", buffer.getvalue()
