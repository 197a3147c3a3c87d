"""Kernel discriminant analysis with one weight per kernel (Ye, Ji and Chen 2008).

In the order in which it is read: `machine` has the targets and the least-squares form, `learning`
the problem in the weights and its solvers, `task` leads from classes or labels to the machine,
`method` from learned weights to the discriminant space and its rule, `estimator` is scikit-learn's
interface.
"""
