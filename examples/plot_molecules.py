"""
Chemistry: molecules as fingerprints and as graphs
==================================================

A molecule is described by counts of its substructures (a fingerprint) and by its graph. Each
description has kernels of its own: Tanimoto kernels compare fingerprints, Weisfeiler-Lehman and
shortest-path kernels compare graphs. The weights are learned by the evidence.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import root_mean_squared_error

from kernelmosaic import MKLRidgeCV
from kernelmosaic.kernels import ShortestPath, Tanimoto, WeisfeilerLehman
from kernelmosaic.plots import KernelWeightsDisplay

# %% Synthetic molecules: trees of carbon, nitrogen and oxygen atoms, some of them with one ring.
# For SMILES, ``kernelmosaic.kernels.fingerprints`` makes such tables by rdkit.
random = np.random.RandomState(0)


def molecule():
    n_atoms = random.randint(8, 16)
    atoms = random.choice(["C", "N", "O"], n_atoms, p=[0.7, 0.15, 0.15])
    bonds = [(random.randint(max(0, i - 3), i), i) for i in range(1, n_atoms)]
    if random.uniform() < 0.5:
        bonds.append((0, n_atoms - 1))
    return np.array(bonds), atoms


molecules = [molecule() for _ in range(250)]

# %%
# Two fingerprints: counts of atoms and bonds, and counts of paths of three atoms.


def words(bonds, atoms, n_atoms):
    near = {i: set() for i in range(len(atoms))}
    for i, j in bonds:
        near[i].add(j)
        near[j].add(i)
    paths = [(i,) for i in near]
    for _ in range(n_atoms - 1):
        paths = [(*path, j) for path in paths for j in near[path[-1]] - set(path)]
    found = ["".join(atoms[list(path)]) for path in paths]
    return [min(word, word[::-1]) for word in found]


def counts(lengths):
    rows = [
        pd.Series([word for n in lengths for word in words(*one, n)]).value_counts()
        for one in molecules
    ]
    return pd.DataFrame(rows).fillna(0.0).reset_index(drop=True)


small, large = counts([1, 2]), counts([3])

# %%
# The property depends on the number of oxygen atoms, on the N-C-O paths and on the ring.
names = [words(*one, 3) for one in molecules]
groups = np.array([one.count("NCO") for one in names])
rings = np.array([len(bonds) == len(atoms) for bonds, atoms in molecules])
oxygen = np.array([(atoms == "O").sum() for _, atoms in molecules])
y = 0.5 * oxygen + 0.5 * groups + rings + 0.2 * random.normal(size=250)

# %% Fingerprints are columns of numbers; the graphs are one more column. Kernels are normalised to
# a diagonal of one.
X = pd.concat([small, large, pd.Series(molecules, name="graph")], axis=1)
graphs = [
    ("neighbourhoods", WeisfeilerLehman(3), "graph"),
    ("distances", ShortestPath(), "graph"),
]
kernels = {
    "atoms and bonds": [("bonds", Tanimoto(), list(small.columns))],
    "paths of three": [("paths", Tanimoto(), list(large.columns))],
    "graphs": graphs,
}
kernels["all"] = [kernel for group in kernels.values() for kernel in group]
models = {}
for name, chosen in kernels.items():
    models[name] = MKLRidgeCV(chosen, criterion="evidence", normalize="diagonal")
    models[name].fit(X[:150], y[:150])
    error = root_mean_squared_error(y[150:], models[name].predict(X[150:]))
    print(f"{name:15} test RMSE {error:.3f}, deviation of y {y[150:].std():.3f}")

# %%
# The weights of all kernels, and the predictions with their standard deviations.
figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
KernelWeightsDisplay.from_estimator(models["all"], ax=axes[0])
predicted, deviation = models["all"].predict(X[150:], return_std=True)
axes[1].errorbar(y[150:], predicted, deviation, fmt="o", markersize=3, elinewidth=0.6)
axes[1].axline((0, 0), slope=1, color="0.5", linewidth=1)
axes[1].set(xlabel="measured", ylabel="predicted, ± one standard deviation")
plt.show()
