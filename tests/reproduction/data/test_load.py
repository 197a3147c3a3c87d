"""`load` from a folder of files: synthetic ones here, whose checksums take the place of the
catalogue's."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from reproduction.data import catalogue, load, names
from reproduction.data._numba_pen import render_pen
from reproduction.data.entries import _catalogue, find, unavailable

TOP = Path(__file__).parents[3]


def digits(n=40):
    return np.arange(n) % 10


def synthetic(stem):
    """Arrays such as the files hold, a few rows of them."""
    rng = np.random.RandomState(0)
    y = digits()
    if stem == "multifeat":
        sizes = {"fac": 5, "fou": 4, "kar": 3, "mor": 2, "pix": 6, "zer": 1}
        return {name: rng.randint(0, 9, (40, d)).astype(np.int16) for name, d in sizes.items()} | {
            "y": y
        }
    if stem == "pendigits":
        X = rng.randint(0, 101, (40, 16)).astype(np.uint8)
        return {"X": X, "y": y, "train": np.arange(30), "test": np.arange(30, 40)}
    if stem == "pendigits_orig":
        points = rng.randint(-300, 300, (40 * 9, 2)).astype(np.int16)
        stroke = np.tile([0, 0, 0, 0, 0, 1, 1, 1, 1], 40).astype(np.uint8)
        return {
            "points": points,
            "stroke": stroke,
            "offsets": np.arange(41) * 9,
            "y": y,
            "writer": y + 1,
        }
    if stem == "advert_first998":
        views = {name: rng.randint(0, 2, (10, 2)).astype(np.uint8) for name in find(stem).views}
        heads = ["h", "w", "r", "l", *(f"{name}*{k}" for name in views for k in range(2))]
        kept_apart = np.full((10, 4), np.nan)
        return views | {
            "geometry": kept_apart,
            "y": np.arange(10) % 2,
            "feature_names": np.array(heads),
        }
    if stem == "human_tis":
        return {
            "sequences": np.array([b"ACATGA", b"TTATGC"]),
            "y": np.array([-1, 1], dtype=np.int8),
        }
    if stem == "concrete":
        return {
            "X": rng.randn(12, 3),
            "y": rng.randn(12),
            "feature_names": np.array(["a", "b", "c"]),
        }
    return {"X": rng.randint(0, 255, (40, 3)).astype(np.uint8), "y": y % 2 + 1}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of synthetic files, known to the catalogue by their checksums; no network, no
    variable, no cache."""
    home = tmp_path / "data"
    home.mkdir()
    monkeypatch.delenv("KERNELMOSAIC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sklearn.datasets.fetch_openml", refuse_network)
    kept = (
        "multifeat",
        "pendigits",
        "pendigits_orig",
        "advert_first998",
        "human_tis",
        "concrete",
        "german_numeric",
    )
    for stem in kept:
        np.savez_compressed(home / f"{stem}.npz", **synthetic(stem))
        found = hashlib.sha256((home / f"{stem}.npz").read_bytes()).hexdigest()
        monkeypatch.setitem(_catalogue(), stem, replace(find(stem), sha256=found))
    return home


def refuse_network(**options):
    raise AssertionError("the network was asked although a file is there")


# Names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("GERMANNUMERIC", "german_numeric"),
        ("german_numeric", "german_numeric"),
        ("German Numeric", "german_numeric"),
        ("MULTIFEAT", "multifeat"),
        ("pendigits", "pendigits"),
        ("PENDIGITS", "pendigits"),
        ("pendigits_orig", "pendigits_orig"),
        ("TIS", "human_tis"),
        ("LIVERDISORDER", "liver"),
        ("ADVERT", "advert_first998"),
        ("cancer", "breast_cancer_original"),
        ("adult", "a9a"),
    ],
)
def test_a_set_answers_to_its_names(name, stem):
    assert find(name).stem == stem


def test_no_two_sets_share_a_name():
    def plain(text):
        return "".join(c for c in text.lower() if c.isalnum())

    spelled = [{plain(name) for name in (e.stem, e.title, *e.aliases)} for e in catalogue()]
    assert sum(map(len, spelled)) == len(set().union(*spelled))


