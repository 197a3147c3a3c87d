"""Reports: HTML pages that need no other file and no network."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from string import Template
from typing import Any

from kernelmosaic import __version__
from kernelmosaic.files import write_text

# What stands around every report --------------------------------------------------------------------------------------

SHELL = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="kernelmosaic $version">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --soft: #57606a; --line: #d0d7de; --band: #f6f8fa;
  --link: #0550ae; --good: #116329; --warn: #7d4e00; --bad: #a40e26; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --soft: #9da7b3; --line: #30363d; --band: #161b22;
    --link: #79c0ff; --good: #56d364; --warn: #e3b341; --bad: #ff9492; }
}
* { box-sizing: border-box; }
body { font: 1rem/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: $width; margin: 0 auto; padding: 1rem 1.25rem 3rem; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 1rem 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; padding-top: .4rem; border-top: 1px solid var(--line); }
p, li { max-width: 46rem; }
.lead { font-size: 1.08rem; }
a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; margin: .8rem 0; }
code, pre { font: .92em/1.5 ui-monospace, monospace; background: var(--band); border-radius: 4px; }
code { padding: .1em .3em; overflow-wrap: anywhere; }
pre { padding: .7rem .9rem; border: 1px solid var(--line); }
pre code { padding: 0; background: none; overflow-wrap: normal; }
.scroll { overflow-x: auto; }
.table { margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .5rem;
  max-width: min(46rem, calc(100vw - 2.5rem)); }
th, td { padding: .32rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
thead th { white-space: nowrap; border-bottom: 2px solid var(--soft); vertical-align: bottom; }
tbody th { font-weight: normal; }
tbody tr:nth-child(even) { background: var(--band); }
.n { text-align: right; white-space: nowrap; }
.good, .warn, .bad { white-space: nowrap; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
.good::before { content: "✓ "; } .warn::before { content: "! "; } .bad::before { content: "✗ "; }
summary { cursor: pointer; color: var(--link); padding: .2rem 0; }
.filter { margin: .3rem 0; color: var(--soft); }
.filter input { font: inherit; padding: .25rem .5rem; width: 14rem; max-width: 100%; color: var(--ink);
  background: var(--paper); border: 1px solid var(--soft); border-radius: 4px; }
.pictures { display: grid; gap: 1.2rem; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); }
.picture { max-width: 46rem; margin: 1rem 0; }
figure { margin: 0; }
figcaption { color: var(--soft); font-size: .93rem; }
img { width: 100%; height: auto; background: white; border-radius: 4px; }
.picture img { width: auto; max-width: 100%; }
footer { margin-top: 2.5rem; border-top: 1px solid var(--line); color: var(--soft); font-size: .9rem; }
@media screen and (max-width: 40rem) { table { font-size: .92rem; } th, td { padding: .3rem .45rem; } }
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --soft: #333; --line: #999; --band: #fff; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .filter, nav { display: none; }
  .scroll { overflow: visible; }
  tr, figure { break-inside: avoid; }
  h2 { break-after: avoid; }
}
</style>
</head>
<body>
<header><h1>$title</h1>
$lead
$contents</header>
<main>
$body
</main>
<footer><p>Made by kernelmosaic $version.</p></footer>
$script</body>
</html>
""")

FILTER_SCRIPT = """<script>
for (const box of document.querySelectorAll(".filter input")) {
  const table = box.closest(".table"), count = table.querySelector("output");
  const rows = [...table.querySelectorAll("tbody tr")];
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.value = `${shown} of ${rows.length}`;
  });
}
</script>
"""

FOLD_SCRIPT = """<script>
const folds = () => document.querySelectorAll("details");
addEventListener("beforeprint", () => {
  for (const fold of folds()) { fold.dataset.was = fold.open; fold.open = true; }
});
addEventListener("afterprint", () => { for (const fold of folds()) fold.open = fold.dataset.was === "true"; });
</script>
"""


# The page -------------------------------------------------------------------------------------------------------------

