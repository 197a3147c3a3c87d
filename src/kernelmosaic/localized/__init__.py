"""Weights that are functions of the input: gates, and projections that are learned with them (Gönen
and Alpaydın).

In the order in which it is read: `gating` has the gates and their derivatives, `learning` the steps
that learn them with the machine, `method` what gates read of samples and the gated function,
`estimator` is scikit-learn's interface, `displays` draws gates and the kernel that they make.
"""