def test_the_catalogue_is_whole():
    assert len(names()) == 34
    for entry in catalogue():
        assert entry.task in ("binary", "multiclass", "regression")
        assert len(entry.sha256) == 64
        assert entry.source
        assert entry.licence
        assert entry.url.startswith("https://")
        # Copies from elsewhere are used only when their content can be compared.
        assert bool(entry.rows) == bool(entry.order) == (entry.on_network or bool(entry.bundled))
        if entry.openml_ids:
            assert len(entry.openml_ids) == max(1, len(entry.views))
            assert entry.openml_labels or entry.label_names


def test_an_unknown_name_is_met_with_near_ones():
    with pytest.raises(ValueError, match=r"name='pendigit' is not a known set; near it: pendigits"):
        load("pendigit")
    with pytest.raises(ValueError, match=r"give one of banana, german_numeric"):
        load("qqqqqq")
    with pytest.raises(TypeError, match="name=3"):
        load(3)


def test_what_cannot_be_had_says_so():
    assert "ARABIDOPSIS" in unavailable()
    with pytest.raises(ValueError, match=r"name='arabidopsis' cannot be had.*human_tis"):
        load("arabidopsis")


def test_the_page_about_the_sets_lists_the_catalogue():
    page = (TOP / "docs" / "datasets.md").read_text(encoding="utf-8")
    for e in catalogue():
        assert (
            f"| {e.title} | `{e.stem}` | {e.n_samples} | {e.inputs} | {e.task} | {e.source} |"
            f" {e.how_to_get} |" in page
        )
    for title in unavailable():
        assert title in page


# The folder ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["argument", "variable"])
def test_a_file_of_the_folder(folder, monkeypatch, by):
    if by == "variable":
        monkeypatch.setenv("KERNELMOSAIC_DATA", str(folder))
    found = load("GERMANNUMERIC", folder if by == "argument" else None)
    expected = synthetic("german_numeric")
    assert_array_equal(found.data, expected["X"])
    assert found.data.dtype == np.float64
    assert_array_equal(found.target, expected["y"])
    assert_array_equal(found.classes, [1, 2])
    assert found.target_names == ["good", "bad"]
    assert (found.name, found.title, found.task, found.origin) == (
        "german_numeric",
        "GERMANNUMERIC",
        "binary",
        "file",
    )
    assert found.feature_names == []
    assert found.views == found.columns == {}
    assert found.train is found.test is found.sequences is None
    for word in ("UCI Statlog German Credit", "CC BY 4.0", "1000 samples"):
        assert word in found.DESCR


def test_the_argument_wins_over_the_variable(folder, monkeypatch, tmp_path):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("KERNELMOSAIC_DATA", str(tmp_path / "empty"))
    assert load("concrete", folder).origin == "file"
    with pytest.raises(FileNotFoundError):
        load("concrete")


def test_the_pair_alone_and_the_files_own_type(folder):
    X, y = load("german_numeric", folder, return_X_y=True, dtype=None)
    assert X.dtype == np.uint8
    assert_array_equal(X, synthetic("german_numeric")["X"])
    assert_array_equal(y, synthetic("german_numeric")["y"])


def test_regression_has_no_classes(folder):
    found = load("concrete", folder)
    assert found.target.dtype == np.float64
    assert len(found.classes) == len(found.target_names) == 0
    assert found.feature_names == ["a", "b", "c"]


def test_views_stand_side_by_side(folder):
    found, expected = load("multifeat", folder), synthetic("multifeat")
    assert list(found.views) == ["fac", "fou", "kar", "mor", "pix", "zer"]
    for name, view in found.views.items():
        assert_array_equal(view, expected[name])
        assert_array_equal(found.data[:, found.columns[name]], view)
    assert found.data.shape == (40, 21)


def test_what_is_kept_apart_is_no_view(folder):
    found = load("advert", folder)
    assert list(found.views) == ["url", "origurl", "ancurl", "alt", "caption"]
    assert found.geometry.shape == (10, 4)
    assert np.isfinite(found.data).all()
    assert len(found.feature_names) == found.data.shape[1]
    assert found.feature_names[0] == "url*0"
    assert found.target_names == ["ad", "nonad"]
    assert "INCOMPLETE" in found.DESCR


