"""Indicators and windows against loops over letters."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from reproduction.sequences import one_hot, windows


def random_sequences(n, length, letters="ACGTacgtNRDS"):
    rng = np.random.RandomState(0)
    return ["".join(rng.choice(list(letters), length)) for _ in range(n)]


@pytest.mark.parametrize("alphabet", ["ATGCN", "ACGT", "nacgt"])
@pytest.mark.parametrize("kind", ["str", "bytes", "objects", "column"])
def test_one_hot_against_a_loop(alphabet, kind):
    sequences = random_sequences(5, 9)
    expected = []
    for sequence in sequences:
        row = []
        for letter in sequence.upper():
            if letter not in alphabet.upper() and "N" in alphabet.upper():
                letter = "N"
            row += [1.0 if letter == of_alphabet else 0.0 for of_alphabet in alphabet.upper()]
        expected.append(row)
    given = {
        "str": sequences,
        "bytes": np.array([s.encode() for s in sequences]),
        "objects": np.array(sequences, dtype=object),
        "column": np.array(sequences)[:, np.newaxis],
    }[kind]
    found = one_hot(given, alphabet)
    assert found.dtype == np.float64
    assert_array_equal(found, expected)


def test_five_bits_a_base():
    assert_array_equal(one_hot(["AN"]), [[1, 0, 0, 0, 0, 0, 0, 0, 0, 1]])
    assert one_hot(["A" * 200], dtype=np.uint8).shape == (1, 1000)


@pytest.mark.parametrize(("before", "after"), [(2, 3), (0, 1), (6, 2), (3, 40)])
def test_windows_against_a_loop(before, after):
    sequences, site = random_sequences(4, 12), 5
    found = windows(sequences, site, before, after)
    for window, sequence in zip(found, sequences, strict=True):
        places = range(site - before, site + after)
        assert window.decode() == "".join(sequence[p] if 0 <= p < 12 else "N" for p in places)


def test_the_site_opens_the_second_half():
    sequence = "C" * 149 + "ATG" + "C" * 148
    (window,) = windows([sequence], 149)
    assert len(window) == 200
    assert window[100:103] == b"ATG"


def test_shorter_sequences_are_filled():
    assert_array_equal(windows(["ACGT", "AC"], 1, 1, 3), [b"ACGT", b"ACNN"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: one_hot(["AC", "A"]), "differ in length"),
        (lambda: one_hot(["AC"], "AAC"), "alphabet='AAC'"),
        (lambda: one_hot(["AC"], ""), "alphabet=''"),
        (lambda: one_hot([[1, 2]]), "give one str or bytes"),
        (lambda: one_hot("ACGT"), "give one str or bytes"),
        (lambda: one_hot(["Ä"]), "not ASCII"),
        (lambda: windows(["ACGT"], 4), "site=4: the sequences have 4 letters"),
        (lambda: windows(["ACGT"], 1, -1), "before=-1"),
        (lambda: windows(["ACGT"], 1, fill="NN"), "fill='NN'"),
    ],
    ids=["lengths", "twice", "empty", "numbers", "one string", "ascii", "site", "before", "fill"],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
