"""Localized multiple kernel learning: weights that are functions of the sample.

They are called gates (Gönen and Alpaydın); projections of the samples may be learned with them.

In the order in which it is read: `gating` has the gates and their derivatives, `learning` the steps
that learn them with the machine, `method` what gates read of samples and the gated function,
`estimator` is scikit-learn's interface, `displays` draws gates and the kernel that they make.
"""