#: From this many headings on, a page begins with a list of them.
_HEADINGS_TO_LIST = 4
#: A figure begins as numbers do and has no words; units and powers are short.
_NUMBER = re.compile(r"[-−+±<>≤≥≈~]?\s*\.?\d(?!.*[^\W\d_]{3})")
_PNG = b"\x89PNG"


@dataclass(frozen=True)
class Cell:
    """A table's cell that says more than its text.

    Parameters
    ----------
    text : str or number
    tone : {"", "good", "warn", "bad"}
        Its colour, and a sign for those who do not see it.
    """

    text: Any
    tone: str = ""


@dataclass(frozen=True)
class Table:
    """What a page's table shows.

    Parameters
    ----------
    caption : str
        Read before the table: what its rows and figures are.
    head : sequence of str
        Names of the columns.
    rows : sequence of sequences
        Texts, numbers, `Cell` or None for nothing; the first cell names the row. Columns of figures stand to the right.
    searchable : bool, default=False
        Whether a box above the table filters its rows.
    folded : str, default=""
        A line to click on that unfolds the table; paper shows it unfolded. Empty: always shown.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    searchable: bool = False
    folded: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure and what it shows.

    Parameters
    ----------
    figure : matplotlib Figure, bytes or str
        A figure (or anything with ``savefig``, or a display with ``figure_``), the bytes of a PNG or the text of an
        SVG.
    alt : str
        What it shows, for those who do not see it.
    caption : str, default=""
    """

    figure: Any
    alt: str
    caption: str = ""


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
    >>> page.table(Table("Weight of each kernel.", ("kernel", "weight"), [("linear", 0.25), ("gaussian", 0.75)]))
    >>> "gaussian" in page.html()
    True
    """

    def __init__(self, title: str, lead: str = "", wide: bool = False) -> None:
        self.title = title
        self.lead = lead
        self.wide = wide
        self._parts: list[str] = []
        self._headings: list[str] = []
        self._has_filter = self._has_folds = False

    def heading(self, text: str, short: str = "") -> None:
        """Begin a section; `short` is what the list of contents calls it."""
        self._headings.append(short or text)
        self._parts.append(f'<h2 id="s{len(self._headings)}">{_text(text)}</h2>')

    def paragraph(self, text: str) -> None:
        """Add a paragraph; what stands between backticks is set as code."""
        self._parts.append(f"<p>{_with_code(text)}</p>")

    def bullets(self, items: Iterable[str]) -> None:
        """Add a list, its items as paragraphs."""
        self._parts.append("<ul>" + "".join(f"<li>{_with_code(item)}</li>" for item in items) + "</ul>")

    def code(self, text: str) -> None:
        """Add lines to be copied."""
        self._parts.append(f'<pre class="scroll" tabindex="0"><code>{_text(text)}</code></pre>')

    def table(self, table: Table) -> None:
        """Add a table."""
        self._has_filter = self._has_filter or table.searchable
        label = escape(table.caption)
        box = (
            f'<p class="filter"><label>Show rows with <input type="search" aria-label="Filter rows: {label}"></label> '
            f'<output aria-live="polite">{len(table.rows)} of {len(table.rows)}</output></p>'
        )
        whole = (
            f'<div class="table">{box if table.searchable else ""}\n'
            f'<div class="scroll" role="region" aria-label="{label}" tabindex="0">\n{_table(table)}\n</div></div>'
        )
        if table.folded:
            self._has_folds = True
            whole = f"<details><summary>{_text(table.folded)}</summary>\n{whole}\n</details>"
        self._parts.append(whole)

    def figure(self, figure: Any, alt: str, caption: str = "") -> None:
        """Add one picture; see `Picture`."""
        self._parts.append(f'<div class="picture">{_picture(Picture(figure, alt, caption))}</div>')

    def figures(self, pictures: Iterable[Picture]) -> None:
        """Add pictures side by side, as many in a line as there is room for."""
        self._parts.append('<div class="pictures">\n' + "\n".join(map(_picture, pictures)) + "\n</div>")

    def html(self) -> str:
        """Return the page's text."""
        return SHELL.substitute(
            title=_text(self.title),
            width="80rem" if self.wide else "60rem",
            lead=f'<p class="lead">{_with_code(self.lead)}</p>' if self.lead else "",
            contents=self._contents(),
            body="\n".join(self._parts),
            script=FILTER_SCRIPT * self._has_filter + FOLD_SCRIPT * self._has_folds,
            version=_text(__version__),
        )

    def write(self, path: str | Path) -> Path:
        """Write the page to a file, whole or not at all."""
        return write_text(path, self.html())

    def _contents(self) -> str:
        if len(self._headings) < _HEADINGS_TO_LIST:
            return ""
        links = (f'<li><a href="#s{i}">{_text(text)}</a></li>' for i, text in enumerate(self._headings, start=1))
        return f'<nav aria-label="Contents"><ul>{"".join(links)}</ul></nav>'


