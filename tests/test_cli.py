"""The command line as a user meets it: what it prints, what it writes, how it fails."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.svm import SVC
from typer.testing import CliRunner

import kernelmosaic
from kernelmosaic.cli import main
from kernelmosaic.cli.commands import app

SINGLE = ("SVM, linear", "SVM, quadratic", "SVM, Gaussian")
LATER = ("localized (lin, quad)", "discriminant")
METHODS = (*SINGLE, "SVM, sum of the three", "MKL (l1)", "MKL (l2)", *LATER, "Bayes rule")


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
    return [line for line in output.splitlines() if any(f" {method} " in line for method in METHODS)]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """What the demonstration prints, the page it writes, and what it has found."""
    from kernelmosaic import demo

    folder, found = tmp_path_factory.mktemp("report"), []

    def noted(*given, run=demo.run_demo, **options):
        found.append(run(*given, **options))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "run_demo", noted)
        patch.chdir(folder)
        result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 0, result.output
    return result.stdout, folder / "kernelmosaic-demo.html", *found


def test_the_table_has_a_line_a_method(whole_run):
    output, report, _ = whole_run
    lines = table_lines(output)
    assert len(lines) == len(METHODS)
    for line in lines[:-1]:
        assert re.search(r"\d\d\.\d\d\D+\d+ \(\d+\.\d %\)\D+\d\.\de[+-]\d\d\D+\d+\.\d{3}", line), line
    assert "89.74 %" in output
    assert f"Report: {report.name}" in output


def test_the_page_stands_alone_and_repeats_the_table(whole_run):
    output, report, _ = whole_run
    page = Page(report.read_text(encoding="utf-8"))
    assert [row[0] for row in page.rows[1:]] == list(METHODS)
    for row, line in zip(page.rows[1:], table_lines(output), strict=True):
        assert all(cell in line for cell in row if cell != "–")
    assert page.outside == []
    assert len(page.images) == len(METHODS) - 1
    assert all(image["alt"] for image in page.images)


def test_the_page_says_what_is_missing_when_matplotlib_is(whole_run, hide, tmp_path):
    from kernelmosaic import demo

    hide("matplotlib")
    demo.write_report(whole_run[2], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert Page(text).images == []
    assert 'pip install "kernelmosaic[plots]"' in text


def test_a_seed_gives_the_same_figures():
    from kernelmosaic.demo import run_demo

    first, again, other = (run_demo(n_train=30, n_test=500, seed=seed) for seed in (1, 1, 2))
    assert [row.cells()[:4] for row in first.rows] == [row.cells()[:4] for row in again.rows]
    assert [row.accuracy for row in first.rows] != [row.accuracy for row in other.rows]


def test_the_figures_are_those_of_libsvm():
    from kernelmosaic.datasets import make_gaussians
    from kernelmosaic.demo import run_demo

    result = run_demo(n_train=200, n_test=4000, seed=5)
    rng = np.random.RandomState(5)
    X, y = make_gaussians(4, 200, random_state=rng)
    X_test, y_test = make_gaussians(4, 4000, random_state=rng)
    np.testing.assert_array_equal(X, result.X)

    def products(A):
        return A @ X.T

    def gaussian(A):
        squares = ((A[:, None] - X) ** 2).sum(axis=2)
        median = np.median(pdist(np.unique(X, axis=0)))
        return np.exp(-squares / median**2)

    formulas = [products, lambda A: (products(A) + 1) ** 2, gaussian]
    scales = [np.trace(k(X)) / len(X) for k in formulas]
    single = [[(k, 1 / scale)] for k, scale in zip(formulas, scales, strict=True)]
    mean_of_all = [(k, 1 / (3 * scale)) for k, scale in zip(formulas, scales, strict=True)]
    for row, parts in zip(result.rows, [*single, mean_of_all], strict=False):
        K, K_test = (sum(weight * k(A) for k, weight in parts) for A in (X, X_test))
        reference = SVC(kernel="precomputed", C=1.0, tol=1e-6).fit(K, y)
        assert row.accuracy == pytest.approx(reference.score(K_test, y_test), abs=0.003), row.name
        assert len(row.model.support_) == pytest.approx(len(reference.support_), abs=3), row.name
        assert row.model.duality_gap_ < 1e-2


def test_the_whole_demonstration_is_a_moments_work(whole_run):
    said, _, result = whole_run
    # Machines of 600 samples, a few hundredths of a second each: that many are far from the minute promised.
    assert "GAUSS4: 600 training" in said
    assert sum(row.model.n_solves_ for row in result.rows[:-1]) <= 200


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"kernelmosaic {kernelmosaic.__version__}"
    for arguments in (["--help"], []):
        assert main(arguments) == 0
        assert "demo" in capsys.readouterr().out
    assert main(["demo", "--help"]) == 0
    assert "--samples" in capsys.readouterr().out


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


@pytest.mark.usefixtures("whole_run")  # has compiled the loops, which might take long enough for a line of progress
def test_a_disk_that_fills_up_is_one_line_too(capsys, full_disk, tmp_path, hide):
    hide("matplotlib")  # the page fills it without its pictures too
    full_disk()
    assert main(["demo", "--samples", "20", "--seed", "3", "--report", str(tmp_path / "page.html")]) == 2
    output, errors = capsys.readouterr()
    assert "GAUSS4: 20 training and 20000 test samples, seed 3" in output
    assert "Report:" not in output
    assert len(errors.strip().splitlines()) == 1
    assert "page.html: no space" in errors
    assert list(tmp_path.iterdir()) == []
