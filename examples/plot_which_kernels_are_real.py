"""
Which kernels are real
======================

Every fit returns weights, also where the labels do not depend on the data. A test given the other
views, resampled data and kernels left out show which weights are significant, stable and needed.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelmosaic import MKLClassifier, MKLRidgeClassifierCV
from kernelmosaic.inspection import conditional_pvalue
from kernelmosaic.kernels import Gaussian, by_group
from kernelmosaic.plots import KernelImportanceDisplay, StabilityDisplay

# %%
# Five views of 120 samples. The labels depend on the first, and on nothing else.
random = np.random.RandomState(0)
X = random.standard_normal((120, 10))
y = X[:, 0] + X[:, 1] ** 2 - 1 + 0.5 * random.standard_normal(120) > 0
names = ["expression", "methylation", "protein", "clinical", "imaging"]
columns = {name: [2 * m, 2 * m + 1] for m, name in enumerate(names)}
model = MKLClassifier(by_group(Gaussian(), columns))

# %% **Significance.** A machine is fitted without the view; what it leaves unexplained is compared,
# under permutation, with the part of the view that the others do not predict.
for name in names:
    others = {other: columns[other] for other in names if other != name}
    without = MKLRidgeClassifierCV(by_group(Gaussian(), others)).fit(X, y)
    alone = MKLRidgeClassifierCV([(name, Gaussian(), columns[name])]).fit(X, y)
    p = conditional_pvalue(
        alone.kernel_matrix(X),
        without.kernel_matrix(X),
        without.dual_coef_,
        random_state=0,
    )
    print(f"{name:12s} p = {p:.3f}")

# %% **Stability.** Fits to halves of the samples; dots are the weights learned from all samples.
# Kernels on which the labels do not depend are selected in about half of the fits, with small
# weights.
StabilityDisplay.from_estimator(model, X, y, n_resamples=50, random_state=0)
plt.show()

# %% **Importance.** The loss of accuracy on samples held out, without the kernel and with its
# samples permuted.
KernelImportanceDisplay.from_estimator(model, X, y, cv=5, random_state=0)
plt.show()
