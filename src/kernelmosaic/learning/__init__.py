"""How the weights of the kernels are learned."""

from kernelmosaic.learning.factory import Parameters, make_learner
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.problem import Iteration, Learned, Learner, Options

__all__ = ["FixedWeights", "Iteration", "Learned", "Learner", "Newton", "Options", "Parameters", "make_learner"]
