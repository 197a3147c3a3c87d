"""The pages: links that lead somewhere, names that import, code that runs. Sphinx checks its own
references besides."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.test_imports import FAMILIES, FLOOR, faults

import kernelmosaic
from tools import architecture_picture
from tools.flowchart import LAST, STEPS, draw

TOP = Path(__file__).parents[1]
DOCS = TOP / "docs"
#: The pages of the site; those of the studies lie beside their tables.
SITE = sorted([*DOCS.glob("*.md"), *DOCS.glob("studies/*.md")])
PAGES = [*(TOP / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *SITE]

FENCED = re.compile(r"^(`{3,}|:{3,})([^\n]*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(
    r"\[[^\]\n]*(?:\n[^\]\n]+)?\]\(([^()\s]+)\)"
)  # a link may be broken over two lines
ROLE = re.compile(r"\{(?:py:)?(class|func|meth|obj|mod|attr|doc|ref)\}`(?:[^`<]*<)?~?([^`>]+)>?`")


def each_page(pages: list[Path] = PAGES) -> Any:
    return pytest.mark.parametrize(
        "page", pages, ids=[str(page.relative_to(TOP)) for page in pages]
    )


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    """The text without its fenced blocks and, for links are no links there, without code between
    back quotes."""
    return re.sub(r"(?<![}`])`[^`\n]+`", "", FENCED.sub("", text))


def anchors(text: str) -> set[str]:
    """What GitHub and MyST call the headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+)$", FENCED.sub("", text), re.MULTILINE):
        slug = base = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        number = 0
        while slug in found:
            number += 1
            slug = f"{base}-{number}"
        found.add(slug)
    return found


