"""All classes in one problem: one weight per class and kernel, and machines fitted to class
posteriors.

In the order in which it is read: `machine` has the machines of posteriors, `learning` the bilinear
problem in the weights of all classes (Kobayashi and Otsu) and its solvers, `task` leads from
classes or posteriors to machines, `method` from learned weights to outputs, `bilinear` and
`posterior` are scikit-learn's interface. The joint machines of `MKLClassifier(multi_class=...)`
belong to the core, in `machines/` and `solvers/`: this family uses them.
"""
