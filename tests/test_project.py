"""House rules that can be checked: no one's paths, one version, folders that are linted, a README
whose words hold."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import pytest

import kernelmosaic
from tools.mutations import MUTATIONS, Mutation, changed, selected
from tools.structure import (
    MEASURES,
    checks_of_form,
    count_defined,
    count_tokens,
    ended_loops,
    foreign_stores,
    trees,
)

TOP = Path(__file__).parents[1]

# Written in parts so that this file does not find itself.
MACHINE_PATHS = re.compile(
    "|".join(
        [
            "/" + r"(?:work|farm|root)(?:/|\b)",
            "/" + r"(?:home|Users)/[a-z][\w.-]*/",
            "/" + r"tmp/bash_jobs",
            r"[A-Z]:\\" + r"Users\\",
        ]
    )
)


def own_files() -> list[Path]:
    """What git tracks, and what it would if it were added now."""
    if shutil.which("git") is None or not (TOP / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (TOP / name for name in listing.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def own_text_files() -> list[Path]:
    return [path for path in own_files() if b"\0" not in path.read_bytes()[:4096]]


def test_no_file_is_large():
    """Packages and data that were downloaded are larger than whatever belongs here."""
    assert [f"{path.relative_to(TOP)}" for path in own_files() if path.stat().st_size > 2**20] == []


def test_no_file_knows_a_path_of_someones_machine():
    files = own_text_files()
    assert TOP / "pyproject.toml" in files
    found = []
    for path in files:
        text = path.read_text(encoding="utf-8")
        # Line by line where there is one.
        for number, line in enumerate(
            text.splitlines() if MACHINE_PATHS.search(text) else (), start=1
        ):
            if MACHINE_PATHS.search(line):
                found.append(f"{path.relative_to(TOP)}:{number}: {line.strip()[:100]}")
    assert found == []


@pytest.mark.parametrize(
    "text", ["/" + "work/x.py", "see /" + "root", "/" + "home/ada/data", "C:" + r"\Users\ada"]
)
def test_the_search_for_paths_finds_them(text):
    assert MACHINE_PATHS.search(text)


@pytest.mark.parametrize(
    "text", ["network/", "https://example.org/homework/a", "and/or", "framework"]
)
def test_the_search_for_paths_leaves_words_alone(text):
    assert not MACHINE_PATHS.search(text)


def test_the_wheel_holds_the_library_alone():
    builds = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"][
        "build"
    ]["targets"]
    assert builds["wheel"]["packages"] == ["src/kernelmosaic"]
    assert not any((TOP / "src").rglob("published.csv"))
    # The source distribution has what runs the papers again, and its tests.
    assert {"/src", "/reproduction", "/tools", "/tests"} <= set(builds["sdist"]["include"])


def test_every_folder_with_python_is_linted_and_complex_functions_are_refused():
    tools = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    # `ruff check .` reads all that is not excluded.
    assert {"exclude", "extend-exclude"} & (
        set(tools["ruff"]) | set(tools["ruff"]["lint"])
    ) == set()
    assert "C901" in tools["ruff"]["lint"]["select"]
    assert {"src", "reproduction", "tools"} <= set(tools["mypy"]["files"])


def test_the_measures_of_the_tree_are_counted():
    script = TOP / "tools" / "structure.py"
    environment = os.environ | {"PYTHONPATH": str(TOP / "src")}
    printed = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True
    ).stdout
    header, _, *rows = printed.splitlines()
    assert [cell.strip() for cell in header.strip("|").split("|")] == [
        "measure",
        "0.4.0",
        "now",
        "wanted",
    ]
    now = {}
    for row in rows:
        measure, _, figure, _ = (cell.strip() for cell in row.strip("|").split("|"))
        # Of a span, such as that of the folders of families, the end.
        now[measure] = int(figure.replace(",", "").split(" to ")[-1])
    assert list(now) == list(MEASURES)
    tokens, classes, least_squares, *by_name = list(now.values())
    assert 200_000 < tokens < 600_000
    assert 250 < classes < 800
    assert 1 <= least_squares < 30
    ways_to_fit, certifying, choosing, frames, entered, asked, stores, folders, kinds, places = (
        by_name
    )
    assert all(1 <= count <= 10 for count in (ways_to_fit, certifying, choosing, folders))
    assert 8 <= frames <= 40
    assert 100 <= entered <= 600
    assert 0 <= asked < 100
    assert 0 <= stores < 200
    assert 0 <= kinds <= places < 30


def test_a_definition_that_is_gone_is_named():
    assert count_defined(["MKLClassifier", "BaseMKL.fit"]) == 2
    with pytest.raises(LookupError, match=r"names NoSuchForm, which src/ no longer defines"):
        count_defined(["MKLClassifier", "NoSuchForm"])


@pytest.mark.parametrize(
    ("source", "count", "expected"),
    [
        ("isinstance(a, PairStack | list) and isinstance(b, int)", checks_of_form, 1),
        ("def f(self):\n    self.a = b.c\n    d.e, f = 1, 2\n    self.g.h += 1", foreign_stores, 2),
        ("with suppress(ExhaustedError, ValueError):\n    pass", ended_loops, 1),
        ("try:\n    pass\nexcept (ExhaustedError, _Done):\n    pass", ended_loops, 2),
    ],
)
def test_what_the_measures_count(source, count, expected):
    assert len(list(count(ast.parse(source)))) == expected


def test_tokens_of_comments_and_docstrings_do_not_count():
    assert (
        count_tokens(
            '"""A module."""\n# a comment\nx = 1\n\n\ndef f():\n    """F."""\n    return x\n'
        )
        == 10
    )


def test_every_module_says_what_it_is_for():
    empty = [name for name, tree in trees().items() if not ast.get_docstring(tree)]
    assert empty == []


def test_every_mutation_applies_and_names_tests_that_are_there():
    assert len({one.name for one in MUTATIONS}) == len(MUTATIONS) >= 45
    for one in MUTATIONS:
        before = one.path(TOP).read_text(encoding="utf-8")
        text = one.applied(TOP)
        assert text != before
        compile(text, one.file, "exec")
        assert selected(one, None)


def test_a_mutation_whose_text_is_gone_says_so(tmp_path: Path):
    path = tmp_path / "src/kernelmosaic/a.py"
    path.parent.mkdir(parents=True)
    one = Mutation("sign", "sign of a sum", "a.py", "a + b", "a - b", ("test_project.py",))
    with pytest.raises(
        ValueError, match=r"sign no longer applies: there is no file src/kernelmosaic/a\.py"
    ):
        one.applied(tmp_path)
    for text, count in (("a * b\n", 0), ("a + b\na + b\n", 2)):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(
            ValueError, match=f"mutation sign no longer applies: .* has its text {count} times"
        ):
            one.applied(tmp_path)
    path.write_text("c = a + b\n", encoding="utf-8")
    with changed(one, tmp_path):
        assert path.read_text(encoding="utf-8") == "c = a - b\n"
    assert path.read_text(encoding="utf-8") == "c = a + b\n"
    with pytest.raises(ValueError, match=r"mutation sign: there is no tests/test_project\.py"):
        selected(one, None, tmp_path)


def test_one_version_everywhere():
    version = re.escape(kernelmosaic.__version__)
    assert re.search(
        rf"^version: {version}$", (TOP / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert re.search(
        rf"^## \[{version}\]", (TOP / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )


def test_the_recipe_needs_what_the_package_needs():
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = (TOP / "packaging/conda/recipe.yaml").read_text(encoding="utf-8")
    run = re.search(r"^  run:\n((?:    - .*\n)+)", recipe, re.MULTILINE)
    assert run is not None
    needed = {line.strip("- ").replace(" ", "") for line in run[1].splitlines()}
    assert needed == {*project["dependencies"], f"python{project['requires-python']}"}


def test_the_extra_all_brings_every_extra_that_users_have():
    extras = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]

    def brought(name: str) -> set[str]:
        found = {name}
        for one in extras[name]:
            if inner := re.match(r"kernelmosaic\[(.*)\]", one):
                found |= set().union(*map(brought, inner[1].split(",")))
        return found

    assert brought("all") == set(extras) - {
        "test",
        "lint",
        "docs",
        "studies",
        "coverage",
        "release",
    }


def readme_blocks(language: str) -> list[str]:
    text = (TOP / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_readme_opens_with_its_two_commands():
    commands = [line.split("#")[0].strip() for line in readme_blocks("sh")[0].splitlines()]
    assert commands == ["make demo", "make test"]


def test_the_readmes_python_prints_what_it_says(capsys):
    first, *others = readme_blocks("python")
    assert len(first.splitlines()) == 5
    exec(compile(first, "README.md", "exec"), {})
    number = r"\d+\.\d+"
    said, printed = readme_blocks("text")[0], capsys.readouterr().out
    assert re.sub(number, "#", said) == re.sub(number, "#", printed)
    assert [float(one) for one in re.findall(number, printed)] == pytest.approx(
        [float(one) for one in re.findall(number, said)], abs=0.02
    )
    for block in others:
        exec(compile(block, "README.md", "exec"), {})


def test_what_reviewers_are_told_of_is_there():
    contributing = (TOP / "CONTRIBUTING.md").read_text(encoding="utf-8")
    told = re.findall(r"`([^`\n]+)`", contributing.split("## For reviewers\n")[1])
    targets = re.findall(
        r"^([a-z-]+):", (TOP / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    files = [
        name for name in told if re.search(r"^\.|[/.]\w", name) and not name.startswith("datasets.")
    ]
    assert len(files) > 20
    assert [name for name in files if not (TOP / name).exists()] == []
    assert [
        name
        for name in told
        if name.startswith("make ") and name.removeprefix("make ") not in targets
    ] == []
    workflow = (TOP / ".github/workflows/test.yml").read_text(encoding="utf-8")
    assert all(
        version in workflow for version in ("3.11", "3.14", "macos", "windows", "make test-lowest")
    )


def test_the_package_fetches_nothing():
    words = re.compile(
        r"^\s*(?:import|from) (?:urllib|http|socket|requests|aiohttp)\b|fetch_\w+\(", re.MULTILINE
    )
    found = [
        path.name
        for path in (TOP / "src").rglob("*.py")
        if words.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_the_page_of_methods_names_every_public_estimator():
    text = (TOP / "docs/methods.md").read_text(encoding="utf-8")
    for name in kernelmosaic.estimators.__all__:
        assert re.search(rf"\b{name}`", text), name


def test_the_reference_lists_what_public_modules_export_and_nothing_else():
    page = (TOP / "docs/api.md").read_text(encoding="utf-8")
    sections = re.findall(r"^\.\. currentmodule:: (\S+)$(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    listed = {
        f"{home}.{name}"
        for home, text in sections
        for name in re.findall(r"^   ([\w.]+)$", text, re.MULTILINE)
    }
    known = {id(resolve_name(name)) for name in listed}
    modules = [getattr(kernelmosaic, name) for name in kernelmosaic.__all__]
    modules = [kernelmosaic, *(one for one in modules if isinstance(one, ModuleType))]
    assert len(modules) > 10
    for module in modules:
        exported = {
            name
            for name in module.__all__
            if not isinstance(getattr(module, name), ModuleType | str)
        }
        assert [name for name in sorted(exported) if id(getattr(module, name)) not in known] == []
        own = {
            name.removeprefix(f"{module.__name__}.")
            for name in listed
            if name.startswith(f"{module.__name__}.")
        }
        # The first page of the reference has the estimators of single papers beside those that the
        # package lists.
        known_here = exported | set(
            kernelmosaic.estimators.__all__ if module is kernelmosaic else ()
        )
        assert {name for name in own if "." not in name} <= known_here
        if module is not kernelmosaic and hasattr(module, "__path__"):
            # A package shows what it exports, and nothing else.
            shown = {name for name in dir(module) if not name.startswith("_")} - {"annotations"}
            assert {
                name for name in shown if not isinstance(getattr(module, name), ModuleType)
            } == exported


@pytest.mark.parametrize(
    "part", ["cli", "inspection", "plots", "demo.py", "reports.py", "tables.py"]
)
def test_the_face_reads_public_names_only(part):
    """What users see reads no private name of an object or a module that another part of the
    package defines."""
    path = TOP / "src/kernelmosaic" / part
    trees = [
        ast.parse(file.read_text(encoding="utf-8"))
        for file in ([path] if path.is_file() else path.glob("*.py"))
    ]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    reads = [
        node for node in nodes if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr)
    ]
    foreign = {
        ast.unparse(node)
        for node in reads
        if node.attr not in own and ast.unparse(node.value) not in ("self", "cls")
    }
    names = {
        f"{node.module}.{name.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    foreign |= {name for name in names if re.fullmatch(r"kernelmosaic\..*\._[a-z]\w*", name)}
    assert foreign == set()


def test_the_demonstration_installs_what_draws_its_pictures(tmp_path: Path) -> None:
    planned = subprocess.run(
        ["make", "--dry-run", "demo", f"VENV={tmp_path}"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    assert '--no-compile --editable ".[cli,plots]"' in planned.stdout
