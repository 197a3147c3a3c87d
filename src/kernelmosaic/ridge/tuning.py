"""Numbers by which the ridge estimators decide, with their units and reasons."""

from __future__ import annotations

# How many samples ---------------------------------------------------------------------------------

#: Samples that weights are learned from by default; the cost of a step grows with their third
#: power.
LEARNED_FROM = 1000
#: Samples up to which the host solves exact linear systems of all of them: with more a system takes
#: minutes.
EXACT_UP_TO = 15_000
#: Nyström features of all kernels together, beyond that many samples.
N_FEATURES = 3000
#: Features of one kernel, on average, below which they stand for nothing.
LEAST_FEATURES = 10
#: Samples that have all views, below which no widths are learned.
LEAST_COMPLETE_SAMPLES = 10

# Many targets -------------------------------------------------------------------------------------

#: Targets that are drawn from all, to learn what all of them share, where each has its own weights.
N_SHARED_TARGETS = 50
#: Targets up to which each is learned by exact gradients, too.
FEW_TARGETS = 5
#: Kernels whose weights a design of candidates covers; of more, one candidate has what some targets
#: share.
FEW_KERNELS = 6
#: Operations of one candidate for all targets, from which several threads of the linear algebra are
#: faster than one.
THREADED_OPERATIONS = 2e9

# What is warned of --------------------------------------------------------------------------------

#: Fraction of samples that equal another one, from which leave-one-out scores are too optimistic.
REPEATED_FOR_LEAVE_ONE_OUT = 0.2
#: Fraction of samples that equal another one with their target, from which the evidence
#: underestimates the noise.
REPEATED_FOR_EVIDENCE = 0.1
#: Change of a prediction by rounding, in standard deviations of the targets, that is warned of.
MOST_ROUNDING = 1e-3
#: Residuals, in standard deviations of the targets, that are nothing but rounding.
EXACT_RESIDUAL = 1e-6
