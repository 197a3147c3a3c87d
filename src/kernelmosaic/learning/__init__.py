"""How the weights of the kernels are learned.

The training problem is min over the weights θ of J(θ), where J(θ) is the optimal value of the
machine with the combined kernel Σ_m θ_m K_m / d_m². `problem` states it and evaluates it, `norms`
has the sets of the weights, `newton`, `interior_points`, `simplex`, `conic`, `hard_margin` and
`fixed` learn the weights, `certificate` proves what was learned, `factory` makes a learner from the
parameters of an estimator, and `tuning` has the tuning values with their reasons.

Words:

- *evaluation*: the machine solved at some θ, with the primal value (`upper`) and the gradient −q of
  J, where q_m = ½ βᵀK_mβ / d_m².
- *plane*: the linear function c − ⟨q, θ⟩ that a feasible β gives, which J nowhere falls below. Its
  minimum over the set of the weights is a lower bound on the optimum.
- *machine tolerance*: the relative gap to which the machine is solved at a trial θ.
- *deferred kernels*: kernels without a weight whose gradient only the certificate computes, because
  a fit to similar samples has shown that they will not enter.
- *similar problem*: the problem of another fold or of another C. It has the same kernels, and its
  solution is a good start.
- *kink*: a θ where several β solve the machine, so that J has no gradient there.
- *successor*: the interior points over weights and machine at once, which a search hands over to
  where J has a kink.
"""
