"""All classes in one problem: one weight per class and kernel, and machines of class posteriors.

The modules in the order in which they are read: `machine` has the machines of posteriors,
`learning` the bilinear problem in the weights of all classes (Kobayashi and Otsu) and its learners,
`task` makes machines from classes or posteriors, `method` makes outputs from learned weights,
`bilinear` and `posterior` have the estimators. The joint machines of `MKLClassifier(multi_class=…)`
belong to the core, in `machines/` and `solvers/`: this family uses them.

Words:

- *τ*: the coefficients of the samples in the outputs of the classes, of shape (n, classes).
- *balanced weights*: weights for which ½ Σ_r θ_cr and ½‖w_c‖² are equal in every class, or in every
  class and kernel.
- *soft label*: ŷ = 2 Pr(+1 | x) − 1 of two classes.
- *members*: the weights of the samples, each in the column of its class.
"""