def test_sequences(folder):
    found = load("tis", folder)
    assert_array_equal(found.sequences, [b"ACATGA", b"TTATGC"])
    assert found.data is found.sequences
    assert found.target.dtype == np.int64
    assert found.site == 149


@pytest.mark.parametrize("stem", ["multifeat", "pendigits"])
def test_digits_as_two_classes(folder, stem):
    even_odd, small_large = load(stem, folder, task="EO"), load(stem, folder, task="SL")
    for y, eo, sl in zip(synthetic(stem)["y"], even_odd.target, small_large.target, strict=True):
        assert eo == (-1 if y in (0, 2, 4, 6, 8) else 1)
        assert sl == (-1 if y in (0, 1, 2, 3, 4) else 1)
    assert even_odd.target_names == ["even", "odd"]
    assert small_large.target_names == ["small", "large"]
    assert even_odd.task == small_large.task == "binary"
    assert_array_equal(even_odd.classes, [-1, 1])


def test_a_task_that_does_not_fit(folder):
    with pytest.raises(ValueError, match=r"task='eo': give 'EO', 'SL' or None"):
        load("multifeat", folder, task="eo")
    with pytest.raises(
        ValueError, match=r"task='EO': give None, since CONCRETE is not a set of digits"
    ):
        load("concrete", folder, task="EO")


def test_pendigits_has_bitmaps_of_its_traces(folder):
    found, traces = load("pendigits", folder), synthetic("pendigits_orig")
    assert {name: view.shape[1] for name, view in found.views.items()} == {
        "dyn": 16,
        "4x4": 16,
        "8x8": 64,
        "16x16": 256,
    }
    assert_array_equal(found.views["dyn"], found.data)
    assert_array_equal(found.train, np.arange(30))
    for size in (4, 8, 16):
        drawn = render_pen(traces["points"], traces["offsets"], traces["stroke"], size)
        np.testing.assert_allclose(found.views[f"{size}x{size}"], drawn, atol=1e-12)


def test_pendigits_without_traces(folder):
    (folder / "pendigits_orig.npz").unlink()
    with pytest.warns(UserWarning, match=r"without its bitmaps: pendigits_orig.npz was not found"):
        assert list(load("pendigits", folder).views) == ["dyn"]


def test_traces_are_ragged(folder):
    found, traces = load("pendigits_orig", folder), synthetic("pendigits_orig")
    assert len(found.data) == 40
    assert_array_equal(found.data[3], traces["points"][27:36])
    assert_array_equal(found.writer, traces["writer"])


# What is wrong with the folder --------------------------------------------------------------------


def test_a_folder_that_is_none(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"data_home='.*nowhere' is not a folder"):
        load("wine", tmp_path / "nowhere")
    monkeypatch.setenv("KERNELMOSAIC_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"KERNELMOSAIC_DATA='.*nowhere' is not a folder"):
        load("wine")


def test_a_missing_file_says_where_to_get_it(folder):
    (folder / "german_numeric.npz").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        load("german", folder)
    for word in (
        "german_numeric.npz",
        "data_home",
        "KERNELMOSAIC_DATA",
        "UCI Statlog German Credit",
        "https://archive",
    ):
        assert word in str(caught.value)


@pytest.mark.parametrize("damage", ["other content", "one byte", "cut short", "no archive"])
def test_a_file_with_another_checksum_is_refused(folder, damage):
    path = folder / "concrete.npz"
    content = bytearray(path.read_bytes())
    if damage == "other content":
        np.savez_compressed(path, X=np.zeros((2, 2)), y=np.zeros(2))
    elif damage == "one byte":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    else:
        path.write_bytes(content[:-30] if damage == "cut short" else b"<html>not found</html>")
    with pytest.raises(ValueError, match="SHA-256 expected") as caught:
        load("concrete", folder)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    for word in (str(path), find("concrete").sha256, found, "replace it"):
        assert word in str(caught.value)
