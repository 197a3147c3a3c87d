"""
Multi-omics data with missing views
===================================

Some patients lack one or more of the assays. Every patient is learned from, and predicted, by the
views that are there; no patient is left out and no column is imputed.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from kernelmosaic import MKLClassifierCV, stack_views
from kernelmosaic.kernels import Gaussian, Linear, by_group
from kernelmosaic.plots import (
    ContributionsDisplay,
    FeatureImportanceDisplay,
    ViewMapDisplay,
)

# %% Four synthetic views of 240 patients. Three genes, three methylation sites and two proteins
# depend on the disease; the fourth view, microRNA, does not.
random = np.random.RandomState(0)
patients = [f"patient {i}" for i in range(240)]
ill = pd.Series(random.randint(2, size=240), index=patients)
sizes = {"mrna": (40, 3), "methylation": (30, 3), "protein": (20, 2), "mirna": (25, 0)}
tables = {}
for name, (n_columns, n_signals) in sizes.items():
    values = random.normal(size=(240, n_columns))
    values[:, :n_signals] += 1.0 * ill.to_numpy()[:, np.newaxis]
    tables[name] = pd.DataFrame(values, index=patients).add_prefix("column_")

# %% Each table lacks a quarter of the patients. ``stack_views`` joins the tables by the names of
# their rows; NaN marks a view that a patient lacks.
parts = {name: table[random.uniform(size=240) > 0.25] for name, table in tables.items()}
X, views = stack_views(**parts)
y = ill[X.index].to_numpy()
ViewMapDisplay.from_views(X, views)
plt.show()

# %% A linear and a Gaussian kernel per view. C and the norm of the weights are chosen by
# cross-validation.
train, test = np.arange(len(X)) % 2 == 0, np.arange(len(X)) % 2 == 1
model = MKLClassifierCV(by_group([Linear(), Gaussian()], views), Cs=5)
model.fit(X[train], y[train])
print({name: round(weight, 2) for name, weight in model.view_weights_.items()})


def auc(estimator, columns, rows):
    probabilities = estimator.predict_proba(X.loc[rows, columns])[:, 1]
    return roc_auc_score(ill[rows], probabilities)


print(f"all views, all patients: AUC {auc(model, X.columns, X.index[test]):.3f}")

# %% For comparison: each view alone, for the patients that have it, and the patients that have
# every view.
for name, columns in views.items():
    known = X[columns].notna().all(axis=1).to_numpy()
    alone = MKLClassifierCV([Linear(), Gaussian()], Cs=5)
    alone.fit(X.loc[train & known, columns], y[train & known])
    rows = X.index[test & known]
    print(f"{name:11} alone, {len(rows):3} patients: {auc(alone, columns, rows):.3f}")
complete = X.notna().all(axis=1).to_numpy()
cases = MKLClassifierCV(by_group([Linear(), Gaussian()], views), Cs=5)
cases.fit(X[train & complete], y[train & complete])
print(f"patients with every view: {(train & complete).sum()} of {train.sum()} learned")
print(f"all patients predicted:   {auc(cases, X.columns, X.index[test]):.3f}")

# %%
# The contribution of each view to the decision on one patient.
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
patient = np.flatnonzero(test & ~complete)[:1]
ContributionsDisplay.from_estimator(model, X.iloc[patient], truth=y[patient[0]], ax=ax)
ax.set_xlim(*(1.2 * np.array(ax.get_xlim())))
plt.show()

# %%
# The most important columns of every view.
known = X[train & complete]
FeatureImportanceDisplay.from_estimator(model, known, most=4, random_state=0)
plt.show()
