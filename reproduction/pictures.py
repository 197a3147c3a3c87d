"""Pictures of the papers, drawn again from the run's seed and data; kept in the run folder once drawn."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, cross_val_score

from kernelmosaic.datasets import bayes_decision, make_gaussians
from kernelmosaic.datasets.generators import mixture_of
from kernelmosaic.estimators import (
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    LocalizedMKLRegressor,
    MKLClassifier,
)
from kernelmosaic.gating import Softmax
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.model_selection import FiveByTwoFold, ResponseSurfaceSearchCV
from kernelmosaic.plots import (
    DecisionRegionDisplay,
    GatingDisplay,
    LocalKernelDisplay,
    ProjectionDisplay,
)
from reproduction import bars, sketches
from reproduction.experiment import Settings
from reproduction.papers.paper_001 import CONVERGENCE, SHARES, converging, digit_kernels, digits, projecting
from reproduction.papers.paper_004 import TEN
from reproduction.protocols import RandomSplits
from reproduction.reading import Run
from reproduction.sources import Generated, Loaded, Samples, thin
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
        Takes the settings and the run and returns a matplotlib Figure, in seconds rather than minutes. It raises
        `LookupError` if the run lacks what it needs.
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


def _gauss4(settings: Settings) -> Samples:
    return Generated(make_gaussians, 600, (("n_components", 4),))(settings)


def _localized(kernels: list[Any], settings: Settings, **options: Any) -> Any:
    return LocalizedMKLClassifier(kernels, random_state=settings.seed_for("picture"), **options)


def _row(count: int) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(4.6 * count, 4.4), layout="constrained")
    # A display puts its legend beside its axes, outside of them: each has a part of the figure to itself.
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
    plain = MKLClassifier(_SMOOTH).fit(samples.X, samples.y)
    DecisionRegionDisplay.from_estimator(plain, samples.X, samples.y, ax=axes[0])
    axes[0].set_title(_title("MKL (kL-kP)", plain))
    for ax, kernels, name in ((axes[1], _SMOOTH, "LMKL (kL-kP)"), (axes[2], _LOCAL, "LMKL (kL-kL-kL)")):
        model = _localized(kernels, settings).fit(samples.X, samples.y)
        GatingDisplay.from_estimator(model, samples.X, samples.y, grid_resolution=150, ax=ax)
        ax.set_title(_title(name, model))


def _truth(ax: Any, n_components: int) -> None:
    """Draw each Gaussian of a mixture, at two standard deviations, and the boundary of the Bayes rule, dashed."""
    from matplotlib.patches import Ellipse

    mixture, ends = mixture_of(n_components), (ax.get_xlim(), ax.get_ylim())
    for mean, variances in zip(mixture.means, mixture.variances, strict=True):
        ax.add_patch(Ellipse(mean, *4.0 * np.sqrt(variances), fill=False, edgecolor="#555555", linewidth=0.8))
    first, second = (np.linspace(low, high, 200) for low, high in ends)
    plane = np.column_stack([one.ravel() for one in np.meshgrid(first, second)])
    odds = bayes_decision(plane, n_components).reshape(200, 200)
    ax.contour(first, second, odds, levels=[0.0], colors="#009E73", linestyles="dashed", linewidths=2)
    ax.set(xlim=ends[0], ylim=ends[1])


def combined_kernel(settings: Settings, run: Run) -> Any:
    """Draw the combined kernel of LMKL on GAUSS4 as the gates are learned."""
    from matplotlib.figure import Figure

    samples = _gauss4(settings)
    figure = Figure(figsize=(9.0, 7.6), layout="constrained")
    for ax, steps in zip(figure.subplots(2, 2).ravel(), _STEPS, strict=True):
        # One start, almost the same gates everywhere, so that each picture goes on where the one before it stopped.
        model = _localized(_SMOOTH, settings, n_init=1, step="armijo", tol=1e-9, max_iter=steps, gating=Softmax(0.01))
        LocalKernelDisplay.from_estimator(model.fit(samples.X, samples.y), samples.X, samples.y, max_samples=300, ax=ax)
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
        "Three planes with the samples of GAUSS4: boundary and support vectors of MKL, regions and boundaries of LMKL",
        "Figure 1. GAUSS4: boundary and support vectors (ringed) of MKL, and the regions that the gates of LMKL make. "
        "Where a colour ends another kernel takes over; the solid line is the boundary. Grey ellipses are the four "
        "Gaussians at two standard deviations, the green dashed line is the boundary of the Bayes rule.",
        boundaries,
        version=2,
    ),
    Drawing(
        "000-figure2",
        "000",
        "Four matrices of the combined kernel on GAUSS4, after 1, 3, 6 and 20 iterations",
        "Figure 2. GAUSS4: the combined kernel of LMKL (kL-kP) as its gates are learned from almost equal ones, "
        "samples ordered by class and region. Blocks appear as the regions part.",
        combined_kernel,
    ),
    Drawing(
        "000-figure3",
        "000",
        "Three planes with the samples of BANANA: boundary of MKL, regions and boundaries of LMKL",
        "Figure 3. BANANA, 800 samples: boundary and support vectors of MKL; regions, boundary and support vectors of "
        "LMKL.",
        banana,
        version=2,
    ),
)


_COLOURS = ("#E69F00", "#0072B2", "#009E73")


def motorcycle(settings: Settings, run: Run) -> Any:
    """Draw three local lines on MOTORCYCLE and their gates."""
    from matplotlib.figure import Figure

    samples = Loaded("motorcycle")(settings)
    x = np.asarray(samples.X, dtype=np.float64).ravel()
    centre, width = x.mean(), x.std()
    model = LocalizedMKLRegressor([Linear()] * 3, C=100.0, epsilon=10.0, random_state=settings.seed_for("motorcycle"))
    model.fit(((x - centre) / width)[:, np.newaxis], samples.y)
    line = np.linspace(x.min(), x.max(), 400)
    scaled = ((line - centre) / width)[:, np.newaxis]
    figure = Figure(figsize=(6.0, 5.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    above.scatter(x, samples.y, s=14, color="#555555", label="samples")
    held = model.support_
    above.scatter(x[held], samples.y[held], s=46, facecolors="none", edgecolors="black", label="support vectors")
    above.plot(line, model.predict(scaled), color="#D55E00", linewidth=2, label="LMKL, three linear kernels")
    above.set_ylabel("acceleration, g")
    above.legend(fontsize=8)
    for m, (gate, style) in enumerate(zip(model.gate(scaled).T, ("-", "--", ":"), strict=True)):
        below.plot(line, gate, color=_COLOURS[m], linestyle=style, label=f"gate {m + 1}")
    below.set(xlabel="milliseconds after the impact", ylabel="gate")
    below.legend(fontsize=8)
    return figure


def convergence(settings: Settings, run: Run) -> Any:
    """Draw the objective over the iterations of LMKL on WAVEFORM and OLIVETTI, and where each τ would have stopped."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(11.0, 4.4), layout="constrained")
    protocol: Any = CONVERGENCE.protocol
    for ax, data, size in zip(figure.subplots(1, 2), protocol.datasets, protocol.sizes, strict=True):
        samples = data.source(settings)
        train, _ = protocol.split(samples, min(size, len(samples.y) - 1), settings.seed_for(data.name, "split", 0))
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
                ax.plot(stop + 1, objective[stop], marker=marker, color=colour, linestyle="none", label=said)
        ax.set(title=data.name, xlabel="iteration, from 1", ylabel="objective")
        ax.legend(title="would stop after", fontsize=8)
    return figure


