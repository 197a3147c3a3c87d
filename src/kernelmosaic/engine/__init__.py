"""Fits and searches as values: recipes and samples in, frozen fits and choices out.

In the order in which it is read: `samples` and `training_set` lead from validated samples to fitted
kernels, `tasks` from targets to machines, `fit` from both to a `Fit`, `expansion` from a fit to
predictions. `paths`, `search` and `choice` make a search by cross-validation; `scoring`,
`calibration`, `cross_calibration` and `conformal` read the outputs of samples that are held out.

Words:

- recipe: what the parameters of an estimator say about a fit, without samples.
- task: targets become machines by it, and outputs predictions.
- path: fits to the same samples at several values of C, each started from the one before it.
- stretch: a part of a path that a search follows at once.
- start: weights and coefficients from which a machine is fitted.
- lead: weights and gradients of a fit from which the same fit of another fold starts.
- held out: of samples that a fold's fits are not made to; their outputs are scored.
- choice: the norm and the value of C that a search takes by these scores.
- rule: of a path, which parameter a search follows (`PathRule`); of a choice, whether the best
  score wins or the smoothest model near it (`RULES`); of weights, how they are computed before the
  machines are solved (`WEIGHT_RULES`).
- learned: what a learner returns for one machine; a fit has one per machine.
- value: of a path, one of the values of C that are tried; of an output, its number for a sample.
- share of a kernel: what it adds to an output.
"""
