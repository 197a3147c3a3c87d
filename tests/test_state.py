"""No fit changes what another reads: doors to hidden state that were closed once, found in the
source."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

import kernelmosaic
from kernelmosaic import kernels, model_selection
from tools.structure import parsed

SOURCE = Path(kernelmosaic.__file__).parent
#: The one context variable, that of `SharedKernels`, and the one module that reads it.
STORE = "engine/training_set.py"
#: What looks like a door and is none, and why.
NONE = {
    "backend.py: _BLAS_LIMIT is an object of this module that its methods change": (
        "a number of the process"
    ),
    "backend.py: _THREAD is an object of this module that functions change": (
        "of one thread, set where that starts"
    ),
    "files.py: dispatcher._cache is set from outside": "Numba takes no cache in another way",
    "estimators/_base.py: attributes._repr_html_inner is set from outside": (
        "scikit-learn has made it for this page"
    ),
}
CHANGES = {
    "append",
    "extend",
    "insert",
    "add",
    "update",
    "setdefault",
    "pop",
    "popitem",
    "remove",
    "discard",
    "clear",
}
SETTERS = {"__init__", "set_params", "_set_kernels"}
#: What returns an object that no one else holds yet.
COPIES = {"copy", "deepcopy", "clone", "replace", "cls", "type(self)", "__new__"}

Nodes = list[ast.AST]


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements inside a module or class, at any depth; no expression holds one."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


def functions(tree: ast.AST) -> dict[str, Nodes]:
    """Return the functions inside a module or class, each as its nodes, by name and line."""
    every = (
        node
        for node in statements(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return {f"{node.name}:{node.lineno}": list(ast.walk(node)) for node in every}


def targets(nodes: Nodes) -> Iterator[ast.expr]:
    """Yield what is assigned to, tuples taken apart."""
    for node in nodes:
        given: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            given = list(node.targets)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            given = [node.target]
        while given:
            one = given.pop()
            if isinstance(one, ast.Tuple | ast.List):
                given.extend(one.elts)
            else:
                yield one


def is_own(target: ast.expr) -> bool:
    """Whether an attribute of self is assigned, or an item of one."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == "self"


def called(node: ast.expr | None) -> str:
    """Return the name of what is called, the last part of it; nothing if it is no call."""
    made = node.func if isinstance(node, ast.Call) else None
    if isinstance(made, ast.Call):  # type(self)(...)
        return ast.unparse(made)
    return str(getattr(made, "attr", getattr(made, "id", "")))


def globals_of(module: ast.Module) -> dict[str, ast.expr | None]:
    """Return the names that a module gives to objects, and what these are made by."""
    found = {}
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    found[target.id] = node.value
    return found


def changed_globals(module: ast.Module, every: dict[str, Nodes]) -> Iterator[str]:
    known = globals_of(module)
    for nodes in every.values():
        assigned = list(targets(nodes))
        own = {one.arg for one in nodes if isinstance(one, ast.arg)}
        own |= {one.id for one in assigned if isinstance(one, ast.Name)}
        changed = [one.value for one in assigned if isinstance(one, ast.Subscript | ast.Attribute)]
        calls = (node.func for node in nodes if isinstance(node, ast.Call))
        changed += [
            one.value for one in calls if isinstance(one, ast.Attribute) and one.attr in CHANGES
        ]
        names = {getattr(one, "id", "") for one in changed}
        yield from (
            f"{name} is an object of this module that functions change"
            for name in (names & known.keys()) - own
        )
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    for name, value in known.items():
        owner = classes.get(called(value))
        if owner is not None and own_names(owner, ("__init__", "__new__")):
            yield f"{name} is an object of this module that its methods change"


def changed_strangers(every: dict[str, Nodes]) -> Iterator[str]:
    for nodes in every.values():
        made = {"self", "cls"}
        for node in nodes:
            if isinstance(node, ast.Assign) and called(node.value) in COPIES:
                made |= {one.id for one in node.targets if isinstance(one, ast.Name)}
        for one in targets(nodes):
            owner = ast.unparse(one.value) if isinstance(one, ast.Attribute) else ""
            private = owner and one.attr.startswith("_") and not one.attr.endswith("__")
            if owner.endswith(".stack") or (private and owner not in made):
                yield f"{ast.unparse(one)} is set from outside"