def projections(settings: Settings, run: Run) -> Any:
    """Draw even and odd digits of USPS by principal components, and by each of three local projections."""
    from matplotlib.figure import Figure
    from sklearn.decomposition import PCA

    samples = Loaded("usps", max_samples=400, options=(("task", "EO"),))(settings)
    model = projecting(2, 3).set_params(random_state=settings.seed_for("usps")).fit(samples.X, samples.y)
    learned = np.asarray(model.transform(samples.X)).reshape(len(samples.y), 3, 2)
    gates = model.gate(samples.X)
    planes = {"PCA": PCA(2).fit_transform(samples.X)} | {f"LPK, projection {m + 1}": learned[:, m] for m in range(3)}
    figure: Any = Figure(figsize=(9.2, 8.4), layout="constrained")
    for m, (ax, (name, Z)) in enumerate(zip(figure.subplots(2, 2).ravel(), planes.items(), strict=True)):
        size = np.full(len(Z), 12.0) if m == 0 else 2.0 + 30.0 * gates[:, m - 1]
        for label, marker, colour, word in ((-1, "o", "#0072B2", "even"), (1, "^", "#E69F00", "odd")):
            own = samples.y == label
            ax.scatter(*Z[own].T, s=size[own], marker=marker, color=colour, alpha=0.7, linewidths=0, label=word)
        ax.set_title(name if m == 0 else f"{name}, mean gate {gates[:, m - 1].mean():.2f}")
        ax.legend(fontsize=8)
    return figure


