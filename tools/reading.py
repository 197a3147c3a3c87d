"""Count how densely the source reads, and compare the counts with the agreed figures.

python tools/reading.py                   # one row of figures for src/kernelmosaic
python tools/reading.py --by-folder       # and one row for every folder
python tools/reading.py --worst 20        # and the 20 functions with the most branches
python tools/reading.py --write-limits    # write tools/reading_limits.json

A line of code holds at least one token that is neither a comment nor part of a docstring. The
branches of a function are all decisions that its reader has to take, not only its statements: see
`count_branches`. A figure above the agreed one is marked with `!`.

The file of limits lists what is above the agreed figures. `tests/test_reading.py` compares it with
the source in both directions, so that the list can only become shorter. A good figure does not make
a page readable: code is rewritten for its reader, and the figures follow.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import math
import re
import tokenize
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[1]
SRC = TOP / "src"
LIMITS_FILE = TOP / "tools" / "reading_limits.json"

# The agreed figures -------------------------------------------------------------------------------

#: Columns of the widest line.
MAX_COLUMNS = 100
#: Branches of any function, without exception.
MAX_BRANCHES = 20
#: Branches of a function that need not be listed.
AGREED_BRANCHES = 12
#: Figures of a folder and their ceilings. For comparison: in skglm, himalaya, GPflow,
#: scikit-survival and `sklearn.gaussian_process`, counted in the same way, they are 7.1 to 8.6,
#: 4 to 9, 4 to 12, 0 to 9 and at most 0.2.
AGREED = {
    "tokens per line": 9.5,
    "if-else per 1,000 lines": 15.0,
    "comprehensions per 1,000 lines": 20.0,
    "tuple assignments per 1,000 lines": 10.0,
    "pronouns in %": 1.0,
}
#: Exceptions are figures rounded up to multiples of these steps. A step is less than 5 % of the
#: agreed figure: an exception that was just written is never too high (`MAX_SLACK`).
STEPS = {
    "tokens per line": 0.1,
    "if-else per 1,000 lines": 0.5,
    "comprehensions per 1,000 lines": 0.5,
    "tuple assignments per 1,000 lines": 0.4,
    "pronouns in %": 0.04,
}
#: How far a figure may be below its exception before the exception has to be lowered, relative to
#: the exception.
MAX_SLACK = 0.05

#: Words that say where a name stands in a sentence, not what its value is.
PRONOUNS = frozenset(
    (
        *("after", "alone", "asked", "at", "before", "begins", "begun", "both", "each", "ends"),
        *("every", "far", "few", "found", "given", "here", "judged", "kept", "known", "led"),
        *("like", "made", "many", "most", "near", "now", "one", "other", "others", "own", "part"),
        *("place", "rest", "said", "shown", "some", "there", "used", "what", "whole", "worth"),
    )
)

# Counting -----------------------------------------------------------------------------------------

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
DECISIONS = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.Assert, ast.match_case)
#: Tokens that are no code.
LAYOUT = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"}
#: Comments that are addressed to other tools. As for ruff, they are no part of a line's width.
TOOL_COMMENT = re.compile(r"\s*# (type: ignore|noqa|pragma)\b.*$")


@dataclass(frozen=True)
class Function:
    """A function or method: its place, branches, lines of its body and names that it binds."""

    path: str
    name: str
    line: int
    branches: int
    n_lines: int
    names: frozenset[str]

    @property
    def key(self) -> str:
        """Path and qualified name, as the file of limits lists them."""
        return f"{self.path}:{self.name}"

    @property
    def pronouns(self) -> list[str]:
        """Names that are pronouns or particles, sorted."""
        return sorted(self.names & PRONOUNS)


@dataclass(frozen=True)
class Module:
    """Counts of one file; `wide_lines` are the numbers of lines above `MAX_COLUMNS`."""

    path: str
    n_lines: int
    n_tokens: int
    n_if_else: int
    n_comprehensions: int
    n_tuple_assignments: int
    wide_lines: tuple[int, ...]
    functions: tuple[Function, ...]


def read_tree(folder: Path, root: Path) -> list[Module]:
    """Return the counts of all modules in a folder and below, with paths relative to `root`."""
    return [
        count_module(path.read_text(encoding="utf-8"), path.relative_to(root).as_posix())
        for path in sorted(folder.rglob("*.py"))
    ]


def count_module(text: str, path: str) -> Module:
    """Return the counts of a source text."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    docstring_lines = find_docstring_lines(nodes)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    n_tokens, code_lines = count_tokens(tokens, docstring_lines)
    return Module(
        path=path,
        n_lines=len(code_lines),
        n_tokens=n_tokens,
        n_if_else=sum(isinstance(node, ast.IfExp) for node in nodes),
        n_comprehensions=sum(isinstance(node, COMPREHENSIONS) for node in nodes),
        n_tuple_assignments=sum(map(is_tuple_assignment, nodes)),
        wide_lines=tuple(find_wide_lines(text, tokens, docstring_lines)),
        functions=tuple(find_functions(tree, path)),
    )