def own_names(tree: ast.AST, but: Collection[str]) -> set[str]:
    """Return the attributes of self that methods assign, some methods aside."""
    chosen = (nodes for name, nodes in functions(tree).items() if name.split(":")[0] not in but)
    return {
        ast.unparse(one).removeprefix("self.")
        for nodes in chosen
        for one in targets(nodes)
        if is_own(one)
    }


@cache
def names_set_by(kind: type) -> set[str]:
    module = parsed(Path(inspect.getfile(kind)).read_text(encoding="utf-8"))
    (source,) = (
        node
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    return own_names(source, SETTERS)


def changed_parameters(owner: type, package: str = "kernelmosaic") -> Iterator[str]:
    for kind in owner.__mro__:
        if kind.__module__.split(".")[0] == package:
            changed = names_set_by(kind) & set(owner._get_param_names())
            yield from (f"{kind.__name__} sets its parameter {name}" for name in changed)


def doors(text: str, path: str = "module.py") -> set[str]:
    """Return the doors to hidden state in the text of a module."""
    module = parsed(text)
    every = functions(module)
    found = [*changed_globals(module, every), *changed_strangers(every)]
    if path != STORE and re.search(r"\bContextVar\b", text):
        found.append("a context variable")
    if re.search(r"(?<![\w.])id\(", text):
        found.append("the number of an object, id(...)")
    found += re.findall(r"^\s+(global \w+)", text, re.MULTILINE)
    return {f"{path}: {one}" for one in found}


def public_estimators() -> list[type]:
    every = {
        getattr(module, name)
        for module in (kernelmosaic, kernels, model_selection)
        for name in module.__all__
    }
    return sorted(
        (one for one in every if inspect.isclass(one) and issubclass(one, BaseEstimator)), key=str
    )


def test_no_fit_changes_what_another_reads():
    found = set()
    for path in sorted(SOURCE.rglob("*.py")):
        found |= doors(path.read_text(encoding="utf-8"), path.relative_to(SOURCE).as_posix())
    for owner in public_estimators():
        for one in changed_parameters(owner):
            module = owner.__module__.removeprefix("kernelmosaic.").replace(".", "/")
            found.add(f"{module}.py: {one}")
    assert sorted(found - NONE.keys()) == []
    assert sorted(NONE.keys() - found) == []


@pytest.mark.parametrize(
    "text",
    [
        "_KNOWN = {}\ndef fit(X):\n    _KNOWN[X] = 1",
        "_KNOWN: list[int] = []\ndef fit(X):\n    _KNOWN.append(X)",
        "import weakref\n_KNOWN = weakref.WeakSet()\ndef fit(X):\n    _KNOWN.add(X)",
        "count = 0\ndef fit(X):\n    global count\n    count += 1",
        "class Counter:\n    def look(self):\n        self.looks = 1\ncounter = Counter()",
        "from contextvars import ContextVar\nSTATE = ContextVar('state')",
        "def fit(X):\n    return {id(X): 1}",
        "def fit(model):\n    model._history = []",
        "class Gram:\n    def solve(self):\n        self.stack.precise = True",
    ],
)
def test_a_door_is_found(text):
    assert len(doors(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "_RULES = {}\ndef fit(X):\n    return _RULES[X]",
        "_KNOWN = {}\ndef fit(X):\n    _KNOWN = {}\n    _KNOWN[X] = 1",
        (
            "from copy import copy\nclass A:\n    def take(self):\n        some = copy(self)\n     "
            "   some._rows = 1"
        ),
        "class A:\n    def fit(self):\n        self._rows = 1",
    ],
)
def test_other_assignments_are_left_alone(text):
    assert not doors(text)


class Overwriting(BaseEstimator):
    def __init__(self, width=1.0):
        self.width = width

    def fit(self, X):
        self.width, self.n_ = 2.0, len(X)


def test_a_parameter_that_a_method_sets_is_found():
    assert list(changed_parameters(Overwriting, "tests")) == [
        "Overwriting sets its parameter width"
    ]