def broken_links(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    for target in LINK.findall(prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield target
        elif anchor and anchor not in anchors(file.read_text(encoding="utf-8")):
            yield f"{target}: no such heading"


@each_page()
def test_links_lead_to_files_and_headings(page):
    assert list(broken_links(page)) == []


def test_broken_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    links = (
        "[a](#a-title) [b](#b) [c](page.md#a-title) [d](none.md) [e](https://x.org) `[f](g)` [h\n "
        " i](j.md)"
    )
    page.write_text(f"# A title\n{links}\n")
    assert list(broken_links(page)) == ["#b: no such heading", "none.md", "j.md"]


def in_trees(page: Path) -> Iterator[str]:
    for fence in blocks(page.read_text(encoding="utf-8"), "{toctree}"):
        yield from (line for line in fence.split("\n") if line and not line.startswith(":"))


def documents(page: Path) -> Iterator[str]:
    """Names of pages in the trees and cards of a page, and in its references."""
    yield from in_trees(page)
    text = page.read_text(encoding="utf-8")
    yield from re.findall(r"^:link: (\S+)$", text, re.MULTILINE)
    yield from (name for role, name in ROLE.findall(text) if role == "doc")


def title(page: Path) -> str:
    return re.match(r"# (.+)", page.read_text(encoding="utf-8"))[1]


@each_page([DOCS / "guide.md", DOCS / "results.md"])
def test_lists_of_pages_have_their_titles(page):
    listed = re.findall(
        r"^- \[([^\]]+)\]\((\w+)\.md\)", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [name for _, name in listed] == list(in_trees(page))
    assert [text for text, _ in listed] == [title(DOCS / f"{name}.md") for _, name in listed]


@each_page()
def test_pages_referred_to_exist(page):
    made_by_sphinx = {"auto_examples/index"}
    assert [
        name
        for name in documents(page)
        if name not in made_by_sphinx and not (DOCS / f"{name}.md").exists()
    ] == []


def test_every_page_is_in_a_tree():
    planted = {"index", *(name for page in SITE for name in in_trees(page))}
    assert {page.relative_to(DOCS).with_suffix("").as_posix() for page in SITE} - planted == set()


@each_page()
def test_examples_referred_to_exist(page):
    found = [name for role, name in ROLE.findall(page.read_text(encoding="utf-8")) if role == "ref"]
    files = [name.removeprefix("sphx_glr_auto_examples_") for name in found]
    assert [name for name in files if not (TOP / "examples" / name).exists()] == []


def resolve(name: str) -> Any:
    """Import as much as is a module, and take the rest as attributes."""
    parts = name.split(".")
    value: Any = import_module(parts[0])
    for i, part in enumerate(parts[1:], start=2):
        try:
            value = getattr(value, part)
        except AttributeError:
            value = import_module(".".join(parts[:i]))
    return value


def names_of_ours(text: str) -> Iterator[str]:
    """The dotted names that a page refers to, lists or its Python uses."""
    yield from (name for role, name in ROLE.findall(text) if role not in ("doc", "ref"))
    for block in blocks(text, "{eval-rst}"):
        for part in block.split(".. currentmodule:: ")[1:]:
            module, _, rest = part.partition("\n")
            yield from (
                f"{module}.{name}"
                for name in re.findall(r"^   ([A-Za-z][\w.]*)$", rest, re.MULTILINE)
            )
    for block in blocks(text, "python"):
        yield from re.findall(r"^import (kernelmosaic[\w.]*)", block, re.MULTILINE)
        for node in ast.walk(ast.parse(block)):
            if (
                isinstance(node, ast.ImportFrom)
                and (node.module or "").split(".")[0] == "kernelmosaic"
            ):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


@each_page()
def test_names_can_be_imported(page):
    for name in names_of_ours(page.read_text(encoding="utf-8")):
        resolve(name)


def test_every_display_is_shown_by_an_example_or_a_page():
    """The table of names in api.md shows nothing: who reads on finds what a display looks like, and
    of what."""
    pages = [TOP / "README.md", *(page for page in SITE if page.name != "api.md")]
    shown = "\n".join(
        page.read_text(encoding="utf-8") for page in [*pages, *(TOP / "examples").glob("*.py")]
    )
    displays = [
        name for name in import_module("kernelmosaic.plots").__all__ if name.endswith("Display")
    ]
    assert len(displays) > 10
    assert [name for name in displays if not re.search(rf"\b{name}\b", shown)] == []


def test_names_that_are_not_there_are_found():
    assert list(names_of_ours("{meth}`~kernelmosaic.A.b` {class}`the c <kernelmosaic.C>`")) == [
        "kernelmosaic.A.b",
        "kernelmosaic.C",
    ]
    listed = (
        "```{eval-rst}\n.. currentmodule:: a\n\n.. autosummary::\n   :nosignatures:\n\n   B\n  "
        " c.D\n```\n"
    )
    assert list(names_of_ours(listed)) == ["a.B", "a.c.D"]
    with pytest.raises(ImportError):
        resolve("kernelmosaic.kernels.NoSuchKernel")


def test_the_flowchart_is_that_of_its_script_and_names_estimators():
    assert (DOCS / "images" / "choosing.svg").read_text(encoding="utf-8") == draw()
    answers = [line for _, lines in STEPS for line in lines] + [
        line.split()[0] for line in LAST[1:]
    ]
    for name in answers:
        resolve(f"kernelmosaic.{name}")
        assert f"~kernelmosaic.{name}`" in (DOCS / "choosing.md").read_text(encoding="utf-8")


# The page on the architecture ---------------------------------------------------------------------

ARCHITECTURE = DOCS / "architecture.md"


def test_the_architecture_is_one_page_with_its_picture():
    assert len(ARCHITECTURE.read_text(encoding="utf-8").split()) <= 1500
    picture = (DOCS / "images" / "architecture.svg").read_text(encoding="utf-8")
    assert picture == architecture_picture.draw()
    drawn = {name for row in architecture_picture.FAMILIES for name in row}
    assert drawn == {f"{family}/" for family in FAMILIES}


def unknown_names(text: str) -> Iterator[str]:
    """Yield the files, folders and identifiers of a page, as code between back quotes, that are not
    there."""
    library = TOP / "src" / "kernelmosaic"
    paths = [*library.rglob("*.py"), TOP / "tests" / "test_imports.py"]
    words = set(re.findall(r"\w+", "".join(path.read_text(encoding="utf-8") for path in paths)))
    for code in re.findall(r"`([^`\n]+)`", FENCED.sub("", text)):
        name = code.removesuffix("()")
        if re.fullmatch(r"[\w/]+/|[\w/]+\.py", name):
            places = (library, TOP, TOP / "tests" / "contracts")
            if not any((place / name).exists() for place in places):
                yield code
        elif (
            re.fullmatch(r"[A-Za-z_][\w.]*", name) and not set(name.rstrip(".").split(".")) <= words
        ):
            yield code


def test_the_architecture_names_what_is_there():
    assert list(unknown_names(ARCHITECTURE.read_text(encoding="utf-8"))) == []
    text = (
        "`learning/` `learning/newton.py` `Task.machines` `MKLClassifier()` `k(X, Y)`"
        " `test_grams.py`"
    )
    assert list(unknown_names(text)) == []
    text = "`attic/` `learning/attic.py` `Task.no_such_method` `NoSuchTask`"
    assert len(list(unknown_names(text))) == 4


# The family of the page on extending --------------------------------------------------------------


@pytest.fixture
def family_on_the_page(tmp_path, monkeypatch):
    """The files of the family that docs/extending.md builds, as a folder of the package, and the
    code that uses it."""
    files, others = {}, []
    for block in blocks((DOCS / "extending.md").read_text(encoding="utf-8"), "py"):
        head = re.match(r"# src/kernelmosaic/(centroid/\w+\.py)\n", block)
        if head is None:
            others.append(block)
        else:
            files[head[1]] = block
    (tmp_path / "centroid").mkdir()
    (tmp_path / "centroid" / "__init__.py").write_text(
        '"""Nearest centroids."""\n', encoding="utf-8"
    )
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(kernelmosaic, "__path__", [*kernelmosaic.__path__, str(tmp_path)])
    yield files, others
    for name in [name for name in sys.modules if name.startswith("kernelmosaic.centroid")]:
        del sys.modules[name]
    vars(kernelmosaic).pop("centroid", None)


def test_the_family_on_the_page_fits_and_predicts(family_on_the_page, monkeypatch, capsys):
    import numpy as np

    _, (usage,) = family_on_the_page
    page = (DOCS / "extending.md").read_text(encoding="utf-8")
    said = re.search(
        re.escape(usage) + r"```\n+```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL
    )
    namespace: dict[str, Any] = {}
    exec(compile(usage, "extending.md", "exec"), namespace)
    agree(said[1], capsys.readouterr().out)
    X, y, model = (namespace[name] for name in ("X", "y", "model"))
    shares = model.contributions(X).sum(axis=1) + model.intercept_
    np.testing.assert_allclose(shares, model.decision_function(X), atol=1e-12)
    # One linear kernel: the centroids are means of the columns.
    plain = type(model)([namespace["Linear"]()], normalize=None).fit(X, y)
    means = np.array([X[y == c].mean(axis=0) for c in range(3)])
    nearest = np.linalg.norm(X[:, np.newaxis] - means, axis=2).argmin(axis=1)
    np.testing.assert_array_equal(plain.predict(X), nearest)
    two = type(model)().fit(X, y > 0)
    assert two.decision_function(X).shape == (len(X),)
    # The one line in the core that gives it a public name.
    monkeypatch.setitem(
        kernelmosaic.estimators.HOMES, "CentroidMKLClassifier", "centroid.estimator"
    )
    assert kernelmosaic.estimators.CentroidMKLClassifier is type(model)
    monkeypatch.delitem(vars(kernelmosaic.estimators), "CentroidMKLClassifier")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_the_family_on_the_page_passes_scikit_learns_checks(family_on_the_page):
    from sklearn.utils.estimator_checks import check_estimator

    check_estimator(import_module("kernelmosaic.centroid.estimator").CentroidMKLClassifier())


def test_the_family_on_the_page_keeps_the_rules_of_import(family_on_the_page, monkeypatch):
    files, _ = family_on_the_page
    assert sorted(files) == [
        f"centroid/{name}.py" for name in ("estimator", "machine", "method", "task")
    ]
    monkeypatch.setitem(FLOOR, "centroid", FLOOR["localized"])
    for name, text in files.items():
        module = name.removesuffix(".py").replace("/", ".")
        assert faults(text, f"kernelmosaic.{module}") == []
        assert max(map(len, text.split("\n"))) <= WIDEST


# The Python of a page is run from top to bottom, in one namespace. A comment before a block says
# why it is not run.

MARKED = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+)"
    r" -->\n+)?^```python\n(?P<code>.*?)^```$(?:\n+^```text\n(?P<said>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
WITH_PYTHON = [page for page in PAGES if blocks(page.read_text(encoding="utf-8"), "python")]
ELSEWHERE = {"tutorial.md", "README.md"}  # tests/cli/test_tutorial.py, tests/test_project.py

#: What is not run, each with what it needs.
NOT_RUN = {
    "command_line.md": ["needs the files of the commands above"],
    "datasets.md": ["needs data that are not bundled"],
    "kernels.md": ["needs rdkit"],
    "scale.md": ["needs a GPU"],
    "single_cell.md": ["needs anndata and two files", "needs scanpy"],
}

#: Smaller numbers of samples and folds than those on the pages: what is tested is that their code
#: runs.
SMALLER = {
    "bayesian.md": {r"\b200\b": "60"},
    "choosing.md": {
        r"MKLClassifierCV\(\)": "MKLClassifierCV(Cs=2, cv=2)",
        "Cs=6": "Cs=2, cv=2",
        r"\[:300\]": "[:80]",
        r"arange\(100\), 3": "arange(100), 1",
        "size=300": "size=100",
        r"\[0.1, 1, 10\], \"norm\": \[1, 2\]": '[0.1, 10], "norm": [1]',
    },
    "howto.md": {r"\b200\b": "60", "Cs=4(, cv=3)?": "Cs=2, cv=2", r"\bcv=3\b": "cv=2"},
    "kernels.md": {r"\[:200\]": "[:60]", r"CV\(model.kernels_\)": "CV(model.kernels_, Cs=2, cv=2)"},
    "localized.md": {"n_samples=600": "n_samples=120", '"rank": 200': '"rank": 40'},
    "regularized.md": {
        'on="penalties", cv=cv': 'on="penalties", cv=2, max_iter=1',
        "bounds=bounds": "max_iter=1, cv=2",
    },
    "single_cell.md": {
        r"\b150\b": "90",
        r"0.01, 0.1, 1.0": "0.1, 1.0",
        r"GroupKFold\(5\)": "GroupKFold(2)",
        "n_resamples=50": "n_resamples=2",
    },
    "survival.md": {r":150\]": ":60]", "Cs=5, cv=3": "Cs=2, cv=2", '"cv": 3': '"cv": 2'},
    "uncertainty.md": {r"\[:300\]": "[:60]", "Cs=5": "Cs=2, cv=2"},
}


def name_of(page: Path) -> str:
    return page.relative_to(TOP).as_posix().removeprefix("docs/")


def test_what_is_not_run_is_marked_and_known():
    texts = {name_of(page): page.read_text(encoding="utf-8") for page in PAGES}
    found = {name: [one["reason"] for one in MARKED.finditer(text)] for name, text in texts.items()}
    marked = {name: [reason for reason in reasons if reason] for name, reasons in found.items()}
    assert {name: reasons for name, reasons in marked.items() if reasons} == NOT_RUN
    assert {name: len(reasons) for name, reasons in found.items()} == {
        name: len(blocks(text, "python")) for name, text in texts.items()
    }


def shortened(name: str, text: str) -> str:
    for given, smaller in SMALLER.get(name, {}).items():
        text, count = re.subn(given, smaller, text)
        assert count, f"{name} has no {given!r} any more: leave it out of SMALLER"
    return text


def agree(said: str, printed: str) -> None:
    """Words are equal; numbers differ by two units of their last digit at most."""
    number = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
    assert re.sub(number, "#", said).split() == re.sub(number, "#", printed).split()
    for one, other in zip(re.findall(number, said), re.findall(number, printed), strict=True):
        digits = len(one.partition("e")[0].partition(".")[2])
        assert abs(float(one) - float(other)) <= 2.01 * 10.0**-digits, (
            f"{one} is printed as {other}"
        )


@pytest.mark.parametrize("printed", ["a 0.3", "b 0.1", "a 0.1 2"])
def test_other_output_is_found(printed):
    agree("a  0.12", "a 0.1")
    with pytest.raises(AssertionError):
        agree("a 0.1" + "0" * ("3" in printed), printed)


@pytest.fixture
def fewer_tumours(request, monkeypatch):
    """A part of the samples that pages load, for the same reason; the first page prints what all of
    them give."""
    if request.node.callspec.params["page"].name == "index.md":
        return
    from sklearn import datasets

    def load(
        *, return_X_y: bool, whole: Any = datasets.load_breast_cancer, **options: Any
    ) -> tuple[Any, Any]:
        X, y = whole(return_X_y=return_X_y, **options)
        return X[::4], y[::4]

    monkeypatch.setattr(datasets, "load_breast_cancer", load)


@pytest.mark.usefixtures("fewer_tumours", "fixed_margins")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each_page([page for page in WITH_PYTHON if page.name not in ELSEWHERE])
def test_the_python_of_a_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)  # models are saved
    namespace: dict[str, Any] = {}
    text = shortened(page.name, page.read_text(encoding="utf-8"))
    for number, block in enumerate(MARKED.finditer(text), start=1):
        if block["reason"] is None:
            exec(compile(block["code"], f"{page.name}, block {number}", "exec"), namespace)
            printed = capsys.readouterr().out
            if block["said"] is not None and page.name not in SMALLER:
                agree(block["said"], printed)
    pyplot.close("all")


def test_the_messages_of_troubleshooting_are_those_of_the_package():
    """Every part of a message between ellipses is in the source."""
    sources = "".join(path.read_text(encoding="utf-8") for path in (TOP / "src").rglob("*.py"))
    sources = re.sub(r'"\s*\n\s*f?"', "", sources)  # a text over several lines
    rows = re.findall(
        r"^\| (`.*?) \| ", (DOCS / "troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    parts = [
        part.strip(" ,")
        for row in rows
        for text in re.findall("`([^`]+)`", row)
        for part in text.split("…")
    ]
    assert len(rows) >= 20
    assert [part for part in parts if part not in sources and part != "MemoryError"] == []


#: What fits a page 1280 pixels wide beside its two side bars, which tools/check_site.py looks at in
#: a browser.
WIDEST = 88


def too_wide(text: str) -> list[str]:
    """Lines of code; what a terminal prints wraps."""
    found = re.findall(r"^```(?:python|py|sh|json|c)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    commands = re.findall(r"^\$ (?:.*\\\n)*.*$", text, re.MULTILINE)
    examples = re.findall(r"^ *((?:>>>|\.\.\.) .*)$", text, re.MULTILINE)
    return [
        line
        for part in (*found, *commands, *examples)
        for line in part.split("\n")
        if len(line) > WIDEST
    ]


@each_page()
def test_no_line_of_code_is_wider_than_the_page(page):
    assert too_wide(page.read_text(encoding="utf-8")) == []


def test_no_example_is_wider_than_the_page():
    sources = [*(TOP / "src").rglob("*.py"), *(TOP / "examples").glob("plot_*.py")]
    found = {path.name: too_wide(path.read_text(encoding="utf-8")) for path in sources}
    for path in (TOP / "examples").glob("plot_*.py"):
        lines = path.read_text(encoding="utf-8").split('"""\n', 2)[-1].splitlines()
        found[path.name] += [
            line for line in lines if len(line) > WIDEST and not line.startswith("#")
        ]
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_wide_lines_are_found():
    wide = "x" * 89
    assert too_wide(f"```python\n{wide}\n```\n```text\n{wide}\n```\n") == [wide]
    assert len(too_wide(f"```console\n$ a \\\n{wide}\n{wide}\n```\n    >>> {wide}\n")) == 2