def find_docstring_lines(nodes: Iterable[ast.AST]) -> set[int]:
    """Return the numbers of the lines on which docstrings stand."""
    lines: set[int] = set()
    for node in nodes:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Module)):
            if ast.get_docstring(node, clean=False) is None:
                continue
            lines.update(lines_of(node.body[0]))
    return lines


def lines_of(node: ast.stmt | ast.expr) -> range:
    """Return the numbers of the lines of a statement or an expression."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def count_tokens(
    tokens: Iterable[tokenize.TokenInfo], docstring_lines: set[int]
) -> tuple[int, set[int]]:
    """Return the number of tokens of code, and the numbers of the lines on which they stand.

    A formatted string is one token, as Python 3.11 reads it; later versions split it.
    """
    n_tokens = 0
    code_lines: set[int] = set()
    depth = 0  # of formatted strings inside each other
    for token in tokens:
        kind = tokenize.tok_name[token.type]
        if kind in LAYOUT or token.start[0] in docstring_lines:
            continue
        code_lines.update(range(token.start[0], token.end[0] + 1))
        if depth == 0:
            n_tokens += 1
        if kind in {"FSTRING_START", "TSTRING_START"}:
            depth += 1
        elif kind in {"FSTRING_END", "TSTRING_END"}:
            depth -= 1
    return n_tokens, code_lines


def is_tuple_assignment(node: ast.AST) -> bool:
    """Return whether a statement assigns several values to several names: `a, b = x, y`."""
    if not isinstance(node, ast.Assign):
        return False
    return isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)


def find_wide_lines(
    text: str, tokens: Iterable[tokenize.TokenInfo], docstring_lines: set[int]
) -> Iterator[int]:
    """Yield the numbers of lines above `MAX_COLUMNS`.

    Texts of several lines that are no docstrings, such as programs of another language, stand as
    they have to; comments for other tools do not count.
    """
    text_lines: set[int] = set()
    for token in tokens:
        is_text = tokenize.tok_name[token.type] in {"STRING", "FSTRING_MIDDLE", "TSTRING_MIDDLE"}
        if is_text and token.end[0] > token.start[0]:
            text_lines.update(range(token.start[0], token.end[0] + 1))
    text_lines -= docstring_lines

    for number, line in enumerate(text.split("\n"), 1):
        characters = TOOL_COMMENT.sub("", line.rstrip())
        # Combining characters, such as the tilde of Z̃, take no column.
        width = sum(not unicodedata.combining(character) for character in characters)
        if width > MAX_COLUMNS and number not in text_lines:
            yield number


def find_functions(node: ast.AST, path: str, prefix: str = "") -> Iterator[Function]:
    """Yield all functions and methods inside a node, those inside functions too, in their order."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            name = f"{prefix}{child.name}"
            if not isinstance(child, ast.ClassDef):
                yield count_function(child, path, name)
            yield from find_functions(child, path, f"{name}.")
        else:
            yield from find_functions(child, path, prefix)


def count_function(
    function: ast.FunctionDef | ast.AsyncFunctionDef, path: str, name: str
) -> Function:
    """Return the counts of a function, which include those of the functions inside it."""
    names: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)

    n_lines = (function.end_lineno or function.lineno) - function.body[0].lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        n_lines -= len(lines_of(function.body[0]))
    return Function(
        path=path,
        name=name,
        line=function.lineno,
        branches=count_branches(function),
        n_lines=n_lines,
        names=frozenset(names),
    )


def count_branches(function: ast.AST) -> int:
    """Return 1 plus the number of decisions in a function.

    Decisions are `if`, loops, `except`, `assert`, cases of `match`, if-else expressions, every
    `and` and `or`, and the loops and conditions of comprehensions.
    """
    branches = 1
    for node in ast.walk(function):
        if isinstance(node, DECISIONS):
            branches += 1
        elif isinstance(node, ast.BoolOp):
            branches += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            branches += 1 + len(node.ifs)
    return branches


# Figures ------------------------------------------------------------------------------------------


