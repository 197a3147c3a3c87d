"""
Survival analysis: clinical variables and omics
===============================================

Times until an event, some of them censored, are predicted from clinical variables, from omics, and
from both together.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from kernelmosaic import MKLSurvivalCV
from kernelmosaic.kernels import Clinical, Gaussian, Linear
from kernelmosaic.metrics import integrated_brier_score, kaplan_meier
from kernelmosaic.plots import KernelWeightsDisplay

# %%
# 300 synthetic patients with age, sex and stage, 20 genes and 15 proteins.
random = np.random.RandomState(0)
n = 300
stage = random.choice(["I", "II", "III"], n)
genes, proteins = random.normal(size=(n, 20)), random.normal(size=(n, 15))
X = pd.DataFrame(
    np.hstack([genes, proteins]),
    columns=[f"gene_{j}" for j in range(20)] + [f"protein_{j}" for j in range(15)],
)
X["age"], X["sex"] = random.randint(40, 85, size=n), random.choice(["f", "m"], n)
X["stage"] = stage

# %% The hazard depends on age, stage and three genes; it does not depend on the proteins. A patient
# is observed for one to five years; a later event is censored.
risk = 0.03 * (X["age"] - 60) + 0.6 * (stage == "II") + 1.2 * (stage == "III")
risk += 0.8 * genes[:, 0] - 0.8 * genes[:, 1] + 0.8 * genes[:, 2]
years = random.exponential(4.0, n) * np.exp(-risk)
limit = random.uniform(1.0, 5.0, n)
y = np.column_stack([years <= limit, np.minimum(years, limit)])  # event, time
print(f"{y[:, 0].mean():.0%} of the events are observed")

# %% Cox's partial likelihood with one kernel per view; C and the norm of the weights are chosen by
# cross-validation. The score is Harrell's concordance.
kinds = ["continuous", "nominal", ["I", "II", "III"]]
clinical = ("clinical", Clinical(kinds=kinds), ["age", "sex", "stage"])
omics = [
    ("genes, linear", Linear(), list(X.columns[:20])),
    ("genes, Gaussian", Gaussian(), list(X.columns[:20])),
    ("proteins", Linear(), list(X.columns[20:35])),
]
settings = {"clinical": [clinical], "omics": omics, "both": [clinical, *omics]}
models = {}
for name, kernels in settings.items():
    models[name] = MKLSurvivalCV(kernels, loss="cox", Cs=5, cv=3).fit(X[:200], y[:200])
    curves = models[name].predict_survival_function(X[200:])
    concordance = models[name].score(X[200:], y[200:])
    brier = integrated_brier_score(y[:200], y[200:], curves)
    print(f"{name:8} concordance {concordance:.3f}, integrated Brier score {brier:.3f}")

# %% The weights; where equal weights score best in the folds, the learned ones are drawn beside
# them. On the right, the survival of three groups of test patients by predicted time, estimated by
# Kaplan and Meier.
figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
KernelWeightsDisplay.from_estimator(models["both"], ax=axes[0])
order = np.argsort(models["both"].predict(X[200:]))
thirds = zip(("short", "middle", "long"), np.array_split(order, 3), strict=True)
for label, rows in thirds:
    event, time = y[200:][rows].T
    axes[1].step(*kaplan_meier(time, event), where="post", label=f"predicted: {label}")
axes[1].set(xlabel="years", ylabel="share alive", ylim=(0, 1.02))
axes[1].legend(frameon=False)
plt.show()
