"""The demonstration's report: one HTML page that needs no other file and no network."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from kernelmosaic import __version__
from kernelmosaic.demo import COLUMNS, DemoResult, Row, summary

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>kernelmosaic demonstration</title>
<style>
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
caption { text-align: left; padding-bottom: .5rem; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid GrayText; text-align: right; white-space: nowrap; }
th:first-child { text-align: left; }
tbody th { font-weight: normal; }
.pictures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); }
figure { margin: 0; }
img { width: 100%; height: auto; background: white; }
</style>
</head>
<body>
<main>
<h1>One kernel, several kernels, and the best possible rule</h1>
<p>GAUSS4 is a two-class problem in the plane: each class is a mixture of two Gaussians. Support vector machines were
trained on $n_train samples, on one kernel each, on the unweighted sum of all and on sums whose weights are learned with
the machine (l1: sparse weights, l2: all kernels kept), and scored on $n_test fresh ones.
$summary</p>
<div class="scroll" role="region" aria-label="Results" tabindex="0">
<table>
<caption>Accuracy on the test sample, support vectors (and their share of the training sample), certified relative
duality gap, and seconds to train.</caption>
<thead><tr>$head</tr></thead>
<tbody>
$body
</tbody>
</table>
</div>
<h2>Where each machine draws the line</h2>
$pictures
<footer><p>kernelmosaic $version, seed $seed.</p></footer>
</main>
</body>
</html>
""")


def write_report(result: DemoResult, path: Path) -> None:
    """Write the page; the pictures are there when matplotlib is."""
    page = _PAGE.substitute(
        n_train=len(result.y),
        n_test=result.n_test,
        summary=escape(summary(result)),
        head="".join(f'<th scope="col">{escape(column)}</th>' for column in COLUMNS),
        body="\n".join(map(_table_row, result.rows)),
        pictures=_pictures(result),
        version=escape(__version__),
        seed=result.seed,
    )
    path.write_text(page, encoding="utf-8")


def _table_row(row: Row) -> str:
    name, *cells = map(escape, row.cells())
    return f'<tr><th scope="row">{name}</th>' + "".join(f"<td>{cell or '–'}</td>" for cell in cells) + "</tr>"


def _pictures(result: DemoResult) -> str:
    if find_spec("matplotlib") is None:
        return '<p>Not drawn: matplotlib is missing. <code>pip install "kernelmosaic[plots]"</code> brings it.</p>'
    *machines, rule = result.rows
    figures = "\n".join(_figure(row, rule.model, result) for row in machines)
    return (
        "<p>Dots are class +1, crosses class −1 of the training sample; the shaded side is where the machine answers "
        f'+1. The dashed line is the Bayes rule.</p>\n<div class="pictures">\n{figures}\n</div>'
    )


def _figure(row: Row, rule: Any, result: DemoResult) -> str:
    name = escape(row.name)
    alt = f"Training sample in the plane with the decision boundary of {name} and that of the Bayes rule"
    data = b64encode(_draw(row.model, rule, result)).decode("ascii")
    caption = f"{name}: {100 * row.accuracy:.2f} %"
    return f'<figure><img alt="{alt}" src="data:image/png;base64,{data}"><figcaption>{caption}</figcaption></figure>'


def _draw(model: Any, rule: Any, result: DemoResult) -> bytes:
    from matplotlib.figure import Figure  # without pyplot: no window system, no global state

    low, high = result.X.min(axis=0) - 0.5, result.X.max(axis=0) + 0.5
    first, second = (np.linspace(a, b, 120) for a, b in zip(low, high, strict=True))
    grid = np.stack(np.meshgrid(first, second), axis=-1)
    values, best = (m.decision_function(grid.reshape(-1, 2)).reshape(grid.shape[:2]) for m in (model, rule))
    figure = Figure(figsize=(4.4, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.contourf(first, second, values > 0, levels=[0.5, 1.5], colors=["#cfe3f3"])
    # Blue and vermilion stay apart for the colour-blind, and the markers differ as well.
    for label, marker, colour in ((1, "o", "#0072B2"), (-1, "x", "#D55E00")):
        X = result.X[result.y == label]
        axes.scatter(X[:, 0], X[:, 1], s=10, linewidths=0.8, marker=marker, color=colour)
    axes.contour(first, second, values, levels=[0.0], colors="black", linewidths=1.6)
    axes.contour(first, second, best, levels=[0.0], colors="black", linewidths=1.2, linestyles="dashed")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=140)
    return buffer.getvalue()
