"""How the weights of the kernels are learned."""

from kernelmosaic.learning.certificate import Iteration, Learned
from kernelmosaic.learning.factory import Parameters, make_learner
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.problem import Learner, LearnerOptions

__all__ = ["FixedWeights", "Iteration", "Learned", "Learner", "LearnerOptions", "Newton", "Parameters", "make_learner"]
