"""From a run folder to a page, to small files, and from these to the page of the documentation."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.reproduction.toy import gaussians, sleeping
from tests.sweeps import later

from reproduction import EXPERIMENTS, FULL, QUICK, Settings, pictures, run_experiments
from reproduction.__main__ import main
from reproduction.claims import judge
from reproduction.markdown import as_csv, long_tables, make_markdown, write_markdown
from reproduction.page import make_page
from reproduction.papers import by_name, missing_parts
from reproduction.pictures import Drawing, draw_pictures
from reproduction.reading import Result, Run, Work, keep_summaries, read_run
from reproduction.rows import Row, agreement, ours, read_rows, write_rows

TOP = Path(__file__).parents[2]
KEPT = TOP / "docs" / "reproduction"
TOYS = {one.name: one for one in (gaussians(60), sleeping())}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("run")
    run_experiments(list(TOYS.values()), path, Settings(3, FULL))
    return path


class Parts(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_rows_come_back_as_they_were_written(tmp_path):
    rows = [
        Row("set", "MKL", "kL-kP", "accuracy", 91.25, 0.5, 20, "C=10", (91.0, 91.5), 90.0, 1.5, 10),
        Row("set", "MKL", "kL-kP", "weight:kL", 0.3, None, 1, "", (), 0.5, None),
        Row("set", "MKL", "kL-kP", "seconds", 0.125),
    ]
    write_rows(rows, tmp_path / "x.csv")
    assert read_rows(tmp_path / "x.csv") == rows


def test_a_run_is_read_with_its_work(folder):
    run = read_run(folder, TOYS)
    assert [one.experiment.name for one in run.results] == list(TOYS)
    found = {row.metric for row in run.results[0].rows}
    assert found >= {"accuracy", "sv_percent", "total_cost", "F:accuracy", "wilcoxon:accuracy"}
    assert run.results[1].work.units == 12
    assert run.results[0].work.seconds > 0
    assert run.absent == []
    assert run.settings().seed == 3


def test_reading_leaves_a_torn_line_where_it_is(folder, tmp_path):
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    torn = copy / "toy-sleep.jsonl"
    torn.write_bytes(torn.read_bytes()[:-5])
    before = torn.read_bytes()
    assert read_run(copy, TOYS).results[1].work.units == 11
    assert torn.read_bytes() == before
    assert not list(copy.glob("*.damaged"))


def test_an_experiment_without_its_table_is_unfinished(folder, tmp_path):
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "toy-sleep.csv").unlink()
    run = read_run(copy, TOYS)
    assert list(run.unfinished) == ["toy-sleep"]
    assert "not finished" in make_page(run, drawings=()).html()


@pytest.mark.parametrize("content", [None, "{", "{}", '{"seed": 1, "scale": {"size": 3}}'])
def test_what_is_no_run_is_said(tmp_path, content):
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises((FileNotFoundError, ValueError), match=r"run\.json"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    "content", ["x,y\n1,2\n", "dataset,method,kernels,metric,mean\na,b,c,d,much\n"]
)
def test_a_damaged_table_is_said(tmp_path, content):
    path = tmp_path / "table.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"table\.csv is damaged"):
        read_rows(path)


def test_summaries_alone_give_the_same_account(folder, tmp_path):
    run = read_run(folder, TOYS)
    written = keep_summaries(run, tmp_path / "kept")
    assert {path.name for path in written} == {
        "run.json",
        "run.csv",
        "toy-gauss.csv",
        "toy-sleep.csv",
    }
    assert not list((tmp_path / "kept").glob("*.jsonl"))
    assert make_markdown(read_run(tmp_path / "kept", TOYS)) == make_markdown(run)
    with pytest.raises(ValueError, match="another folder"):
        keep_summaries(run, folder)


def test_an_account_written_again_keeps_what_stands_below_it(folder, tmp_path):
    run, path = read_run(folder, TOYS), tmp_path / "account.md"
    path.write_text("of another run\n", encoding="utf-8")
    assert write_markdown(run, path).read_text(encoding="utf-8") == make_markdown(run, "account")
    path.write_text(
        "old figures\n" + make_markdown(run).splitlines(keepends=True)[-1] + "\n## How to\n",
        encoding="utf-8",
    )
    assert (
        write_markdown(run, path).read_text(encoding="utf-8")
        == make_markdown(run, "account") + "\n## How to\n"
    )
    assert not (tmp_path / "account").exists()  # no table of a toy is long


def test_the_page_has_every_line_and_no_link_outside(folder):
    run = read_run(folder, TOYS)
    text = make_page(run).html()
    page = Parts(text)
    assert not re.search(r"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", text)
    assert all(link["href"].startswith("#") for link in page.all("a"))
    assert all(image["alt"] and image["src"].startswith("data:image/") for image in page.all("img"))
    assert {head["scope"] for head in page.all("th")} == {"row", "col"}
    captions = [one["id"] for one in page.all("p") if one.get("class") == "caption"]
    assert captions == [table["aria-labelledby"] for table in page.all("table")]
    rows = {
        (row.dataset, row.method, row.kernels): row
        for row in run.results[0].rows
        if row.metric == "accuracy"
    }
    for row in rows.values():
        assert f">{ours(row)}</td>" in text
    assert "<details><summary>More: kernels used, cost" not in text  # costs stand in the main table
    assert "<details><summary>More: kernels used, seconds</summary>" in text
    assert "5×2 cv F test" in text
    assert "both sets" in text  # the counts over data sets
    for part in missing_parts():
        assert part.what in text
    assert run.facts["environment"]["numpy"] in text


def test_figures_beside_published_ones_say_in_words_whether_they_agree():
    row = Row("set", "MKL", "k", "accuracy", 91.25, 0.5, 10, published=90.0, published_std=1.5)
    assert ours(row) == "91.25 ± 0.50"
    assert agreement(row) == "within +1.25"
    assert agreement(Row("set", "MKL", "k", "weight:kL", 0.1, published=0.9)) == "beyond −0.80"
    assert agreement(Row("set", "MKL", "k", "time", 1.0)) == ""


def test_pictures_are_drawn_once_and_kept(folder, tmp_path):
    calls = []

    def draw(settings, run):
        from matplotlib.figure import Figure

        calls.append(settings.seed)
        return Figure(figsize=(1, 1))

    def fail(settings, run):
        raise FileNotFoundError("no such set")

    gallery = (
        Drawing("x", "none", "alt", "Caption.", draw),
        Drawing("y", "none", "alt", "Other.", fail),
    )
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    run = read_run(copy, TOYS)
    for _ in range(2):
        good, bad = draw_pictures(run, drawings=gallery)["none"]
        assert good.image.startswith(b"\x89PNG")
        assert bad.image is None
    assert calls == [3]
    assert [path.name for path in (copy / "figures").iterdir()] == ["x-1.png"]
    assert "Not drawn: no such set" in make_page(run, drawings=gallery).html()
    keep_summaries(run, tmp_path / "kept")
    draw_pictures(read_run(tmp_path / "kept", TOYS), drawings=gallery)
    assert not (tmp_path / "kept" / "figures").exists()


@pytest.mark.parametrize(
    "name", ["000-figure2", later("001-integration"), later("001-machines"), "002-figure2"]
)
def test_pictures_that_need_no_data_can_be_drawn(folder, name):
    chosen = next(one for one in pictures.DRAWINGS if one.name == name)
    drawn = pictures._drawn(chosen, read_run(folder, TOYS), Settings(0, QUICK))
    assert drawn.problem == ""
    assert drawn.image.startswith(b"\x89PNG")


def test_bars_are_drawn_from_the_tables_of_a_run():
    from reproduction import bars

    rows = {
        "002-multifeat": [
            Row("EO", method, "k", metric, value, 0.5, 10)
            for place, method in enumerate(("MKL", "RMKL", "EMKL", "RWKL"))
            for metric, value in (
                ("accuracy", 98.0 + place),
                ("active_kernels", 6.0),
                ("n_solver_calls", 10.0),
            )
        ],
        "003-benchmarks": [
            Row("USPS", "bilinear", "k", metric, 93.0, 0.5, 10)
            for metric in ("accuracy", "seconds")
        ],
        "004-binary": [
            Row("sonar", name, "k", "time", 0.1, 0.01, 10) for name in ("SILP_theta", "SDP_theta")
        ],
        "004-lambda": [
            Row("sonar", "QCQP_theta", f"λ={at:g}", "accuracy", 80.0 + at, 1.0, 10) for at in (1, 2)
        ],
        "001-projections": [
            Row(name, "LPK", f"R={size}", metric, 90.0 + size, 1.0, 5)
            for name in ("USPS-EO", "USPS-SL")
            for metric in ("accuracy", "sv_percent")
            for size in (1, 2)
        ],
    }
    results = [Result(EXPERIMENTS[name], found, Work()) for name, found in rows.items()]
    whole, empty = (Run(Path("nowhere"), {}, found) for found in (results, []))
    heights = [
        [bar.get_height() for bar in ax.patches] for ax in bars.searches(Settings(), whole).axes
    ]
    assert heights == [[1.0, 2.0, 3.0], [6.0] * 4, [10.0] * 3]
    assert [
        bar.get_height() for bar in bars.errors_and_times(Settings(), whole).axes[0].patches
    ] == [7.0]
    # The paper leaves the semi-definite programs out.
    assert [bar.get_height() for bar in bars.binary_times(Settings(), whole).axes[0].patches] == [
        0.1
    ]
    for draw, heights in ((bars.regularisers, [81.0, 82.0]), (bars.dimensions, [91.0, 92.0])):
        lines = [line.get_ydata() for line in draw(Settings(), whole).axes[0].lines]
        assert [list(line) for line in lines if len(line)] == [heights]
    for draw in (
        bars.searches,
        bars.errors_and_times,
        bars.binary_times,
        bars.regularisers,
        bars.dimensions,
    ):
        with pytest.raises(LookupError, match="the run has no"):
            draw(Settings(), empty)


def report(*arguments):
    return main(["report", *map(str, arguments)], TOYS)


def test_the_command(folder, tmp_path, capsys):
    page, account, kept = tmp_path / "report.html", tmp_path / "account.md", tmp_path / "kept"
    assert report(folder, "-o", page, "--no-figures") == 0
    assert "<table" in page.read_text(encoding="utf-8")
    assert "<img" not in page.read_text(encoding="utf-8")
    assert report(folder, "--summaries", kept) == 0
    assert report(kept, "--markdown", account) == 0
    assert account.read_text(encoding="utf-8").startswith("# Reproduced papers")
    assert not (folder / "report.html").exists()
    capsys.readouterr()
    assert report(tmp_path) == 2
    assert "run.json" in capsys.readouterr().err


def test_a_run_with_nothing_finished_is_refused(folder, tmp_path, capsys):
    shutil.copy(folder / "run.json", tmp_path)
    assert report(tmp_path) == 2
    assert "no finished table" in capsys.readouterr().err


def test_the_terminal_says_where_the_weights_are(folder, capsys):
    from rich.console import Console

    from reproduction.console import print_table

    done = run_experiments([TOYS["toy-gauss"]], folder, Settings(3, FULL))
    print_table(done[0], console=Console(width=120))
    said = capsys.readouterr().out
    assert "weight:" not in said
    assert "more figures (weights, times and tests)" in said
    assert "toy-gauss.csv" in said


def test_tables_of_an_earlier_definition_are_said_to_be(folder, tmp_path):
    run = read_run(folder, TOYS)
    keep_summaries(run, tmp_path / "kept")
    later = TOYS | {"toy-gauss": replace(TOYS["toy-gauss"], version=2)}
    assert "Not yet run again**: `toy-gauss`." in make_markdown(read_run(tmp_path / "kept", later))
    assert "Not yet run again" not in make_markdown(run)


def test_the_page_names_the_commit_of_what_was_run_at_another(folder, tmp_path):
    run = read_run(folder, TOYS)
    one, *rest = run.results
    moved = replace(run, results=[replace(one, work=replace(one.work, commit="abc1234")), *rest])
    keep_summaries(moved, tmp_path / "kept")
    text = make_markdown(read_run(tmp_path / "kept", TOYS))
    assert f" Of another run, commit abc1234: `{one.experiment.name}`." in text
    assert "of commit abc1234" not in make_markdown(run)


def test_summaries_of_a_run_in_several_sittings_keep_what_it_has_not_run(folder, tmp_path):
    run = read_run(folder, TOYS)
    first, second = run.results
    named = replace(run, results=[replace(first, work=replace(first.work, commit="abc1234"))])
    keep_summaries(named, tmp_path / "kept")
    keep_summaries(replace(run, results=[second]), tmp_path / "kept")
    found = read_run(tmp_path / "kept", TOYS)
    assert [one.work.commit for one in found.results] == ["abc1234", ""]
    assert [one.work.units for one in found.results] == [first.work.units, second.work.units]
    # What is run again is of the later run.
    with pytest.raises(ValueError, match="seed or scale"):
        keep_summaries(replace(run, facts=run.facts | {"seed": 99}), tmp_path / "kept")
    keep_summaries(run, tmp_path / "kept")
    assert [one.work.commit for one in read_run(tmp_path / "kept", TOYS).results] == ["", ""]


def test_readings_of_one_table_stand_side_by_side(tmp_path):
    other = replace(EXPERIMENTS["000-table1-raw"], name="raw")
    cells = [("BANANA", "SVM", "kP"), ("BANANA", "LMKL", "kP-kG")]
    results = [
        Result(
            one,
            one.beside_published([Row(*cell, "accuracy", mean) for cell in cells]),
            Work(version=2),
        )
        for one, mean in ((EXPERIMENTS["000-table1"], 90.005), (other, 50.005))
    ]
    run = Run(Path("nowhere"), {"seed": 0, "scale": {"name": "full"}, "environment": {}}, results)
    tables = long_tables(run)
    beside = tables["readings_000-table1"]
    assert beside[1][:5] == ("BANANA", "SVM", "kP", "accuracy", "56.51")
    # From the mean of 56.51 and 83.84, as both are on the same side.
    assert beside[-1] == ("mean difference", "", "", "accuracy", "", "19.83", "20.17")
    assert {row[0] for row in tables["agreement"][1:]} == {"000-table1"}
    text = write_markdown(run, tmp_path / "page.md").read_text(encoding="utf-8")
    assert "[`000-table1` under several readings](page/readings_000-table1.csv)" in text
    written = {
        path.stem: path.read_text(encoding="utf-8") for path in (tmp_path / "page").iterdir()
    }
    assert written == {name: as_csv(rows) for name, rows in tables.items()}
    assert {one.experiment for one in judge(run)} <= {"000-table1", ""}


def test_readings_of_weights_are_compared_by_their_distance_from_print():
    one, other = EXPERIMENTS["000-gauss4"], replace(EXPERIMENTS["000-gauss4-raw"], name="raw")
    cell = ("GAUSS4", "MKL", "kL-kP")
    results = [
        Result(
            it,
            it.beside_published([Row(*cell, "weight:kL", w), Row(*cell, "weight:kP", 1 - w)]),
            Work(version=2),
        )
        for it, w in ((one, 0.5), (other, 0.35))
    ]
    tables = long_tables(
        Run(Path("nowhere"), {"seed": 0, "scale": {"name": "full"}, "environment": {}}, results)
    )
    assert ("GAUSS4", "MKL", "kL-kP", "weights", "", "0.40", "0.10") in tables[
        "readings_000-gauss4"
    ]  # printed 0.3, 0.7


def test_cells_that_a_reading_was_chosen_by_are_counted_apart():
    one = EXPERIMENTS["000-table1"]
    rows = one.beside_published(
        [
            Row("BANANA", "LMKL", "kP-kG", "accuracy", 83.84),
            Row("BANANA", "SVM", "kP", "accuracy", 1),
        ]
    )
    facts = {"seed": 0, "scale": {"name": "full"}, "environment": {}}
    run = Run(Path("nowhere"), facts, [Result(one, rows, Work(version=2))])
    tables, text = long_tables(run), make_markdown(run)
    where = ("000-table1", "Gönen and Alpaydın (2008)", "Table 1", "accuracy %", "", "0 of 1")
    assert tables["agreement"][1][:6] == where
    chosen = (
        "000-table1",
        "LMKL accuracy",
        "1 of 1",
        "scaling of columns and kernels, by these accuracies",
    )
    assert tables["chosen"][1:] == [chosen]
    assert "| Gönen and Alpaydın (2008) | accuracy % | 0 of 1 | 0 % |" in text
    assert "not_counted" not in tables
    assert "cannot be compared" not in text


def test_a_sentence_that_notes_share_stands_once():
    notes = {"a": "Of both, C. elegans too. Of the first.", "b": "Of both, C. elegans too."}
    experiments = [
        replace(EXPERIMENTS["000-banana"], name=name, title="T", notes=text)
        for name, text in notes.items()
    ]
    results = [Result(one, [], Work(version=2)) for one in experiments]
    tables = long_tables(
        Run(Path("nowhere"), {"seed": 0, "scale": {"name": "full"}, "environment": {}}, results)
    )
    both, first, second = tables["departures"][1:]
    assert both == ("a, b", "", "Of both, C. elegans too.")
    assert (first, second) == (("a", "T", "Of the first."), ("b", "T", "as above"))


def test_papers_have_names_and_experiments_keep_their_numbers():
    assert (
        by_name("As 000-gauss4; in 004, else 001.")
        == "As 000-gauss4; in Ye, Ji and Chen (2008), else Gönen (2010)."
    )


@pytest.mark.skipif(not KEPT.is_dir(), reason="no run is kept in docs/reproduction")
def test_the_documentations_page_follows_from_the_kept_tables():
    run = read_run(KEPT)
    account, tables = make_markdown(run, "reproduction"), long_tables(run)
    page = (TOP / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert page[: len(account)] == account
    assert "\n## How to run them\n" in page[len(account) :]
    assert all(
        (KEPT / f"{name}.csv").read_text(encoding="utf-8") == as_csv(rows)
        for name, rows in tables.items()
    )
    for path in KEPT.iterdir():
        assert path.stat().st_size < 200_000
        assert path.suffix in (".csv", ".json")
    names = {path.stem for path in KEPT.glob("*.csv")} - {"run", *tables}
    assert names <= set(EXPERIMENTS)
    assert json.loads((KEPT / "run.json").read_text())["scale"]["name"] == "full"
