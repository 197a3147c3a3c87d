"""Posterior means and deviations of weights, of gates and of projections, by variational bounds.

`estimator` learns one weight per kernel, `localized` gates and projections: it reads the inputs of
gates as the family `localized` does.
"""
