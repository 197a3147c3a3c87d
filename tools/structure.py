"""Figures of the source tree: how much there is, and how many places a reader has to visit.

python tools/structure.py            # print the table
python tools/structure.py --write    # put it into docs/modules.md, between its markers, and docs/modules.csv
"""

from __future__ import annotations

import argparse
import ast
import csv
import io
import re
import sys
from functools import cache
from pathlib import Path
from types import FrameType

TOP = Path(__file__).parents[1]
SRC = TOP / "src"
PAGE = TOP / "docs" / "modules.md"
BEGIN, END = "<!-- figures of tools/structure.py -->", "<!-- end of figures -->"
MODULES = PAGE.with_suffix(".csv")
#: The same figures at the end of version 0.2.
BEFORE = {
    "lines in the wheel": 36_791,
    "lines of code, without docstrings, comments and blanks": 22_186,
    "files in the wheel": 155,
    "module constants": 483,
    "occurrences of `Any`": 2_481,
    "import circles, type-checking imports included": 1,
    "tests that replace attributes (`monkeypatch.setattr`)": 94,
    "files that a kernel takes, on a device and in Fourier features included": 3,
    "source files entered by `MKLClassifier().fit` on 300 samples": 28,
    "functions entered by it, without comprehensions": 300,
}


def sources() -> dict[str, Path]:
    """Return the modules of the wheel, by name."""
    paths = sorted((SRC / "kernelmosaic").rglob("*.py"))
    return {".".join(p.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): p for p in paths}


@cache
def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a module, read once for all figures."""
    return ast.parse(text)


def imported(tree: ast.AST, modules: dict[str, Path]) -> set[str]:
    """Return the modules that one imports, inside functions and type-checking blocks too."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {resolved(f"{node.module}.{alias.name}") for alias in node.names}
            # A name that is no module comes from the package or module before it.
            found |= {name if name in modules else name.rpartition(".")[0] for name in names}
    return found & modules.keys()


def resolved(name: str) -> str:
    """Return a dotted name with the module of `kernelmosaic.gpu` that defines it, where that is loaded on first use."""
    from kernelmosaic.gpu import HOMES

    package, _, last = name.rpartition(".")
    return f"{package}.{HOMES[last]}.{last}" if package == "kernelmosaic.gpu" and last in HOMES else name


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
    trees = {name: parsed(path.read_text(encoding="utf-8")) for name, path in modules.items()}
    graph = {name: imported(tree, modules) - {name, "kernelmosaic"} for name, tree in trees.items()}
    return circles(graph)


def entered() -> tuple[set[str], set[tuple[str, str, int]]]:
    """Return the source files and the functions that a second fit of 300 samples, everything imported, enters."""
    from kernelmosaic import MKLClassifier, datasets

    X, y = datasets.make_gaussians(n_components=4, n_samples=300, random_state=0)
    MKLClassifier().fit(X, y)
    functions: set[tuple[str, str, int]] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name not in _COMPREHENSIONS:
            functions.add((code.co_filename, code.co_name, code.co_firstlineno))

    sys.setprofile(note)
    try:
        MKLClassifier().fit(X, y)
    finally:
        sys.setprofile(None)
    ours = {one for one in functions if one[0].startswith(str(SRC / "kernelmosaic"))}
    return {str(Path(name).relative_to(SRC)) for name, _, _ in ours}, ours


_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


def code_lines(text: str) -> int:
    """Return how many lines hold code: neither docstrings nor comments alone nor nothing."""
    prose: set[int] = set()
    strings: set[int] = set()
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            strings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
                prose |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = (line.strip() for line in text.split("\n"))
    used = {number for number, line in enumerate(lines, start=1) if line and not line.startswith("#")}
    return len((used | strings) - prose)


def constants(text: str) -> int:
    """Return how many names in capitals a module assigns at its top."""
    count = 0
    for node in parsed(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [x for t in targets for x in (t.elts if isinstance(t, ast.Tuple) else [t])]
        count += sum(isinstance(x, ast.Name) and bool(re.fullmatch(r"_?[A-Z][A-Z0-9_]*", x.id)) for x in names)
    return count


def replacing_tests() -> int:
    """Return how many functions of the tests replace an attribute of something."""
    count = 0
    for path in (TOP / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "monkeypatch.setattr" in text:
            nodes = ast.walk(ast.parse(text))
            count += sum(isinstance(f, ast.FunctionDef) and any(map(_replaces, ast.walk(f))) for f in nodes)
    return count


def _replaces(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "setattr" and getattr(node.value, "id", "") == "monkeypatch"


def static_figures() -> dict[str, int]:
    """Return what can be counted without running anything."""
    modules = sources()
    texts = [path.read_text(encoding="utf-8") for path in modules.values()]
    found = (
        sum(text.count("\n") for text in texts),
        sum(map(code_lines, texts)),
        len(modules),
        sum(map(constants, texts)),
        sum(len(re.findall(r"\bAny\b", text)) for text in texts),
        len(import_circles()),
        replacing_tests(),
        sum(mentions(text, "Laplacian") for text in texts),
    )
    return dict(zip(BEFORE, found, strict=False))


def mentions(text: str, name: str) -> bool:
    """Whether the code, not its prose, defines, imports or uses a name."""
    nodes = ast.walk(parsed(text)) if name in text else ()
    return any(name in (getattr(node, "id", None), getattr(node, "name", None)) for node in nodes)


def table() -> str:
    """Return the figures at the end of version 0.2, and now, as Markdown."""
    files, functions = entered()
    now = dict(zip(BEFORE, (*static_figures().values(), len(files), len(functions)), strict=True))
    rows = [f"| {name} | {BEFORE[name]:,} | {value:,} |" for name, value in now.items()]
    return "\n".join(["| figure | version 0.2 | now |", "| --- | --- | --- |", *rows])


def module_table() -> str:
    """Return every module with its one sentence, as comma-separated values."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(["module", "what it is for"])
    for path in sources().values():
        sentence = (ast.get_docstring(parsed(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
        writer.writerow([f"`{path.relative_to(SRC / 'kernelmosaic').as_posix()}`", " ".join(sentence.split())])
    return written.getvalue()


def _between(page: str, begin: str, end: str, text: str) -> str:
    head, _, rest = page.partition(begin)
    return f"{head}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}"


def figures_on_page() -> dict[str, int]:
    """Return the figures that docs/modules.md gives for now."""
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = re.findall(r"^\| (.+) \| [\d,]+ \| ([\d,]+) \|$", written, re.MULTILINE)
    return {name: int(value.replace(",", "")) for name, value in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/modules.md and docs/modules.csv")
    parser.add_argument("--details", action="store_true", help="name the circles and the files")
    arguments = parser.parse_args()
    found = table()
    print(found)
    if arguments.details:
        print(*map(" <-> ".join, import_circles()), *sorted(entered()[0]), sep="\n")
    if arguments.write:
        PAGE.write_text(_between(PAGE.read_text(encoding="utf-8"), BEGIN, END, found), encoding="utf-8")
        MODULES.write_text(module_table(), encoding="utf-8")


if __name__ == "__main__":
    main()
