"""Pictures of the papers, drawn again from the run's seed and data; kept in the run folder once
drawn."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from kernelmosaic.datasets import BayesRule, make_gaussians, mixture_of
from kernelmosaic.estimators import (
    LocalizedMKLClassifier,
    LocalizedMKLRegressor,
    MKLClassifier,
)
from kernelmosaic.gating import Softmax
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.plots import (
    DecisionRegionDisplay,
    GatingDisplay,
    LocalKernelDisplay,
    ProjectionDisplay,
)
from reproduction import bars, sketches
from reproduction.experiment import Settings
from reproduction.papers.paper_001 import CONVERGENCE, SHARES, converging, projecting
from reproduction.papers.paper_002 import COMPONENTS, GAUSS
from reproduction.protocols import Found, Split
from reproduction.reading import Run
from reproduction.rows import Row
from reproduction.sources import Generated, Loaded, Samples
from reproduction.store import write_whole


@dataclass(frozen=True)
class Drawing:
    """One picture of a paper.

    Parameters
    ----------
    name : str
        Of its file: the paper's number, then the figure.
    paper : str
        It is drawn if the run has an experiment of this paper.
    alt, caption : str
        What it shows: for those who do not see it, and under it.
    draw : callable
        Takes the settings and the run and returns a matplotlib Figure, in seconds or a few minutes.
        It raises `LookupError` if the run lacks what it needs.
    version : int
        Raise it when the picture changes, so that a kept one is not taken for it.
    """

    name: str
    paper: str
    alt: str
    caption: str
    draw: Callable[[Settings, Run], Any]
    version: int = 1


@dataclass(frozen=True)
class Drawn:
    """A picture as PNG, or why there is none."""

    caption: str
    alt: str
    image: bytes | None
    problem: str = ""


_SMOOTH = [("kL", Linear()), ("kP", Polynomial(degree=2))]
_LOCAL = [("kL1", Linear()), ("kL2", Linear()), ("kL3", Linear())]
_STEPS = (1, 3, 6, 20)
#: C of all machines in a picture.
_PRICE = 10.0


def _gauss4(settings: Settings) -> Samples:
    return Generated(make_gaussians, 600, (("n_components", 4),))(settings)


def _localized(kernels: list[Any], settings: Settings, **options: Any) -> Any:
    gates = {"step": "lbfgs", **options}
    return LocalizedMKLClassifier(
        kernels, C=_PRICE, random_state=settings.seed_for("picture"), **gates
    )


def _row(count: int) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(4.6 * count, 4.4), layout="constrained")
    # A display puts its legend beside its axes, outside of them: each has a part of the figure to
    # itself.
    return figure, [part.subplots() for part in figure.subfigures(1, count)]


def boundaries(settings: Settings, run: Run) -> Any:
    """Draw MKL, LMKL and local linear kernels on GAUSS4."""
    samples = _gauss4(settings)
    figure, axes = _row(3)
    _three(samples, settings, axes)
    for ax in axes:
        _truth(ax, 4)
    return figure


def _three(samples: Samples, settings: Settings, axes: list[Any]) -> None:
    """Draw MKL, LMKL and local linear kernels in a plane."""
    plain = MKLClassifier(_SMOOTH, C=_PRICE).fit(samples.X, samples.y)
    DecisionRegionDisplay.from_estimator(plain, samples.X, samples.y, ax=axes[0])
    axes[0].set_title(_title("MKL (kL-kP)", plain))
    for ax, kernels, name in (
        (axes[1], _SMOOTH, "LMKL (kL-kP)"),
        (axes[2], _LOCAL, "LMKL (kL-kL-kL)"),
    ):
        model = _localized(kernels, settings).fit(samples.X, samples.y)
        GatingDisplay.from_estimator(model, samples.X, samples.y, grid_resolution=150, ax=ax)
        ax.set_title(_title(name, model))


def _truth(ax: Any, n_components: int, centre: Any = 0.0, scale: Any = 1.0) -> None:
    """Draw each Gaussian of a mixture, at two standard deviations, and the boundary of the Bayes
    rule, dashed.

    The axes show what is left of the inputs once a centre is subtracted and they are divided by a
    scale.
    """
    from matplotlib.patches import Ellipse

    mixture, ends = mixture_of(n_components), (ax.get_xlim(), ax.get_ylim())
    for mean, variances in zip(mixture.means, mixture.variances, strict=True):
        widths = 4.0 * np.sqrt(variances) / scale
        ax.add_patch(
            Ellipse(
                (mean - centre) / scale, *widths, fill=False, edgecolor="#555555", linewidth=0.8
            )
        )
    first, second = (np.linspace(low, high, 200) for low, high in ends)
    plane = np.column_stack([one.ravel() for one in np.meshgrid(first, second)])
    odds = BayesRule(n_components).decision_function(plane * scale + centre).reshape(200, 200)
    ax.contour(
        first, second, odds, levels=[0.0], colors="#009E73", linestyles="dashed", linewidths=2
    )
    ax.set(xlim=ends[0], ylim=ends[1])


def combined_kernel(settings: Settings, run: Run) -> Any:
    """Draw the combined kernel of LMKL on GAUSS4 as the gates are learned."""
    from matplotlib.figure import Figure

    samples = _gauss4(settings)
    figure = Figure(figsize=(9.0, 7.6), layout="constrained")
    for ax, steps in zip(figure.subplots(2, 2).ravel(), _STEPS, strict=True):
        # One start, almost the same gates everywhere, so that each picture goes on where the one
        # before it stopped.
        model = _localized(
            _SMOOTH,
            settings,
            n_init=1,
            step="armijo",
            tol=1e-9,
            max_iter=steps,
            gating=Softmax(0.01),
        )
        LocalKernelDisplay.from_estimator(
            model.fit(samples.X, samples.y), samples.X, samples.y, max_samples=300, ax=ax
        )
        ax.set_title(f"after {steps} iteration{'s' * (steps > 1)}")
    return figure


def banana(settings: Settings, run: Run) -> Any:
    """Draw MKL, LMKL and local linear kernels on BANANA."""
    samples = Loaded("banana", max_samples=800)(settings)
    figure, axes = _row(3)
    _three(samples, settings, axes)
    return figure


def _title(name: str, model: Any) -> str:
    return f"{name}, {100 * model.support_fraction_:.0f} % support vectors"


_LOCALIZED = (
    Drawing(
        "000-figure1",
        "000",
        "Three planes with the samples of GAUSS4: boundary and support vectors of MKL, regions and"
        " boundaries of LMKL",
        "Figure 1. GAUSS4: boundary and support vectors (ringed) of MKL, and the regions that the"
        " gates of LMKL make. Where a colour ends another kernel takes over; the solid line is the"
        " boundary. Grey ellipses are the four Gaussians at two standard deviations, the green"
        " dashed line is the boundary of the Bayes rule. C = 10.",
        boundaries,
        version=3,
    ),
    Drawing(
        "000-figure2",
        "000",
        "Four matrices of the combined kernel on GAUSS4, after 1, 3, 6 and 20 iterations",
        "Figure 2. GAUSS4: the combined kernel of LMKL (kL-kP) as its gates are learned from almost"
        " equal ones, samples ordered by class and region. Blocks appear as the regions part.",
        combined_kernel,
    ),
    Drawing(
        "000-figure3",
        "000",
        "Three planes with the samples of BANANA: boundary of MKL, regions and boundaries of LMKL",
        "Figure 3. BANANA, 800 samples: boundary and support vectors of MKL; regions, boundary and"
        " support vectors of LMKL. C = 10 throughout.",
        banana,
        version=3,
    ),
)


_COLOURS = ("#E69F00", "#0072B2", "#009E73")


def motorcycle(settings: Settings, run: Run) -> Any:
    """Draw three local lines on MOTORCYCLE and their gates."""
    from matplotlib.figure import Figure

    samples = Loaded("motorcycle")(settings)
    x = np.asarray(samples.X, dtype=np.float64).ravel()
    centre, width = x.mean(), x.std()
    seed = settings.seed_for("motorcycle")
    model = LocalizedMKLRegressor(
        [Linear()] * 3, C=100.0, epsilon=10.0, step="armijo", random_state=seed
    )
    model.fit(((x - centre) / width)[:, np.newaxis], samples.y)
    line = np.linspace(x.min(), x.max(), 400)
    scaled = ((line - centre) / width)[:, np.newaxis]
    figure = Figure(figsize=(6.0, 5.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    above.scatter(x, samples.y, s=14, color="#555555", label="samples")
    held = model.support_
    above.scatter(
        x[held],
        samples.y[held],
        s=46,
        facecolors="none",
        edgecolors="black",
        label="support vectors",
    )
    above.plot(
        line,
        model.predict(scaled),
        color="#D55E00",
        linewidth=2,
        label="LMKL, three linear kernels",
    )
    above.set_ylabel("acceleration, g")
    above.legend(fontsize=8)
    for m, (gate, style) in enumerate(zip(model.gate(scaled).T, ("-", "--", ":"), strict=True)):
        below.plot(line, gate, color=_COLOURS[m], linestyle=style, label=f"gate {m + 1}")
    below.set(xlabel="milliseconds after the impact", ylabel="gate")
    below.legend(fontsize=8)
    return figure


def convergence(settings: Settings, run: Run) -> Any:
    """Draw the objective over the iterations of LMKL on WAVEFORM and OLIVETTI, and where each τ
    would have stopped."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(11.0, 4.4), layout="constrained")
    protocol: Any = CONVERGENCE.protocol
    for ax, data, size in zip(
        figure.subplots(1, 2), protocol.datasets, protocol.sizes, strict=True
    ):
        samples = data.source(settings)
        train, _ = protocol.split(
            samples, min(size, len(samples.y) - 1), settings.seed_for(data.name, "split", 0)
        )
        model = converging(1e-7).set_params(random_state=0).fit(train.X, train.y)
        objective = np.array([step["objective"] for step in model.history_])
        falls = (objective[:-1] - objective[1:]) / np.abs(objective[:-1])
        ax.semilogx(np.arange(1, len(objective) + 1), objective, color="black", linewidth=1.2)
        for share, marker, colour in zip(
            SHARES, "os^Dv", ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"), strict=True
        ):
            short = np.flatnonzero(falls < share)
            if len(short):
                stop = int(short[0]) + 1
                said = f"τ = {share:g}: {stop}"
                ax.plot(
                    stop + 1,
                    objective[stop],
                    marker=marker,
                    color=colour,
                    linestyle="none",
                    label=said,
                )
        ax.set(title=data.name, xlabel="iteration, from 1", ylabel="objective")
        ax.legend(title="would stop after", fontsize=8)
    return figure


