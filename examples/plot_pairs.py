"""
Drug–target affinity: learning from pairs
=========================================

A sample is a pair, a drug with a protein. Products of the kernels of both sides compare pairs, and
their weights are learned. The accuracy depends on what is new in the test part, more than on the
model.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import r2_score

from kernelmosaic import MKLRidgeCV
from kernelmosaic.kernels import Gaussian, Spectrum, Tanimoto, pairwise
from kernelmosaic.model_selection import PairSplit

# %% Synthetic drugs and targets of a few families each. A drug has 64 bits, similar within its
# family, and three random numbers; a target has a sequence, similar within its family, and a random
# number. An affinity is the sum of a part of the drug, a part of the target, and a part of the two
# families together.
random = np.random.RandomState(0)
families, kinds = random.randint(6, size=40), random.randint(5, size=30)
bits = (random.uniform(size=(6, 64)) < 0.3)[families]
bits ^= random.uniform(size=(40, 64)) < 0.08
letters = random.choice(list("ACDEFGHIKL"), size=(5, 50))[kinds]
changed = random.uniform(size=letters.shape) < 0.15
letters[changed] = random.choice(list("ACDEFGHIKL"), size=changed.sum())
table = random.standard_normal((6, 5))[np.ix_(families, kinds)]
table += 1.5 * random.standard_normal(6)[
    families, np.newaxis
] + 0.5 * random.standard_normal((40, 1))
table += 1.5 * random.standard_normal(5)[kinds] + 0.5 * random.standard_normal(30)

# %%
# Half of all pairs are measured. A row has the columns of its drug, then those of its target.
drug, target = np.divmod(random.permutation(table.size)[:600], 30)
y = table[drug, target] + 0.3 * random.standard_normal(600)
X = np.empty((600, 70), dtype=object)
X[:, :64], X[:, 64:67] = bits[drug], random.standard_normal((40, 3))[drug]
X[:, 67] = np.array(["".join(one) for one in letters])[target]
X[:, 68], X[:, 69] = random.standard_normal(30)[target], drug

# %% All products of a kernel of drugs with a kernel of targets. Of the six, those of bits with
# words have the signal.
left = [("bits", Tanimoto(), list(range(64))), ("properties", Gaussian(), [64, 65, 66])]
right = [
    ("words of 1", Spectrum(1), 67),
    ("words of 3", Spectrum(3), 67),
    ("charge", Gaussian(), 68),
]
model = MKLRidgeCV(pairwise(left, right), normalize="diagonal", weights="factorized")


# %% For comparison, a prediction without kernels: the mean of the drug and the mean of the target,
# where they are known.
def by_means(train, test):
    centre = y[train].mean()
    found = np.full(len(test), centre)
    for member in (drug, target):
        sums = np.bincount(member[train], y[train] - centre, 40)
        counts = np.bincount(member[train], minlength=40)
        found += (sums / np.maximum(counts, 1))[member[test]]
    return found


scores = {}
for new in ("pairs", "right", "left", "both"):
    folds = PairSplit(4, new=new, left=69, right=67, random_state=0)
    train, test = next(folds.split(X))
    ours = model.fit(X[train], y[train]).predict(X[test])
    scores[new] = [r2_score(y[test], one) for one in (ours, by_means(train, test))]
    print("new {}: R² {:.2f} by kernels, {:.2f} by means".format(new, *scores[new]))

# %% For known drugs with known targets the means predict well, too. Where both are new, only
# kernels predict. Published figures can be compared only if they are of the same kind of split.
weights = model.fit(X, y).weights_.reshape(2, 3)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
image = axes[0].imshow(weights / weights.sum(), cmap="Blues", vmin=0)
axes[0].set_xticks(range(3), [name for name, *_ in right])
axes[0].set_yticks(range(2), [name for name, *_ in left])
axes[0].set_title("share of each product")
figure.colorbar(image, ax=axes[0])
places = np.arange(4)
for k, label in enumerate(("products of kernels", "means of drug and target")):
    heights = [one[k] for one in scores.values()]
    axes[1].bar(places + 0.4 * k - 0.2, heights, 0.38, label=label)
axes[1].set_xticks(places, ["a pair", "the target", "the drug", "both"])
axes[1].set(xlabel="new in the test part", ylabel="R²")
axes[1].axhline(0, color="0.4", linewidth=0.8)
axes[1].set_ylim(top=1.35)
axes[1].legend(frameon=False, loc="upper right")
plt.show()
