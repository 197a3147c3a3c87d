"""The response-surface search against an exhaustive grid of three levels: points, seconds and
validation error.

    python benchmarks/search.py [--quick] [--seeds 3]

For P = 3 … 6 kernels (linear, quadratic, Gaussians of several widths) on GAUSS4 the grid tries
3^(P−1) penalties, at the levels of the design (½, 1, 2) and, again, over the box of the search
(0.1, 1, 10); all on the same two folds. The last column counts the draws on which the quadratic
search ends at an error equal to or below the row's.
"""

from __future__ import annotations

import argparse
from itertools import product
from time import perf_counter

import numpy as np
from common import describe_machine, print_table
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from kernelmosaic import MKLClassifier
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.model_selection import ResponseSurfaceSearchCV

WIDTHS = (1.0, 0.3, 3.0, 10.0)


def model(P: int) -> MKLClassifier:
    """The papers' three kernels, then Gaussians of other widths."""
    bells = [(f"bell{width:g}", Gaussian(width)) for width in WIDTHS[: P - 2]]
    return MKLClassifier(
        [("line", Linear()), ("square", Polynomial(2)), *bells], normalize="diagonal"
    )


def grid(P: int, reach: float) -> dict[str, list[tuple[float, ...]]]:
    """Penalties at three levels, the first fixed at 1."""
    levels = 10.0 ** np.array([0.0, -reach, reach])
    return {"penalties": [(1.0, *map(float, d)) for d in product(levels, repeat=P - 1)]}


def timed(search, X, y) -> tuple[int, float, float]:
    """Points, seconds and the best mean validation error in percent."""
    start = perf_counter()
    search.fit(X, y)
    return len(search.cv_results_["params"]), perf_counter() - start, 100 * (1 - search.best_score_)


def compare_on(P: int, seed: int, n_samples: int) -> dict[str, tuple[int, float, float]]:
    X, y = make_gaussians(4, n_samples, random_state=seed)
    common = {"cv": StratifiedKFold(2, shuffle=True, random_state=seed), "refit": False}
    rivals = {
        "surface": ResponseSurfaceSearchCV(model(P), on="penalties", **common),
        "plane": ResponseSurfaceSearchCV(model(P), on="penalties", order=1, **common),
        "grid ½ 1 2": GridSearchCV(model(P), grid(P, 0.3), **common),
        "grid 0.1 1 10": GridSearchCV(model(P), grid(P, 1.0), **common),
    }
    return {name: timed(search, X, y) for name, search in rivals.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="P = 3 and 4, one seed")
    parser.add_argument("--seeds", type=int, default=2, help="draws of the data")
    parser.add_argument("--samples", type=int, default=200, help="samples of a draw")
    options = parser.parse_args()
    kernels, seeds = ((3, 4), 1) if options.quick else ((3, 4, 5, 6), options.seeds)
    print(describe_machine())
    model(3).fit(*make_gaussians(4, 40, random_state=0))  # compile
    rows = []
    for P in kernels:
        runs = [compare_on(P, seed, options.samples) for seed in range(seeds)]
        for name in runs[0]:
            points, seconds, error = np.mean([run[name] for run in runs], axis=0)
            kept = sum(run["surface"][2] <= run[name][2] + 1e-9 for run in runs)
            rows.append(
                [P, name, f"{points:.1f}", f"{seconds:.2f}", f"{error:.2f}", f"{kept} of {seeds}"]
            )
    title = f"Penalties on GAUSS4, {options.samples} samples, 2 folds, {seeds} draw(s)"
    print_table(
        title, ("P", "search", "points", "seconds", "validation error, %", "surface no worse"), rows
    )


if __name__ == "__main__":
    main()
