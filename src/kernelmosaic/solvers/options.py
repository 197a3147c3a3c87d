"""What tests and benchmarks vary in the solvers, and the values that were tuned: one frozen object, handed down."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelmosaic.backend import TINY


@dataclass(frozen=True)
class RoundOptions:
    """How the driver of working sets takes rounds."""

    # Samples per round; None for what suits their number and the kernel: `share` of all samples within the limits
    # `least` and `largest`, which the host solves as fast as a device does the rest.
    size: int | None = None
    share: float = 1 / 4
    least: int = 1024
    largest: int = 4096
    # A round ends when no violation is above this share of the largest it began with, or after so many steps a sample.
    inner: float = 0.1
    steps: int = 10
    # Rounds in a row that neither raise the value by more than `rounding` of it, nor lower the gap to `lower` of it,
    # before rounding is blamed: near the optimum the value has converged while the gap has half as many digits.
    idle: int = 5
    rounding: float = 1e-14
    lower: float = 0.9
    # Share of the tolerance that rounds aim at: the certificate includes what single precision leaves out.
    room: float = 1.0
    # How many certificates may be above the tolerance before the best is returned.
    certificates: int = 4
    # Newton steps are tried on at most this many free samples; their block is factorised up to `factorised` samples,
    # larger ones take conjugate-gradient steps.
    newton_free: int = 400_000
    factorised: int = 6000
    # Most rounds between Newton steps, whose number doubles while a round gains more than they do.
    longest_wait: int = 16


@dataclass(frozen=True)
class SolverOptions:
    """How the programs are solved."""

    # Samples up to which NumPy does what compiled code does for more: it need not be loaded for them unless a solve
    # takes more than `numpy_steps` pair steps per sample.
    few: int = TINY
    numpy_steps: float = 10

    # Pair steps on a stored matrix. The active samples are copied out and solved alone when they are fewer than this
    # share of all and the problem has at least `compact_samples`, for the copy to pay.
    compact_share: float = 0.5
    compact_samples: int = 2000
    # Newton steps on the free samples are tried once this many steps per sample have not been enough, while there are
    # at most `newton_free` of them, and |F|³ is at most `flops_per_step` × steps × samples, which takes no longer.
    # Those of up to `few` samples cost next to nothing: they are tried after a third as many steps.
    newton_after: float = 3
    newton_free: int = 4000
    flops_per_step: float = 20

    # Rounds of a matrix on a device; of a kernel that is not stored, which must halve the gap in `idle` rounds; and of
    # the program of several classes, where forming a larger block costs more than the rounds it saves.
    rounds: RoundOptions = RoundOptions()
    free_rounds: RoundOptions = RoundOptions(idle=30, rounding=np.inf, lower=0.5, room=0.9, certificates=3)
    class_rounds: RoundOptions = RoundOptions(largest=3000, steps=5)
    # All free samples are in a round of a kernel that is not stored unless they take more than this share of it.
    free_share: float = 0.8
    # Rounds that hold less than one sample in so many start from low-rank factors of the kernel.
    far: int = 4

    # Kernels in factors. Pair steps per sample, for few samples, before interior points are faster.
    pairs: int = 50
    # Least samples of a working set on the host.
    least_factored: int = 1000
    # Working sets that must at least halve the gap, or interior points are faster.
    patience: int = 3
    # Proximal Newton steps after which interior points are faster.
    newton_steps: int = 50

    # Several classes. Most Newton steps in a round that leaves no sample out.
    class_newton: int = 20
    # Coefficients up to which interior points take over from steps that solve one sample each.
    small: int = 1500


DEFAULTS = SolverOptions()