_SLIDES = (
    Drawing(
        "001-machines",
        "001",
        "Six small pictures: margin, three kernels, regression tube, one class, three classes, posteriors",
        "What the machines do: a margin with its support vectors ringed; boundaries of a linear, a quadratic and a "
        "Gaussian kernel; the tube of regression on one input; the region of one class; three classes by one machine; "
        "and outputs fitted to posteriors that neighbours give.",
        sketches.machines,
    ),
    Drawing(
        "001-motorcycle",
        "001",
        "Acceleration over time with the curve of local regression, and the three gates below",
        "MOTORCYCLE: three local linear kernels make a smooth curve; below, where each of them counts.",
        motorcycle,
    ),
    Drawing(
        "001-convergence",
        "001",
        "Falling objectives over the iterations of LMKL on WAVEFORM and OLIVETTI with the points where each τ stops",
        "WAVEFORM, first class against the others, and OLIVETTI, twenty persons against the other twenty: the "
        "objective of LMKL with three linear kernels, and where the rule J(t) > (1 − τ) J(t − 1) would stop.",
        convergence,
        version=2,
    ),
    Drawing(
        "001-gates",
        "001",
        "Four images of gates by representation and sample, on digits and advertisements, softmax and sigmoid",
        "MULTIFEAT and ADVERT, 400 samples each: how far the gates of LMKL open every representation, one column a "
        "sample, ordered by class. Softmax gates share one; sigmoid gates open several.",
        sketches.view_gates,
    ),
    Drawing(
        "001-projections",
        "001",
        "Even and odd digits of USPS in four planes: principal components, and three local projections",
        "USPS, even against odd, 400 training samples: principal components, and three local projections (LPK) learned "
        "with the machine and its gates. The larger a mark, the wider the gate of that projection.",
        projections,
        version=2,
    ),
    Drawing(
        "001-dimensions",
        "001",
        "Accuracy and support vectors over the dimension that digits of USPS are projected to, for six methods",
        "USPS, even against odd and small against large, means of five splits: principal components, local Fisher "
        "discriminants (LFDA, of fifty components), one learned projection (GPK) and three local ones (LPK), which "
        "start at random or at principal directions; linear kernels.",
        bars.dimensions,
        version=3,
    ),
)


_THREE = [("kL", Linear()), ("kP", Polynomial(degree=2)), ("kG", Gaussian("nearest"))]
#: Powers of ten of the penalties on the grid.
_POWERS = np.linspace(-1.0, 1.0, 7)


def _mixture(settings: Settings, n_components: int) -> Samples:
    return Generated(make_gaussians, 300, (("n_components", n_components),))(settings)


def penalty_grid(settings: Settings, run: Run) -> Any:
    """Draw the validation error over the penalties of two kernels on four mixtures."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 7.6), layout="constrained")
    for ax, k in zip(figure.subplots(2, 2).ravel(), (2, 3, 4, 5), strict=True):
        _error_map(figure, ax, settings, k)
    return figure


def eigenvalue_line(settings: Settings, run: Run) -> Any:
    """Draw the penalties that EMKL can choose beside those that RMKL finds, on the map of the validation error."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    for ax, k in zip(figure.subplots(1, 2), (4, 5), strict=True):
        _error_map(figure, ax, settings, k)
        X = _mixture(settings, k).X
        e = []
        for _, kernel in _THREE:
            K = kernel.fit(X)(X)
            scale = np.sqrt(np.diag(K))
            e.append(np.count_nonzero(np.linalg.eigvalsh(K / np.outer(scale, scale)) > 0.5))
        # d = e^γ with γ from 0 to 1; only ratios count, and that of the linear kernel is 1 on the map.
        ends = np.log10(np.array(e[1:]) / e[0])
        ax.plot([0.0, ends[0]], [0.0, ends[1]], color="#D55E00", linewidth=2, marker="s", label="EMKL, γ from 0 to 1")
        ax.set(xlim=(-1, 1), ylim=(-1, 1))
        ax.legend(fontsize=8, loc="lower right")
    return figure


