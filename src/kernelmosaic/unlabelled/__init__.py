"""Several views of samples without labels: one embedding, or clusters, on a weighted sum of
kernels.

`learning` compares the views, weighs them and finds components and clusters; `estimator` is
scikit-learn's interface, `displays` draws similarities, embeddings and eigenvalues.
"""