def _text(value: Any) -> str:
    return escape(str(value), quote=False)


def _with_code(text: str) -> str:
    plain, *rest = _text(text).split("`")
    if len(rest) % 2:  # a backtick without a partner is one
        return _text(text)
    fitted = (f"<code>{code}</code>{after}" for code, after in zip(rest[::2], rest[1::2], strict=True))
    return plain + "".join(fitted)


def _table(table: Table) -> str:
    width = len(table.head)
    for row in table.rows:
        if len(row) != width:
            raise ValueError(f"rows: {tuple(row)!r} has {len(row)} cells, but the head has {width}.")
    rows = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in table.rows]
    figures = [_is_figures([row[j].text for row in rows]) for j in range(width)]
    head = "".join(
        f'<th scope="col"{_classes("n" if n else "")}>{_text(t)}</th>' for n, t in zip(figures, table.head, strict=True)
    )
    body = "\n".join("<tr>" + "".join(_cell(c, j, figures[j]) for j, c in enumerate(row)) + "</tr>" for row in rows)
    return (
        f"<table>\n<caption>{_with_code(table.caption)}</caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    )


def _cell(cell: Cell, column: int, is_figure: bool) -> str:
    nothing = cell.text is None or cell.text == ""
    text = "–" if nothing else _text(cell.text)
    classes = _classes("n" if is_figure else "", cell.tone)
    return f'<th scope="row"{classes}>{text}</th>' if column == 0 else f"<td{classes}>{text}</td>"


def _classes(*names: str) -> str:
    used = " ".join(filter(None, names))
    return f' class="{escape(used)}"' if used else ""


def _is_figures(cells: list[Any]) -> bool:
    """Whether a column holds figures, in every cell that is not empty."""
    texts = [str(cell) for cell in cells if cell is not None and cell not in ("", "–")]
    return bool(texts) and all(_NUMBER.match(text) for text in texts)


def _picture(picture: Picture) -> str:
    kind, data = _image(picture.figure)
    source = f"data:image/{kind};base64,{b64encode(data).decode('ascii')}"
    caption = f"<figcaption>{_with_code(picture.caption)}</figcaption>" if picture.caption else ""
    return f'<figure><img alt="{escape(picture.alt)}" src="{source}">{caption}</figure>'


def _image(figure: Any) -> tuple[str, bytes]:
    if isinstance(figure, bytes):
        if not figure.startswith(_PNG):
            raise ValueError("figure: these bytes are not a PNG; give one, the text of an SVG or a matplotlib Figure.")
        return "png", figure
    if isinstance(figure, str):
        if "<svg" not in figure:
            raise ValueError("figure: this text is not an SVG; give one, the bytes of a PNG or a matplotlib Figure.")
        return "svg+xml", figure.encode("utf-8")
    drawn = getattr(figure, "figure_", figure)
    if not hasattr(drawn, "savefig"):
        raise TypeError(f"figure={figure!r}: give a matplotlib Figure, the bytes of a PNG or the text of an SVG.")
    buffer = BytesIO()
    drawn.savefig(buffer, format="png", dpi=140, facecolor="white")
    return "png", buffer.getvalue()
