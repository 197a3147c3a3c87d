"""What `make docs` runs on the pages it built: it finds what is broken, and leaves alone what is
not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.check_site import SEARCHES, broken_links, browser, faults

GOOD = """<!doctype html><title>.</title><meta name="viewport" content="width=device-width">
<style>pre, div { overflow-x: auto } a:focus { outline: 3px solid red }</style>
<main><h1 id="top">Title</h1><pre>{long}</pre><div><table><tr><td>{long}</table></div><p><a href="#top">up</a></main>"""


@pytest.fixture(scope="module")
def window():
    with browser() as opened:
        if opened is None:
            pytest.skip("no chromium with chromedriver was found")
        yield opened


def test_links_to_files_and_headings_that_are_not_there(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "a.html").write_text(
        '<h1 id="x y"></h1><a href="b/c.html#z"></a><a href="#x%20y"></a><a'
        ' href="none.html"></a><img src="p.png"><a href="https://example.org/none"></a><a'
        ' href="b/c.html#no"></a><a href="mailto:a@b.org"></a>'
    )
    (tmp_path / "b" / "c.html").write_text(
        '<p id="z"></p><a href="../a.html"></a><a href="../a.html#none"></a>'
    )
    assert list(broken_links(tmp_path)) == [
        "a.html: b/c.html#no leads nowhere",
        "a.html: none.html leads nowhere",
        "a.html: p.png leads nowhere",
        "b/c.html: ../a.html#none leads nowhere",
    ]


def test_what_does_not_fit_is_faint_or_hides_the_focus(window, tmp_path):
    good = GOOD.replace("{long}", "word" * 200)
    bad = {
        "wide": good.replace("overflow-x: auto", ""),
        "signature": good.replace("</main>", f"<p>{'name=None,' * 40}</main>"),
        "faint": good.replace("<h1 ", '<h1 style="color: #bbb" '),
        "dark": good.replace(
            "<style>", "<style>@media (prefers-color-scheme: dark) { h1 { background: #333 } }"
        ),
        "focus": good.replace("outline: 3px solid red", "outline: none"),
        "broken": good.replace("<td>", '<td style="max-width: 9em; overflow-wrap: anywhere">'),
    }
    found = {}
    for name, page in {"good": good, **bad}.items():
        (tmp_path / f"{name}.html").write_text(page)
        found[name] = list(faults(window, tmp_path / f"{name}.html"))
    assert found["good"] == []
    words_of = {"wide": "over the edge", "signature": "over the edge", "focus": "cannot be seen"}
    for name, words in {**words_of, "broken": f"{'word' * 200!r} is broken in two"}.items():
        assert found[name]
        assert all(words in fault for fault in found[name]), found[name]
    assert [fault.split(": ")[0] for fault in found["faint"]] == [
        f"faint.html, {width} pixels, {scheme}"
        for width in (390, 1280)
        for scheme in ("light", "dark")
    ]
    assert found["dark"] == [
        f"dark.html, {width} pixels, dark: 'Title' is hard to see" for width in (390, 1280)
    ]


def test_names_in_papers_are_in_the_index_on_the_page_that_the_search_must_find():
    docs = Path(__file__).parents[1] / "docs"
    for name, page in SEARCHES.items():
        text = (docs / page).with_suffix(".md").read_text(encoding="utf-8")
        indexed = re.findall(r"^```\{index\} (.+)$", text, re.MULTILINE)
        assert any(f"! {name}" in line.split(", ") for line in indexed), name
        assert re.search(
            rf"^{name}$", (docs / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE
        ), name
