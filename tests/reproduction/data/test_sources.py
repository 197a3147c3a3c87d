"""Sets that no folder has: scikit-learn's own, stand-ins for what servers answer, and the cache
between."""

from __future__ import annotations

from dataclasses import replace
from http.client import IncompleteRead
from urllib.error import URLError

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.utils import Bunch

from kernelmosaic.files import cache_folder
from reproduction.data import load
from reproduction.data.entries import _catalogue, find
from reproduction.data.public import row_digests, write_cache


class Server:
    """Answers as `fetch_openml` does with ``as_frame=False``, and counts how often it is asked."""

    def __init__(self):
        self.answers = {}
        self.asked = []
        self.failure = None
        self.fetch_faces = None

    def __call__(self, *, data_id, target_column, as_frame, parser, cache):
        assert (as_frame, parser) == (False, "liac-arff")
        self.asked.append((data_id, target_column))
        if self.failure is not None:
            raise self.failure
        return self.answers[data_id]


def answer(data, target, categories=None):
    heads = [f"V{j}" for j in range(data.shape[1])]
    return Bunch(
        data=data,
        target=np.asarray(target, dtype=object),
        feature_names=heads,
        categories=categories or {},
    )


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.delenv("KERNELMOSAIC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    server = Server()
    monkeypatch.setattr("sklearn.datasets.fetch_openml", server)
    monkeypatch.setattr(
        "sklearn.datasets.fetch_olivetti_faces", lambda data_home: server.fetch_faces(data_home)
    )
    return server


@pytest.fixture
def know(monkeypatch):
    """Let the catalogue expect these arrays of a set."""

    def expect(stem, arrays, **changes):
        rows, order = row_digests(arrays, find(stem).views)
        changed = replace(find(stem), rows=rows, order=order, n_samples=len(arrays["y"]), **changes)
        monkeypatch.setitem(_catalogue(), stem, changed)
        return changed

    return expect


def banana(seed=0):
    rng = np.random.RandomState(seed)
    return {"X": rng.randn(12, 2), "y": np.array([-1, 1] * 6)}


def as_served(arrays):
    return answer(arrays["X"], np.where(arrays["y"] < 0, "1", "2"))


def test_sets_scikit_learn_carries(server):
    for name, original in (("wdbc", load_breast_cancer()), ("WINE", load_wine())):
        found = load(name)
        # in_order: the stored digest of the rows in order is that of the npz file.
        assert (found.origin, found.in_order) == ("scikit-learn", True)
        assert_array_equal(found.data, original.data)
        assert_array_equal(found.target, original.target)
        assert found.target_names == [str(text) for text in original.target_names]
        assert found.feature_names == list(original.feature_names)
    assert server.asked == []


def test_a_set_from_openml_is_kept(server, know):
    arrays = banana()
    know("banana", arrays)
    server.answers[1460] = as_served(arrays)
    first = load("BANANA")
    assert first.origin == "OpenML 1460"
    assert server.asked == [(1460, "default-target")]
    second = load("BANANA")
    assert second.origin == "cache"
    assert len(server.asked) == 1
    for found in (first, second):
        assert_array_equal(found.data, arrays["X"])
        assert_array_equal(found.target, arrays["y"])
        assert found.feature_names == ["V0", "V1"]
        assert found.in_order
    assert [path.name for path in cache_folder().iterdir()] == ["banana.npz"]
    assert load("banana", download=False).origin == "cache"


def test_rows_in_another_order_come_without_the_split(server, know):
    arrays = banana()
    know("banana", arrays, n_train=9)
    server.answers[1460] = as_served(arrays)
    assert_array_equal(load("banana").train, np.arange(9))
    assert_array_equal(load("banana").test, np.arange(9, 12))
    (cache_folder() / "banana.npz").unlink()
    server.answers[1460] = as_served({name: value[::-1] for name, value in arrays.items()})
    found = load("banana")
    assert not found.in_order
    assert found.train is None
    assert "another order" in found.DESCR


@pytest.mark.parametrize("damage", ["value", "label", "row lost", "row twice"])
def test_other_rows_are_refused_and_not_kept(server, know, damage):
    arrays = banana()
    know("banana", arrays)
    X, y = arrays["X"].copy(), arrays["y"].copy()
    if damage == "value":
        X[3, 1] = np.nextafter(X[3, 1], 9)
    elif damage == "label":
        y[3] = -y[3]
    else:
        rows = np.arange(11) if damage == "row lost" else np.r_[np.arange(11), 0]
        X, y = X[rows], y[rows]
    server.answers[1460] = as_served({"X": X, "y": y})
    with pytest.raises(
        ValueError,
        match=r"BANANA as given by OpenML 1460 does not have the rows .* expected .* found",
    ):
        load("banana")
    assert not cache_folder().exists()


def test_labels_it_does_not_know_are_refused(server, know):
    know("banana", banana())
    server.answers[1460] = answer(banana()["X"], ["a", "b"] * 6)
    with pytest.raises(ValueError, match=r"labels \['a', 'b'\], not \['1', '2'\]"):
        load("banana")


@pytest.mark.parametrize("damage", ["cut", "text", "other rows"])
def test_a_damaged_cache_is_fetched_anew(server, know, damage):
    arrays = banana()
    entry = know("banana", arrays)
    server.answers[1460] = as_served(arrays)
    load("banana")
    path = cache_folder() / "banana.npz"
    if damage == "other rows":
        write_cache(entry, banana(seed=1))
    else:
        path.write_bytes(path.read_bytes()[:100] if damage == "cut" else b"nothing of the kind")
    with pytest.warns(UserWarning, match=r"banana.npz is damaged"):
        found = load("banana")
    assert found.origin == "OpenML 1460"
    assert_array_equal(found.data, arrays["X"])
    assert load("banana").origin == "cache"


def test_an_interrupted_write_leaves_nothing(server, know, monkeypatch):
    arrays = banana()
    entry = know("banana", arrays)

    def stopped(file, **stored):
        file.write(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(np, "savez_compressed", stopped)
        with pytest.raises(KeyboardInterrupt):
            write_cache(entry, arrays)
    assert list(cache_folder().iterdir()) == []
    # Nor does it harm what is there.
    write_cache(entry, arrays)
    with monkeypatch.context() as patched:
        patched.setattr(np, "savez_compressed", stopped)
        with pytest.raises(KeyboardInterrupt):
            write_cache(entry, banana(seed=1))
    assert [path.name for path in cache_folder().iterdir()] == ["banana.npz"]
    assert_array_equal(load("banana").data, arrays["X"])
    assert server.asked == []


def test_a_cache_that_cannot_be_written_is_done_without(server, know, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    arrays = banana()
    know("banana", arrays)
    server.answers[1460] = as_served(arrays)
    with pytest.warns(UserWarning, match="banana is not kept"):
        assert_array_equal(load("banana").data, arrays["X"])


@pytest.mark.parametrize(
    "failure", [URLError("no route to host"), IncompleteRead(b"", 9)], ids=["down", "broken off"]
)
def test_without_a_network_it_says_where_to_look(server, failure):
    server.failure = failure
    with pytest.raises(FileNotFoundError) as caught:
        load("ionosphere")
    for word in (
        "ionosphere.npz",
        "data_home",
        "KERNELMOSAIC_DATA",
        "UCI Ionosphere",
        str(failure),
    ):
        assert word in str(caught.value)
    assert len(server.asked) == 1
    with pytest.raises(FileNotFoundError, match="download=False"):
        load("ionosphere", download=False)
    with pytest.raises(FileNotFoundError, match=r"satimage.npz was not found"):
        load("satimage")
    assert len(server.asked) == 1


def test_names_of_labels_serve_as_labels(server, know):
    rng = np.random.RandomState(0)
    arrays = {"X": rng.randn(4, 34), "y": np.array([1, 0, 1, 1])}
    know("ionosphere", arrays)
    server.answers[59] = answer(arrays["X"], ["g", "b", "g", "g"])
    found = load("ionosphere")
    assert_array_equal(found.target, arrays["y"])
    assert found.target_names == ["b", "g"]


def test_another_target_column_and_numeric_labels(server, know):
    arrays = {"X": np.arange(12.0).reshape(2, 6), "y": np.array([1, 2])}
    know("liver", arrays)
    server.answers[8] = answer(arrays["X"], [1.0, 2.0])
    assert_array_equal(load("bupa").target, [1, 2])
    assert server.asked == [(8, "selector")]


def test_a_target_of_numbers_for_regression(server, know):
    arrays = {"X": np.arange(22.0).reshape(2, 11), "y": np.array([3.0, 9.0])}
    know("whitewine", arrays)
    server.answers[40498] = answer(arrays["X"], ["1", "7"])
    found = load("whitewine")
    assert_array_equal(found.target, [3.0, 9.0])
    assert found.target.dtype == np.float64


def test_rows_with_gaps_are_left_out(server, know):
    arrays = {"X": np.arange(18.0).reshape(2, 9), "y": np.array([2, 4])}
    know("breast_cancer_original", arrays)
    gap = np.insert(arrays["X"], 1, np.nan, axis=0)
    server.answers[15] = answer(gap, ["benign", "benign", "malignant"])
    assert_array_equal(load("cancer").data, arrays["X"])


def test_views_of_several_numbers(server, know):
    rng = np.random.RandomState(0)
    y = np.array([0, 9, 4])
    views = {name: rng.randint(0, 7, (3, 2)) for name in ("fac", "fou", "kar", "mor", "pix", "zer")}
    know("multifeat", views | {"y": y})
    for number, view in zip((12, 14, 16, 18, 20, 22), views.values(), strict=True):
        server.answers[number] = answer(view.astype(float), [str(k + 1) for k in y])
    # One of them comes as categories: positions in a list of texts.
    levels = ["6", "5", "4", "3", "2", "1", "0"]
    server.answers[20] = answer(
        6.0 - views["pix"], server.answers[12].target, {"V0": levels, "V1": levels}
    )
    found = load("multifeat", task="SL")
    for name, view in views.items():
        assert_array_equal(found.views[name], view)
    assert_array_equal(found.target, [-1, 1, -1])
    server.answers[22] = answer(views["zer"].astype(float), ["1", "5", "10"])
    (cache_folder() / "multifeat.npz").unlink()
    with pytest.raises(ValueError, match="rows in one order"):
        load("multifeat")


def test_letters_become_sequences(server, know):
    arrays = {"sequences": np.array([b"CAN", b"TGA"]), "y": np.array([2, 0])}
    know("splice", arrays)
    levels = {f"V{j}": ["A", "C", "G", "T", "N"] for j in range(3)}
    server.answers[46] = answer(np.array([[1.0, 0, 4], [3, 2, 0]]), ["N", "EI"], levels)
    found = load("splice")
    assert_array_equal(found.sequences, arrays["sequences"])
    assert_array_equal(found.target, [2, 0])
    assert_array_equal(load("splice").sequences, arrays["sequences"])


def test_faces_get_their_grey_levels_back(server, know, capsys):
    levels = np.arange(243, dtype=np.uint8)[np.newaxis].repeat(2, axis=0)
    arrays = {"X": levels, "y": np.array([0, 1])}
    know("olivetti", arrays)
    scaled = (levels / 242).astype(np.float32)

    def fetch(data_home):
        print("downloading")
        return Bunch(data=scaled, target=arrays["y"])

    server.fetch_faces = fetch
    assert_array_equal(load("olivetti", dtype=None).data, levels)
    assert load("olivetti").origin == "cache"
    assert capsys.readouterr().out == ""


def test_digests_of_rows():
    arrays = banana()
    one = row_digests(arrays)
    shuffled = np.random.RandomState(0).permutation(12)
    other = row_digests({name: value[shuffled] for name, value in arrays.items()})
    assert one.rows == other.rows
    assert one.order != other.order
    assert row_digests({"X": np.zeros((1, 1)), "y": np.zeros(1)}) == row_digests(
        {"X": -np.zeros((1, 1), dtype=np.float32), "y": np.zeros(1, dtype=np.int8)}
    )
    views = {"a": arrays["X"][:, :1], "b": arrays["X"][:, 1:], "y": arrays["y"]}
    assert row_digests(views, ("a", "b")) == one