def figures(modules: Iterable[Module]) -> dict[str, float]:
    """Return the figures of some modules together, by the names in `AGREED`."""
    modules = list(modules)
    functions = [function for module in modules for function in module.functions]
    n_lines = max(sum(module.n_lines for module in modules), 1)
    n_names = max(sum(len(function.names) for function in functions), 1)
    n_pronouns = sum(len(function.pronouns) for function in functions)
    n_tuple_assignments = sum(module.n_tuple_assignments for module in modules)
    return {
        "tokens per line": sum(module.n_tokens for module in modules) / n_lines,
        "if-else per 1,000 lines": 1000 * sum(module.n_if_else for module in modules) / n_lines,
        "comprehensions per 1,000 lines": (
            1000 * sum(module.n_comprehensions for module in modules) / n_lines
        ),
        "tuple assignments per 1,000 lines": 1000 * n_tuple_assignments / n_lines,
        "pronouns in %": 100 * n_pronouns / n_names,
    }


def by_folder(modules: Iterable[Module]) -> dict[str, list[Module]]:
    """Return the modules of every folder, without those of the folders in it."""
    folders: defaultdict[str, list[Module]] = defaultdict(list)
    for module in modules:
        folders[module.path.rpartition("/")[0]].append(module)
    return dict(sorted(folders.items()))


def branches_by_name(modules: Iterable[Module]) -> dict[str, int]:
    """Return the branches of every function by its key; of several with one key, the most."""
    branches: dict[str, int] = {}
    for module in modules:
        for function in module.functions:
            branches[function.key] = max(function.branches, branches.get(function.key, 0))
    return branches


# Limits -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limits:
    """What is above the agreed figures: `branches` by function, `folders` by folder and figure."""

    branches: Mapping[str, int]
    folders: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, modules: list[Module]) -> Limits:
        """Return the limits that modules need as they are."""
        branches = {
            key: count
            for key, count in branches_by_name(modules).items()
            if count > AGREED_BRANCHES
        }
        folders: dict[str, dict[str, float]] = {}
        for folder, modules_of_folder in by_folder(modules).items():
            exceptions = {
                figure: round_up(value, STEPS[figure])
                for figure, value in figures(modules_of_folder).items()
                if value > AGREED[figure]
            }
            if exceptions:
                folders[folder] = exceptions
        return cls(branches, folders)

    @classmethod
    def parse(cls, text: str) -> Limits:
        """Return the limits that the text of a file lists."""
        entries = json.loads(text)
        return cls(entries["branches"], entries["folders"])

    def text(self) -> str:
        """Return the text of the file, sorted."""
        entries = {"branches": self.branches, "folders": self.folders}
        return json.dumps(entries, indent=1, sort_keys=True) + "\n"

    def raised_since(self, previous: Limits) -> list[str]:
        """Return the entries that are new or higher than in previous limits, a line each."""
        lines = []
        for key, count in sorted(self.branches.items()):
            if count > previous.branches.get(key, 0):
                lines.append(f"{key}: {count} branches")
        for folder, exceptions in sorted(self.folders.items()):
            previous_exceptions = previous.folders.get(folder, {})
            for figure, ceiling in sorted(exceptions.items()):
                if ceiling > previous_exceptions.get(figure, 0.0):
                    lines.append(f"{folder}: {ceiling:g} {figure}")
        return lines


def round_up(value: float, step: float) -> float:
    """Return the smallest multiple of a step that is not below a value."""
    return round(math.ceil(value / step) * step, 2)


def wide_line_faults(modules: Iterable[Module]) -> list[str]:
    """Return the lines that are too wide, with the remedy."""
    return [
        f"{module.path}:{number} is wider than {MAX_COLUMNS} columns: break the line"
        for module in modules
        for number in module.wide_lines
    ]


def large_function_faults(modules: Iterable[Module]) -> list[str]:
    """Return the functions with more branches than any may have, with the remedy."""
    return [
        f"{key} has {count} branches, {MAX_BRANCHES} at most are allowed: {SPLIT}"
        for key, count in sorted(branches_by_name(modules).items())
        if count > MAX_BRANCHES
    ]


SPLIT = "return early, name its conditions, or make it a list of named steps"
REWRITE = "`python tools/reading.py --write-limits`"


