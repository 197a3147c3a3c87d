"""The page of the studies is what their committed tables say; and what a stopped run leaves is read
again."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (TOP / "studies").glob("[a-z]*.py") if path.stem != "common")


@pytest.fixture
def study(monkeypatch):
    """Import a script as `python studies/NAME.py` does, its folder being the first to look in."""
    monkeypatch.syspath_prepend(str(TOP / "studies"))
    for name in ("common", "_rivals", "_contest", *NAMES):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_what_the_tables_say(study, name):
    module, common = study(name), study("common")
    text = module.page()
    written = common.page_of(name).read_text(encoding="utf-8")
    assert written == common.head_of(name) + text, f"python studies/{name}.py --page makes it anew"
    assert common.overview_cells(name) == module.summary(), (
        f"python studies/{name}.py --page makes it anew"
    )
    if not (
        common.TABLES / f"{name}.csv"
    ).exists():  # not run yet: the page has the protocol, and says so
        assert "No figures yet" in text
        return
    picture = TOP / "docs" / "images" / module.PICTURE
    assert f"](../images/{module.PICTURE})" in text
    assert picture.stat().st_size < 200_000


def test_pages_are_short(study):
    """Words, tables included without their bars; what is longer belongs into the csv files."""
    common = study("common")

    def count(path):
        return sum(
            any(c.isalnum() for c in word) for word in path.read_text(encoding="utf-8").split()
        )

    words, overview = {name: count(common.page_of(name)) for name in NAMES}, count(common.OVERVIEW)
    assert {name: number for name, number in words.items() if not 300 <= number <= 1200} == {}
    assert overview <= 1200
    assert overview + sum(words.values()) <= 12_000


def test_a_page_is_written_with_its_line_of_the_overview(study, tmp_path):
    common, overview = study("common"), tmp_path / "studies.md"
    (tmp_path / "studies").mkdir()
    before = "# All\n\n| problem | ours | other | verdict |\n| --- | --- | --- | --- |\n"
    lines = (
        "| [One of *n*](studies/one.md) | 1 | 2 | worse |\n| [Two](studies/two.md) |  |  | "
        " |\nmore\n"
    )
    overview.write_text(before + lines, encoding="utf-8")
    assert common.overview_cells("one", overview) == ("1", "2", "worse")
    assert common.overview_cells("two", overview) == ("", "", "")
    common.write_page("two", "# Two\n", ("0.5", "not run yet", ""), overview)
    assert common.overview_cells("two", overview) == ("0.5", "not run yet", "")
    changed = lines.replace("two.md) |  |  |  |", "two.md) | 0.5 | not run yet |  |")
    assert overview.read_text(encoding="utf-8") == before + changed
    assert (
        common.page_of("two", overview).read_text(encoding="utf-8")
        == common.head_of("two") + "# Two\n"
    )


def test_a_stopped_run_goes_on_where_it_was(study, tmp_path):
    Store = study("common").Store
    store = Store(str(tmp_path), "some")
    store.add("a", {"figure": 1.5})
    store.add("b", [2])
    with store.path.open("a", encoding="utf-8") as file:
        file.write('\n{"unit": "c", "fou')
    again = Store(str(tmp_path), "some")
    assert again.units == {"a": {"figure": 1.5}, "b": [2]}
    assert again.missing(["a", "b", "c"]) == ["c"]
    again.add("c", 3)
    assert Store(str(tmp_path), "some").units == {"a": {"figure": 1.5}, "b": [2], "c": 3}


def test_a_missing_folder_is_named(study, monkeypatch, tmp_path):
    data_file = study("common").data_file
    monkeypatch.delenv("KERNELMOSAIC_DATA", raising=False)
    with pytest.raises(
        SystemExit, match="--data FOLDER or the environment variable KERNELMOSAIC_DATA"
    ):
        data_file(None, "some.npz")
    with pytest.raises(SystemExit, match=r"some\.npz does not exist"):
        data_file(str(tmp_path), "some.npz")


def test_rows_of_a_table_are_replaced_by_those_of_equal_keys(study, monkeypatch, tmp_path):
    common = study("common")
    monkeypatch.setattr(common, "TABLES", tmp_path)
    common.update_table(
        "some",
        [{"set": "a", "n": 1, "error": "0.1"}, {"set": "b", "n": 1, "error": "0.2"}],
        ("set", "n"),
    )
    common.update_table(
        "some",
        [{"set": "a", "n": 1, "error": "0.3"}, {"set": "a", "n": 2, "error": "0.4"}],
        ("set", "n"),
    )
    assert common.read_table("some") == [
        {"set": "b", "n": 1.0, "error": 0.2},
        {"set": "a", "n": 1.0, "error": 0.3},
        {"set": "a", "n": 2.0, "error": 0.4},
    ]
