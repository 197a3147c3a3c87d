"""Charts of a table: ours against the published figures, and how long each method took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reproduction.reading import Result, Run
from reproduction.rows import Line, Row, label, lines_of, main_metrics

#: Okabe and Ito's colours, with markers of their own: told apart by any eye.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_TIMES = ("time", "seconds")
#: Bars and legend entries beyond these would not be read.
_MOST_BARS, _MOST_NAMED = 24, 16


def result_pictures(result: Result) -> list[tuple[Any, str, str]]:
    """Return the charts of one experiment: its main figures against the published ones, and the
    times.

    Each comes with what it shows and its caption.
    """
    metrics = [metric for metric in main_metrics(result.rows) if metric not in _TIMES]
    name = result.experiment.name
    pictures = []
    for metric in metrics:
        rows = [row for row in result.rows if row.metric == metric and row.published is not None]
        if len(rows) > 1:
            figure = _against(rows)
            alt = f"{name}, {label(metric)}: {len(rows)} of our figures over the published ones"
            caption = (
                f"{label(metric)}: ours over published, with deviations; on the line they are"
                " equal."
            )
            pictures.append((figure, alt, caption))
    if not pictures and metrics:
        rows = [row for row in result.rows if row.metric == metrics[0]]
        alt = f"{name}: {label(metrics[0])} of every method on every data set"
        pictures.append(
            (_side_by_side(rows), alt, f"{label(metrics[0])}, with deviations over the replicates.")
        )
    times = _training_seconds(result)
    if len(times) > 1:
        caption = (
            "Seconds to train one model (for a search: all its models), geometric mean over the"
            " data sets."
        )
        alt = f"{name}: bars of the training seconds of {len(times)} methods"
        pictures.append((_bars(times, "seconds"), alt, caption))
    return pictures


def _names(rows: Sequence[Row]) -> dict[tuple[str, str], str]:
    """Return what each method is called: by its name alone where that is enough."""
    kinds = list(dict.fromkeys((row.method, row.kernels) for row in rows))
    if len(kinds) > _MOST_NAMED:
        return {kind: kind[0] for kind in kinds}
    alone = {method: sum(other == method for other, _ in kinds) == 1 for method, _ in kinds}
    return {kind: kind[0] if alone[kind[0]] else f"{kind[0]} {kind[1]}" for kind in kinds}


def _styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {
        name: {"color": _COLOURS[i % 8], "marker": _MARKERS[(i + i // 8) % 8]}
        for i, name in enumerate(dict.fromkeys(names))
    }


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure  # without pyplot: no window system, no global state

    return Figure(figsize=(width, height), layout="constrained")


def _against(rows: Sequence[Row]) -> Any:
    figure = _figure(4.2, 4.2)
    axes = figure.subplots()
    names = _names(rows)
    for name, style in _styles(list(names.values())).items():
        mine = [row for row in rows if names[row.method, row.kernels] == name]
        axes.errorbar(
            [row.published for row in mine],
            [row.mean for row in mine],
            xerr=[row.published_std or 0 for row in mine],
            yerr=[row.std or 0 for row in mine],
            linestyle="none",
            markersize=5,
            elinewidth=0.7,
            alpha=0.85,
            label=name,
            **style,
        )
    values = [value for row in rows for value in (row.mean, row.published or 0.0)]
    pad = 0.05 * (max(values) - min(values)) or 1.0
    ends = min(values) - pad, max(values) + pad
    axes.axline((ends[0], ends[0]), slope=1, color="black", linewidth=0.8, zorder=0)
    axes.set(xlabel="published", ylabel="ours", xlim=ends, ylim=ends)
    axes.grid(alpha=0.3)
    _legend(figure, axes, len(set(names.values())))
    return figure


def _side_by_side(rows: Sequence[Row]) -> Any:
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    names = _names(rows)
    styles = _styles(list(names.values()))
    figure = _figure(4.2, 1.6 + 0.6 * len(datasets))
    axes = figure.subplots()
    for place, (name, style) in enumerate(styles.items()):
        mine = [row for row in rows if names[row.method, row.kernels] == name]
        shift = 0.6 * (place / max(len(styles) - 1, 1) - 0.5) if len(styles) > 1 else 0.0
        axes.errorbar(
            [row.mean for row in mine],
            [datasets.index(row.dataset) + shift for row in mine],
            xerr=[row.std or 0 for row in mine],
            linestyle="none",
            label=name,
            **style,
        )
    axes.set_yticks(range(len(datasets)), datasets)
    axes.set_ylim(len(datasets) - 0.4, -0.6)
    axes.set_xlabel(label(rows[0].metric) if rows else "")
    axes.grid(axis="x", alpha=0.3)
    _legend(figure, axes, len(styles))
    return figure


def _legend(figure: Any, axes: Any, count: int) -> None:
    if 1 < count <= _MOST_NAMED:
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=2 if count > 2 else 1,
            fontsize=8,
            frameon=False,
        )


def _training_seconds(result: Result) -> dict[str, float]:
    lines = [
        line for line in lines_of(result.rows) if any(metric in line.figures for metric in _TIMES)
    ]
    names = _names([next(iter(line.figures.values())) for line in lines])
    found: dict[str, list[float]] = {}
    for line in lines:
        found.setdefault(names[line.method, line.kernels], []).append(_seconds(line))
    return {
        name: float(np.exp(np.mean(np.log(np.maximum(values, 1e-6)))))
        for name, values in found.items()
    }


def _seconds(line: Line) -> float:
    return next(line.figures[metric].mean for metric in _TIMES if metric in line.figures)


def _bars(values: dict[str, float], unit: str) -> Any:
    longest = sorted(values.items(), key=lambda item: item[1])[-_MOST_BARS:]
    figure = _figure(4.2, 1.1 + 0.26 * len(longest))
    axes = figure.subplots()
    bars = axes.barh(
        [name for name, _ in longest], [value for _, value in longest], color="#0072B2"
    )
    axes.bar_label(bars, [f"{value:.3g}" for _, value in longest], padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(longest[0][1] / 2, longest[-1][1] * 4)
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel(unit)
    return figure


def work_chart(run: Run) -> Any:
    """Return bars of the seconds of work, one per experiment."""
    return _bars(
        {one.experiment.name: max(one.work.seconds, 1e-3) for one in run.results}, "seconds of work"
    )
