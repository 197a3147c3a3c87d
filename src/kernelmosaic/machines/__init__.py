"""The kernel machines: a program of the solvers for given targets, and the choice of its solver.

Words: the *program* holds the targets, the bounds and the total of the dual problem; a *machine*
makes the program of its loss and solves it for a kernel; an *output* is one decision function.
"""