def projections(settings: Settings, run: Run) -> Any:
    """Draw even and odd digits of USPS by principal components, and by each of three local
    projections."""
    from matplotlib.figure import Figure
    from sklearn.decomposition import PCA

    samples = Loaded("usps", max_samples=400, options=(("task", "EO"),))(settings)
    model = (
        projecting(2, 3)
        .set_params(random_state=settings.seed_for("usps"))
        .fit(samples.X, samples.y)
    )
    learned = np.asarray(model.transform(samples.X)).reshape(len(samples.y), 3, 2)
    gates = model.gate(samples.X)
    planes = {"PCA": PCA(2).fit_transform(samples.X)} | {
        f"LPK, projection {m + 1}": learned[:, m] for m in range(3)
    }
    figure: Any = Figure(figsize=(9.2, 8.4), layout="constrained")
    for m, (ax, (name, Z)) in enumerate(
        zip(figure.subplots(2, 2).ravel(), planes.items(), strict=True)
    ):
        size = np.full(len(Z), 12.0) if m == 0 else 2.0 + 30.0 * gates[:, m - 1]
        for label, marker, colour, word in (
            (-1, "o", "#0072B2", "even"),
            (1, "^", "#E69F00", "odd"),
        ):
            own = samples.y == label
            ax.scatter(
                *Z[own].T,
                s=size[own],
                marker=marker,
                color=colour,
                alpha=0.7,
                linewidths=0,
                label=word,
            )
        ax.set_title(name if m == 0 else f"{name}, mean gate {gates[:, m - 1].mean():.2f}")
        ax.legend(fontsize=8)
    return figure


