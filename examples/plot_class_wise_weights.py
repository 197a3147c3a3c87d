"""
Kernel weights per class
========================

Different parts of an image distinguish different digits. The bilinear machine learns one weight per
class and kernel, with all classes in one problem.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from kernelmosaic import BilinearMKLClassifier, MKLClassifier, stack_views
from kernelmosaic.kernels import Gaussian
from kernelmosaic.plots import KernelWeightsDisplay

# %%
# Four horizontal bands of the image are the views.
digits = load_digits()
images = digits.images / 16
names = ("top", "upper", "lower", "bottom")
parts = {
    name: images[:, 2 * i : 2 * i + 2].reshape(len(images), -1)
    for i, name in enumerate(names)
}
X, columns = stack_views(**parts)
views = [(name, Gaussian("median"), chosen) for name, chosen in columns.items()]
X_train, X_test, y_train, y_test = train_test_split(
    X, digits.target, train_size=500, stratify=digits.target, random_state=0
)

# %%
# The accuracy on test samples.
bilinear = BilinearMKLClassifier(views, kappa=10).fit(X_train, y_train)
shared = MKLClassifier(views, C=10, multi_class="joint").fit(X_train, y_train)
print(f"one weight per class and kernel: {bilinear.score(X_test, y_test):.3f}")
print(f"one weight per kernel:           {shared.score(X_test, y_test):.3f}")
weights = np.round(shared.weights_, 2).tolist()
print("shared weights:", dict(zip(shared.kernel_names_, weights, strict=True)))

# %%
# One row per kernel, one column per class.
KernelWeightsDisplay.from_estimator(bilinear)
plt.show()
