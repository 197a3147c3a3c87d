"""Measures of the source tree: how much a reader has to hold, beside what version 0.4.0 had and
what is wanted.

python tools/structure.py              # print the table
python tools/structure.py --details    # and what stands behind its figures, name by name

What can be counted is counted. What only a reader can recognise, such as the ways to fit, is listed
here by the names of its definitions; a name that the tree no longer defines is an error, so that no
list outlives the code.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType

TOP = Path(__file__).parents[1]
SRC = TOP / "src"

# Definitions that are counted by name -------------------------------------------------------------

#: Classes that solve least squares.
LEAST_SQUARES = (
    *("LeastSquares", "MatrixLeastSquares", "FeatureLeastSquares"),
    *("MatrixForm", "FeatureForm", "PairForm"),
)
#: Functions that lead from samples and kernels to what an estimator has learned.
WAYS_TO_FIT = ("fit",)
#: Functions that state the objective and the gap that weights and coefficients prove.
CERTIFYING = ("KernelWeights.certificate", "LeastSquaresProblem.certificate")
#: Functions that lead from scores of held-out samples to C. Searches by a response surface are not
#: counted: they choose other parameters, by a surface, and refit as scikit-learn's searches do.
CHOOSING_C = ("HeldOutScoring.choose",)
#: Exceptions that ended loops in version 0.4.0, where they were raised to be caught elsewhere. None
#: is to come back.
LOOP_ENDINGS = ("ExhaustedError", "_Done", "ConicError")
#: What makes each family: its mathematics, its estimators, its displays and its scores.
FAMILIES = {
    "bayesian": ("BayesianMKLClassifier", "LocalizedBayesianMKLClassifier", "Precisions"),
    "discriminant": (
        "Discriminant",
        "DiscriminantProblem",
        "Indicators",
        "TraceMethod",
        "DiscriminantMKLClassifier",
    ),
    "localized": ("Gating", "GateLearner", "GateMethod", "LocalizedMKLClassifier", "GatingDisplay"),
    "multiclass": (
        "PosteriorSVC",
        "ClassWiseProblem",
        "Posteriors",
        "ClassWiseMethod",
        "BilinearMKLClassifier",
    ),
    "pairs": ("Pairwise", "PairStack", "PairForm", "PairSplit"),
    "ridge": (
        "learn_ridge",
        "learn_target_weights",
        "CrossFitted",
        "MKLRidgeCV",
        "TargetSharesDisplay",
    ),
    "survival": (
        "Cox",
        "Times",
        "MKLSurvival",
        "MKLSurvivalCV",
        "brier_score",
        "SurvivalCalibrationDisplay",
    ),
    "unlabelled": ("EmbeddingOptions", "MKLClustering", "EmbeddingDisplay"),
}
#: Classes whose names end so are stacks, grams, sets, forms or features.
ASKED_FOR = ("Stack", "Gram", "Set", "Form", "Features")

#: The measures of version 0.4.0, and those wanted. What `isinstance` asks for and stores on other
#: objects are counted in version 0.4.0 as here.
MEASURES = {
    "tokens in `src/`, without comments and docstrings": ("335,000", "at most 290,000"),
    "classes": ("454", "at most 360"),
    "classes that solve least squares": ("17", "at most 6"),
    "ways to fit": ("4", "1"),
    "functions that certify": ("5", "1"),
    "drivers that choose C": ("5", "1"),
    "own frames from `MKLClassifier().fit` to the pair steps": ("23", "at most 16"),
    "functions entered by a fit of 100 samples": ("367", "at most 250"),
    "`isinstance` of stacks, grams, sets, forms and features": ("31", "at most 8"),
    "stores on another object's attributes": ("114", "at most 10"),
    "folders in which the code of one family stands": ("2 to 7", "1"),
    "exceptions that end a loop: kinds": ("3", "0"),
    "exceptions that end a loop: places": ("8", "0"),
}

# The tree -----------------------------------------------------------------------------------------


def sources() -> dict[str, Path]:
    """Return the modules of the wheel, by name."""
    paths = sorted((SRC / "kernelmosaic").rglob("*.py"))
    return {
        ".".join(p.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): p
        for p in paths
    }


@cache
def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a module, read once for all figures."""
    return ast.parse(text)