_SLIDES = (
    Drawing(
        "001-machines",
        "001",
        "Six small pictures: margin, three kernels, regression tube, one class, three classes,"
        " posteriors",
        "What the machines do: a margin with its support vectors ringed; boundaries of a linear, a"
        " quadratic and a Gaussian kernel; the tube of regression on one input; the region of one"
        " class; three classes by one machine; and outputs fitted to posteriors that neighbours"
        " give.",
        sketches.machines,
    ),
    Drawing(
        "001-integration",
        "001",
        "Three diagrams: representations joined as columns, as kernels, and as outputs of machines",
        "Early, intermediate and late integration of two representations; multiple kernel learning"
        " is the second.",
        sketches.integration,
    ),
    Drawing(
        "001-motorcycle",
        "001",
        "Acceleration over time with the curve of local regression, and the three gates below",
        "MOTORCYCLE: three local linear kernels make a smooth curve; below, where each of them"
        " counts.",
        motorcycle,
        version=2,
    ),
    Drawing(
        "001-convergence",
        "001",
        "Falling objectives over the iterations of LMKL on WAVEFORM and OLIVETTI with the points"
        " where each τ stops",
        "WAVEFORM, first class against the others, and OLIVETTI, twenty persons against the other"
        " twenty: the objective of LMKL with three linear kernels, and where the rule J(t) > (1 −"
        " τ) J(t − 1) would stop.",
        convergence,
        version=2,
    ),
    Drawing(
        "001-gates",
        "001",
        "Four images of gates by representation and sample, on digits and advertisements, softmax"
        " and sigmoid",
        "MULTIFEAT and ADVERT: how far the gates of LMKL open every representation, learned on the"
        " first training half with C = 10, one column a test sample, ordered by class. Softmax"
        " gates share one; sigmoid gates open several. Mean gates of all folds are the weights in"
        " the tables.",
        sketches.view_gates,
        version=2,
    ),
    Drawing(
        "001-projections",
        "001",
        "Even and odd digits of USPS in four planes: principal components, and three local"
        " projections",
        "USPS, even against odd, 400 training samples: principal components, and three local"
        " projections (LPK) learned with the machine and its gates. The larger a mark, the wider"
        " the gate of that projection.",
        projections,
        version=2,
    ),
    Drawing(
        "001-dimensions",
        "001",
        "Accuracy and support vectors over the dimension that digits of USPS are projected to, for"
        " six methods",
        "USPS, even against odd and small against large, means of five splits: principal"
        " components, local Fisher discriminants (LFDA, of fifty components), one learned"
        " projection (GPK) and three local ones (LPK), which start at random or at principal"
        " directions; linear kernels.",
        bars.dimensions,
        version=3,
    ),
)


