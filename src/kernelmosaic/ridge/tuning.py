"""Numbers by which the ridge estimators decide, with their units and reasons.

Where "chosen by hand" stands, no benchmark compares values.
"""

from __future__ import annotations

# Numbers of samples and features ------------------------------------------------------------------

#: Number of samples that weights are learned from by default. The cost of a step grows with their
#: third power.
LEARNED_FROM = 1000
#: Largest number of samples whose exact linear systems are solved on the host: a larger system
#: takes minutes.
EXACT_UP_TO = 15_000
#: Number of Nyström features of all kernels together, for more samples than these. Chosen by hand.
N_FEATURES = 3000
#: Least number of features of a kernel, on average: fewer represent no kernel. Chosen by hand.
LEAST_FEATURES = 10
#: Least number of samples with all views from which widths are learned. Chosen by hand.
LEAST_COMPLETE_SAMPLES = 10

# Many targets -------------------------------------------------------------------------------------

#: Number of targets, evenly spread, that stand for all targets where these share parameters. Chosen
#: by hand.
N_SHARED_TARGETS = 50
#: Largest number of targets for each of which weights are found by gradients, as first candidates.
#: Chosen by hand.
FEW_TARGETS = 5
#: Largest number of kernels whose weights a design of candidates covers. For more kernels, weights
#: found by gradients for some targets together are the first candidate.
FEW_KERNELS = 6
#: Operations of one candidate for all targets from which on several threads of the linear algebra
#: are faster than one.
THREADED_OPERATIONS = 2e9

# Warnings -----------------------------------------------------------------------------------------

#: Least fraction of samples that equal another one at which leave-one-out scores, too optimistic
#: then, are warned of. Chosen by hand.
REPEATED_FOR_LEAVE_ONE_OUT = 0.2
#: Least fraction of samples that equal another one with their target at which the evidence, which
#: underestimates the noise then, is warned of. Chosen by hand.
REPEATED_FOR_EVIDENCE = 0.1
#: Largest change of a prediction by rounding, in standard deviations of the targets, without a
#: warning. Chosen by hand.
MOST_ROUNDING = 1e-3
#: Residuals below this size, in standard deviations of the targets, are only rounding. Chosen by
#: hand.
EXACT_RESIDUAL = 1e-6

# The search for weights, ridge, scale and widths --------------------------------------------------

#: Least ridge α, as a fraction of the sum of the weights times the number of samples. Below it, as
#: with targets without noise, the rounding of linear systems shows in predictions.
LEAST_RIDGE = 1e-13
#: Distance in log α, on either side of a point, of the two derivatives whose difference gives the
#: second derivative. Chosen by hand.
CURVATURE_STEP = 0.2
#: Least ridge, as a fraction of the Frobenius norm of K, at which linear systems are solved in
#: single precision: 80 times its rounding, so that the derivative in log α keeps some digits.
SINGLE_PRECISION_FROM = 1e-5
#: Least and largest log of the scale a of outputs. Beyond, probabilities are all but equal, or all
#: but zero and one.
SCALE_RANGE = (-5.0, 8.0)
#: Pairs of a step and its change of the gradient that L-BFGS-B remembers. Chosen by hand.
STEPS_REMEMBERED = 20
#: Relative change of the criterion below which L-BFGS-B stops. It is near rounding, so that the
#: gradient decides where a search ends.
ROUNDING_OF_VALUE = 1e-14
#: Factor between neighbouring ridges that a search starts from. Chosen by hand.
RATIO_OF_STARTS = 30.0
#: Longest step in log α of the search for the ridge of all samples. Chosen by hand.
LONGEST_STEP = 2.0

# Folds --------------------------------------------------------------------------------------------

#: The norm of a centred kernel that counts as rounding, in units of n times the rounding of its
#: largest mean. Chosen by hand.
ROUNDINGS_OF_CONSTANT = 10

# Weights per target: conjugate gradients and batches ----------------------------------------------