def trees() -> dict[str, ast.Module]:
    """Return the syntax trees of the modules of the wheel, by name."""
    return {name: parsed(path.read_text(encoding="utf-8")) for name, path in sources().items()}


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
    """Return a dotted name with the module of `kernelmosaic.gpu` that defines it, where that is
    loaded on first use."""
    from kernelmosaic.gpu import HOMES

    package, _, last = name.rpartition(".")
    return (
        f"{package}.{HOMES[last]}.{last}"
        if package == "kernelmosaic.gpu" and last in HOMES
        else name
    )


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that import each other, directly or by others (Tarjan's
    algorithm)."""
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
    """Return the circles of the package; its front page, which resolves names on demand, is not
    part of any."""
    modules = sources()
    graph = {
        name: imported(tree, modules) - {name, "kernelmosaic"} for name, tree in trees().items()
    }
    return circles(graph)


# Definitions --------------------------------------------------------------------------------------


def definitions() -> dict[str, set[str]]:
    """Return the modules that define each class, function and method, methods as `Class.method`."""
    modules_of: dict[str, set[str]] = defaultdict(set)
    for module, tree in trees().items():
        for name in _names_defined(tree.body, ""):
            modules_of[name].add(module)
    return dict(modules_of)


def _names_defined(body: Iterable[ast.stmt], prefix: str) -> Iterator[str]:
    """Yield the names of the classes, functions and methods of a module or class."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef):
            yield prefix + node.name
            yield from _names_defined(node.body, f"{prefix}{node.name}.")


def count_defined(names: Iterable[str]) -> int:
    """Return how many names there are, or raise if the tree no longer defines one of them."""
    names = list(names)
    missing = sorted(set(names) - definitions().keys())
    if missing:
        raise LookupError(
            f"tools/structure.py names {', '.join(missing)}, which src/ no longer defines: "
            "take these names out of their lists, and name what has come in their place."
        )
    return len(names)


def folders_of_families() -> dict[str, list[str]]:
    """Return the folders, or modules outside folders, in which the definitions of each family
    stand."""
    modules_of = definitions()
    folders = {}
    for family, names in FAMILIES.items():
        count_defined(names)
        modules = set().union(*(modules_of[name] for name in names))
        folders[family] = sorted({module.split(".")[1] for module in modules})
    return folders


# What is counted in the text ----------------------------------------------------------------------

#: Tokens that lay out a text.
LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def count_tokens(text: str) -> int:
    """Return how many tokens a module has, without comments, docstrings and layout."""
    documented = docstring_lines(parsed(text))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type not in LAYOUT and token.start[0] not in documented for token in tokens)


def docstring_lines(tree: ast.AST) -> set[int]:
    """Return the numbers of the lines of docstrings."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            lines |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def checks_of_form(tree: ast.AST) -> Iterator[str]:
    """Yield the calls of `isinstance` that ask for a stack, a gram, a set, a form or features."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            names = [part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)]
            if any(name.endswith(ASKED_FOR) for name in names):
                yield ast.unparse(node)