_THREE = [("kL", Linear()), ("kP", Polynomial(degree=2)), ("kG", Gaussian("nearest"))]
#: Powers of ten of the penalties on the grid.
_POWERS = np.linspace(-1.0, 1.0, 7)


@dataclass(frozen=True)
class _Searched:
    """A mixture as the experiment has it, its folds, and what the response surface finds on
    them."""

    samples: Samples
    splits: list[Split]
    found: Found

    def error(self, p: float, g: float) -> float:
        """Return the validation error in percent under these powers of ten for kP and kG."""
        model = clone(self.found.model).set_params(penalties=[1.0, 10.0**p, 10.0**g])
        cv = [(split.train, split.valid) for split in self.splits]
        return 100 - 100 * float(
            np.mean(cross_val_score(model, self.samples.X, self.samples.y, cv=cv))
        )


@lru_cache(maxsize=4)
def _searched(settings: Settings, k: int) -> _Searched:
    protocol: Any = GAUSS.protocol
    data = next(one for one in protocol.datasets if one.name == f"GAUSS{k}")
    template = next(one.estimator for one in protocol.methods if one.name == "RMKL")
    samples, splits = protocol.folds(data, settings)
    return _Searched(samples, splits, protocol.search(template, samples.X, samples.y, splits))


@lru_cache(maxsize=4)
def _errors(settings: Settings, k: int) -> NDArray[np.float64]:
    """Return the validation error of a mixture over the grid of penalties, a row for each of kG."""
    one = _searched(settings, k)
    return np.array([[one.error(p, g) for p in _POWERS] for g in _POWERS])


