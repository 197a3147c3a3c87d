"""The pages: links that lead somewhere, names that import, code that runs. Sphinx checks its own references besides."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelmosaic

TOP = Path(__file__).parents[1]
DOCS = TOP / "docs"
PAGES = [*(TOP / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *sorted(DOCS.glob("*.md"))]

FENCED = re.compile(r"^(`{3,}|:{3,})([^\n]*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]\n]*(?:\n[^\]\n]+)?\]\(([^()\s]+)\)")  # a link may be broken over two lines
ROLE = re.compile(r"\{(?:py:)?(class|func|meth|obj|mod|attr|doc|ref)\}`(?:[^`<]*<)?~?([^`>]+)>?`")


def each_page(pages: list[Path] = PAGES) -> Any:
    return pytest.mark.parametrize("page", pages, ids=[str(page.relative_to(TOP)) for page in pages])


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    """The text without its fenced blocks and, for links are no links there, without code between back quotes."""
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
    links = "[a](#a-title) [b](#b) [c](page.md#a-title) [d](none.md) [e](https://x.org) `[f](g)` [h\n  i](j.md)"
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


@each_page()
def test_pages_referred_to_exist(page):
    made_by_sphinx = {"auto_examples/index"}
    assert [name for name in documents(page) if name not in made_by_sphinx and not (DOCS / f"{name}.md").exists()] == []


def test_every_page_is_in_a_tree():
    planted = {"index", *(name for page in DOCS.glob("*.md") for name in in_trees(page))}
    assert {page.stem for page in DOCS.glob("*.md")} - planted == set()


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
            yield from (f"{module}.{name}" for name in re.findall(r"^   ([A-Za-z][\w.]*)$", rest, re.MULTILINE))
    for block in blocks(text, "python"):
        yield from re.findall(r"^import (kernelmosaic[\w.]*)", block, re.MULTILINE)
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kernelmosaic":
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


@each_page()
def test_names_can_be_imported(page):
    for name in names_of_ours(page.read_text(encoding="utf-8")):
        resolve(name)


def test_names_that_are_not_there_are_found():
    assert list(names_of_ours("{meth}`~kernelmosaic.A.b` {class}`the c <kernelmosaic.C>`")) == [
        "kernelmosaic.A.b",
        "kernelmosaic.C",
    ]
    listed = "```{eval-rst}\n.. currentmodule:: a\n\n.. autosummary::\n   :nosignatures:\n\n   B\n   c.D\n```\n"
    assert list(names_of_ours(listed)) == ["a.B", "a.c.D"]
    with pytest.raises(ImportError):
        resolve("kernelmosaic.kernels.NoSuchKernel")


# Pages whose Python is run from top to bottom, each with what its reader is supposed to have.


def samples(n_samples: int = 80) -> dict[str, Any]:
    from sklearn.svm import SVC

    from kernelmosaic import MKLClassifier, MKLOneClass, MKLRegressor, kernels
    from kernelmosaic.kernels import Gaussian, Linear, Polynomial

    X, y = kernelmosaic.datasets.make_gaussians(n_components=3, n_samples=n_samples, random_state=0)
    two = [("linear", Linear()), ("gaussian", Gaussian(1.0))]
    rows = np.random.RandomState(0).uniform(size=(4, 10))
    given = {"X": X, "y": y, "X_new": X[:5], "views": two, "costs": [1.0, 2.0], "kernels": kernels, "SVC": SVC}
    given |= {"MKLClassifier": MKLClassifier, "MKLRegressor": MKLRegressor, "MKLOneClass": MKLOneClass}
    given |= {"Gaussian": Gaussian, "Linear": Linear, "many_kernels": MKLClassifier([Linear(), Polynomial()])}
    return given | dict(zip(("scores_a", "scores_b", "more_a", "more_b"), rows, strict=True))


def samples_and_a_search() -> dict[str, Any]:
    from kernelmosaic import MKLClassifier, model_selection
    from kernelmosaic.kernels import Polynomial

    given = samples(n_samples=40)
    search = model_selection.ResponseSurfaceSearchCV(
        MKLClassifier([Polynomial(), *given["views"]]), on=["penalties", "C"], cv=2, max_iter=1
    )
    return given | {"search": search.fit(given["X"], given["y"])}


def a_few_kernels() -> dict[str, Any]:
    from kernelmosaic.kernels import Gaussian, family

    return samples() | {"kernels": family(Gaussian(), width=[1.0, 4.0])}


RUN: dict[str, Callable[[], dict[str, Any]]] = {
    "index.md": dict,
    "howto.md": dict,
    "convex.md": samples,
    "regularized.md": samples_and_a_search,
    "localized.md": dict,
    "discriminant.md": a_few_kernels,
    "bayesian.md": dict,
    "missing_views.md": dict,
    "scikit_learn.md": dict,
    "himalaya.md": dict,
    "correctness.md": dict,
    "kernels.md": dict,
    "inspection.md": dict,
    "survival.md": dict,
    "pairs.md": dict,
    "choosing.md": dict,
    "uncertainty.md": dict,
    "extending.md": dict,
}


#: What others have is not run: a GPU, files of one's own, an excerpt of a module.
NOT_RUN = {"scale.md", "command_line.md", "datasets.md", "reproduction.md"}


def test_every_page_with_python_is_run_or_says_why_not():
    elsewhere = {"tutorial.md"}  # tests/cli/test_tutorial.py
    found = {page.name for page in DOCS.glob("*.md") if blocks(page.read_text(encoding="utf-8"), "python")}
    assert found == set(RUN) | NOT_RUN | elsewhere


#: Smaller numbers of samples, permutations and folds than those on the pages, for the same reason as below.
SMALLER = {
    "howto.md": {r"\b200\b": "80"},
    "inspection.md": {r"\b80\b": "40", "n_permutations=99": "n_permutations=9", "n_resamples=20": "n_resamples=4"},
    "localized.md": {"n_samples=600": "n_samples=120", "rank=200": "rank=40"},
    "regularized.md": {'on="penalties", cv=cv': 'on="penalties", cv=2, max_iter=1'},
}


def shortened(name: str, text: str) -> str:
    for given, smaller in SMALLER.get(name, {}).items():
        text, count = re.subn(given, smaller, text)
        assert count, f"{name} has no {given!r} any more: leave it out of SMALLER"
    return text


@pytest.fixture
def fewer_tumours(monkeypatch):
    """A part of the samples that pages load: what is looked at is whether their code runs, not what it finds."""
    from sklearn import datasets

    def load(*, return_X_y: bool, whole: Any = datasets.load_breast_cancer, **options: Any) -> tuple[Any, Any]:
        X, y = whole(return_X_y=return_X_y, **options)
        return X[::8], y[::8]

    monkeypatch.setattr(datasets, "load_breast_cancer", load)


@pytest.mark.usefixtures("fewer_tumours")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", RUN)
def test_the_python_of_a_page_runs(name, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)  # models are saved
    found = blocks(shortened(name, (DOCS / name).read_text(encoding="utf-8")), "python")
    assert found
    namespace = RUN[name]()
    for number, block in enumerate(found, start=1):
        exec(compile(block, f"{name}, block {number}", "exec"), namespace)
    pyplot.close("all")
