"""What a model file says: the fitted estimator, how it was trained, and both in figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class KernelShare:
    """One kernel of a fitted model.

    Parameters
    ----------
    name : str
    weight : float
        The mean over the classes where each has its own.
    share : float
        Of all weights.
    by_class : list of float
        The classes' own weights, if they have.
    """

    name: str
    weight: float
    share: float
    by_class: list[float]


def load_model(path: Path) -> Any:
    """Return the estimator in a model file, or raise saying why it is none."""
    import warnings

    from sklearn.exceptions import InconsistentVersionWarning

    from kernelmosaic.persistence import load

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InconsistentVersionWarning)  # `inspect` names the versions
        return load(path)


def core(estimator: Any) -> Any:
    """Return the kernel learner inside a pipeline or search, or raise if there is none that is fitted."""
    inner = getattr(estimator, "best_estimator_", estimator)
    inner = inner.steps[-1][1] if hasattr(inner, "steps") else inner
    if not hasattr(inner, "kernel_names_"):
        raise ValueError(f"the file holds {type(estimator).__name__}, which is no fitted model of kernelmosaic.")
    return inner


def training_of(estimator: Any) -> dict[str, Any]:
    """Return what `kernelmosaic fit` noted; empty for models made elsewhere."""
    noted = getattr(estimator, "training_", {})
    return noted if isinstance(noted, dict) else {}


def kernel_shares(model: Any) -> list[KernelShare]:
    """Return the kernels with their weights, in the model's order."""
    weights = np.atleast_2d(np.asarray(model.weights_, dtype=np.float64))
    means = weights.mean(axis=0)
    total = float(means.sum()) or 1.0
    several = np.ndim(model.weights_) == 2
    return [
        KernelShare(name, float(mean), float(mean / total), [float(w) for w in own] if several else [])
        for name, mean, own in zip(model.kernel_names_, means, weights.T, strict=True)
    ]


def weight_texts(shares: list[KernelShare]) -> dict[str, str]:
    """Return the weights as texts, by kernel; weights of another scale than one keep their digits."""
    small = max((share.weight for share in shares), default=1.0) < 0.1
    return {share.name: f"{share.weight:.3g}" if small else f"{share.weight:.4f}" for share in shares}


def describe(estimator: Any, path: Path) -> dict[str, Any]:
    """Return everything `kernelmosaic inspect` says, as plain numbers, texts, lists and dicts."""
    from kernelmosaic.persistence import info

    model, training, header = core(estimator), training_of(estimator), info(path)
    costs = training.get("costs") or [1.0] * len(model.kernel_names_)
    price = training.get("price") or {}
    return {
        "file": str(path),
        "estimator": type(model).__name__,
        "kernelmosaic_version": header.kernelmosaic_version,
        "sklearn_version": header.sklearn_version,
        "created": header.created,
        "task": training.get("task"),
        "method": training.get("method"),
        "target": training.get("target"),
        "classes": [plain(label) for label in getattr(model, "classes_", [])],
        "price": price,
        "rows": training.get("rows"),
        "score": training.get("score"),
        "test": training.get("test"),
        "kernels": [
            {"name": k.name, "weight": k.weight, "share": k.share, "by_class": k.by_class} for k in kernel_shares(model)
        ],
        "gates": training.get("gates"),
        "support_vectors": len(model.support_),
        "support_fraction": float(model.support_fraction_),
        "cost": float(model.cost(costs)),
        "objective": float(model.objective_),
        "duality_gap": float(model.duality_gap_),
        "iterations": int(model.n_iter_),
        "seconds": training.get("seconds"),
        "columns": training_columns(estimator),
        "views": training.get("views"),
        "warnings": training.get("warnings", []),
    }


def training_columns(estimator: Any) -> list[str]:
    """Return the names of the columns the model reads; empty if it never knew them."""
    noted = training_of(estimator).get("columns")
    return list(noted) if noted is not None else [str(name) for name in getattr(estimator, "feature_names_in_", [])]


def gate_summary(model: Any, X: Any) -> dict[str, list[float]] | None:
    """Return, for a localized model, where the middle eighty per cent of each kernel's gates lie; None for others."""
    if not hasattr(model, "gate"):
        return None
    gates: NDArray[np.float64] = model.gate(X)
    gates = gates if gates.ndim == 2 else np.moveaxis(gates, 2, 1).reshape(-1, gates.shape[1])
    low, middle, high = np.quantile(gates, (0.1, 0.5, 0.9), axis=0)
    return {name: [float(low[m]), float(middle[m]), float(high[m])] for m, name in enumerate(model.kernel_names_)}


def plain(value: Any) -> Any:
    """Return NumPy's scalars as Python's own."""
    return value.item() if isinstance(value, np.generic) else value