def penalty_grid(settings: Settings, run: Run) -> Any:
    """Draw the validation error over the penalties of two kernels on four mixtures."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 7.6), layout="constrained")
    for ax, k in zip(figure.subplots(2, 2).ravel(), (2, 3, 4, 5), strict=True):
        _error_map(figure, ax, settings, k)
    return figure


def eigenvalue_line(settings: Settings, run: Run) -> Any:
    """Draw the penalties that EMKL can choose beside those that RMKL finds, on the map of the
    validation error."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    for ax, k in zip(figure.subplots(1, 2), (4, 5), strict=True):
        _error_map(figure, ax, settings, k)
        one = _searched(settings, k)
        X = one.samples.X[one.splits[0].train]
        e = []
        for _, kernel in _THREE:
            K = kernel.fit(X)(X)
            scale = np.sqrt(np.diag(K))
            e.append(np.count_nonzero(np.linalg.eigvalsh(K / np.outer(scale, scale)) > 0.5))
        # d = e^γ; only ratios count, and that of the linear kernel is 1 on the map.
        line = np.outer(np.linspace(0.0, 1.0, 11), np.log10(np.array(e[1:]) / e[0]))
        ax.plot(*line.T, color="#D55E00", linewidth=2, marker="^", label="EMKL, γ = 0, 0.1, 0.2, …")
        ax.set(xlim=(-1, 1), ylim=(-1, 1))
        ax.legend(fontsize=8, loc="lower right")
    return figure


def _error_map(figure: Any, ax: Any, settings: Settings, k: int) -> None:
    """Draw the error over the penalties, the points that the search for them evaluated, and its
    optimum."""
    one = _searched(settings, k)
    shown = ax.contourf(_POWERS, _POWERS, _errors(settings, k), levels=10, cmap="cividis")
    ax.plot(
        *one.found.search.design_.points.T,
        "o",
        markersize=4,
        color="white",
        markeredgecolor="black",
    )
    ax.plot(0.0, 0.0, "o", markersize=6, color="black", markeredgecolor="white")
    best = np.log10(np.asarray(one.found.model.penalties))[1:]
    ax.plot(
        *best,
        marker="*",
        markersize=14,
        color="white",
        markeredgecolor="black",
        zorder=5,
        clip_on=False,
    )
    figure.colorbar(shown, ax=ax, label="validation error, %")
    ax.set(title=f"GAUSS{k}", xlabel="$\\log_{10} d$ of kP", ylabel="$\\log_{10} d$ of kG")


