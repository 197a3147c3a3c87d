"""
Convergence and duality gap
===========================

Every iteration ends with a bound on the distance of the objective from the optimum. Three solvers
learn the same weights, and the bound compares them.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from kernelmosaic import MKLClassifier
from kernelmosaic.kernels import Gaussian, per_column
from kernelmosaic.plots import ConvergenceDisplay

# %%
# One Gaussian kernel per column: thirty weights to learn.
X, y = load_breast_cancer(return_X_y=True)
X, y = StandardScaler().fit_transform(X)[:300], y[:300]
kernels = [per_column(Gaussian("median"))]

# %% Second-order steps, reduced gradient (SimpleMKL) and column generation minimise the same convex
# objective.
models = {}
for solver in ("newton", "reduced_gradient", "silp"):
    models[solver] = MKLClassifier(kernels, C=10, solver=solver, tol=1e-3).fit(X, y)
    model = models[solver]
    print(f"{solver}: objective {model.objective_:.4f}, gap {model.duality_gap_:.1e}")
    print(f"  {model.n_solves_} machine solves")

# %% The default solver, with the tolerance as a dotted line. The bound depends on every kernel, and
# Newton's method does not read kernels without a weight again until the others have converged; the
# gap therefore falls at the end.
ConvergenceDisplay.from_estimator(models["newton"])
plt.show()

# %%
# All three gaps.
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
styles = zip(models.items(), ("#0072B2", "#D55E00", "#009E73"), "o^s", strict=True)
for (solver, model), colour, marker in styles:
    gaps = [step["gap"] for step in model.history_]
    steps = range(1, len(gaps) + 1)
    ax.semilogy(steps, gaps, color=colour, marker=marker, markersize=4, label=solver)
ax.axhline(1e-3, color="0.35", linestyle="dotted")
ax.set(xlabel="iteration", ylabel="relative duality gap")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()
