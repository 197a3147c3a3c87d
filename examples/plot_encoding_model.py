"""
Encoding model: banded ridge regression of voxels
=================================================

Brain responses to a stimulus are predicted from features of the stimulus, of several kinds and at
several delays. Each of 200 synthetic voxels has weights of its own (banded ridge regression). The
share of every kind of features in a voxel is known here, and is compared with the learned share.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelmosaic import MKLRidgeCV
from kernelmosaic.kernels import Linear
from kernelmosaic.plots import TargetSharesDisplay

# %% Three kinds of features, and eight runs of 60 volumes. A response follows its stimulus after
# two to five volumes: every view holds copies of its features at the delays 1 to 6.
rng = np.random.default_rng(0)
kinds = {"motion": 6, "sound": 8, "words": 10}
delays = np.arange(1, 7)
response = np.array([0.1, 0.6, 1.0, 0.7, 0.3, 0.1])
runs = np.repeat(np.arange(8), 60)


def delayed(features):
    """Copies of the columns, each delayed within its run; zeros before the stimulus."""
    out = np.zeros((len(features), len(delays), features.shape[1]))
    for k, delay in enumerate(delays):
        same_run = (runs[delay:] == runs[:-delay])[:, np.newaxis]
        out[delay:, k] = np.where(same_run, features[:-delay], 0.0)
    return out


features = {name: rng.normal(size=(len(runs), width)) for name, width in kinds.items()}
views = {name: delayed(one) for name, one in features.items()}

# %% A voxel is a sum over the kinds, by its shares, and noise of the variance of two thirds of the
# signal.
n_voxels = 200
shares = rng.dirichlet(np.full(3, 0.5), size=n_voxels)
Y = np.zeros((len(runs), n_voxels))
for copies, share in zip(views.values(), shares.T, strict=True):
    slopes = rng.normal(size=(copies.shape[2], n_voxels))
    driven = np.tensordot(copies, response, axes=(1, 0)) @ slopes
    Y += np.sqrt(share) * driven / driven.std(axis=0)
Y += np.sqrt(2 / 3) * rng.normal(size=Y.shape)

# %% One linear kernel per view. Neighbouring volumes are alike; with ``groups`` whole runs are
# therefore left out, exactly and without a refit. The last two runs are the test set.
X = np.hstack([copies.reshape(len(runs), -1) for copies in views.values()])
ends = np.cumsum([copies[0].size for copies in views.values()])
columns = np.split(np.arange(ends[-1]), ends[:-1])
kernels = [(name, Linear(), one) for name, one in zip(views, columns, strict=True)]
train, test = runs < 6, runs >= 6

model = MKLRidgeCV(kernels, per_target=True, random_state=0)
model.fit(X[train], Y[train], groups=runs[train])
shared = MKLRidgeCV(kernels).fit(X[train], Y[train], groups=runs[train])
print("R² of two other runs")
print(f"weights of every voxel: {model.score(X[test], Y[test]):.3f}")
print(f"shared weights:         {shared.score(X[test], Y[test]):.3f}")

# %%
# Shares of the weights beside the true ones, and the shares of all voxels.
learned = model.weights_ / model.weights_.sum(axis=1, keepdims=True)
figure, axes = plt.subplots(
    1, 2, figsize=(11, 4), layout="constrained", width_ratios=[1, 1.6]
)
for m, name in enumerate(kinds):
    axes[0].plot(shares[:, m], learned[:, m], "o", markersize=3, label=name)
axes[0].axline((0, 0), slope=1, color="0.5", linewidth=1)
axes[0].set(xlabel="true share", ylabel="learned share")
axes[0].legend(frameon=False)
TargetSharesDisplay.from_estimator(model, ax=axes[1])
plt.show()

# %%
# The mean size of the coefficients of a view, by delay, has the shape of the response.
for name, width in kinds.items():
    squares = model.coef_[name].reshape(len(delays), width, -1) ** 2
    sizes = np.sqrt(squares.mean(axis=(1, 2)))
    plt.plot(delays, sizes / sizes.max(), marker="o", label=name)
plt.plot(delays, response, color="0.5", linestyle="dashed", label="true response")
plt.xlabel("delay, volumes")
plt.ylabel("size of the coefficients")
plt.legend(frameon=False)
plt.show()