def example(settings: Settings, run: Run) -> Any:
    """Draw the boundaries of MKL and of the machine that is starred on the map of GAUSS3."""
    one = _searched(settings, 3)
    rows = one.splits[0].train
    X, y = one.samples.X[rows], one.samples.y[rows]
    rest = np.concatenate([rows, one.splits[0].valid])
    raw = Generated(make_gaussians, 1200, (("n_components", 3),))(settings).X[rest]
    figure, axes = _row(2)
    models = {
        "MKL": clone(one.found.model).set_params(penalties=None),
        "RMKL": clone(one.found.model),
    }
    for ax, (name, model) in zip(axes, models.items(), strict=True):
        DecisionRegionDisplay.from_estimator(model.fit(X, y), X, y, ax=ax)
        _truth(ax, 3, raw.mean(axis=0), raw.std(axis=0))
        weights = ", ".join(f"{weight:.2f}" for weight in model.weights_)
        ax.set_title(f"{_title(name, model)}\nweights {weights}")
    return figure


def principal_components(settings: Settings, run: Run) -> Any:
    """Draw digits by the combined kernels of the unweighted sum, MKL and RMKL, on the first fold of
    the experiment."""
    from matplotlib.figure import Figure

    protocol: Any = COMPONENTS.protocol
    rows = [row for one in run.of_table("002", COMPONENTS.table) for row in one.rows]
    if not rows:
        raise LookupError(f"the run has no {COMPONENTS.table} of 002.")
    samples, splits = protocol.folds(protocol.datasets[0], settings)
    X, y = samples.X[splits[0].train], samples.y[splits[0].train]
    figure = Figure(figsize=(4.6 * len(protocol.methods), 4.2), layout="constrained")
    for ax, method in zip(figure.subplots(1, len(protocol.methods)), protocol.methods, strict=True):
        found = {row.metric: row for row in rows if row.method == method.name}
        template = getattr(method.estimator, "estimator", method.estimator)
        model = clone(template).set_params(C=_of_first_run(found["C"]))
        if any(name.startswith("penalty:") for name in found):
            penalties = [_of_first_run(found[f"penalty:{name}"]) for name, *_ in template.kernels]
            model.set_params(penalties=penalties)
        display = ProjectionDisplay.from_estimator(model.fit(X, y), X, y, ax=ax)
        share = found["explained_variance_2"]
        ax.set_title(
            f"{method.name.removeprefix('KPCA on ')}: {100 * display.explained_share:.1f} % of the"
            f" variance\nall folds {share.mean:.2f}, published {share.published or np.nan:.2f}"
        )
    return figure


def _of_first_run(row: Row) -> float:
    return (row.runs or (row.mean,))[0]


_REGULARIZED = (
    Drawing(
        "002-figure1",
        "002",
        "Four maps of the validation error over the penalties of two kernels, on GAUSS2 to GAUSS5",
        "Figure 1. Validation error over the penalties of the quadratic and the Gaussian kernel,"
        " that of the linear one fixed at 1, on the samples, folds and C of the first run. Circles"
        " are the points that the search evaluated, the filled one is the centre (all penalties 1,"
        " plain MKL), the star is the point it took.",
        penalty_grid,
        version=3,
    ),
    Drawing(
        "002-figure4",
        "002",
        "Two maps of the validation error over the penalties, with the line of EMKL and the optimum"
        " of RMKL",
        "Figure 4. GAUSS4 and GAUSS5: the penalties that EMKL can choose lie on a line, d = e^γ"
        " with e the number of eigenvalues above one half, triangles for γ = 0, 0.1, 0.2 and so on,"
        " as far as they fall inside; the star is what RMKL takes.",
        eigenvalue_line,
        version=2,
    ),
    Drawing(
        "002-figures5-9",
        "002",
        "Bars a data set: accuracy of RMKL, EMKL and RWKL less that of MKL, kernels used, points"
        " evaluated",
        "As Figures 5 to 9, on the sets that can be had: accuracy less that of MKL, kernels used,"
        " and points that the searches evaluated.",
        bars.searches,
    ),
    Drawing(
        "002-figure2",
        "002",
        "Two planes with the samples of GAUSS3: boundaries and support vectors of MKL and of RMKL",
        "Figure 2. GAUSS3, the first training half of the first run: boundary and support vectors"
        " of MKL and of RMKL, the one that is starred in Figure 1; weights of the linear, quadratic"
        " and Gaussian kernel. Inputs are standardised. Ellipses are the Gaussians, the green"
        " dashed line is the boundary of the Bayes rule. Printed are the weights 0.00, 0.25, 0.75"
        " of MKL and 0.00, 0.48, 0.31 of RMKL.",
        example,
        version=3,
    ),
    Drawing(
        "002-figure3",
        "002",
        "Digits in the plane of two principal components of the combined kernel, even and odd in"
        " two colours",
        "Figure 3. MULTIFEAT, even against odd, the first training half of the first run, with the"
        " C and the penalties chosen there: the first two principal components of the combined"
        " kernel, and how much of the variance they explain on this half, in the mean of all, and"
        " in print.",
        principal_components,
        version=2,
    ),
)


