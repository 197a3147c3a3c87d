"""
Which width? Let the weights say
================================

A Gaussian kernel needs a width. Rather than search for one, give several and learn how much each counts.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelmosaic import MKLClassifier
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Gaussian, family
from kernelmosaic.plots import DecisionRegionDisplay, KernelWeightsDisplay

# %%
# Four clusters in the plane, two per class, and a test set large enough to trust.
X, y = make_gaussians(n_components=4, n_samples=400, random_state=0)
X_test, y_test = make_gaussians(n_components=4, n_samples=20_000, random_state=1)
widths = [0.3, 1, 3, 10, 30]

# %%
# One kernel a width. The weights are learned with the machine and come out sparse; the gap certifies how far the
# objective can be from the optimum.
model = MKLClassifier(family(Gaussian(), width=widths), C=1).fit(X, y)
print(f"test accuracy {model.score(X_test, y_test):.3f}, duality gap {model.duality_gap_:.1e}")

# %%
# Each width alone, for comparison.
alone = [MKLClassifier([Gaussian(width)], C=1).fit(X, y).score(X_test, y_test) for width in widths]
for width, accuracy in zip(widths, alone, strict=True):
    print(f"width {width:4}: {accuracy:.3f}")

# %%
# The learned mixture comes close to the best single width, which nobody had to look for. It is not above it: weights
# are learned from the training set, where a narrow kernel also explains some of the noise.
#
# What was learned, and what it makes of the plane. Rings are support vectors.
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
KernelWeightsDisplay.from_estimator(model, ax=axes[0])
DecisionRegionDisplay.from_estimator(model, X, y, ax=axes[1])
axes[0].set_title(f"{np.count_nonzero(model.weights_)} of {len(widths)} kernels used")
plt.show()