def _error_map(figure: Any, ax: Any, settings: Settings, k: int) -> None:
    """Draw the error over the penalties, the points that the search for them evaluated, and its optimum."""
    samples = _mixture(settings, k)
    folds = StratifiedKFold(2, shuffle=True, random_state=settings.seed_for("penalty grid", k))
    errors = np.array([[_error(samples, p, g, folds) for p in _POWERS] for g in _POWERS])
    shown = ax.contourf(_POWERS, _POWERS, errors, levels=10, cmap="cividis")
    search = ResponseSurfaceSearchCV(MKLClassifier(_THREE, normalize="diagonal"), on="penalties", cv=folds)
    design = search.fit(samples.X, samples.y).design_
    ax.plot(*design.points.T, linestyle="none", marker="o", markersize=4, color="white", markeredgecolor="black")
    best = np.log10(np.asarray(search.best_params_["penalties"]))[1:]
    ax.plot(*best, marker="*", markersize=14, color="white", markeredgecolor="black", zorder=5, clip_on=False)
    figure.colorbar(shown, ax=ax, label="validation error, %")
    ax.set(title=f"GAUSS{k}", xlabel="$\\log_{10} d$ of kP", ylabel="$\\log_{10} d$ of kG")


def _error(samples: Samples, p: float, g: float, folds: Any) -> float:
    model = MKLClassifier(_THREE, normalize="diagonal", penalties=[1.0, 10.0**p, 10.0**g])
    return 100 - 100 * float(np.mean(cross_val_score(model, samples.X, samples.y, cv=folds)))


def example(settings: Settings, run: Run, folds: Any = None) -> Any:
    """Draw the boundaries of MKL and of MKL with the penalties that a response surface finds, on GAUSS3."""
    samples = _mixture(settings, 3)
    folds = folds or FiveByTwoFold(random_state=settings.seed_for("example"))
    search = ResponseSurfaceSearchCV(MKLClassifier(_THREE, normalize="diagonal"), on="penalties", cv=folds)
    search.fit(samples.X, samples.y)
    figure, axes = _row(2)
    models = {"MKL": clone(search.estimator).fit(samples.X, samples.y), "RMKL": search.best_estimator_}
    for ax, (name, model) in zip(axes, models.items(), strict=True):
        DecisionRegionDisplay.from_estimator(model, samples.X, samples.y, ax=ax)
        _truth(ax, 3)
        weights = ", ".join(f"{weight:.2f}" for weight in model.weights_)
        ax.set_title(f"{_title(name, model)}\nweights {weights}")
    return figure


def principal_components(settings: Settings, run: Run) -> Any:
    """Draw digits by the combined kernels of the unweighted sum, MKL and RMKL."""
    from matplotlib.figure import Figure

    kernels = digit_kernels()
    names = [name for name, _, _ in kernels]
    penalties = _learned_penalties(run, names)
    samples = digits("EO", quick=True).source(settings)
    rows = thin(samples.y, 800, settings.seed_for("projections"))
    X, y = samples.X[rows], samples.y[rows]
    options: dict[str, Any] = {"normalize": "diagonal"}
    models = {"SUM": MKLClassifier(kernels, weights="uniform", **options), "MKL": MKLClassifier(kernels, **options)}
    if penalties is not None:
        models["RMKL"] = MKLClassifier(kernels, penalties=penalties, **options)
    figure = Figure(figsize=(4.4 * len(models), 4.0), layout="constrained")
    for ax, (name, model) in zip(figure.subplots(1, len(models)), models.items(), strict=True):
        display = ProjectionDisplay.from_estimator(model.fit(X, y), X, y, ax=ax)
        ax.set_title(f"{name}: {100 * display.explained_share:.1f} % of the variance")
    return figure


def _learned_penalties(run: Run, names: list[str]) -> list[float] | None:
    """Return the penalties that RMKL chose on even against odd digits in this run, None if it has not run."""
    rows = [row for one in run.of_table("002", "Table 4") for row in one.rows]
    found = {
        row.metric.removeprefix("penalty:"): row.mean
        for row in rows
        if (row.dataset, row.method) == ("MULTIFEAT-EO", "RMKL") and row.metric.startswith("penalty:")
    }
    return [found[name] for name in names] if set(names) <= set(found) else None


