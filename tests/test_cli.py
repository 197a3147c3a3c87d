"""The command line as a user meets it: what it prints, what it writes, how it fails."""

from __future__ import annotations

import gc
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from sklearn.svm import SVC
from typer import Typer
from typer.testing import CliRunner

import kernelmosaic
from kernelmosaic.cli import main
from kernelmosaic.cli.commands import app, run
from kernelmosaic.cli.requests import FitRequest, command

VIEWS = ("rna", "protein", "clinic", "noise")
METHODS = (*(f"{view} alone" for view in VIEWS), "equal weights", "learned weights")


class Page(HTMLParser):
    """Collects the cells, images and links of a page, and insists that every element is closed."""

    VOID = frozenset({"meta", "img", "br", "link"})

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.images, self.outside = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "img":
            self.images.append(attributes)
        links = (attributes.get("src") or "", attributes.get("href") or "")
        self.outside += [link for link in links if link and not link.startswith("data:")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def table_lines(output):
    return [
        line for line in output.splitlines() if any(f"│ {method} " in line for method in METHODS)
    ]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """What the demonstration prints, the page it writes, and what it has found."""
    from kernelmosaic.demo import patients

    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 0, result.output
    return result.stdout, folder / "kernelmosaic-demo.html", patients()


def test_the_table_has_a_line_a_method(whole_run):
    output, report, _ = whole_run
    lines = table_lines(output)
    assert len(lines) == len(METHODS)
    for line in lines:
        assert re.search(r"\D(\d\.\d\d)?\D+\d{4}\D+\d\d\.\d\D+\de[+-]\d\d\D+\d\.\d{3}", line), line
    assert f"Report: {report.name}" in output


def test_the_page_stands_alone_and_repeats_the_table(whole_run):
    output, report, _ = whole_run
    page = Page(report.read_text(encoding="utf-8"))
    assert [row[0] for row in page.rows[1:]] == list(METHODS)
    for row, line in zip(page.rows[1:], table_lines(output), strict=True):
        assert all(cell in line for cell in row if cell != "–")
    assert page.outside == []
    assert len(page.images) == 1
    assert all(image["alt"] for image in page.images)


def test_the_page_says_what_is_missing_when_matplotlib_is(whole_run, hide, tmp_path):
    from kernelmosaic import demo

    hide("matplotlib")
    demo.write_report(whole_run[2], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert Page(text).images == []
    assert 'pip install "kernelmosaic[plots]"' in text


def test_a_seed_gives_the_same_figures():
    from kernelmosaic.demo import patients

    first, again, other = (patients(n_train=20, n_test=100, seed=seed) for seed in (1, 1, 2))
    assert [cells[:-1] for cells in first.cells] == [cells[:-1] for cells in again.cells]
    assert [row.accuracy for row in first.rows] != [row.accuracy for row in other.rows]


def test_what_the_demonstration_says_of_its_patients_is_so(whole_run):
    from kernelmosaic.demo import make_patients

    output, _, result = whole_run
    X, columns, y = make_patients(2120, 0)
    lacking = np.isnan(X)
    assert not any(lacking[:, columns[view]].any() for view in VIEWS if view != "protein")
    gone = lacking[:, columns["protein"]].all(axis=1)
    assert 0.15 < gone.mean() < 0.25
    assert f"{gone[120:].sum()} patients without protein" in " ".join(output.split())
    for row, view in zip(result.rows, VIEWS, strict=False):
        Z, known = X[:, columns[view]], np.flatnonzero(~lacking[:, columns[view]].any(axis=1))
        train, test = known[known < 120], known[known >= 120]
        width = np.median(pdist(Z[train]))
        K = np.exp(-cdist(Z[known], Z[train], "sqeuclidean") / width**2)
        reference = SVC(kernel="precomputed", C=1.0, tol=1e-6).fit(K[: len(train)], y[train])
        assert row.accuracy == pytest.approx(
            reference.score(K[len(train) :], y[test]), abs=0.003
        ), view
    *alone, equal, learned = (row.accuracy for row in result.rows)
    assert max(alone) + 0.05 < equal < learned
    weights = dict(zip(VIEWS, result.rows[-1].model.weights_, strict=True))
    assert min(weights, key=weights.get) == "noise"
    assert all(row.model.duality_gap_ <= 1e-3 for row in result.rows)


def test_the_whole_demonstration_is_a_moments_work(whole_run):
    said, _, result = whole_run
    # Machines of a few hundred samples, hundredths of a second each: that many are far from the
    # minute promised.
    assert "Four views of 120 patients" in said
    assert sum(row.model.n_solves_ for row in result.rows) <= 200


def test_packages_are_loaded_with_few_searches_for_garbage(monkeypatch):
    usual, seen = gc.get_threshold(), []
    commands = SimpleNamespace(run=lambda argv: seen.append(gc.get_threshold()) or 3)
    monkeypatch.setitem(sys.modules, "kernelmosaic.cli.commands", commands)
    assert main([]) == 3
    assert seen[0][0] >= 40 * usual[0]
    assert gc.get_threshold() == usual


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"kernelmosaic {kernelmosaic.__version__}"
    for arguments in (["--help"], []):
        assert main(arguments) == 0
        assert "demo" in capsys.readouterr().out
    assert main(["demo", "--help"]) == 0
    assert "--samples" in capsys.readouterr().out


def test_options_are_the_fields_of_a_request():
    found, program = [], Typer()

    def keep(request: FitRequest) -> None:
        found.append(request)

    program.command()(command(keep))
    given = [
        "t.csv",
        "--view",
        "a=b",
        "--view",
        "c=d",
        "--views",
        "v.json",
        "--C",
        "2",
        "--proba",
        "--cv",
        "3",
    ]
    CliRunner().invoke(program, given, catch_exceptions=False)
    options = {
        "views": ("a=b", "c=d"),
        "view_file": Path("v.json"),
        "C": 2.0,
        "proba": True,
        "folds": 3,
    }
    assert found == [FitRequest(Path("t.csv"), **options, started=found[0].started)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demo", "--samples", "3"], "--samples"),
        (["demo", "--samples", "many"], "--samples"),
        (["demo", "--samples", "1000000"], "--samples"),
        (["demo", "--seed", "-1"], "--seed"),
        (["demo", "--report", "no/such/folder/page.html"], "folder"),
        (["demo", "--report", "."], "is a folder"),
        (["demo", "--colour"], "--colour"),
        (["dance"], "dance"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert len(errors.splitlines()) == 1
    assert words in errors
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_is_one_line_too(capsys, full_disk, tmp_path, hide):
    hide("matplotlib")  # the page fills it without its pictures too
    full_disk()
    assert (
        main(["demo", "--samples", "20", "--seed", "3", "--report", str(tmp_path / "page.html")])
        == 2
    )
    output, errors = capsys.readouterr()
    assert "Four views of 20 patients, 2000 others to predict, seed 3" in output
    assert "Report:" not in output
    assert len(errors.strip().splitlines()) == 1
    assert "page.html: no space" in errors
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_is_one_line_and_exit_code_130(capsys):
    program = Typer()

    @program.command()
    def wait() -> None:
        raise KeyboardInterrupt

    assert run([], program) == 130
    assert capsys.readouterr().err.strip().splitlines()[-1] == "kernelmosaic: stopped."
