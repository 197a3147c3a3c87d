"""Figures of the papers that are bars or curves of their tables, drawn from the tables of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reproduction.experiment import Settings
from reproduction.reading import Run
from reproduction.rows import Row

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def _rows(run: Run, paper: str, *tables: str) -> list[Row]:
    found = [row for one in run.of_table(paper, *tables) for row in one.rows]
    if not found:
        raise LookupError(f"the run has no {' or '.join(tables)} of {paper}.")
    return found


def _bars(
    ax: Any,
    rows: Sequence[Row],
    methods: Sequence[str],
    label: str,
    log: bool = False,
    shift: int = 0,
) -> None:
    """Draw a group of bars a data set, one a method, with standard errors; colours begin with
    number `shift`."""
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    width = 0.8 / len(methods)
    for place, method in enumerate(methods):
        mine = {row.dataset: row for row in rows if row.method == method}
        where = [
            k + (place - (len(methods) - 1) / 2) * width
            for k, name in enumerate(datasets)
            if name in mine
        ]
        shown = [mine[name] for name in datasets if name in mine]
        errors = [(row.std or 0.0) / np.sqrt(row.count) for row in shown]
        colour = _COLOURS[(place + shift) % len(_COLOURS)]
        ax.bar(
            where,
            [row.mean for row in shown],
            width,
            yerr=errors,
            color=colour,
            label=method,
            error_kw={"lw": 0.8},
        )
    ax.set_xticks(
        range(len(datasets)), datasets, rotation=30 if len(datasets) > 2 else 0, fontsize=8
    )
    ax.set_ylabel(label)
    if log:
        ax.set_yscale("log")
    ax.grid(axis="y", alpha=0.3)


def _panels(count: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(4.8 * count, 4.2), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(1, count))


def searches(settings: Settings, run: Run) -> Any:
    """Draw by how much RMKL, EMKL and RWKL differ from MKL, how many kernels they use, and what
    they cost."""
    rows = _rows(run, "002", "Table 4", "inline 3 and Figure 2")
    base = {
        row.dataset: row.mean for row in rows if (row.method, row.metric) == ("MKL", "accuracy")
    }
    methods = ("MKL", "RMKL", "EMKL", "RWKL")
    figure, (first, second, third) = _panels(3)
    ahead = [
        Row(row.dataset, row.method, row.kernels, row.metric, row.mean - base[row.dataset])
        for row in rows
        if row.metric == "accuracy" and row.method in methods[1:] and row.dataset in base
    ]
    _bars(first, ahead, methods[1:], "accuracy less that of MKL, points", shift=1)
    first.axhline(0.0, color="black", linewidth=0.8)
    _bars(second, [row for row in rows if row.metric == "active_kernels"], methods, "kernels used")
    _bars(
        third,
        [row for row in rows if row.metric == "n_solver_calls"],
        methods[1:],
        "points evaluated",
        shift=1,
    )
    second.legend(fontsize=8)
    return figure


def dimensions(settings: Settings, run: Run) -> Any:
    """Draw accuracy and support vectors over the projected dimension, for projections learned
    before and with."""
    from matplotlib.figure import Figure

    rows = _rows(run, "001", "slides USPS")
    figure: Any = Figure(figsize=(9.2, 7.6), layout="constrained")
    tasks = {"USPS-EO": "even or odd", "USPS-SL": "small or large"}
    for axes, (dataset, said) in zip(figure.subplots(2, 2), tasks.items(), strict=True):
        for ax, metric, label in zip(
            axes,
            ("accuracy", "sv_percent"),
            ("test accuracy, %", "support vectors, %"),
            strict=True,
        ):
            mine = [row for row in rows if (row.dataset, row.metric) == (dataset, metric)]
            for name, colour, marker in zip(
                dict.fromkeys(row.method for row in mine), _COLOURS, "os^vDP", strict=False
            ):
                own = [row for row in mine if row.method == name]
                sizes = [int(row.kernels.removeprefix("R=")) for row in own]
                style = "--" if name.endswith("from PCA") else "-"
                ax.plot(
                    sizes,
                    [row.mean for row in own],
                    style,
                    color=colour,
                    marker=marker,
                    markersize=5,
                    label=name,
                )
            ax.set(xlabel="projected dimension", ylabel=f"{said}: {label}", xticks=sizes)
            ax.grid(alpha=0.3)
        axes[0].legend(fontsize=8)
    return figure


def errors_and_times(settings: Settings, run: Run) -> Any:
    """Draw errors and training times of the three ways to several classes."""
    rows = _rows(run, "003", "Figure 1")
    methods = ("bilinear", "one versus rest", "shared weights")
    figure, (first, second) = _panels(2)
    errors = [
        Row(row.dataset, row.method, row.kernels, "error", 100.0 - row.mean, row.std, row.count)
        for row in rows
        if row.metric == "accuracy"
    ]
    _bars(first, errors, methods, "error, %")
    _bars(
        second,
        [row for row in rows if row.metric == "seconds"],
        methods,
        "seconds, with the search",
        log=True,
    )
    first.legend(fontsize=8)
    return figure


def binary_times(settings: Settings, run: Run) -> Any:
    """Draw the times of the programs and of double cross-validation on the two-class sets."""
    rows = [row for row in _rows(run, "004", "Tables 2-5, 17") if row.metric == "time"]
    figure, (ax,) = _panels(1)
    methods = (
        "QCQP_theta",
        "QCQP_theta_lambda",
        "SILP_theta",
        "SILP_theta_lambda",
        "RKDA_K_lambda",
        "SVM_K_C",
    )
    _bars(ax, rows, methods, "seconds", log=True)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", fontsize=7, ncols=3)
    return figure


def regularisers(settings: Settings, run: Run) -> Any:
    """Draw the accuracy over λ by the semi-definite and the quadratically constrained program."""
    from matplotlib.figure import Figure

    rows = [row for row in _rows(run, "004", "Figures 3 and 4") if row.metric == "accuracy"]
    names = list(dict.fromkeys(row.dataset for row in rows))
    figure: Any = Figure(figsize=(9.2, 7.6), layout="constrained")
    for ax, name in zip(figure.subplots(2, 2).ravel(), names, strict=False):
        for method, colour, marker in (
            ("SDP_theta", _COLOURS[0], "o"),
            ("QCQP_theta", _COLOURS[4], "s"),
        ):
            mine = [row for row in rows if (row.dataset, row.method) == (name, method)]
            alphas = [float(row.kernels.removeprefix("λ=")) for row in mine]
            ax.semilogx(
                alphas,
                [row.mean for row in mine],
                color=colour,
                marker=marker,
                markersize=4,
                label=method,
            )
        ax.set(title=name, xlabel="λ", ylabel="test accuracy, %")
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    return figure
