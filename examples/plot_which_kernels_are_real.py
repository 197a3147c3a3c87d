"""
Which kernels are real?
=======================

Weights come out of every fit, also where there is nothing to learn. Permuted labels, resampled data and kernels left
out tell which of them to believe.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelmosaic import MKLClassifier
from kernelmosaic.inspection import kernel_significance
from kernelmosaic.kernels import Gaussian, by_group
from kernelmosaic.plots import KernelImportanceDisplay, KernelSignificanceDisplay, StabilityDisplay

# %%
# Five views of 120 samples. The labels depend on the first, and on nothing else.
random = np.random.RandomState(0)
X = random.standard_normal((120, 10))
y = X[:, 0] + X[:, 1] ** 2 - 1 + 0.5 * random.standard_normal(120) > 0
names = ["expression", "methylation", "protein", "clinical", "imaging"]
views = by_group({name: [2 * m, 2 * m + 1] for m, name in enumerate(names)}, Gaussian())
model = MKLClassifier(views)

# %%
# **Chance.** Grey is what permuted labels give: no kernel gets nothing, and one gets most of the weight now and then.
# The weight of the first kernel, and its alignment with the labels, are beyond that. Filled dots are significant, with
# the number of kernels taken into account.
found = kernel_significance(model, X, y, n_permutations=99, correction="max", random_state=0)
print(found)
figure, axes = plt.subplots(1, 2, figsize=(11, 2.8), layout="constrained")
KernelSignificanceDisplay(found).plot(axes[0])
KernelSignificanceDisplay(found).plot(axes[1], statistic="alignment")
plt.show()

# %%
# **Other samples.** Fits to halves of the samples: dots are the weights learned from all of them. Kernels that have
# nothing to do with the labels are selected every other time, with small weights.
StabilityDisplay.from_estimator(model, X, y, n_resamples=50, random_state=0)
plt.show()

# %%
# **What is lost.** Accuracy on samples held out, without the kernel and with the kernel shown the wrong samples.
KernelImportanceDisplay.from_estimator(model, X, y, cv=5, random_state=0)
plt.show()