def foreign_stores(tree: ast.AST) -> Iterator[str]:
    """Yield what is assigned to an attribute of something else than `self` or `cls`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
            continue
        if ast.unparse(node.value) not in ("self", "cls"):
            yield ast.unparse(node)


def ended_loops(tree: ast.AST) -> Iterator[str]:
    """Yield the exceptions of `LOOP_ENDINGS` where they are caught or suppressed."""
    for node in ast.walk(tree):
        caught: list[ast.expr] = []
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            caught = [node.type]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "suppress":
            caught = node.args
        for expression in caught:
            names = [part.id for part in ast.walk(expression) if isinstance(part, ast.Name)]
            yield from (name for name in names if name in LOOP_ENDINGS)


# What is counted in a fit -------------------------------------------------------------------------

_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


def traced_fit() -> tuple[set[str], list[str]]:
    """Return the functions that a second fit of 100 samples enters, and its frames as the pair
    steps begin."""
    from kernelmosaic import MKLClassifier, datasets

    X, y = datasets.make_gaussians(n_components=4, n_samples=100, random_state=0)
    MKLClassifier().fit(X, y)
    entered: set[str] = set()
    deepest: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or not _is_own(frame):
            return
        entered.add(_described(frame))
        if frame.f_code.co_name == "maximise_pairs" and not deepest:
            deepest.extend(_own_frames(frame))

    sys.setprofile(note)
    try:
        MKLClassifier().fit(X, y)
    finally:
        sys.setprofile(None)
    return entered, deepest


def _own_frames(frame: FrameType | None) -> list[str]:
    """Return the functions of the package on the stack, the outermost first."""
    described = []
    while frame is not None:
        if _is_own(frame):
            described.append(_described(frame))
        frame = frame.f_back
    return described[::-1]


def _is_own(frame: FrameType) -> bool:
    """Whether a frame is that of a function of the package."""
    code = frame.f_code
    return (
        code.co_filename.startswith(str(SRC / "kernelmosaic"))
        and code.co_name not in _COMPREHENSIONS
    )


def _described(frame: FrameType) -> str:
    """Return where the function of a frame stands, and its name."""
    code = frame.f_code
    path = Path(code.co_filename).relative_to(SRC / "kernelmosaic")
    return f"{path.as_posix()}:{code.co_firstlineno} {code.co_qualname}"


# The table ----------------------------------------------------------------------------------------


def figures() -> list[str]:
    """Return the measures of the tree as it is, in the order of `MEASURES`."""
    texts = [path.read_text(encoding="utf-8") for path in sources().values()]
    modules = list(map(parsed, texts))
    nodes = [node for tree in modules for node in ast.walk(tree)]
    entered, frames = traced_fit()
    counts = [len(folders) for folders in folders_of_families().values()]
    span = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else str(max(counts))
    return [
        f"{sum(map(count_tokens, texts)):,}",
        str(sum(isinstance(node, ast.ClassDef) for node in nodes)),
        str(count_defined(LEAST_SQUARES)),
        str(count_defined(WAYS_TO_FIT)),
        str(count_defined(CERTIFYING)),
        str(count_defined(CHOOSING_C)),
        str(len(frames)),
        str(len(entered)),
        str(sum(len(list(checks_of_form(tree))) for tree in modules)),
        str(sum(len(list(foreign_stores(tree))) for tree in modules)),
        span,
        str(len(set(LOOP_ENDINGS) & definitions().keys())),
        str(sum(len(list(ended_loops(tree))) for tree in modules)),
    ]


def table() -> str:
    """Return the measures of version 0.4.0, of the tree as it is, and those wanted, as Markdown."""
    header = ["| measure | 0.4.0 | now | wanted |", "| --- | --- | --- | --- |"]
    rows = []
    for (measure, (before, wanted)), now in zip(MEASURES.items(), figures(), strict=True):
        rows.append(f"| {measure} | {before} | {now} | {wanted} |")
    return "\n".join([*header, *rows])


def details() -> Iterator[str]:
    """Yield what stands behind the figures, a line each."""
    modules_of = definitions()
    for names in (LEAST_SQUARES, WAYS_TO_FIT, CERTIFYING, CHOOSING_C):
        for name in names:
            yield f"{name}: {', '.join(sorted(modules_of[name]))}"
    for family, folders in folders_of_families().items():
        yield f"{family}: {', '.join(folders)}"
    for module, tree in trees().items():
        for what in (*checks_of_form(tree), *foreign_stores(tree), *ended_loops(tree)):
            yield f"{module}: {what}"
    yield from traced_fit()[1]
    yield from map(" <-> ".join, import_circles())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--details", action="store_true", help="name what stands behind the figures"
    )
    arguments = parser.parse_args()
    print(table())
    if arguments.details:
        print(*details(), sep="\n")


if __name__ == "__main__":
    main()
