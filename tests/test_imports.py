"""Who may import whom, which packages must wait until they are needed, and what `import
kernelmosaic` costs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tools.structure import circles, import_circles, parsed, resolved

SRC = Path(__file__).parents[1] / "src"
ROOT = SRC / "kernelmosaic"

#: Rooms from the ground up. A room may import those on lower floors, never one above nor a
#: neighbour.
FLOORS = (
    {"_checks", "_typing"},
    {"backend", "files", "frames", "row_order", "stacking"},
    {"gpu"},
    {"kernels"},
    {"gram", "imputing"},
    {"solvers"},
    {"machines"},
    {"learning"},
    {"engine"},
    {"estimators", "plots.drawing"},
    {
        "bayesian",
        "discriminant",
        "localized",
        "multiclass",
        "pairs",
        "ridge",
        "survival",
        "unlabelled",
    },
    {"gating", "metrics"},
    {"model_selection", "stats", "persistence"},
    {"datasets", "inspection", "single_cell"},
    {"plots"},
    {"reports"},
    {"tables"},
    {"schema"},
    {"demo"},
    {"cli"},
    {"__main__"},
)
#: Families: one method of the field each, in one folder. The core, on the floors below, imports
#: none of them, and they import each other only where `LENT` says so, with the reason.
FAMILIES = {
    "bayesian",
    "discriminant",
    "localized",
    "multiclass",
    "pairs",
    "ridge",
    "survival",
    "unlabelled",
}
LENT = {
    ("bayesian", "localized"): "gates with posteriors read of samples what other gates do",
    ("pairs", "ridge"): "least squares on pairs have the criteria of the ridge estimators",
}
#: Lists of public names, which name families without loading them.
DOORS = {
    "kernelmosaic",
    "kernelmosaic.estimators",
    "kernelmosaic.kernels",
    "kernelmosaic.plots",
}
#: Modules that are rooms of their own, below the rest of their package: what all displays draw
#: with, those of families too.
BASES = {"plots.drawing"}
#: A module of `gpu` belongs to the room whose work it does on a device; the entry imports none of
#: them by itself.
ON_A_DEVICE = {
    "_torch_passes": "gram",
    "products": "gram",
    "programs": "solvers",
    "tuning": "gram",
    "paths": "learning",
    "folds": "engine",
}
#: Packages of the repository that the wheel does not hold.
OUTSIDE = {"reproduction", "studies", "tests", "benchmarks", "tools"}
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

#: Packages slow to import or not always there. Each may stand at the head of a module named
#: `_<package>_…` (itself imported inside functions only) or of a room listed here; anywhere else it
#: is imported where it is used.
LATE = {
    package: set() for package in ("numba", "clarabel", "matplotlib", "pandas", "polars", "skops")
}
LATE |= {package: set() for package in ("torch", "dask", "distributed", "anndata", "mudata")}
LATE |= {"typer": {"cli"}, "rich": {"cli"}, "pandas": {"tables"}}


@dataclass(frozen=True)
class Import:
    """One imported module, and whether the statement runs as the file is loaded."""

    target: str
    line: int
    at_load: bool


def imports_of(source: str, package: str) -> Iterator[Import]:
    """Yield what the source of a module inside `package` imports; `if TYPE_CHECKING:` blocks are
    never loaded."""

    def visit(node: ast.AST, at_load: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            # `from package import name`: the name may itself be a module, so both are what is
            # imported
            yield from (
                Import(f"{base}.{alias.name}", node.lineno, at_load) for alias in node.names
            )
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from visit(child, False)
            for child in node.orelse:
                yield from visit(child, at_load)
        else:
            inside = at_load and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for child in ast.iter_child_nodes(node):
                if isinstance(
                    child, ast.stmt | ast.excepthandler | ast.match_case
                ):  # no expression holds an import
                    yield from visit(child, inside)

    return visit(parsed(source), True)


def room_of(module: str) -> str:
    """Return the room of a dotted name inside the package."""
    _, room, *rest = module.split(".")
    if not rest:
        return room
    if f"{room}.{rest[0]}" in BASES:
        return f"{room}.{rest[0]}"
    return ON_A_DEVICE.get(rest[0], f"gpu.{rest[0]}") if room == "gpu" else room


def faults(source: str, module: str, is_package: bool = False) -> list[str]:
    """Return what is wrong with the imports of one module, a sentence each."""
    package = module if is_package else module.rpartition(".")[0]
    room = room_of(module)
    own_name = module.rpartition(".")[2]
    found = []
    for item in imports_of(source, package):
        target = resolved(item.target)
        top, *rest = target.split(".")
        where = f"{module}, line {item.line}"
        if top in OUTSIDE:
            found.append(f"{where}: the library may not import {top}, which is not in the wheel")
        if top == "kernelmosaic" and rest and not rest[0].startswith("__"):
            other = room_of(target)
            if other not in FLOOR:
                found.append(f"{where}: {item.target} is in no room the architecture knows")
            elif other != room and FLOOR[other] >= FLOOR[room] and (room, other) not in LENT:
                found.append(f"{where}: {room} may not import {other}, which stands no lower")
            # A module of that kind has waited already, and may start with others of its kind.
            kinds = tuple(f"_{name}_" for name in LATE if not own_name.startswith(f"_{name}_"))
            # What a command of the command line needs is imported when it runs.
            is_free = room in (*LATE["pandas"], "cli")
            late_modules = [
                part
                for part in rest
                if part.startswith(kinds) or (part in LATE["pandas"] and not is_free)
            ]
            if late_modules and item.at_load:
                found.append(f"{where}: {late_modules[0]} must be imported inside a function")
        if (
            top in LATE
            and item.at_load
            and room not in LATE[top]
            and not own_name.startswith(f"_{top}_")
        ):
            found.append(
                f"{where}: {top} must be imported inside a function, or in a module named _{top}_…"
            )
    return found


def modules() -> list[tuple[Path, str]]:
    named = (
        (path, path.relative_to(SRC).with_suffix("").parts) for path in sorted(ROOT.rglob("*.py"))
    )
    return [(path, ".".join(parts).removesuffix(".__init__")) for path, parts in named]


@pytest.mark.parametrize(
    ("path", "module"), [pytest.param(*pair, id=pair[1]) for pair in modules()]
)
def test_imports_point_downwards_and_heavy_packages_wait(path, module):
    source = path.read_text(encoding="utf-8")
    if module in DOORS:  # they see every room, and open none by themselves
        loaded = [item.target for item in imports_of(source, module) if item.at_load]
        ours = [target for target in loaded if target.startswith("kernelmosaic.")]
        assert [target for target in ours if not target.startswith(f"{module}.")] == []
        assert module != "kernelmosaic" or ours == []
        return
    assert room_of(module) in FLOOR, (
        f"{module}: name its floor in this test and in docs/architecture.md"
    )
    assert faults(source, module, path.name == "__init__.py") == []


@pytest.mark.parametrize(
    ("source", "module", "is_fault"),
    [
        ("from kernelmosaic.gram import Stack", "kernelmosaic.kernels.base", True),
        (
            "from kernelmosaic.gram._torch_stack import Stack",
            "kernelmosaic.gram._torch_products",
            False,
        ),
        (
            "from kernelmosaic.gram._torch_stack import Stack",
            "kernelmosaic.gram._numba_stack",
            True,
        ),
        ("from kernelmosaic import gram", "kernelmosaic.kernels.base", True),
        ("from kernelmosaic.gpu import add_gaussians", "kernelmosaic.gram.stack", True),
        (
            "def f():\n    from kernelmosaic.gpu import add_gaussians",
            "kernelmosaic.gram.stack",
            False,
        ),
        (
            "def f():\n    from kernelmosaic.gpu import follow_together",
            "kernelmosaic.gram.stack",
            True,
        ),
        (
            "def f():\n    from kernelmosaic.gpu.programs import ProgramBatch",
            "kernelmosaic.gram.stack",
            True,
        ),
        ("from kernelmosaic.machines import SVC", "kernelmosaic.gpu.programs", True),
        ("from kernelmosaic.solvers import Program", "kernelmosaic.gpu.paths", False),
        ("import kernelmosaic.estimators.mkl", "kernelmosaic.machines.base", True),
        ("from ..estimators import MKLClassifier", "kernelmosaic.machines.base", True),
        ("def f():\n    from kernelmosaic.machines import SVC", "kernelmosaic.solvers.smo", True),
        (
            "if TYPE_CHECKING:\n    from kernelmosaic.machines import SVC",
            "kernelmosaic.solvers.smo",
            True,
        ),
        ("from kernelmosaic.stats import wilcoxon", "kernelmosaic.model_selection.search", True),
        ("from kernelmosaic.attic import thing", "kernelmosaic.cli", True),
        ("def f():\n    from reproduction import EXPERIMENTS", "kernelmosaic.cli.fit", True),
        ("import numba", "kernelmosaic.solvers.smo", True),
        (
            "try:\n    import torch\nexcept ImportError:\n    torch = None",
            "kernelmosaic.gram.stack",
            True,
        ),
        ("class A:\n    import matplotlib.pyplot as plt", "kernelmosaic.plots.plane", True),
        ("from kernelmosaic.solvers._numba_smo import ascend", "kernelmosaic.solvers.smo", True),
        ("from kernelmosaic.solvers import _numba_smo", "kernelmosaic.solvers.smo", True),
        ("from kernelmosaic.plots import drawing", "kernelmosaic.survival.displays", False),
        ("from kernelmosaic.plots.drawing import Display", "kernelmosaic.ridge.displays", False),
        ("from kernelmosaic.plots.plane import Display", "kernelmosaic.ridge.displays", True),
        ("from kernelmosaic.ridge import displays", "kernelmosaic.plots.drawing", True),
        ("import typer", "kernelmosaic.estimators.mkl", True),
        ("from kernelmosaic.tables import read_table", "kernelmosaic.cli.fit", False),
        ("from kernelmosaic.tables import read_table", "kernelmosaic.demo", True),
        ("def f():\n    from kernelmosaic.tables import read_table", "kernelmosaic.demo", False),
        ("from kernelmosaic.gram import Stack", "kernelmosaic.machines.base", False),
        ("from kernelmosaic.kernels.base import Kernel", "kernelmosaic.kernels.numeric", False),
        ("from .base import Kernel", "kernelmosaic.kernels.numeric", False),
        ("def f():\n    import numba", "kernelmosaic.solvers.smo", False),
        (
            "def f():\n    from kernelmosaic.solvers._numba_smo import ascend",
            "kernelmosaic.solvers.smo",
            False,
        ),
        ("from numba import njit", "kernelmosaic.solvers._numba_smo", False),
        ("if TYPE_CHECKING:\n    import torch", "kernelmosaic.gram.stack", False),
        ("from kernelmosaic import __version__", "kernelmosaic.cli", False),
    ],
)
def test_the_walk_itself_sees_what_it_must(source, module, is_fault):
    assert bool(faults(source, module)) == is_fault


#: Circles of modules that import each other, which are to go. No other may come; one that is gone
#: leaves the list.
KNOWN_CIRCLES: tuple[set[str], ...] = ()


def test_imports_go_round_in_no_new_circle():
    found = [{name.removeprefix("kernelmosaic.") for name in circle} for circle in import_circles()]
    new = [circle for circle in found if not any(circle <= known for known in KNOWN_CIRCLES)]
    assert new == [], "these modules import each other; move what they share to a third"
    gone = [known for known in KNOWN_CIRCLES if known not in found]
    assert gone == [], "these circles are gone or smaller: shorten KNOWN_CIRCLES"


def test_the_search_for_circles_finds_them():
    graph = {
        "a": {"b"},
        "b": {"c"},
        "c": {"a"},
        "d": {"a"},
        "e": {"f"},
        "f": {"e", "d"},
        "g": set(),
    }
    assert circles(graph) == [["a", "b", "c"], ["e", "f"]]
    assert circles({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}) == []


def fresh(code: str) -> str:
    """Run the code in a new interpreter and return what it prints."""
    path = os.pathsep.join(filter(None, (str(SRC), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@cache
def modules_after(*steps: str) -> list[set[str]]:
    """Return the modules that a new interpreter has loaded after each of the steps, which it takes
    in turn."""
    look = "print()\nprint('loaded', *sys.modules)\n"
    lines = fresh("import sys\n" + "".join(f"{step}\n{look}" for step in steps)).splitlines()
    found = [set(line.split()[1:]) for line in lines if line.startswith("loaded ")]
    assert len(found) == len(steps)
    return found


def packages(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


#: What scikit-learn's base classes load by themselves, then its machines.
THEIRS = (
    "import sklearn.base, sklearn.utils.multiclass, sklearn.utils.validation",
    "import sklearn.svm",
)
#: Nothing, the kernels, an estimator, fits to few samples, then the demonstration.
OURS = (
    "import kernelmosaic",
    "import kernelmosaic.kernels",
    "kernelmosaic.MKLClassifier",
    """
