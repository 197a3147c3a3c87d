"""Figures of the source tree: how much there is, and how many places a reader has to visit.

python tools/structure.py            # print the table
python tools/structure.py --write    # put it into docs/architecture.md, between its markers
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path
from types import FrameType

TOP = Path(__file__).parents[1]
SRC = TOP / "src"
PAGE = TOP / "docs" / "architecture.md"
BEGIN, END = "<!-- figures of tools/structure.py -->", "<!-- end of figures -->"
#: The same figures before the library was rebuilt for version 0.2.
BEFORE = {
    "lines in the wheel": 30_617,
    "files in the wheel": 262,
    "modules named `_torch_…`": 15,
    "registrations of single-dispatch functions": 23,
    "import circles": 8,
    "files that a kernel takes, on a device and in Fourier features included": 8,
    "source files entered by `MKLClassifier().fit` on 300 samples": 38,
}


def sources() -> dict[str, Path]:
    """Return the modules of the wheel, by name."""
    paths = sorted((SRC / "kernelmosaic").rglob("*.py"))
    return {".".join(p.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): p for p in paths}


def imported(tree: ast.AST, modules: dict[str, Path]) -> set[str]:
    """Return the modules that one imports, inside functions too; what only a type checker reads does not count."""
    found: set[str] = set()
    if isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.unparse(tree.test):
        return found
    if isinstance(tree, ast.Import):
        found |= {alias.name for alias in tree.names}
    elif isinstance(tree, ast.ImportFrom) and tree.module:
        found |= {f"{tree.module}.{alias.name}" for alias in tree.names}
        # A name that is no module comes from the package or module before it.
        found = {name if name in modules else tree.module for name in found}
    for child in ast.iter_child_nodes(tree):
        found |= imported(child, modules)
    return found & modules.keys()


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that import each other, directly or by others (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            at = stack.index(name)
            members = stack[at:]
            del stack[at:]
            if len(members) > 1:
                found.append(sorted(members))

    for name in graph:
        if name not in order:
            visit(name)
    return found


def import_circles() -> list[list[str]]:
    """Return the circles of the package; its front page, which resolves names on demand, is not part of any."""
    modules = sources()
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules.items()}
    graph = {name: imported(tree, modules) - {name, "kernelmosaic"} for name, tree in trees.items()}
    return circles(graph)


def files_entered() -> set[str]:
    """Return the source files in which a second fit of 300 samples, everything being imported, calls a function."""
    from kernelmosaic import MKLClassifier, datasets

    X, y = datasets.make_gaussians(n_components=4, n_samples=300, random_state=0)
    MKLClassifier().fit(X, y)
    entered: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        MKLClassifier().fit(X, y)
    finally:
        sys.setprofile(None)
    return {str(Path(name).relative_to(SRC)) for name in entered if name.startswith(str(SRC / "kernelmosaic"))}


def static_figures() -> dict[str, int]:
    """Return what can be counted without running anything."""
    modules = sources()
    texts = [path.read_text(encoding="utf-8") for path in modules.values()]
    return {
        "lines in the wheel": sum(text.count("\n") for text in texts),
        "files in the wheel": len(modules),
        "modules named `_torch_…`": sum(name.rpartition(".")[2].startswith("_torch_") for name in modules),
        "registrations of single-dispatch functions": sum(
            len(re.findall(r"^@\w+\.register", text, re.MULTILINE)) for text in texts
        ),
        "import circles": len(import_circles()),
        "files that a kernel takes, on a device and in Fourier features included": sum(
            mentions(text, "Laplacian") for text in texts
        ),
    }


def mentions(text: str, name: str) -> bool:
    """Whether the code, not its prose, defines, imports or uses a name."""
    nodes = ast.walk(ast.parse(text))
    return any(name in (getattr(node, "id", None), getattr(node, "name", None)) for node in nodes)


def table() -> str:
    """Return the figures before the rebuilding for version 0.2, and now, as Markdown."""
    now = static_figures() | {"source files entered by `MKLClassifier().fit` on 300 samples": len(files_entered())}
    rows = [f"| {name} | {BEFORE[name]:,} | {value:,} |" for name, value in now.items()]
    return "\n".join(["| figure | before | now |", "| --- | --- | --- |", *rows])


def figures_on_page() -> dict[str, int]:
    """Return the figures that docs/architecture.md gives for now."""
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = re.findall(r"^\| (.+) \| [\d,]+ \| ([\d,]+) \|$", written, re.MULTILINE)
    return {name: int(value.replace(",", "")) for name, value in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into docs/architecture.md")
    parser.add_argument("--details", action="store_true", help="name the circles and the files")
    arguments = parser.parse_args()
    found = table()
    print(found)
    if arguments.details:
        print(*map(" <-> ".join, import_circles()), *sorted(files_entered()), sep="\n")
    if arguments.write:
        page = PAGE.read_text(encoding="utf-8")
        head, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n\n{found}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
