"""What a notebook shows: scikit-learn's diagram, and of a fitted estimator kernels, weights and
certificate."""

from __future__ import annotations

import warnings
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

import kernelmosaic
from kernelmosaic import BilinearMKLClassifier, LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.estimators.card import summary_html
from kernelmosaic.kernels import Gaussian, Linear, family
from tools.check_site import browser

X, Y = load_iris(return_X_y=True)
X, Y = X[::3], np.array(["se", "ve", "vi"])[Y[::3]]
NAMES = list(kernelmosaic.estimators.__all__)
#: Estimators that are fitted to numbers.
NUMBERS = ("MKLRegressor", "LocalizedMKLRegressor", "MKLSurvival", "MKLRidgeCV")
IN_THE_BOX = hasattr(BaseEstimator, "_get_fitted_attr_html")
VOID = {"br", "img", "input", "link", "meta", "hr"}


class Page(HTMLParser):
    """Tags, attributes and text; fails on a tag that is closed but not open."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.open, self.text, self.attributes = [], [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self):
        return " ".join(self.text)


def fitted(model, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*data)


def make(name):
    brief = {"n_init": 1, "max_iter": 1} if name.startswith("Localized") else {}
    search = (
        {"Cs": [0.1, 1.0], "norms": [1], "cv": 2}
        if name in ("MKLClassifierCV", "MKLRegressorCV", "MKLSurvivalCV")
        else {}
    )
    return getattr(kernelmosaic, name)(**brief, **search)


@cache
def fitted_one(name):
    return fitted(make(name), X, X[:, 0] if name.startswith(NUMBERS) else Y)


@pytest.mark.parametrize("name", NAMES)
def test_a_fitted_estimator_shows_what_it_learned(name):
    model = fitted_one(name)
    page = Page(summary_html(model))
    assert page.open == []
    for kernel in model.kernel_names_:
        assert kernel in page.words
    if hasattr(model, "stationarity_"):
        shown = f"{model.best_score_:.4f}", f"{model.criterion_:.6g}", f"{model.stationarity_:.2g}"
    elif hasattr(model, "similarity_"):
        shown = f"{len(model.eigenvalues_)}", "eigenvalues"
    elif hasattr(model, "elbo_"):
        shown = (f"{model.elbo_:.6g}",)
    else:
        solves = f"{model.n_iter_} (machine solves: {model.n_solves_})"
        # A smooth loss, as Cox's is, gives all samples a coefficient: they are no support vectors.
        support = (
            [] if getattr(model, "loss", "") in ("cox", "rank") else [f"{len(model.support_)} ("]
        )
        assert ("support vectors" in page.words) == bool(support)
        shown = f"{model.duality_gap_:.2g}", f"{model.objective_:.6g}", solves, *support
    for text in shown:
        assert text in page.words
    for weight in np.ravel(model.weights_):
        assert any(_close(word, weight) for word in page.words.split())
    assert ("mean gate" in page.words) == hasattr(model, "gate")
    assert ("certified" in page.words) == (
        hasattr(model, "duality_gap_") and not hasattr(model, "gate")
    )


def test_weights_of_every_target_have_a_training_score():
    targets = np.random.default_rng(0).normal(size=(len(X), 2))
    model = kernelmosaic.MKLRidgeCV([Linear(), Gaussian()], per_target=True, n_candidates=20).fit(
        X, targets
    )
    page = Page(summary_html(model))
    assert f"{model.training_score_:.4f}" in page.words
    assert "training score by leave-one-out, mean of 2 targets" in page.words
    assert "weight by target" in page.words
    assert model.best_score_ == model.training_score_ == pytest.approx(np.mean(model.loo_scores_))


def _close(word, weight):
    try:
        return abs(float(word) - weight) <= max(0.06 * abs(weight), 1e-12)
    except ValueError:
        return False


@pytest.mark.parametrize("name", NAMES)
def test_it_stands_below_scikit_learns_own(name):
    model = make(name)
    unfitted = (
        estimator_html_repr(model),
        model._repr_html_(),
        model._repr_mimebundle_()["text/html"],
    )
    assert not any("km-summary" in html for html in unfitted)
    model = fitted_one(name)
    shown = (model._repr_html_(), model._repr_mimebundle_()["text/html"])
    for html in (estimator_html_repr(model), *shown) if IN_THE_BOX else shown:
        assert html.count(summary_html(model)) == 1
        assert html.index(name) < html.index(summary_html(model))
    assert model._repr_mimebundle_()["text/plain"] == repr(model)


@pytest.mark.skipif(
    not IN_THE_BOX, reason="scikit-learn 1.9 is the first whose boxes hold what was fitted"
)
def test_steps_of_pipelines_and_what_searches_found_show_it_too():
    piped = make_pipeline(StandardScaler(), MKLClassifier()).fit(X, Y == "vi")
    assert estimator_html_repr(piped).count(summary_html(piped[-1])) == 1
    search = GridSearchCV(MKLClassifier(), {"C": [1.0]}, cv=2).fit(X, Y == "vi")
    assert estimator_html_repr(search).count(summary_html(search.best_estimator_)) == 1


def test_text_display_shows_no_html():
    model = MKLClassifier().fit(X, Y)
    with sklearn.config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()
        assert not hasattr(model, "_repr_html_")


def test_bars_are_as_long_as_weights_relative_to_the_largest():
    kernels = [("a", Linear()), ("b", Gaussian(2.0)), ("c", Gaussian(9.0))]
    model = MKLClassifier(kernels, weights=[0.5, 0.25, 0.0]).fit(X, Y == "vi")
    widths = [value for key, value in Page(summary_html(model)).attributes if key == "style"]
    assert widths == ["width:100.0%", "width:50.0%", "width:0.0%"]


def test_classes_are_columns():
    model = BilinearMKLClassifier([("line", Linear()), ("bell", Gaussian(2.0))]).fit(X, Y)
    page = Page(summary_html(model))
    assert page.tags.count("td") == 4 + 2 * 3
    for label in ("se", "ve", "vi"):
        assert label in page.text
    shades = [value for key, value in page.attributes if key == "style"]
    assert sum("0.60" in shade for shade in shades) == 1


def test_many_kernels_and_classes_are_summed_up():
    model = MKLClassifier(family(Gaussian(), width=list(range(1, 41))), weights="uniform").fit(
        X, Y == "vi"
    )
    page = Page(summary_html(model))
    assert page.tags.count("tr") == 4 + 1 + 30
    assert "and 10 more of smaller weight" in page.words
    labels = np.arange(len(X)) % 14
    many = fitted(MKLClassifier([Linear(), Gaussian()], weights="uniform"), X, labels)
    assert "mean over 14 classes" in Page(summary_html(many)).words


def test_a_gap_that_was_not_met_is_marked():
    model = fitted(MKLClassifier(max_iter=1, tol=1e-9), X, Y == "vi")
    assert model.duality_gap_ > 1e-9
    assert "km-warning" in summary_html(model).split("</style>")[1]
    assert "above tol=1e-09" in Page(summary_html(model)).words


def test_names_are_escaped_and_nothing_is_fetched_or_run():
    evil = "<script>alert(1)</script>&\"'"
    model = MKLClassifier([(evil, Linear()), ("b", Gaussian(2.0))]).fit(
        X, np.where(Y == "se", evil, Y)
    )
    html = summary_html(model)
    page = Page(html)
    assert "script" not in page.tags
    assert evil in page.words
    assert page.open == []
    assert "http" not in html.replace("http://www.w3.org", "")
    assert {"style", "div", "table", "tr", "th", "td"} >= set(page.tags)
    assert not any(key.startswith("on") or key in ("src", "href") for key, _ in page.attributes)


def test_no_colour_but_the_bars_is_set():
    style = summary_html(MKLClassifier().fit(X, Y)).split("</style>")[0]
    assert "color:inherit" in style
    assert style.count("#") == 1


def test_localized_and_pipelines_still_have_their_diagrams():
    model = fitted(LocalizedMKLClassifier(n_init=1, max_iter=2), X, Y)
    assert "gap of the machine under the gates" in model._repr_html_()
    assert (
        "MKLClassifier" in make_pipeline(StandardScaler(), MKLClassifier()).fit(X, Y)._repr_html_()
    )


NOTEBOOK = """<style>body{{background:#111;color:#eee}}
.jp-RenderedHTMLCommon table{{color:#fff;font-size:30px;margin:auto}}
.jp-RenderedHTMLCommon :is(tr,th,td){{text-align:right}}
.jp-RenderedHTMLCommon tbody tr:nth-child(odd){{background:#222}}
</style><div class="jp-RenderedHTMLCommon"><div style="background:#fff;color:#000">{}</div></div>"""
LOOK = """return [...document.querySelectorAll('.km-summary :is(tr,th,td)')].map(e => getComputedStyle(e)).map(s =>
[s.color, s.backgroundColor, s.textAlign].join())"""


def test_a_notebook_does_not_make_a_data_frame_of_it(tmp_path):
    model = MKLClassifier([("a", Linear()), ("b", Gaussian(2.0))]).fit(X, Y == "vi")
    (tmp_path / "page.html").write_text(NOTEBOOK.format(summary_html(model)), encoding="utf-8")
    with browser() as window:
        if window is None:
            pytest.skip("no chromium with chromedriver was found")
        window.get((tmp_path / "page.html").as_uri())
        looks = set(window.execute_script(LOOK))
    assert looks == {
        f"rgb(0, 0, 0),rgba(0, 0, 0, 0),{side}" for side in ("left", "right")
    }  # on the box, and numbers