import numpy as np
rng = np.random.RandomState(0)
X = rng.standard_normal((200, 5))
target = X[:, 0] + 0.5 * rng.standard_normal(200)
kernelmosaic.MKLClassifier().fit(X, target > 0).predict(X)
""",
    "kernelmosaic.MKLClassifier().fit(X, np.digitize(target, [-0.5, 0.5])).predict(X)",
    "kernelmosaic.MKLRegressor().fit(X, target).predict(X)",
    "kernelmosaic.MKLOneClass().fit(X).predict(X)",
    """
from tempfile import TemporaryDirectory
from kernelmosaic.cli import main
with TemporaryDirectory() as folder:
    shown = main(["demo", "--report", folder + "/page.html"])
""",
    "assert shown == 0",
)


def test_import_loads_no_more_than_scikit_learns_svm():
    # The names resolve on first use, so the plain import alone would say nothing: the class is
    # fetched as well.
    _, theirs = modules_after(*THEIRS)
    bare, _, fetched, *_ = modules_after(*OURS)
    assert len(fetched) <= 1.1 * len(theirs)
    assert len(bare) <= 0.1 * len(theirs)


def test_import_brings_no_late_package_along():
    bare, _, fetched, *_ = modules_after(*OURS)
    ours = packages(fetched)
    assert "kernelmosaic" in ours
    # SciPy's array interface loads pandas and others by itself where they are installed; that is
    # not ours to stop.
    theirs = packages(modules_after(*THEIRS)[1])
    assert set(LATE) & (ours - theirs) == set()
    assert "numba" not in ours
    assert set(LATE) & packages(bare) == set()


def test_importing_the_kernels_loads_nothing_heavy():
    base, _ = modules_after(*THEIRS)
    extra = modules_after(*OURS)[1] - base
    assert "kernelmosaic.kernels" in extra
    assert packages(extra) & {"numba", "pandas"} == set()
    assert (
        extra & {f"sklearn.{room}" for room in ("neighbors", "svm", "metrics", "linear_model")}
        == set()
    )


#: Parts of this package and of scikit-learn that the fit of an estimator has no use for.
ELSEWHERE = {
    f"kernelmosaic.{room}" for room in ("cli", "datasets", "plots", "reports", "stats", "tables")
}
ELSEWHERE |= {f"kernelmosaic.{room}" for room in ("demo", "model_selection", "persistence")}
ELSEWHERE |= {
    f"sklearn.{room}" for room in ("linear_model", "metrics", "model_selection", "neighbors", "svm")
}


def test_a_fit_of_few_samples_loads_neither_a_compiler_nor_what_it_does_not_use():
    base, _ = modules_after(*THEIRS)
    _, _, _, *fits, _, _ = modules_after(*OURS)
    assert len(fits) == 4
    # After each fit, so that the first that loads too much is the one shown.
    for loaded in fits:
        assert "kernelmosaic.solvers.smo" in loaded
        extra = loaded - base
        assert extra & ELSEWHERE == set()
        assert packages(extra) & set(LATE) == set()


def test_the_command_line_loads_what_a_command_needs(tmp_path):
    for package in ("typer", "rich", "pandas", "skops"):
        pytest.importorskip(package)
    from kernelmosaic.cli import main

    rows = [(i % 7, i % 5, "yes" if i % 7 > 2 else "no") for i in range(40)]
    for name, columns in (("table", "aby"), ("new", "ab")):
        lines = [columns, *(row[: len(columns)] for row in rows)]
        text = "\n".join(",".join(map(str, line)) for line in lines)
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    table, model, new, out = (
        str(tmp_path / name) for name in ("table.csv", "model.skops", "new.csv", "out.csv")
    )
    fit = ["fit", table, "--target", "y", "--C", "1", "--folds", "0", "-o", model]
    assert main(fit) == 0
    commands = (["--version"], ["predict", model, new, "-o", out], fit)
    first, *others = (
        f"from kernelmosaic.cli import main\nassert main({arguments!r}) == 0"
        for arguments in commands
    )
    version, allowed, predicted, fitted = modules_after(
        first, "import typer, rich, pandas, skops.io", *others
    )
    assert (
        packages(version) & {"numpy", "scipy", "sklearn", "numba", "pandas", "matplotlib", "skops"}
        == set()
    )
    unused = {
        "kernelmosaic.plots",
        "kernelmosaic.datasets",
        "kernelmosaic.demo",
        "numba",
        "matplotlib",
        "torch",
    }
    assert version & (unused | {"kernelmosaic.cli.fit", "kernelmosaic.cli.report"}) == set()
    assert (fitted - allowed) & unused == set()
    assert (predicted - allowed) & (
        unused | {"kernelmosaic.cli.fit", "kernelmosaic.cli.report"}
    ) == set()


def test_the_demonstration_compiles_nothing():
    for package in ("typer", "rich", "pandas"):
        pytest.importorskip(package)
    # After the fits, which compile nothing either: the test above.
    *_, loaded = modules_after(*OURS)
    assert "kernelmosaic.demo" in loaded
    assert packages(loaded) & {"numba", "torch", "dask", "skops"} == set()


def test_public_names_resolve_and_unknown_ones_say_so():
    import kernelmosaic

    assert set(dir(kernelmosaic)) == {*kernelmosaic.__all__, *kernelmosaic.estimators.__all__}
    for name in kernelmosaic.__all__:
        assert getattr(kernelmosaic, name) is not None
    shown = {name for name in kernelmosaic.__all__ if name[0].isupper()}
    assert len(shown) < 12
    # All others are there as well.
    for name in kernelmosaic.estimators.__all__:
        assert getattr(kernelmosaic, name) is getattr(kernelmosaic.estimators, name)
    assert shown < set(kernelmosaic.estimators.__all__)
    with pytest.raises(AttributeError, match="MKLClasifier"):
        kernelmosaic.MKLClasifier  # noqa: B018
