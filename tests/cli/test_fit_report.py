"""The page ``kernelmosaic fit --report`` writes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cli.tables import QUICK, curve, done, flowers, strings, write
from tests.reports.test_page import Reader

from kernelmosaic import load

pytestmark = pytest.mark.usefixtures("fixed_margins")


def page_of(capsys, tmp_path, table, target, *arguments):
    path = write(table, tmp_path / "data.csv")
    done(
        capsys,
        "fit",
        path,
        "--target",
        target,
        *arguments,
        "-o",
        tmp_path / "m.skops",
        "--report",
        tmp_path / "r.html",
    )
    return Reader((tmp_path / "r.html").read_text(encoding="utf-8"))


def headings(page):
    return [text for _, text in page.all("h2")]


def test_classification(capsys, tmp_path):
    table = flowers().drop(columns="colour")
    page = page_of(
        capsys, tmp_path, table, "kind", "--folds", "2", "--view", "s=shape_*:linear+gauss*2"
    )
    assert headings(page) == [
        "Which kernels count",
        "Accuracy on unseen rows",
        "Which classes are mistaken for which",
        "Are its probabilities calibrated?",
        "Which columns count in each view",
        "Is it the optimum?",
        "What to do next",
    ]
    images, model = page.all("img"), load(tmp_path / "m.skops").named_steps["model"]
    # A fit that ends where the folds have led it has no course to draw.
    assert len(images) == 5 + (len(model.history_) > 1)
    assert all(
        attributes["alt"] and attributes["src"].startswith("data:image/png")
        for attributes, _ in images
    )
    cells = [text for _, text in page.all("td")]
    confusion = [int(text) for text in cells if text.isdigit()]
    assert sum(confusion) == 60
    assert all(f"{weight:.4f}" in cells for weight in model.weights_)


def test_columns_of_sequences_are_on_the_page(capsys, tmp_path, hide):
    hide("matplotlib")
    table = strings(n=40).assign(size=np.arange(40) % 7)
    page = page_of(capsys, tmp_path, table, "motif")
    assert "Which columns count in each view" in headings(page)
    heads = [text for _, text in page.all("th")]
    cells = [text for _, text in page.all("td")]
    assert "column" in heads
    assert "dna" in cells
    assert "size" in cells


def test_the_confusion_matrix_counts_held_out_rows(capsys, tmp_path, hide):
    from sklearn.metrics import confusion_matrix
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from kernelmosaic import MKLClassifier
    from kernelmosaic.kernels import Linear

    hide("matplotlib")
    table = flowers(n=70, seed=2)[["shape_a", "kind"]]
    page = page_of(capsys, tmp_path, table, "kind", "--view", "s=shape_a:linear", *QUICK)
    model = make_pipeline(StandardScaler(), MKLClassifier([Linear()]))
    predicted = cross_val_predict(model, table[["shape_a"]], table["kind"], cv=2)
    expected = confusion_matrix(table["kind"], predicted)
    found = [int(text) for _, text in page.all("td") if text.isdigit()]
    np.testing.assert_array_equal(found, expected.ravel())


def test_regression_and_without_matplotlib(capsys, tmp_path, hide):
    page = page_of(capsys, tmp_path, curve(), "y", *QUICK)
    assert "Predicted and true" in headings(page)
    assert any("true values" in attributes["alt"] for attributes, _ in page.all("img"))
    hide("matplotlib")
    page = page_of(capsys, tmp_path, curve(), "y", *QUICK)
    assert page.all("img") == []
    assert any("kernelmosaic[plots]" in text for _, text in page.all("code"))


@pytest.mark.parametrize("arguments", [("--folds", "0"), ()], ids=["no folds", "one-class"])
def test_what_was_not_measured_is_left_out(capsys, tmp_path, hide, arguments):
    if arguments:  # other pages of classes have the pictures
        hide("matplotlib")
    extra = ("--C", "1", *arguments) if arguments else ("--task", "one-class")
    page = page_of(capsys, tmp_path, flowers(), "kind", "--view", "s=shape_*:gauss(2)", *extra)
    assert "Which classes are mistaken for which" not in headings(page)
    assert ("Accuracy on unseen rows" in headings(page)) == (arguments == ())


def cells_of(page):
    return [text for _, text in page.all("td")]


def after(page, name):
    """Return the text of the cell beside a name."""
    tables = [text for tag, _, text in page.elements if tag in ("th", "td")]
    return tables[tables.index(name) + 1]


def test_areas_and_f1_are_those_of_held_out_probabilities(capsys, tmp_path, hide):
    from sklearn.metrics import f1_score, roc_auc_score

    hide("matplotlib")
    table = flowers().drop(columns="colour")
    page = page_of(capsys, tmp_path, table, "kind")
    model = load(tmp_path / "m.skops").named_steps["model"]
    found = {
        name: text.split()
        for name in ("AUC", "F1")
        for text in [after(page, f"leave-one-out {name}")]
    }
    p = model.loo_probabilities_[:, 1]
    assert found["AUC"][0] == f"{roc_auc_score(table['kind'], p):.3f}"
    f1 = f1_score(table["kind"], model.loo_predictions_, average="macro")
    assert found["F1"][0] == f"{f1:.3f}"
    # Standard errors: DeLong's for the area; that of the share of right answers is near that of F1.
    rose, tulip = p[table["kind"] == "tulip"], p[table["kind"] == "rose"]
    wins = (rose[:, np.newaxis] > tulip) + 0.5 * (rose[:, np.newaxis] == tulip)
    delong = (
        wins.mean(axis=1).var(ddof=1) / len(rose) + wins.mean(axis=0).var(ddof=1) / len(tulip)
    ) ** 0.5
    assert float(found["AUC"][2]) == pytest.approx(delong, rel=0.3, abs=0.002)
    share = np.mean(model.loo_predictions_ == table["kind"])
    assert float(found["F1"][2]) == pytest.approx(
        (share * (1 - share) / 60) ** 0.5, rel=0.3, abs=0.002
    )
    assert all("60 rows)" in " ".join(text) for text in found.values())


def test_f1_of_classes_that_are_never_said_or_never_right():
    from sklearn.metrics import f1_score

    from kernelmosaic.cli.methods import macro_f1

    y, said = np.array(list("aabbbcd")), np.array(list("abbbcee"))
    for n in (7, 4, 1):
        expected = f1_score(y[:n], said[:n], average="macro", zero_division=0.0)
        assert macro_f1(y[:n], said[:n]) == pytest.approx(expected, rel=1e-12)


def test_views_that_rows_lack_are_mapped_and_one_row_is_explained(capsys, tmp_path):
    table = flowers().drop(columns="colour")
    table.loc[3:9, ["noise_a", "noise_b"]] = None
    views = ("--view", "s=shape_*:linear+gauss", "--view", "n=noise_*:linear+gauss")
    page = page_of(capsys, tmp_path, table, "kind", *views, *QUICK, "--resamples", "19")
    alts = [attributes["alt"] for attributes, _ in page.all("img")]
    assert "Which rows have which views" in alts
    (drawn,) = [
        text for text in alts if text.startswith("What each view adds to the decision on one row, ")
    ]
    assert f"true: {table['kind'][3]}; missing view (imputed): n" in drawn
    assert any("Row 4 of the table" in text for _, text in page.all("p"))
    model = load(tmp_path / "m.skops").named_steps["model"]
    shares = {
        name: 100 * weight / sum(model.view_weights_.values())
        for name, weight in model.view_weights_.items()
    }
    cells, found = cells_of(page), {}
    for name, share in shares.items():
        at = cells.index(f"{share:.1f}")
        found[name], loss, low, high = map(float, cells[at + 1 : at + 5])
        assert low <= loss <= high
    assert found == {"s": 0.05, "n": pytest.approx(0.5, abs=0.46)}
