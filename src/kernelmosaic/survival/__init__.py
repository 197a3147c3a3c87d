"""Times that may be censored, on a weighted sum of kernels: hazards, censored regression and ranks.

In the order in which it is read: `machine` has the losses, `task` leads from events and times to
machines, `curves` from outputs to survival functions, `metrics` says how well they predict,
`estimator` and `search` are scikit-learn's interface, `displays` draws calibration. Losses that
join samples are solved by `solvers/smooth_newton.py`, which serves any smooth loss.
"""
