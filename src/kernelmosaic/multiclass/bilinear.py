"""Classification with one weight per class and kernel, all classes in one problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kernelmosaic._checks import check_positive
from kernelmosaic._typing import KernelsLike, Seed
from kernelmosaic.engine.tasks import PathRule, accuracy
from kernelmosaic.estimators._base import BaseMKL
from kernelmosaic.estimators.classifier import KernelClassifier
from kernelmosaic.learning.factory import Parameters, solver_class
from kernelmosaic.learning.tuning import AIM
from kernelmosaic.multiclass.learning import CLASS_WISE_SOLVERS
from kernelmosaic.multiclass.method import ClassWiseMethod
from kernelmosaic.multiclass.task import BilinearClasses


class BilinearMKLClassifier(KernelClassifier, BaseMKL):
    """Multi-class classification with one weight per class and kernel.

    Minimises ½ Σ_c (‖w_c‖² + Σ_r d_cr) + κ Σ ξ_i over d ≥ 0 and f_c(x) = Σ_r d_cr^½ ⟨w_c^(r),
    φ_r(x)⟩, with f_y(x_i) − f_c(x_i) ≥ 1 − ξ_i for every other class c. That is the convex problem
    Σ_cr ‖u_c^(r)‖ + κ Σ ξ_i: sparse in classes and kernels together.

    Parameters
    ----------
    kernels : list, default=None
        Kernels, ``(name, kernel)`` or ``(name, kernel, columns)`` with columns as in
        :class:`~sklearn.compose.ColumnTransformer`. None means linear, quadratic and Gaussians of
        1, 2 and 4 times the median distance between training samples.
    kappa : float, default=1.0
        Weight κ of the slack in the objective.
    solver : {"newton", "quasi_newton", "projected_gradient"}, default="newton"
        Newton steps on the convex problem with the inner machine's curvature; quasi-Newton steps
        without it, for thousands of free samples per class; or the published scheme: projected
        gradient with a line search and rescaling.
    normalize : {"trace", "diagonal", "centered"} or None, default="trace"
        How kernels are put on one scale.
    approximation : {"nystroem", "leading", "fourier"} or None, default=None
        As in `MKLClassifier`: each kernel becomes a block of features, cost grows with the number
        of samples, and X may be a memory map, the path of a ``.npy`` file, of a Parquet file or of
        a folder of these, or a Dask collection.
    rank : int or sequence of P int, default=500
        Maximum number of features per kernel.
    calibration : {"sigmoid", "isotonic"} or None, default=None
        How decision values become the probabilities of :meth:`predict_proba`; see
        :class:`MKLClassifier`.
    tol : float, default=1e-3
        Relative duality gap at which to stop.
    max_iter : int, default=100
        Maximum number of solves of the inner machine.
    memory_budget : float, default=None
        Bytes the Gram matrices, and one more per class, may take, or the features; None means half
        of the free memory. On a device there is no matrix per class.
    device : str, default=None
        As in `MKLClassifier`; the kernels stay there, and blocks of a few thousand samples are
        solved on the host.
    random_state : int, RandomState or None, default=None
        Draws landmarks and frequencies; exact kernels need none.
    verbose : bool, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    weights_ : ndarray of shape (classes, P)
        The weights d, scaled so that Σ_r d_cr = ‖w_c‖²: all zero for a class that no kernel
        separates.
    view_weights_ : dict
        The weights summed over the kernels of every view, by its name.
    dual_coef_ : ndarray of shape (classes, n_support)
        The coefficients τ of the support vectors.
    objective_, duality_gap_ : float
        Value of the training problem, and its certified relative duality gap.
    intercept_ : ndarray of shape (classes,), or (1,) for two classes
        Zeros, one per column of the decision function: the model has no constants.
    kernel_names_, support_, n_support_, support_fraction_, converged_, solver_, n_iter_, n_solves_
        As in `MKLClassifier`.
    history_, classes_
        As in `MKLClassifier`.

    References
    ----------
    The bilinear formulation of multi-class multiple kernel learning; inner machine of Crammer and
    Singer (2001).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import BilinearMKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> BilinearMKLClassifier().fit(X, y).weights_.shape
    (3, 5)
    """

    # Samples must have all views.
    missing = None
    _has_normed_weights: ClassVar[bool] = False
    path_rule: ClassVar[PathRule | None] = PathRule("kappa", score=accuracy)

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        solver: str = "newton",
        kappa: float = 1.0,
        calibration: str | None = None,
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: int | Sequence[int] = 500,
        tol: float = 1e-3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.solver = solver
        self.kappa = kappa
        self.calibration = calibration
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive("kappa", self.kappa)

    def _task(self) -> BilinearClasses:
        return BilinearClasses(type(self).__name__, kappa=self.kappa)

    def _method(self) -> ClassWiseMethod:
        parameters = Parameters(
            AIM * self.tol, self.max_iter, self.verbose, self.solver, solvers=CLASS_WISE_SOLVERS
        )
        solver_class(parameters)
        return ClassWiseMethod(parameters, self.tol, memory_budget=self.memory_budget)
