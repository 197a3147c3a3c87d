"""
Gates: a kernel for every region
================================

A global weight treats all of the input space alike. A gate depends on the sample, so that a simple kernel can do where
the boundary is simple, and another where it bends.
"""

import matplotlib.pyplot as plt

from kernelmosaic import LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Linear, Polynomial
from kernelmosaic.plots import DecisionRegionDisplay, GatingDisplay

# %%
# The toy problem of the paper on localized multiple kernel learning, and the same kernels under global weights and
# under gates.
X, y = make_gaussians(n_components=4, n_samples=600, random_state=0)
X_test, y_test = make_gaussians(n_components=4, n_samples=20_000, random_state=1)
kernels = [("linear", Linear()), ("quadratic", Polynomial(degree=2))]
globally = MKLClassifier(kernels, C=10).fit(X, y)
locally = LocalizedMKLClassifier(kernels, C=10).fit(X, y)
for name, model in {"global weights": globally, "gates": locally}.items():
    vectors = f"{100 * model.support_fraction_:.0f} % support vectors"
    print(f"{name}: test accuracy {model.score(X_test, y_test):.3f}, {vectors}")

# %%
# Global weights: one boundary of the second degree for the whole plane.
display = DecisionRegionDisplay.from_estimator(globally, X, y)
display.ax_.set_title("global weights")
plt.show()

# %%
# Gates: colours mix by the gates, dashes mark where the larger gate changes hands, the black line is the boundary.
GatingDisplay.from_estimator(locally, X, y)
plt.show()

# %%
# Three copies of the linear kernel make a boundary of linear fitted.
fitted = LocalizedMKLClassifier([Linear(), Linear(), Linear()], C=10).fit(X, y)
print(f"three linear kernels: test accuracy {fitted.score(X_test, y_test):.3f}")
GatingDisplay.from_estimator(fitted, X, y)
plt.show()