_REGULARIZED = (
    Drawing(
        "002-figure1",
        "002",
        "Four maps of the validation error over the penalties of two kernels, on GAUSS2 to GAUSS5",
        "Figure 1. Validation error over the penalties of the quadratic and the Gaussian kernel, that of the linear "
        "one fixed at 1 (300 samples, two folds). Circles are the points that the search evaluated, the star is the "
        "one it took.",
        penalty_grid,
        version=2,
    ),
    Drawing(
        "002-figure4",
        "002",
        "Two maps of the validation error over the penalties, with the line of EMKL and the optimum of RMKL",
        "Figure 4. GAUSS4 and GAUSS5: the penalties that EMKL can choose are a line, d = e^γ with e the number of "
        "eigenvalues above one half; the star is what RMKL takes.",
        eigenvalue_line,
    ),
    Drawing(
        "002-figures5-9",
        "002",
        "Bars a data set: accuracy of RMKL, EMKL and RWKL less that of MKL, kernels used, points evaluated",
        "As Figures 5 to 9, on the sets that can be had: accuracy less that of MKL, kernels used, and points that the "
        "searches evaluated.",
        bars.searches,
    ),
    Drawing(
        "002-figure2",
        "002",
        "Two planes with the samples of GAUSS3: boundaries and support vectors of MKL and of RMKL",
        "Figure 2. GAUSS3, 300 samples: boundary and support vectors of MKL and of RMKL, the latter with the penalties "
        "that a response surface finds; weights of the linear, quadratic and Gaussian kernel. Ellipses are the "
        "Gaussians, the green dashed line is the boundary of the Bayes rule.",
        example,
        version=2,
    ),
    Drawing(
        "002-figure3",
        "002",
        "Digits in the plane of two principal components of the combined kernel, even and odd in two colours",
        "Figure 3. MULTIFEAT, even against odd: the first two principal components of the combined kernel. RMKL has "
        "the mean penalties of this run's Table 4, and is left out if that was not run.",
        principal_components,
    ),
)


def regularisers(settings: Settings, run: Run) -> Any:
    """Draw the accuracy over λ of two programs on two sets, one split."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 4.0), layout="constrained")
    for ax, name in zip(figure.subplots(1, 2), ("sonar", "heart"), strict=True):
        samples = Loaded(name)(settings)
        protocol = RandomSplits((), (), (), 1, inputs="[-1, 1]")
        train, test = protocol.split(samples, round(0.8 * len(samples.y)), settings.seed_for(name, "split", 0))
        for formulation, colour, marker in (("sdp_approximate", _COLOURS[1], "o"), ("qcqp", _COLOURS[0], "s")):
            models = [DiscriminantMKLClassifier(TEN, solver=formulation, alpha=float(one)) for one in _ALPHAS]
            scores = [100 * model.fit(train.X, train.y).score(test.X, test.y) for model in models]
            said = formulation.split("_")[0].upper()
            ax.semilogx(_ALPHAS, scores, color=colour, marker=marker, markersize=4, label=said)
        ax.set(title=name, xlabel="λ", ylabel="test accuracy, %")
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    return figure


_ALPHAS = np.logspace(-10, 2, 13)
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
        "Bars a two-class set: seconds of three programs, the program of Kim et al. and double cross-validation",
        "Figure 1. Seconds on the two-class sets; double cross-validation with its whole search.",
        bars.binary_times,
    ),
    Drawing(
        "004-figure2",
        "004",
        "A face, and its amplitudes under four scales and six orientations of log-Gabor filters",
        "As Figure 2, on a stand-in: a face of OLIVETTI under 24 log-Gabor filters, four wavelengths (in pixels) "
        "by six orientations. The paper's images of gene expression and its constants are not to be had.",
        sketches.texture,
    ),
    Drawing(
        "004-figure3",
        "004",
        "Curves of the test accuracy over the regulariser λ, by two programs on sonar and heart",
        "Figure 3, on one split and thirteen values of λ: accuracy with weights learned by the semi-definite and the "
        "quadratically constrained program, λ given.",
        regularisers,
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
            found.setdefault(drawing.paper, []).append(_drawn(drawing, run, run.settings(data_home)))
    return found


def _drawn(drawing: Drawing, run: Run, settings: Settings) -> Drawn:
    path = _kept(drawing, run)
    if path is not None and path.exists():
        return Drawn(drawing.caption, drawing.alt, path.read_bytes())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few iterations are what some of the pictures are about
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