def listed_function_faults(modules: Iterable[Module], limits: Limits) -> list[str]:
    """Return where functions and the list of those above the agreed count differ."""
    branches = branches_by_name(modules)
    faults = []
    for key, count in sorted(branches.items()):
        listed = limits.branches.get(key)
        if listed is None and count > AGREED_BRANCHES:
            faults.append(f"{key} has {count} branches, {AGREED_BRANCHES} are agreed: {SPLIT}")
        elif listed is not None and count > listed:
            faults.append(f"{key} has {count} branches, {listed} are listed: {SPLIT}")
    for key, listed in sorted(limits.branches.items()):
        if key not in branches:
            faults.append(f"{key} is listed and does not exist: remove it by {REWRITE}")
        elif branches[key] <= AGREED_BRANCHES:
            faults.append(f"{key} need not be listed any more: remove it by {REWRITE}")
        elif branches[key] < listed:
            faults.append(f"{key} has {branches[key]} branches: lower its {listed} by {REWRITE}")
    return faults


def folder_faults(modules: Iterable[Module], limits: Limits) -> list[str]:
    """Return the figures of folders that are above their ceilings, or far below an exception."""
    folders = by_folder(modules)
    faults = [
        f"{folder} is listed and does not exist: remove it by {REWRITE}"
        for folder in sorted(limits.folders)
        if folder not in folders
    ]
    for folder, modules_of_folder in folders.items():
        exceptions = limits.folders.get(folder, {})
        for figure, value in figures(modules_of_folder).items():
            ceiling = exceptions.get(figure, AGREED[figure])
            if value > ceiling:
                faults.append(
                    f"{folder} has {value:.2f} {figure}, at most {ceiling:g}: rewrite the "
                    "statements that were added (python tools/reading.py --by-folder --worst 20)"
                )
            elif figure in exceptions and value < (1 - MAX_SLACK) * ceiling:
                faults.append(
                    f"{folder} has {value:.2f} {figure}: lower its exception of {ceiling:g} by "
                    f"{REWRITE}"
                )
    return faults


# The command --------------------------------------------------------------------------------------


def table(rows: Mapping[str, list[Module]]) -> str:
    """Return a row of figures for every group of modules; `!` marks what is above the agreed."""
    header = ["", "lines", *AGREED, f"above {AGREED_BRANCHES} branches", "wide lines"]
    cells = []
    for name, modules in rows.items():
        marked = [
            f"{value:.1f}{'!' if value > AGREED[figure] else ' '}"
            for figure, value in figures(modules).items()
        ]
        n_large = sum(count > AGREED_BRANCHES for count in branches_by_name(modules).values())
        n_wide = sum(len(module.wide_lines) for module in modules)
        n_lines = sum(module.n_lines for module in modules)
        cells.append([name, f"{n_lines:,}", *marked, str(n_large), str(n_wide)])
    first_width = max(len(row[0]) for row in cells)
    lines = [header[0].ljust(first_width) + "  " + "  ".join(header[1:])]
    for row in cells:
        columns = [cell.rjust(len(title)) for cell, title in zip(row[1:], header[1:], strict=True)]
        lines.append("  ".join([row[0].ljust(first_width), *columns]))
    return "\n".join(line.rstrip() for line in lines)


def write_limits() -> None:
    """Write the limits that the library needs as it is, and print the entries that are higher."""
    limits = Limits.of(read_tree(SRC / "kernelmosaic", SRC))
    raised = []
    if LIMITS_FILE.exists():
        raised = limits.raised_since(Limits.parse(LIMITS_FILE.read_text(encoding="utf-8")))
    LIMITS_FILE.write_text(limits.text(), encoding="utf-8", newline="\n")
    print(f"Functions listed: {len(limits.branches)}. Folders listed: {len(limits.folders)}.")
    if raised:
        print("These entries are new or higher than before; rewrite the code instead:")
        print(*raised, sep="\n")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=SRC / "kernelmosaic",
        help="whose modules are counted, with all folders in it (default: src/kernelmosaic)",
    )
    parser.add_argument("--by-folder", action="store_true", help="a row for every folder, too")
    parser.add_argument(
        "--worst", type=int, default=0, metavar="N", help="list the N functions of most branches"
    )
    parser.add_argument(
        "--write-limits", action="store_true", help="write what is above the agreed figures"
    )
    options = parser.parse_args(arguments)
    if options.write_limits:
        write_limits()
        return

    folder = options.folder.resolve()
    modules = read_tree(folder, folder.parent)
    rows = {"all": modules}
    if options.by_folder:
        rows = by_folder(modules) | rows
    print(table(rows))

    functions = [function for module in modules for function in module.functions]
    functions.sort(key=lambda function: (-function.branches, function.path, function.line))
    for function in functions[: options.worst]:
        print(
            f"{function.path}:{function.line} {function.name}: {function.branches} branches, "
            f"{function.n_lines} lines, pronouns: {', '.join(function.pronouns) or 'none'}"
        )


if __name__ == "__main__":
    main()
