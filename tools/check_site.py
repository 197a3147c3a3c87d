"""Look at the built documentation: links that lead somewhere, pages that fit a telephone and a
desk, keys that move.

python tools/check_site.py docs/_build/html            # links
python tools/check_site.py docs/_build/html --look     # and pages, in a browser

Every link to a page of the site, and to a heading there, must be met. With ``--look``, which needs
chromium and chromedriver and depends on the fonts that are installed, some pages are also opened,
390 and 1280 pixels wide, light and dark: nothing may reach over the right edge unless it can be
scrolled, no name in a table, a heading or the side bar may be broken in two, text must stand out
from what is behind it, and what the Tab key reaches must show that it was reached. The search must
find names that papers give to methods, on the page that describes them.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, unquote, urlsplit

#: Pages that are opened: the ways in, the longest tables, a picture, a signature.
LOOKED_AT = (
    *(
        "index.html",
        "tutorial.html",
        "reproduction.html",
        "auto_examples/index.html",
        "api.html",
        "glossary.html",
    ),
    *(
        "generated/kernelmosaic.MKLClassifierCV.html",
        "generated/kernelmosaic.LocalizedBayesianMKLClassifier.html",
    ),
)
#: Names in papers, and a page that the search must have among its first results.
SEARCHES = {
    "MC-MKL": "multiclass.html",
    "LMKL": "localized.html",
    "EasyMKL": "convex.html",
    "banded ridge": "himalaya.html",
}
FIRST = 5
WIDTHS = (390, 1280)
#: Presses of the Tab key, and the least contrast of text (WCAG 2.2, level AA, for large text and
#: code).
TABS, CONTRAST = 25, 3.0

OVERFLOWING = """
const edge = document.documentElement.clientWidth + 1;
const page = e => !e || e.matches('main, .bd-main, .bd-content, .bd-article-container, body, html');
const scrolls = e => !page(e) && (/auto|scroll/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
const range = document.createRange();
const words = document.createTreeWalker(document.querySelector('main') || document.body, NodeFilter.SHOW_TEXT);
const found = [];
for (let node; (node = words.nextNode());) {
  range.selectNodeContents(node);
  if (node.data.trim() && range.getBoundingClientRect().right > edge && !scrolls(node.parentElement))
    found.push(node.data.trim().slice(0, 40));
}
for (const e of document.querySelectorAll('main img, main svg, main table'))
  if (e.getBoundingClientRect().right > edge && !scrolls(e.parentElement)) found.push(e.tagName);
return found;
"""
#: Names that go on in the next line.
BROKEN = """
const range = document.createRange(), found = [];
for (const part of document.querySelectorAll('main :is(td, th, h1, h2, h3), .bd-sidebar-primary nav.bd-links')) {
  if (!part.getClientRects().length) continue;
  const words = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
  for (let node; (node = words.nextNode());)
    for (const name of node.data.matchAll(/[\\p{L}\\p{N}_]{2,}/gu)) {
      range.setStart(node, name.index);
      range.setEnd(node, name.index + name[0].length);
      const rows = new Set([...range.getClientRects()].filter(r => r.width).map(r => Math.round(r.top)));
      if (rows.size > 1) found.push(name[0]);
    }
}
return [...new Set(found)];
"""
FAINT = """
const parts = text => text.match(/[\\d.]+/g).map(Number);
const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = e => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor);
  if (c.length < 4 || c[3] > 0.9) return c; } return [255, 255, 255]; };
