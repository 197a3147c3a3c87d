"""Pages that stand alone: everything escaped and closed, tables one can read aloud, pictures
inside."""

from __future__ import annotations

from base64 import b64decode
from html.parser import HTMLParser

import pytest

import kernelmosaic
from kernelmosaic.reports import Cell, Page

PNG = b64decode(
    b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><rect width="1" height="1"/></svg>'


class Reader(HTMLParser):
    """Elements in order, as (tag, attributes, text); insists that every element is closed."""

    VOID = frozenset({"meta", "img", "br", "input", "wbr"})

    def __init__(self, html):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        element = [tag, dict(attrs), ""]
        self.elements.append(element)
        if tag not in self.VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open:
            self.open[-1][2] += data

    def all(self, tag):
        return [(attributes, text) for name, attributes, text in self.elements if name == tag]


def page_with(*tables):
    page = Page("Title", "Lead.")
    for table in tables:
        page.table(*table)
    return Reader(page.html())


def test_the_shell():
    page = Reader(Page("A title", "What it is about.").html())
    assert page.all("h1")[0][1] == "A title"
    assert page.all("title")[0][1] == "A title"
    assert page.all("html")[0][0]["lang"] == "en"
    assert any(attributes.get("name") == "viewport" for attributes, _ in page.all("meta"))
    style = page.all("style")[0][1]
    assert "prefers-color-scheme: dark" in style
    assert "@media print" in style
    assert kernelmosaic.__version__ in page.all("footer")[0][1] + page.all("p")[-1][1]
    assert page.all("script") == []


def test_nothing_comes_from_elsewhere():
    page = Page("T")
    page.figure(PNG, "dot")
    page.table("c", ("a",), [("b",)], searchable=True)
    reader = Reader(page.html())
    links = [a.get(k) for _, a, _ in reader.elements for k in ("src", "href") if a.get(k)]
    assert all(link.startswith(("data:", "#")) for link in links)
    assert "url(" not in page.html()
    assert "@import" not in page.html()


NASTY = '<script>alert("1 & 2")</script>'


def caption(page):
    """The text of the element that the first table is called by."""
    name = page.all("table")[0][0]["aria-labelledby"]
    return next(text for attributes, text in page.all("p") if attributes.get("id") == name)


def test_every_text_is_escaped():
    page = Page(NASTY, NASTY)
    page.heading(NASTY)
    page.paragraph(NASTY + f" `{NASTY}`")
    page.bullets([NASTY])
    page.table(NASTY, (NASTY, NASTY), [(NASTY, Cell(NASTY, '"><b>'))])
    page.figure(PNG, NASTY, NASTY)
    reader = Reader(page.html())
    assert reader.all("script") == []
    assert reader.all("b") == []
    assert reader.all("img")[0][0]["alt"] == NASTY
    assert reader.all("h1")[0][1] == NASTY
    assert caption(reader) == NASTY
    assert reader.all("code")[0][1] == NASTY


def test_backticks_are_code_if_they_come_in_pairs():
    page = Page("T")
    page.paragraph("run `make` and `make test`")
    page.paragraph("one ` alone")
    reader = Reader(page.html())
    assert [text for _, text in reader.all("code")] == ["make", "make test"]
    assert reader.all("p")[1][1] == "one ` alone"


def test_tables_name_their_rows_and_columns():
    page = page_with(("What.", ("kernel", "weight"), [("linear", 0.25), ("gaussian", None)]))
    scopes = [attributes["scope"] for attributes, _ in page.all("th")]
    assert scopes == ["col", "col", "row", "row"]
    assert [text for _, text in page.all("td")] == ["0.25", "–"]
    assert caption(page) == "What."
    region = next(
        attributes for attributes, _ in page.all("div") if attributes.get("role") == "region"
    )
    name = page.all("table")[0][0]["aria-labelledby"]
    assert region == {"class": "scroll", "role": "region", "aria-labelledby": name, "tabindex": "0"}


@pytest.mark.parametrize(
    ("cells", "to_the_right"),
    [
        (["1", "2.5", "−3e-4"], True),
        (["12.1 %", "3 (4.5 %)", "0.1 to 0.2"], True),
        (["97.1 ± 0.3", None, "–"], True),
        ([1, 2.0, "3.5 ms"], True),
        (["700 rows", "3", "4"], False),
        (["yes", "3", "4"], False),
        ([None, "", "–"], False),
    ],
    ids=["numbers", "with units", "with gaps", "not texts", "sentences", "words", "nothing"],
)
def test_columns_of_figures_stand_to_the_right(cells, to_the_right):
    page = page_with(("c", ("name", "value"), [(f"row {i}", cell) for i, cell in enumerate(cells)]))
    classes = {attributes.get("class") for attributes, _ in page.all("td")}
    assert classes == ({"n"} if to_the_right else {None})
    assert page.all("th")[1][0].get("class") == ("n" if to_the_right else None)


def test_tones_are_classes_of_their_cells():
    page = page_with(
        ("c", ("name", "value"), [("a", Cell("0.5", "bad")), ("b", Cell("0.7", "good"))])
    )
    assert [attributes["class"] for attributes, _ in page.all("td")] == ["n bad", "n good"]


def test_rows_must_be_as_long_as_the_head():
    with pytest.raises(ValueError, match=r"shorter|longer"):
        Page("T").table("c", ("a", "b"), [("x",)])


def test_a_searchable_table_brings_the_box_and_one_script():
    table = ("c", ("a",), [("x",), ("y",)], True)
    page = page_with(table, table)
    assert len(page.all("input")) == 2
    assert len(page.all("script")) == 1
    assert page.all("output")[0][1] == "2 of 2"
    assert page.all("input")[0][0]["aria-label"]


def test_a_list_of_headings_appears_once_there_are_enough():
    page = Page("T")
    for i in range(3):
        page.heading(f"Part {i}")
    assert Reader(page.html()).all("nav") == []
    page.heading("Part 3")
    reader = Reader(page.html())
    ids = {attributes["id"] for attributes, _ in reader.all("h2")}
    assert {attributes["href"].removeprefix("#") for attributes, _ in reader.all("a")} == ids


def test_pictures_from_bytes_text_and_matplotlib():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1])
    page = Page("T")
    page.figure(PNG, "a")
    page.figure(SVG, "b", "A square.")
    page.figure(figure, "c")
    reader = Reader(page.html())
    kinds = [attributes["src"].partition(";")[0] for attributes, _ in reader.all("img")]
    assert kinds == ["data:image/png", "data:image/svg+xml", "data:image/png"]
    assert b64decode(reader.all("img")[0][0]["src"].partition(",")[2]) == PNG
    assert [text for _, text in reader.all("figcaption")] == ["A square."]


def test_writing_replaces_whole_files_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    link = tmp_path / "link.html"
    link.symlink_to(path)
    page = Page("New – with a dash")
    assert page.write(link) == link
    assert link.is_symlink()
    assert "New – with a dash" in path.read_text(encoding="utf-8")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.html", "page.html"]
