"""Kernel ridge regression and classification with learned weights, ridge and widths.

They minimise the leave-one-out error or the negative log evidence; no folds of the samples are
needed for that. In the order in which the modules are read:

- `tuning`: the numbers by which the estimators decide;
- `kernels`: the kernels of ``kernels=None``, and weights that are products of factors;
- `learning`: minimises a criterion in the weights. The machine and its criteria are in
  `solvers/least_squares.py`, in the core;
- `cross_fitting`: leave-one-out residuals by weights that had not seen the sample, from which
  criterion and prior are chosen;
- `method`: the `Method` of a fit, from the kernels to the fitted machine;
- `per_target`: learns weights for each of many targets;
- `target_method`: the `Method` of such a fit;
- `left_out`: residuals, deviations and probabilities by the closed form of leave-one-out;
- `rule`: serves ``weights="loo"`` of other machines;
- `estimator`: scikit-learn's interface;
- `displays`: draws the fractions of the kernels in every target.

Words:

- criterion: a function of weights and ridge to be minimised, in nats: "loo" or "evidence";
- point: weights, ridge, scale and widths; x are their logarithms;
- scale: the factor a of outputs in the log-loss of leave-one-out outputs;
- stationarity: the largest derivative of the criterion at the end of a search, per sample;
- judged samples: those whose leave-one-out residuals enter a loss;
- seen, unseen: whether the weights were learned from the sample that is judged;
- ratio, γ: weights over ridge, where every target has its own;
- candidate: with ratios, one γ that is tried; with folds, a criterion with its prior.
"""
