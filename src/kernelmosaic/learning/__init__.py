"""How the weights of the kernels are learned."""

from kernelmosaic.learning.certificate import Iteration, Learned
from kernelmosaic.learning.factory import Parameters, make_learner
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.options import LearnerOptions
from kernelmosaic.learning.problem import Learner

__all__ = ["FixedWeights", "Iteration", "Learned", "Learner", "LearnerOptions", "Newton", "Parameters", "make_learner"]
