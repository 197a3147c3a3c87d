"""Kernel ridge regression and classification, with weights, ridge and widths by leave-one-out error
or evidence.

In the order in which it is read: `solvers/least_squares.py`, in the core, has the machine and its
criteria; `learning` minimises a criterion in the weights; `cross_fitting` judges weights on samples
that had no part in them, and chooses criterion and prior; `per_target` learns weights for each of
many targets; `rule` serves ``weights="loo"`` of other machines; `estimator` is scikit-learn's
interface; `displays` draws the shares of the kernels in every target.
"""
