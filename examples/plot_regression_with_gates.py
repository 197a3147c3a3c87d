"""
Regression with varying smoothness
==================================

A curve that is flat, then oscillates, then is flat again, like the acceleration of the head of a
motorcyclist in a crash. Kernels of low degree with one weight each do not fit it; with gates each
kernel is used in an interval.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelmosaic import LocalizedMKLRegressor, MKLRegressor
from kernelmosaic.kernels import Linear, Polynomial


# %%
# A synthetic curve of that kind, with more noise where it oscillates.
def curve(t):
    return -1.3 * np.exp(-(((t - 20) / 5) ** 2)) + 0.8 * np.exp(-(((t - 32) / 5) ** 2))


random = np.random.RandomState(0)
t = np.sort(random.uniform(2, 58, size=150))
y = curve(t) + np.where(t < 13, 0.02, 0.25) * random.normal(size=t.size)
X, grid = t[:, np.newaxis], np.linspace(2, 58, 400)[:, np.newaxis]

# %%
# Three kernels of low degree, with global weights and with gates.
kernels = [
    ("linear", Linear()),
    ("quadratic", Polynomial(degree=2)),
    ("cubic", Polynomial(degree=3)),
]
settings = {"C": 100.0, "epsilon": 0.1}
gated = {"n_init": 5, "normalize": "centered"}
models = {
    "global weights": MKLRegressor(kernels, **settings, max_iter=200).fit(X, y),
    "gates": LocalizedMKLRegressor(kernels, **gated, **settings).fit(X, y),
}
for name, model in models.items():
    error = np.sqrt(np.mean((model.predict(grid) - curve(grid.ravel())) ** 2))
    vectors = f"{model.support_fraction_:.0%} support vectors"
    print(f"{name}: error against the true curve {error:.3f}, {vectors}")

# %%
figure, (above, below) = plt.subplots(
    2, 1, figsize=(7, 5.5), sharex=True, height_ratios=(2, 1), layout="constrained"
)
above.scatter(t, y, s=12, color="0.6", label="samples")
above.plot(grid, curve(grid), color="black", linestyle="dotted", label="true curve")
for (name, model), colour in zip(models.items(), ("#E69F00", "#0072B2"), strict=True):
    above.plot(grid, model.predict(grid), color=colour, linewidth=2, label=name)
above.set_ylabel("acceleration")
above.legend(frameon=False)
styles = {
    "linear": ("solid", "#009E73"),
    "quadratic": ("dashed", "#CC79A7"),
    "cubic": ("dashdot", "#56B4E9"),
}
gates = models["gates"].gate(grid).T
for gate, (name, (dashes, colour)) in zip(gates, styles.items(), strict=True):
    below.plot(grid, gate, linestyle=dashes, color=colour, linewidth=2, label=name)
below.set(xlabel="time", ylabel="gate", ylim=(-0.03, 1.03))
below.legend(frameon=False, loc="center right")
for ax in (above, below):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
