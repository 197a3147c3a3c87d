"""
Kernel discriminant analysis: a projection to plot
==================================================

Kernel discriminant analysis projects samples so that the classes are separated. The weights of
several Gaussian kernels and the regulariser are learned.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic import DiscriminantMKLClassifier
from kernelmosaic.kernels import Gaussian, family
from kernelmosaic.plots import ProjectionDisplay

# %% Three cultivars of wine, thirteen measurements. The projection has two dimensions, one less
# than classes.
X, y = load_wine(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.5, stratify=y, random_state=0
)
kernels = family(Gaussian(), width=[1, 3, 10, 30])
discriminant = DiscriminantMKLClassifier(kernels, alpha="learn")
model = make_pipeline(StandardScaler(), discriminant).fit(X_train, y_train)
rule = model[-1]
print(f"test accuracy {model.score(X_test, y_test):.3f}")
for name, share in zip(rule.kernel_names_, rule.trace_shares_, strict=True):
    print(f"{name}: {share:.2f} of the combined kernel")

# %% Test samples: the principal components of the combined kernel, which do not depend on the
# classes, and the discriminant space.
Z = model[0].transform(X_test)
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
ProjectionDisplay.from_estimator(rule, Z, y_test, ax=axes[0])
ProjectionDisplay.from_estimator(rule, Z, y_test, method="transform", ax=axes[1])
axes[0].set_title("principal components of the kernel")
axes[1].set_title("discriminant space")
plt.show()
