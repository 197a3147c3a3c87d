"""The optimisers behind every machine, from a program and a kernel to β.

`program` states the problems and what a solution is, so it is read first. `smo` solves programs of
one output on a stored matrix, `working_set` on any kernel, `factored` on a kernel in factors, with
the steps of `free_newton`, `proximal_newton` and `interior_point`. `multiclass` and
`multiclass_newton` are the same for several classes, `smooth_newton` for programs without a box.
`weight_path` and `conic` optimise over kernel weights as well. `least_squares` holds linear systems
and criteria of the machine without bounds. `tuning` has all tuned values.

Words:

- program: a training problem without its kernel, the dual quadratic program of a machine.
- residual: t − Kβ − ρβ, the derivative of the dual objective in β beside the tube.
- rising, falling: the derivatives of the dual objective as a coefficient grows, and as it shrinks;
  infinite where the box forbids it.
- violation: the derivative along the steepest feasible step of one or two coefficients; zero at the
  solution.
- free sample: one whose coefficient is between its bounds, where the objective is smooth.
- round: one solve of the program of some samples while all other coefficients stay.
- near: a guess of the intercept, from which the best one is searched.
- noise: the size that rounding may give to a dual value of zero.
"""
