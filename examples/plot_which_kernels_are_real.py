"""
Significance and importance of kernels
======================================

Every fit returns weights, also where the labels do not depend on the data. Permuted labels, resampled data and kernels
left out show which weights are significant, stable and needed.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelmosaic import MKLClassifier
from kernelmosaic.inspection import kernel_significance
from kernelmosaic.kernels import Gaussian, by_group
from kernelmosaic.plots import (
    KernelImportanceDisplay,
    KernelSignificanceDisplay,
    StabilityDisplay,
)

# %%
# Five views of 120 samples. The labels depend on the first, and on nothing else.
random = np.random.RandomState(0)
X = random.standard_normal((120, 10))
y = X[:, 0] + X[:, 1] ** 2 - 1 + 0.5 * random.standard_normal(120) > 0
names = ["expression", "methylation", "protein", "clinical", "imaging"]
views = by_group(Gaussian(), {name: [2 * m, 2 * m + 1] for m, name in enumerate(names)})
model = MKLClassifier(views)

# %%
# **Significance.** Grey shows the weights with permuted labels: every kernel has some weight, and sometimes one has
# most of it. The weight of the first kernel, and its alignment with the labels, are larger. Filled dots are
# significant, corrected for the number of kernels.
options = {"n_permutations": 99, "correction": "max", "random_state": 0}
found = kernel_significance(model, X, y, **options)
print(found)
figure, axes = plt.subplots(1, 2, figsize=(11, 2.8), layout="constrained")
KernelSignificanceDisplay(found).plot(axes[0])
KernelSignificanceDisplay(found).plot(axes[1], statistic="alignment")
plt.show()

# %%
# **Stability.** Fits to halves of the samples; dots are the weights learned from all samples. Kernels on which the
# labels do not depend are selected in about half of the fits, with small weights.
StabilityDisplay.from_estimator(model, X, y, n_resamples=50, random_state=0)
plt.show()

# %%
# **Importance.** The loss of accuracy on samples held out, without the kernel and with its samples permuted.
KernelImportanceDisplay.from_estimator(model, X, y, cv=5, random_state=0)
plt.show()