_TABLES = (
    Drawing(
        "003-figure1",
        "003",
        "Bars a data set: error and seconds of bilinear MKL, one versus rest and shared weights",
        "Figure 1 a and b. Errors, and seconds of the whole search, with standard errors.",
        bars.errors_and_times,
    ),
    Drawing(
        "004-figure1",
        "004",
        "Bars a two-class set: seconds of QCQP and SILP, λ fixed or learned, and of double"
        " cross-validation",
        "Figure 1. Seconds on the two-class sets of the six methods that the paper draws, times of"
        " our programs; double cross-validation with its whole search. The paper prints bars, no"
        " numbers.",
        bars.binary_times,
        version=2,
    ),
    Drawing(
        "004-figure2",
        "004",
        "A face, and its amplitudes under four scales and six orientations of log-Gabor filters",
        "As Figure 2, on a stand-in: a face of OLIVETTI under 24 log-Gabor filters, four"
        " wavelengths (in pixels) by six orientations. The paper's images of gene expression and"
        " its constants are not to be had.",
        sketches.texture,
    ),
    Drawing(
        "004-figures3-4",
        "004",
        "Curves of the test accuracy over the regulariser λ, by two programs on four data sets",
        "Figures 3 and 4: accuracy over thirty values of λ, means of all splits, with weights"
        " learned by the semi-definite and the quadratically constrained program. The names of the"
        " two multi-class sets are lost: wine and segment stand for them.",
        bars.regularisers,
    ),
)

#: In the order in which a page shows them.
DRAWINGS: tuple[Drawing, ...] = (*_LOCALIZED, *_SLIDES, *_REGULARIZED, *_TABLES)


def draw_pictures(
    run: Run, data_home: str | None = None, drawings: Sequence[Drawing] = DRAWINGS
) -> dict[str, list[Drawn]]:
    """Return the pictures of every paper that the run has experiments of."""
    papers = {one.experiment.paper for one in run.results}
    found: dict[str, list[Drawn]] = {}
    for drawing in drawings:
        if drawing.paper in papers:
            found.setdefault(drawing.paper, []).append(
                _drawn(drawing, run, run.settings(data_home))
            )
    return found


def _drawn(drawing: Drawing, run: Run, settings: Settings) -> Drawn:
    path = _kept(drawing, run)
    if path is not None and path.exists():
        return Drawn(drawing.caption, drawing.alt, path.read_bytes())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # few iterations are what some of the pictures are about
            figure = drawing.draw(settings, run)
    except (LookupError, OSError, ValueError) as error:
        return Drawn(drawing.caption, drawing.alt, None, " ".join(str(error).split()))
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110, facecolor="white")
    if path is not None:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, buffer.getvalue())
    return Drawn(drawing.caption, drawing.alt, buffer.getvalue())


def _kept(drawing: Drawing, run: Run) -> Path | None:
    # Beside records only: a folder of summaries is for small texts.
    if not any(run.folder.glob("*.jsonl")):
        return None
    return run.folder / "figures" / f"{drawing.name}-{drawing.version}.png"