const found = [];
for (const e of document.querySelectorAll('main :is(p, li, td, th, h1, h2, code, pre span)')) {
  if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.getClientRects().length) continue;
  const [a, b] = [light(parts(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < arguments[0]) found.push(e.textContent.trim().slice(0, 40));
}
return found;
"""
#: Whether what has the focus looks otherwise than without it.
FOCUSED = """
const e = document.activeElement, near = [e, ...e.children];
if (e === document.body) return null;
for (let p = e.parentElement, i = 0; p && i < 4; p = p.parentElement, i++) near.push(p);
const look = () => near.map(n => getComputedStyle(n)).map(s =>
  [s.outlineStyle === 'none' ? '' : s.outline, s.boxShadow, s.backgroundColor, s.border]).join();
for (const a of document.getAnimations()) a.finish();
const focused = look(); e.blur();
for (const a of document.getAnimations()) a.finish();
const plain = look(); e.focus({focusVisible: true});
return [(e.getAttribute('aria-label') || e.textContent).trim().slice(0, 40), focused !== plain];
"""


class _Page(HTMLParser):
    """The anchors of a page, and what it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of a tag."""
        for key, value in attrs:
            if key in ("id", "name"):
                self.anchors.add(value or "")
            elif (key == "href" and tag in ("a", "link")) or (
                key == "src" and tag in ("img", "script")
            ):
                self.links.add(value or "")


def broken_links(site: Path) -> Iterator[str]:
    """Yield what refers to a file or an anchor that is not there."""
    files = [path.resolve() for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in files}
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.exists() or (
                anchor and target in pages and anchor not in pages[target].anchors
            ):
                yield f"{path.relative_to(site.resolve())}: {link} leads nowhere"


@contextmanager
def browser() -> Iterator[Any]:
    """Open a browser without a window; None where there is none."""
    binary = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    driver = shutil.which("chromedriver")
    if binary is None or driver is None or find_spec("selenium") is None:
        yield None
        return
    from selenium import webdriver

    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = binary
        # Without a sandbox, for containers that forbid one: the only pages it sees are ours.
        for flag in (
            "headless=new",
            "no-sandbox",
            "disable-gpu",
            "disable-dev-shm-usage",
            f"user-data-dir={profile}",
        ):
            options.add_argument(f"--{flag}")
        window = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            yield window
        finally:
            window.quit()


def faults(window: Any, page: Path) -> Iterator[str]:
    """Yield what is wrong with a page to look at, and by the keyboard."""
    from selenium.webdriver import ActionChains, Keys

    for width in WIDTHS:
        for scheme in ("light", "dark"):
            seen = f"{page.name}, {width} pixels, {scheme}"
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            window.execute_cdp_cmd(
                "Emulation.setEmulatedMedia", {"media": "", "features": features}
            )
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
            window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            window.get(page.resolve().as_uri())
            yield from (
                f"{seen}: {text!r} reaches over the edge"
                for text in window.execute_script(OVERFLOWING)
            )
            if scheme == "light":
                yield from (
                    f"{seen}: {text!r} is broken in two" for text in window.execute_script(BROKEN)
                )
            yield from (
                f"{seen}: {text!r} is hard to see"
                for text in window.execute_script(FAINT, CONTRAST)
            )
            for _ in range(TABS if scheme == "light" else 0):
                ActionChains(window).send_keys(Keys.TAB).perform()
                reached = window.execute_script(FOCUSED)
                if reached is None:
                    break
                if not reached[1]:
                    yield f"{seen}: the focus on {reached[0]!r} cannot be seen"


def not_found(window: Any, site: Path, searches: dict[str, str]) -> Iterator[str]:
    """Yield what the search of the site does not lead to, among its first results."""
    from selenium.webdriver.support.wait import WebDriverWait

    results = "return [...document.querySelectorAll('#search-results li a')].map(a => a.href)"
    done = (
        "return document.querySelector('#search-results .search-summary')?.innerText.match(/\\d|not"
        " match/)"
    )

    def finished(one: Any) -> Any:
        return one.execute_script(done)

    for words, page in searches.items():
        window.get(f"{(site / 'search.html').resolve().as_uri()}?q={quote(words)}")
        WebDriverWait(window, 20).until(finished)
        first = [Path(urlsplit(link).path).name for link in window.execute_script(results)[:FIRST]]
        if page not in first:
            yield f"search.html: {words!r} leads to {first}, not to {page}"


def main() -> int:
    """Print what is wrong, and return whether anything is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("site", type=Path)
    parser.add_argument("--look", action="store_true", help="open pages in a browser")
    chosen = parser.parse_args()
    found = list(broken_links(chosen.site))
    if chosen.look:
        with browser() as window:
            if window is None:
                found.append("No browser was found: install chromium, chromedriver and selenium.")
            else:
                found += [
                    fault for name in LOOKED_AT for fault in faults(window, chosen.site / name)
                ]
                found += not_found(window, chosen.site, SEARCHES)
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
