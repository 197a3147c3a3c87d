"""Kernel discriminant analysis with one weight per kernel (Ye, Ji and Chen 2008).

In the order in which it is read: `machine` has the targets and the least-squares form, `learning`
the problem in the weights and its solvers, `task` leads from classes or labels to the machine,
`method` from learned weights to the discriminant space and its rule, `estimator` is scikit-learn's
interface.

Words: λ is the regulariser, called `alpha` where users state it. The *targets* H are fixed
functions of the classes, one column each. The *share* of a kernel is its weight times its centred
trace; shares sum to one. The *discriminant space* has one direction per component, and the *rule*
is the linear function by which classes are assigned in it.
"""
