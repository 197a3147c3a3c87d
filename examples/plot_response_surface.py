"""
Tuning penalties with a response surface
========================================

A quadratic is fitted to a few validation errors as a function of the penalties. Its minimum is
tried next. This takes fewer fits than a grid.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelmosaic import MKLClassifier
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.model_selection import FiveByTwoFold, ResponseSurfaceSearchCV
from kernelmosaic.plots import ResponseSurfaceDisplay

# %%
X, y = make_gaussians(n_components=3, n_samples=200, random_state=1)
X_test, y_test = make_gaussians(n_components=3, n_samples=20_000, random_state=2)
kernels = [
    ("linear", Linear()),
    ("quadratic", Polynomial()),
    ("gaussian", Gaussian("nearest")),
]
plain = MKLClassifier(kernels, normalize="diagonal").fit(X, y)
cv = FiveByTwoFold(random_state=0)
search = ResponseSurfaceSearchCV(plain, on="penalties", cv=cv).fit(X, y)

# %%
# The first penalty stays 1; two are free.
best = np.round(search.best_params_["penalties"], 2)
print(f"{search.n_solver_calls_} settings tried, best penalties", best)
for name, model in {"plain": plain, "searched": search.best_estimator_}.items():
    print(f"{name}: test accuracy {model.score(X_test, y_test):.3f}")
    print(f"  {model.support_fraction_:.0%} support vectors", model.weights_.round(2))

# %% Contours of the fitted validation error, the design around the centre, the points tried later
# and the best one.
ResponseSurfaceDisplay.from_search(search)
plt.show()
