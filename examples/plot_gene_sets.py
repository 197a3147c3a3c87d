"""
Gene sets on single cells
=========================

Every gene set is a kernel on its genes. One weight per cell type and set says which sets tell a
type from the others; contributions say which of them spoke for the type of each cell.
"""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.model_selection import GroupKFold

from kernelmosaic import MKLClassifierCV
from kernelmosaic.kernels import Linear
from kernelmosaic.plots import KernelWeightsDisplay
from kernelmosaic.single_cell import to_anndata, views_from_anndata

# %% 300 synthetic cells of three types from five donors, in an object with the attributes of an
# AnnData, which ``anndata.read_h5ad`` returns. Twelve sets of ten genes; the first is active in B
# cells, the second in NK cells.
random = np.random.RandomState(0)
cells, genes = (
    pd.Index([f"cell{i}" for i in range(300)]),
    pd.Index([f"G{j}" for j in range(120)]),
)
types = np.array(["B", "NK", "T"])[random.randint(3, size=300)]
activity = 0.6 * np.ones((300, 120))
activity[:, :5] += 0.9 * (types == "B")[:, np.newaxis]
activity[:, 10:15] += 0.9 * (types == "NK")[:, np.newaxis]
adata = SimpleNamespace(
    X=sparse.csr_matrix(np.log1p(random.poisson(activity))),
    obs=pd.DataFrame(
        {"type": types, "donor": random.randint(5, size=300)}, index=cells
    ),
    obs_names=cells,
    var_names=genes,
    obsm={},
    uns={},
)
gene_sets = {f"set {k}": genes[10 * k : 10 * k + 10] for k in range(12)}

# %% The samples stay sparse, with the names of cells and genes. C is chosen by folds of donors, the
# sparsest model that is within one standard error of the best.
X, kernels = views_from_anndata(adata, gene_sets, kernel=Linear())
model = MKLClassifierCV(
    kernels,
    Cs=[0.01, 0.03, 0.1, 0.3],
    norms=1,
    normalize="centered",
    cv=GroupKFold(5),
    scoring="roc_auc_ovr",
    rule="one_standard_error",
)
model.fit(X, adata.obs["type"], groups=adata.obs["donor"])
print(f"C = {model.C_}, area under the curve {model.best_score_:.3f}")
KernelWeightsDisplay.from_estimator(model)
plt.show()

# %%
# Predictions, probabilities, contributions and weights go back into the object.
to_anndata(model, adata)
shares = adata.obsm["mkl_contributions"].groupby(adata.obs["mkl"], observed=True).mean()
print(shares.round(2).T)
