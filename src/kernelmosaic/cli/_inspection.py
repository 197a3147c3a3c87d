"""A model file in lines of text."""

from __future__ import annotations

from typing import Any


def lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return name and value of what `kernelmosaic inspect` tells; see `_model.describe`."""
    told = [
        ("estimator", found["estimator"]),
        ("written by", f"kernelmosaic {found['kernelmosaic_version']}, scikit-learn {found['sklearn_version']}"),
        ("written on", found["created"]),
    ]
    if found["task"]:
        target = f", target {found['target']!r}" if found["target"] else ""
        told.append(("task", f"{found['task']} by {found['method']}{target}"))
    if found["classes"]:
        told.append(("classes", f"{len(found['classes'])}: {_some(found['classes'], 10)}"))
    if found["price"]:
        told.append((found["price"]["name"], f"{found['price']['value']:g}"))
    if found["rows"] is not None:
        told.append(("learned from", f"{found['rows']} rows"))
    told += _scores(found)
    told += [
        ("support vectors", f"{found['support_vectors']} ({100 * found['support_fraction']:.1f} % of the rows)"),
        ("cost of a prediction", f"{found['cost']:.1f} (support vectors × share of kernels in use)"),
        ("certified gap", f"{found['duality_gap']:.1e} after {found['iterations']} iterations"),
        ("columns", _columns(found)),
    ]
    for name, view in (found["views"] or {}).items():
        told.append((f"  view {name}", f"{_some(view['columns'], 4)}: {' + '.join(view['kernels'])}"))
    return told + [("warning", text) for text in found["warnings"]]


def _scores(found: dict[str, Any]) -> list[tuple[str, str]]:
    told = []
    if found["score"]:
        score = found["score"]
        text = f"{score['mean']:.4f} ± {score['spread']:.4f}; looking at no column: {score['baseline']:.4f}"
        told.append((f"cross-validated {score['name']}", text))
    if found["test"]:
        told.append((f"{found['test']['name']} on held-out rows", f"{found['test']['value']:.4f}"))
    return told


def _columns(found: dict[str, Any]) -> str:
    columns = found["columns"]
    return f"{len(columns)}: {_some(columns, 8)}" if columns else "none by name"


def _some(names: list[Any], n: int) -> str:
    shown = ", ".join(map(str, names[:n]))
    return shown if len(names) <= n else f"{shown} … ({len(names)} in all)"