#: Largest Σ_m γ_m tr K_m: it keeps the ridge of a target above `LEAST_RIDGE`.
LARGEST_RATIO = 1.0 / LEAST_RIDGE
#: Largest residual of the linear system of a target, in standard deviations of the target, at which
#: its machine is used. Chosen by hand.
LARGEST_RESIDUAL = 1e-3
#: Most steps of conjugate gradients for the machine of one target. The factorised centre of its
#: group is close to an inverse, so that few are needed.
REFINE_STEPS = 50
#: These steps end at this power of the rounding of the targets, relative to the residual at their
#: start: 2e-12 in double precision, 6e-6 in single precision. Chosen by hand.
REFINE_POWER = 0.75
#: Least tr(YᵀAY), in units of the rounding of the squared size of the targets: of smaller ones no
#: digit is known.
LEAST_FIT_ROUNDINGS = 10.0
#: Least squared error of a target whose logarithm is taken: that of a constant target is zero.
LEAST_ERROR = 1e-30
#: Number of strips in which coefficients of single precision are computed in double precision, so
#: that the copies take little memory. Chosen by hand.
EXACT_STRIPS = 8
#: Bytes of a batch of targets on the host, where `TargetOptions.batch_bytes` is None.
HOST_BATCH_BYTES = 2**25
#: Bytes of a batch of targets on a device, where `TargetOptions.batch_bytes` is None.
DEVICE_BATCH_BYTES = 2**28
#: Number of targets whose posterior means are computed at once. Chosen by hand.
MEANS_AT_ONCE = 1000

# Weights per target: interpolation between candidates ---------------------------------------------

#: Added to the diagonal of the covariance of kriging, which is one: its least eigenvalues fall
#: below rounding.
KRIGING_NUGGET = 1e-6
#: Kriging is chosen by its errors where values are within so many nats of the least of their
#: target: other points hardly count in the posterior.
KRIGING_RANGE = 10.0
#: Largest square of an error, in nats², so that no single point decides. Chosen by hand.
KRIGING_CAP = 400.0
#: Kinds of z that are tried: whether z = γ/(γ + γ₀) in place of log(1 + γ/γ₀), and γ₀ in units of
#: `_Candidates.knees`. Chosen by hand.
KRIGING_KINDS = ((False, 0.2), (False, 0.6), (False, 2.0), (True, 0.3), (True, 1.0), (True, 4.0))
#: Lengths of the covariance that are tried, in mean standard deviations of z. Chosen by hand.
KRIGING_LENGTHS = (2, 4, 8)
#: The trend of kriging may have squares if there are more candidates than this number times the
#: number of kernels. Chosen by hand.
CANDIDATES_FOR_SQUARES = 4
#: Steps of EM, after which frequencies hardly change.
EM_STEPS = 50
#: Least frequency or likelihood that is not zero: arithmetic of numbers near the smallest is slow.
LEAST_FREQUENCY = 1e-20
#: Steps of k-means. Chosen by hand.
KMEANS_STEPS = 20
#: γ₀ of the points between candidates, in units of `_Candidates.knees`. Chosen by hand.
POINT_KNEES = 0.3
#: Factor by which points are spread wider in the first round, which knows the least. Chosen by
#: hand.
FIRST_SPREAD = 1.5
#: γ of a target without any kernel, in units of γ₀: its shares need a sum.
LEAST_RATIO = 1e-6

# Memory -------------------------------------------------------------------------------------------

#: Matrices of all pairs of samples, in double precision, that exact linear systems hold at once.
EXACT_MATRICES = 3
#: Matrices of products of features that `make_feature_stack` holds at once.
FEATURE_MATRICES = 5
#: Fraction of the memory budget for these matrices. Chosen by hand.
FEATURE_FRACTION = 0.5

# Given weights of many targets --------------------------------------------------------------------

#: Least and largest sum of given weights over the ridge, and number of sums between, that are tried
#: for every target: ten in every decade. Chosen by hand.
LEAST_SUM = 1e-4
LARGEST_SUM = 1e6
N_SUMS = 101

# Probabilities ------------------------------------------------------------------------------------

#: Strength of the prior on (log a)², in nats, of `ScaledSoftmax`; that of `RidgeOptions` has the
#: same strength.
SCALE_PRIOR = 0.02
#: Strength of the prior on squared constants, in nats, of `ScaledSoftmax`. Chosen by hand.
CONSTANT_PRIOR = 3.0
