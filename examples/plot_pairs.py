"""
Drugs with targets: what is new in the test part?
=================================================

A sample is a pair, a drug with a protein. Products of kernels of both sides compare pairs, and their weights are
learned. How good the predictions are depends on what is new in the test part, more than on the model.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import r2_score

from kernelmosaic import MKLRidgeCV
from kernelmosaic.kernels import Gaussian, Spectrum, Tanimoto, pairwise
from kernelmosaic.model_selection import PairSplit

# %%
# Made-up drugs and targets of a few families each. Of a drug there are 64 bits, in which it resembles its family, and
# three numbers that say nothing; of a target there is a sequence, in which it resembles its own, and a number that
# says nothing. An affinity has a part of the drug, a part of the target, and a part of both families.
random = np.random.RandomState(0)
families, kinds = random.randint(6, size=40), random.randint(5, size=30)
bits = (random.uniform(size=(6, 64)) < 0.3)[families] ^ (random.uniform(size=(40, 64)) < 0.08)
letters = random.choice(list("ACDEFGHIKL"), size=(5, 50))[kinds]
changed = random.uniform(size=letters.shape) < 0.15
letters[changed] = random.choice(list("ACDEFGHIKL"), size=changed.sum())
table = random.standard_normal((6, 5))[np.ix_(families, kinds)]
table += 1.5 * random.standard_normal(6)[families, np.newaxis] + 0.5 * random.standard_normal((40, 1))
table += 1.5 * random.standard_normal(5)[kinds] + 0.5 * random.standard_normal(30)

# %%
# Half of all pairs are measured. A row has the columns of its drug, then those of its target.
drug, target = np.divmod(random.permutation(table.size)[:600], 30)
y = table[drug, target] + 0.3 * random.standard_normal(600)
X = np.empty((600, 70), dtype=object)
X[:, :64], X[:, 64:67] = bits[drug], random.standard_normal((40, 3))[drug]
X[:, 67], X[:, 68] = np.array(["".join(one) for one in letters])[target], random.standard_normal(30)[target]
X[:, 69] = drug

# %%
# All products of the kernels of drugs with those of targets: of the six, those of bits with words have the signal.
left = [("bits", Tanimoto(), list(range(64))), ("properties", Gaussian(), [64, 65, 66])]
right = [("words of 1", Spectrum(1), 67), ("words of 3", Spectrum(3), 67), ("charge", Gaussian(), 68)]
model = MKLRidgeCV(pairwise(left, right), normalize="diagonal", weights="factorized")


# %%
# Beside it, what needs no kernel: the mean of the drug and that of the target, as far as they are known.
def by_means(train, test):
    centre = y[train].mean()
    found = np.full(len(test), centre)
    for member in (drug, target):
        sums, counts = (np.bincount(member[train], weights, 40) for weights in (y[train] - centre, None))
        found += (sums / np.maximum(counts, 1))[member[test]]
    return found


scores = {}
for new in ("pairs", "right", "left", "both"):
    train, test = next(PairSplit(4, new=new, left=69, right=67, random_state=0).split(X))
    ours = model.fit(X[train], y[train]).predict(X[test])
    scores[new] = [r2_score(y[test], one) for one in (ours, by_means(train, test))]
    print(f"new {new}: R² {scores[new][0]:.2f} by kernels, {scores[new][1]:.2f} by means")

# %%
# Known drugs with known targets are easy for means as well, and say little of kernels. Where both are new, nothing but
# kernels is left. A published figure is worth what its split is: compare only figures of the same one.
weights = model.fit(X, y).weights_.reshape(2, 3)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
image = axes[0].imshow(weights / weights.sum(), cmap="Blues", vmin=0)
axes[0].set_xticks(range(3), [name for name, *_ in right])
axes[0].set_yticks(range(2), [name for name, *_ in left])
axes[0].set_title("share of each product")
figure.colorbar(image, ax=axes[0])
places = np.arange(4)
for k, label in enumerate(("products of kernels", "means of drug and target")):
    axes[1].bar(places + 0.4 * k - 0.2, [one[k] for one in scores.values()], 0.38, label=label)
axes[1].set_xticks(places, ["a pair", "the target", "the drug", "both"])
axes[1].set(xlabel="new in the test part", ylabel="R²")
axes[1].axhline(0, color="0.4", linewidth=0.8)
axes[1].set_ylim(top=1.35)
axes[1].legend(frameon=False, loc="upper right")
plt.show()
