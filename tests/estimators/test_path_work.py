"""What a search along a path spares: kernels, solves and products that an earlier fit has made."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.calls import recorded

from kernelmosaic import DiscriminantMKLClassifier, MKLClassifier, MKLClassifierCV
from kernelmosaic.engine.fit import Lead, certify, learn, training_set
from kernelmosaic.engine.paths import follow_paths
from kernelmosaic.engine.search import (
    FoldSearch,
    PathOptions,
    Progress,
    Stretch,
    read_samples,
    search_paths,
)
from kernelmosaic.gram.stack import ComputedStack
from kernelmosaic.kernels import Gaussian, Linear, per_column
from kernelmosaic.learning.certificate import (
    Entries,
    KernelWeights,
    KnownForms,
    certified_gap,
    known_forms,
)
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import damped, simplex_minimiser
from kernelmosaic.learning.problem import MachineProblem, Problem
from kernelmosaic.model_selection import PathSearchCV

KERNELS = [Gaussian(1.0), Gaussian(3.0), Gaussian(9.0)]


def samples(n=150):
    return make_classification(n, 6, n_informative=4, flip_y=0.05, random_state=3)


def in_single():
    """Kernels in single precision, as those of large sets, whose certificates compute every entry
    anew."""

    class InSingle(MKLClassifier):
        _stack_dtype = np.dtype(np.float32)

    return InSingle


def learned(kind, kernels, X, y, Cs=(0.1, 1.0, 10.0)):
    """Fits to the same samples, without certificates."""
    given = read_samples(kind(kernels), X, y)
    recipes = [kind(kernels, C=C).recipe(given) for C in Cs]
    data = training_set(recipes[0], recipes[0].task.prepared(given), given)
    return [learn(recipe, given, data) for recipe in recipes]


@pytest.mark.parametrize("kernels", [KERNELS, [*KERNELS, Linear()]])
def test_fits_certified_together_state_what_they_state_alone(kernels):
    X, y = samples()
    fits = learned(in_single(), kernels, X, y)
    together, alone = certify(fits), [certify([one])[0] for one in fits]
    np.testing.assert_allclose([one.gap for one in together], [one.gap for one in alone], rtol=1e-6)
    values = [[fit.attributes()["objective_"] for fit in group] for group in (together, alone)]
    np.testing.assert_allclose(*values, rtol=1e-10)


def test_what_is_certified_is_not_certified_again():
    X, y = samples()
    once = certify(learned(MKLClassifier, KERNELS, X, y))
    with recorded(KernelWeights.certificate) as certificates:
        again = certify(once)
    assert len(certificates) == 0
    assert [fit.learned for fit in again] == [fit.learned for fit in once]


def test_a_certificate_is_what_the_fit_states():
    X, y = samples()
    (fit,) = certify(learned(MKLClassifier, KERNELS, X, y, (1.0,)))
    (stated,), (machine,) = fit.learned, fit.machines
    entries = Entries(fit.data.stack, fit.data.sizes())
    certificate = stated.problem(entries, machine, fit.learner).certificate(
        stated.weights, stated.solution
    )
    assert certificate.lower <= certificate.objective <= certificate.upper
    assert certificate.gap == certified_gap(
        certificate.objective, certificate.upper, certificate.lower
    )
    assert (certificate.objective, certificate.gap) == (stated.objective, stated.gap)
    # The bound of the coefficients is that of the best of all weights of sum one.
    dual = machine.program.linear_value(stated.solution.beta)
    forms = [
        0.5 * stated.solution.beta @ fit.data.stack.products(stated.solution.beta)[m]
        for m in range(3)
    ]
    assert certificate.lower == pytest.approx(dual - max(forms), rel=1e-10)
    assert certificate.lower < dual - max(forms) < certificate.lower_without_rounding * (1 + 1e-12)


def test_forms_that_were_computed_elsewhere_prove_as_much():
    X, y = samples()
    (fit,) = certify(learned(MKLClassifier, KERNELS, X, y, (1.0,)))
    (stated,), (machine,) = fit.learned, fit.machines
    entries = Entries(fit.data.stack, fit.data.sizes())
    beta = stated.solution.beta
    products = fit.data.stack.products(beta)
    forms = known_forms(
        entries.sizes, beta, stated.weights, stated.weights @ products, 0.5 * products @ beta
    )
    problem = KnownForms(entries, machine, fit.learner, forms)
    again = stated.with_certificate(problem.certificate(stated.weights, stated.solution))
    assert again.objective == pytest.approx(stated.objective, rel=1e-12)
    assert again.gap == pytest.approx(stated.gap, rel=1e-6)


def test_entries_are_computed_once_for_the_certificates_of_a_path():
    X, y = samples(300)  # of fewer, learning computes entries, too
    with recorded(ComputedStack.products, lambda given: given["beta"].shape) as passes:
        fits = learned(in_single(), KERNELS, X, y)
        assert len(passes) == 0
        certify(fits)
    assert passes == [(300, 3)]


def test_products_with_several_columns_are_those_with_each():
    X, y = samples()
    rng = np.random.RandomState(0)
    data = learned(in_single(), KERNELS, X, y, (1.0,))[0].data
    beta, rows = rng.randn(150, 4), np.arange(7, 130, 3)
    together = data.stack.exact_products(beta, rows)
    D = np.square(X[rows, np.newaxis] - X).sum(axis=2)
    naive = np.array([np.exp(-D / s**2) @ beta for s in (1.0, 3.0, 9.0)])
    np.testing.assert_allclose(together, naive, rtol=1e-12, atol=1e-12)


def test_a_machine_that_no_bound_holds_is_not_solved_again():
    X, y = samples(200)
    search = MKLClassifierCV(
        KERNELS, Cs=[1e3, 2e3, 4e3, 8e3], norms=(1,), cv=3, refit=False, tol=1e-2
    )
    with recorded(Problem.solve_machine) as solves:
        search.fit(X, y)
    # Nothing is at a bound from the first value on; only the first machine of a fold takes several
    # solves.
    with recorded(Problem.solve_machine) as alone:
        MKLClassifierCV(KERNELS, Cs=[1e3], norms=(1,), cv=3, refit=False, tol=1e-2).fit(X, y)
    assert len(solves) <= len(alone) + 3
    assert search.duality_gaps_.max() <= 1e-2


def test_the_machines_of_the_folds_are_not_fitted_again():
    X, y = samples(150)
    with recorded(Newton.learn) as fits:
        model = MKLClassifierCV(KERNELS, Cs=[0.1, 1.0, 10.0], norms=(1,), cv=3).fit(X, y)
    assert len(fits) == 3 * 3 + 1
    plain = MKLClassifier(KERNELS, C=model.C_)
    for (train, _), one in zip(
        StratifiedKFold(3).split(X, y), model._conformal.models, strict=True
    ):
        mean, scale = X[train].mean(axis=0), X[train].std(axis=0)
        own = plain.fit((X[train] - mean) / scale, y[train])
        # Gaps of 1e-3 leave coefficients free within their square root.
        np.testing.assert_allclose(
            one.decision_function(X), own.decision_function((X - mean) / scale), atol=0.1
        )
        np.testing.assert_allclose(one.weights_, own.weights_, atol=0.05)


@pytest.mark.parametrize("rank", [2, 40])
def test_the_minimiser_over_a_simplex_meets_its_conditions(rank):
    rng = np.random.RandomState(rank)
    for _ in range(20):
        G, b, start = rng.randn(12, rank), rng.randn(12), rng.rand(12) * (rng.rand(12) > 0.5) + 1e-3
        A = damped(G @ G.T)
        x = simplex_minimiser(A, b, start)
        if x is None:  # a singular system is left to another solver
            assert rank < 12
            continue
        gains = b - A @ x
        assert x.min() >= 0
        assert x.sum() == pytest.approx(start.sum())
        assert np.all(gains <= gains[x > 0].min() + 1e-8 * np.abs(b).max())


def best_number(scores):
    """The number of the smallest value whose mean score is the best, of scores of shape (folds,
    values)."""
    means = np.nan_to_num(scores.mean(axis=0), nan=-np.inf)
    return int(np.flatnonzero(means >= means.max() - 1e-9)[0])


def one_kernel_per_column(n_kernels, seed):
    X, y = make_classification(
        60, n_kernels, n_informative=2, n_redundant=0, flip_y=0.1, random_state=seed
    )
    return [(f"column {c}", Gaussian(2.0), [c]) for c in range(n_kernels)], X, y


@pytest.mark.parametrize(("n_kernels", "seed"), [(3, 1), (12, 2)])
def test_other_norms_are_tried_where_their_own_best_value_is(n_kernels, seed):
    kernels, X, y = one_kernel_per_column(n_kernels, seed)
    options = {"Cs": np.logspace(-2, 3, 8), "norms": (1, 2, "uniform"), "cv": 2, "refit": False}
    whole = MKLClassifierCV(kernels, **options, near=None).fit(X, y)
    near = MKLClassifierCV(kernels, **options, near=1).fit(X, y)
    np.testing.assert_allclose(
        near.scores_by_norm_["uniform"], whole.scores_by_norm_["uniform"], atol=1e-12
    )
    best_of_equal_weights = near.Cs_[best_number(near.scores_by_norm_["uniform"])]
    for norm in (1, 2):
        scores = near.scores_by_norm_[norm]
        tried = np.flatnonzero(np.isfinite(scores).all(axis=0))
        np.testing.assert_array_equal(tried, np.arange(tried[0], tried[-1] + 1))
        assert np.isnan(np.delete(scores, tried, axis=1)).all()
        np.testing.assert_allclose(
            scores[:, tried], whole.scores_by_norm_[norm][:, tried], atol=1.01 / 30
        )
        # Equal weights of norm p have the kernel of 1/P each at a C that is P^(1 - 1/p) times
        # smaller.
        same_kernel = best_of_equal_weights / n_kernels ** (1 - 1 / norm)
        middle = int(np.argmin(np.abs(np.log(near.Cs_ / same_kernel))))
        assert set(tried) >= {max(middle - 1, 0), middle, middle + 1}
        # The best value has neighbours that were tried, unless the values to try end there.
        best = best_number(scores)
        assert set(tried) >= {max(best - 1, 0), best, min(best + 1, len(near.Cs_) - 1)}
    if n_kernels > 3:  # three values around the first guess are not enough
        assert (
            max(int(np.isfinite(near.scores_by_norm_[norm]).all(axis=0).sum()) for norm in (1, 2))
            > 3
        )
    assert near.best_score_ == np.nanmax(
        [own.mean(axis=0) for own in near.scores_by_norm_.values()]
    )
    made = np.isfinite(near.duality_gaps_)
    np.testing.assert_array_equal(np.isnan(near.weights_path_).any(axis=1), ~made.any(axis=0))
    assert near.duality_gaps_[made].max() <= near.tol


@pytest.mark.parametrize(
    # Equal weights of 16 kernels: their sum is 16^(1 - 1/p).
    ("norm", "octaves"),
    [(1, 0), (2, 2), (4, 3), ("loo", 0)],
)
def test_values_are_tried_around_the_one_of_the_same_combined_kernel(norm, octaves):
    kernels, X, y = one_kernel_per_column(16, 0)
    model = MKLClassifier(kernels)
    given, folds = read_samples(model, X, y), list(StratifiedKFold(2).split(X, y))
    search = FoldSearch.of(model, given, folds, 2.0 ** np.arange(-5, 6), PathOptions())
    search.follow([Stretch.cold("uniform", [8], 2)], Progress(0, 2, 2))
    assert search.window(norm, 8, near=1) == (8 - octaves - 1, 8 - octaves + 2)
    assert search.window(norm, 10, near=2) == (10 - octaves - 2, min(10 - octaves + 3, 11))
    assert search.window(norm, 0, near=1) == (0, 2)


def test_kernels_whose_number_depends_on_the_columns_are_several():
    X, y = samples(60)
    options = {"Cs": 2, "cv": 2, "refit": False}
    columns = per_column(Gaussian())
    assert list(MKLClassifierCV(columns, **options).fit(X, y).scores_by_norm_) == [1, 2, "uniform"]
    pipeline = make_pipeline(StandardScaler(), MKLClassifier(columns))
    search = PathSearchCV(pipeline, norms=(1, "uniform"), **options).fit(X, y)
    assert list(search.scores_by_norm_) == [1, "uniform"]
    # A single column has one kernel.
    assert list(MKLClassifierCV(columns, **options).fit(X[:, :1], y).scores_by_norm_) == [1]


def test_an_unknown_norm_is_refused_before_the_first_fit():
    X, y = samples(60)
    with recorded(MachineProblem.__init__) as problems:
        with pytest.raises(ValueError, match=r"norm=0\.5: give 1 for sparse weights"):
            MKLClassifierCV(KERNELS, norms=("uniform", 0.5)).fit(X, y)
        with pytest.raises(
            ValueError, match=r"norms: DiscriminantMKLClassifier has the norms 1.*not 2"
        ):
            PathSearchCV(DiscriminantMKLClassifier(KERNELS), norms=("uniform", 2)).fit(X, y)
    assert problems == []


def test_near_is_a_count_and_matters_where_equal_weights_are_tried():
    X, y = samples(60)
    with pytest.raises(ValueError, match="near=0: give a whole number"):
        MKLClassifierCV(KERNELS, near=0).fit(X, y)
    for norms in ((1, 2), ("uniform",)):
        found = MKLClassifierCV(KERNELS, Cs=6, norms=norms, cv=3, near=1, refit=False).fit(X, y)
        assert all(np.isfinite(own).all() for own in found.scores_by_norm_.values())


MANY = [Gaussian(width) for width in (0.3, 0.6, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)]


def textbook_gap(model, X, y):
    """The relative gap of weights of sum one, from a model's attributes and the formula of the
    kernels alone."""
    D = np.square(X[:, np.newaxis] - X[model.support_]).sum(axis=2)
    beta, t = model.dual_coef_[0], np.where(y == model.classes_[1], 1.0, -1.0)
    each = np.array([np.exp(-D / kernel.width**2) @ beta for kernel in model.kernels])
    forms = each[:, model.support_] @ beta
    assert np.all((t[model.support_] * beta > 0) & (np.abs(beta) <= model.C * (1 + 1e-9)))
    assert abs(beta.sum()) <= 1e-9 * np.abs(beta).sum()
    losses = np.maximum(0.0, 1.0 - t * (model.weights_ @ each + model.intercept_)).sum()
    primal, dual = (
        0.5 * model.weights_ @ forms + model.C * losses,
        np.abs(beta).sum() - 0.5 * forms.max(),
    )
    return (primal - dual) / primal


def fitted(model, fit, given):
    """The estimator with what a fit to these samples has learned."""
    model.keep(fit, given)
    return model


def test_kernels_far_from_entering_are_left_to_the_certificate():
    X, y = samples()
    folds, Cs = list(StratifiedKFold(3).split(X, y)), np.logspace(-1, 2, 4)
    plain = in_single()(MANY, tol=1e-4)
    given = read_samples(plain, X, y)
    found = search_paths(plain, given, folds, Cs, [1], PathOptions(scale=False))
    read = []
    inside = given.take(folds[1][0])
    recipes = [[in_single()(MANY, tol=1e-4, C=C).recipe(inside) for C in Cs]]
    for slopes in (lambda lead: lead.slopes, lambda lead: [None]):
        leads = [[one.lead._replace(slopes=slopes(one.lead)) for one in found.held_out[0][0]]]
        with recorded(
            MachineProblem.with_gradients, lambda given: len(given["kernels"])
        ) as products:
            follow_paths(recipes, inside, X, leads=leads)
        read.append(sum(products))
    assert read[0] < 0.8 * read[1]
    for (train, held), path in zip(folds, found.held_out[0], strict=True):
        for C, one in zip(Cs, path, strict=True):
            gap = textbook_gap(
                fitted(MKLClassifier(MANY, C=C), one.fit, given.take(train)), X[train], y[train]
            )
            assert gap <= 1e-4
            assert one.gap == pytest.approx(gap, rel=1e-2, abs=1e-6)
            alone = MKLClassifier(MANY, C=C, tol=1e-4).fit(X[train], y[train])
            np.testing.assert_allclose(
                one.outputs[:, 0], alone.decision_function(X[held]), atol=0.03
            )
            assert abs(
                np.mean(one.predicted == y[held]) - alone.score(X[held], y[held])
            ) <= 1 / len(held)


def test_a_kernel_that_was_left_out_wrongly_is_found_by_the_certificate():
    X, y = samples()
    plain = MKLClassifier(MANY)
    alone = plain.fit(X, y)
    # Another fold that has everything at the kernels without a weight.
    wrong = np.where(alone.weights_ > 0, 0.0, 1.0)
    lead = Lead(wrong / wrong.sum(), [wrong], [True], np.unique(y))
    given = read_samples(plain, X, y)
    with recorded(Newton.learn) as fits:
        ((found,),) = follow_paths([[plain.recipe(given)]], given, X, leads=[[lead]])
    assert len(fits) == 2
    assert textbook_gap(fitted(MKLClassifier(MANY), found.fit, given), X, y) <= 1e-3
    np.testing.assert_allclose(found.weights, alone.weights_, atol=0.05)


def test_the_refit_starts_from_the_folds():
    X, y = samples(200)
    model = MKLClassifierCV(KERNELS, Cs=[0.3, 1.0, 3.0], norms=(1,), cv=3, scale=False).fit(X, y)
    plain = MKLClassifier(KERNELS, C=model.C_).fit(X, y)
    assert model.n_solves_ < plain.n_solves_
    assert model.duality_gap_ <= model.tol
    # Both are within the tolerance of one optimum.
    assert model.objective_ == pytest.approx(plain.objective_, rel=model.tol)
