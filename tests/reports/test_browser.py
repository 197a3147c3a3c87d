"""A report in a real browser: nothing fetched, nothing broken, filters that filter, fit for phones
and paper."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

from selenium.webdriver import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402
from tests.reproduction.toy import gaussians  # noqa: E402

from kernelmosaic.reports import Page  # noqa: E402
from reproduction import FULL, Settings, run_experiments  # noqa: E402
from reproduction.page import make_page  # noqa: E402
from reproduction.reading import read_run  # noqa: E402

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SELECT_ALL = Keys.CONTROL + "a" + Keys.NULL
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="no chromium with chromedriver was found"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    toy = gaussians(40)
    run_experiments([toy], folder, Settings(0, FULL))
    return make_page(read_run(folder, {toy.name: toy})).write(folder / "report.html")


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    # Without a sandbox, for containers that forbid one: the only page it sees is ours.
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def shown(browser, page) -> Any:
    """The page, freshly loaded on a large screen."""
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    resize(browser, 1200)
    browser.get_log("performance")
    browser.get_log("browser")
    browser.get(page.as_uri())
    return browser


def resize(browser: Any, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def test_nothing_is_fetched_and_nothing_complains(shown):
    messages = [json.loads(entry["message"])["message"] for entry in shown.get_log("performance")]
    asked = [
        one["params"]["request"]["url"]
        for one in messages
        if one["method"] == "Network.requestWillBeSent"
    ]
    assert any(url.startswith("file:") for url in asked)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert [entry["message"] for entry in shown.get_log("browser")] == []
    broken = (
        "return [...document.images].filter((one) => !one.complete || one.naturalWidth ==="
        " 0).length"
    )
    assert shown.execute_script(broken) == 0
    assert shown.execute_script("return document.images.length") > 0


def test_the_box_filters_rows(shown):
    box = shown.find_element("css selector", ".filter input")
    table = "document.querySelector('.filter').closest('.table')"
    visible = (
        f"return [...{table}.querySelectorAll('tbody tr')].filter((row) =>"
        " row.checkVisibility()).length"
    )
    everything = shown.execute_script(visible)
    box.send_keys("bilinear FASTEST")
    assert shown.execute_script(visible) == 1 < everything
    assert shown.find_element("css selector", ".filter output").text == f"1 of {everything}"
    box.send_keys(SELECT_ALL, "no such row")
    assert shown.execute_script(visible) == 0
    box.send_keys(SELECT_ALL, Keys.BACKSPACE)
    assert shown.execute_script(visible) == everything


@pytest.mark.parametrize("width", [320, 390, 768, 1200])
def test_the_page_never_scrolls_sideways(shown, width):
    resize(shown, width)
    reach = shown.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert reach[0] <= reach[1] == width


def test_paper_shows_folded_tables_and_no_controls(shown):
    folds = "return [...document.querySelectorAll('details')].map((one) => one.open)"
    assert shown.execute_script("return document.querySelectorAll('details').length") > 0
    assert not any(shown.execute_script(folds))
    shown.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert all(shown.execute_script(folds))
    shown.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert not any(shown.execute_script(folds))
    shown.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    for name in (".filter", "nav"):
        style = f"return getComputedStyle(document.querySelector('{name}')).display"
        assert shown.execute_script(style) == "none"
    shown.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    pdf = base64.b64decode(shown.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert pdf.startswith(b"%PDF")


BROKEN = """
const broken = [];
for (const cell of document.querySelectorAll("td, tbody th")) {
  for (const word of cell.textContent.matchAll(/[^\\s-]+/g)) {
    const range = document.createRange();
    range.setStart(cell.firstChild, word.index);
    range.setEnd(cell.firstChild, word.index + word[0].length);
    if (range.getClientRects().length > 1) broken.push(word[0]);
  }
}
return broken;
"""


def test_a_phone_shows_whole_words_and_whole_tables(browser, tmp_path):
    page = Page("Phone")
    view = [
        "protein",
        "proteins.csv",
        "protein.protein_0, protein.protein_1 … (8 in all)",
        "8 rows",
    ]
    page.table("Views.", ("view", "file", "columns", "lacked by"), [view])
    said = "rna:linear -0.383, clinical:laplace(0.5*median) +0.03, rna:gauss +0.0245"
    head = ("row", "patient_id", "prediction", "decision", "largest contributions", "constant")
    page.table("Rows.", head, [["1", "p00", "sick", "-0.2415", said, "-0.06161"]])
    losses = [["expression", "57.7", "0.048", "15.6", "3.6", "27.5"]]
    page.table(
        "Lost.",
        ("view", "share %", "p", "accuracy lost without it, points", "95 % from", "to"),
        losses,
    )
    page.table(
        "A caption of many words is as wide as a paragraph is. " * 5, ("C", "score"), [["1", "2"]]
    )
    browser.get(page.write(tmp_path / "phone.html").as_uri())
    resize(browser, 400)
    assert browser.execute_script(BROKEN) == []
    widths = (
        "return [...document.querySelectorAll('.scroll')].map((one) => one.scrollWidth -"
        " one.clientWidth)"
    )
    assert browser.execute_script(widths)[:2] == [0, 0]
    breaks = (
        "return"
        " getComputedStyle(document.querySelectorAll('table')[2].querySelector('th.n')).whiteSpace"
    )
    assert (
        browser.execute_script(breaks) == "normal"
    )  # how wide the figures are depends on the font
    wide = "return [...document.querySelectorAll('.caption')].at(-1).clientWidth"
    assert browser.execute_script(wide) == 360
    resize(browser, 1200)
    assert browser.execute_script(wide) == 46 * 16


CONTRAST = """
const shine = (colour) => {
  const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255);
  const [r, g, b] = parts.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (one) => {
  const colour = getComputedStyle(one).backgroundColor;
  if (!/rgba\\(.*, 0\\)/.test(colour)) return colour;
  return one.parentElement ? behind(one.parentElement) : "rgb(255, 255, 255)";
};
return [...document.querySelectorAll("p, li, a, th, td, caption, summary, label, output, figcaption, code")]
  .map((one) => {
    const both = [shine(getComputedStyle(one).color), shine(behind(one))].sort((a, b) => b - a);
    return (both[0] + 0.05) / (both[1] + 0.05);
  })
  .reduce((least, one) => Math.min(least, one), 21);
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(shown, scheme):
    scheme = [{"name": "prefers-color-scheme", "value": scheme}]
    shown.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": scheme})
    assert shown.execute_script(CONTRAST) >= 4.5


def named_nodes(shown):
    """Return what the browser tells those who cannot see the page of its larger parts."""
    tree = shown.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named = {"searchbox", "image", "link", "table", "region", "navigation"}
    return [
        one for one in tree if not one.get("ignored") and one.get("role", {}).get("value") in named
    ]


def test_everything_has_a_name(shown):
    # On a busy machine the browser makes this tree some time after the page.
    nodes = WebDriverWait(shown, 20).until(named_nodes)
    assert {one["role"]["value"] for one in nodes} >= {"searchbox", "image", "link", "table"}
    assert [one["role"]["value"] for one in nodes if not one.get("name", {}).get("value")] == []
    assert shown.execute_script("return document.documentElement.lang") == "en"
