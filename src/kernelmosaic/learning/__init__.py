"""How the weights of the kernels are learned."""
