"""
Localized MKL: one weight per region
====================================

A global weight is the same in all of the input space. A gate depends on the sample, so that
different regions use different kernels.
"""

import matplotlib.pyplot as plt

from kernelmosaic import LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Linear, Polynomial
from kernelmosaic.plots import DecisionRegionDisplay, GatingDisplay

# %% The toy problem of the paper on localized multiple kernel learning, and the same kernels with
# global weights and with gates.
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

# %% Gates: colours mix by the gates, dashes mark where two gates are equal, the black line is the
# boundary.
GatingDisplay.from_estimator(locally, X, y)
plt.show()

# %%
# Three copies of the linear kernel make a boundary of nearly linear pieces.
fitted = LocalizedMKLClassifier([Linear(), Linear(), Linear()], C=10).fit(X, y)
print(f"three linear kernels: test accuracy {fitted.score(X_test, y_test):.3f}")
GatingDisplay.from_estimator(fitted, X, y)
plt.show()
