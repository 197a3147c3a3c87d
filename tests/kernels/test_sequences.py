"""Kernels between strings: bad input, odd alphabets, and alignment against a naive dynamic
program."""

from __future__ import annotations

import sys
import zlib

import numpy as np
import pandas as pd
import pytest
from numba.extending import is_jitted
from numpy.testing import assert_allclose, assert_array_equal
from tests.reference import naive_kernels as naive

from kernelmosaic import MKLClassifier
from kernelmosaic.kernels import SmithWaterman, Spectrum, WeightedDegree

KERNELS = [Spectrum(), WeightedDegree(), SmithWaterman()]
rng = np.random.RandomState(8)


def strings(alphabet, lengths):
    return ["".join(rng.choice(list(alphabet), n)) for n in lengths]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ("ACGT", TypeError, "X is one string, 'ACGT'"),
        (b"ACGT", TypeError, "X is one string"),
        ([["A", "C"], ["G", "T"]], ValueError, r"X has shape \(2, 2\)"),
        ([], ValueError, r"X has shape \(0,\)"),
        ([1, 2], TypeError, r"X\[0\] is 1, a int"),
        (["ACG", None], TypeError, r"X\[1\] is None"),
        (["ACG", np.nan], TypeError, r"X\[1\] is nan, a float"),
        (pd.Series(["ACG", None], dtype="string"), TypeError, r"X\[1\] is "),
        (np.zeros((3, 1)), TypeError, r"X\[0\] is 0\.0"),
        (["ACG", ["A"]], TypeError, r"X\[1\] is \['A'\]"),
        (["ACG", ""], ValueError, r"X\[1\] is empty"),
        (np.array([b"ACG", b""]), ValueError, r"X\[1\] is empty"),
    ],
)
def test_bad_samples_are_named(kernel, X, error, message):
    for use in (kernel.fit, kernel, kernel.diag):
        with pytest.raises(error, match=message):
            use(X)


@pytest.mark.parametrize(
    "alphabet", ["AB", "ACGT", "αβγδ", "a\U0001f600\U0001f601", "\x01\x7f\xff"]
)
@pytest.mark.parametrize("length", [1, 2, 5, 40])
def test_spectrum_of_any_alphabet_and_length(alphabet, length):
    X = strings(alphabet, [1, 3, 45, 60, 60])
    Y = strings(alphabet, [50, 2])
    Y[0] = Y[0][:5] + X[2]  # so that long words recur
    kernel = Spectrum(length=length)
    assert_array_equal(kernel(X, Y), naive.block(lambda x, z: naive.spectrum(x, z, length), X, Y))
    assert_array_equal(kernel(X), naive.block(lambda x, z: naive.spectrum(x, z, length), X, X))
    assert_array_equal(kernel.diag(X), [naive.spectrum(x, x, length) for x in X])


def test_words_never_span_two_strings():
    assert_array_equal(Spectrum(length=2)(["AB", "CD", "BC"]), np.eye(3))


def test_strings_shorter_than_the_words_have_none():
    assert_array_equal(Spectrum(length=5)(["ABC", "AB"]), np.zeros((2, 2)))
    assert_array_equal(Spectrum(length=5).diag(["ABC", "AB"]), [0, 0])


@pytest.mark.parametrize("value", [0, -2, 1.0, True, "3", None])
def test_bad_word_lengths_are_named(value):
    for kernel, name in (
        (Spectrum(length=value), "length"),
        (WeightedDegree(degree=value), "degree"),
    ):
        for use in (kernel.fit, kernel, kernel.diag):
            with pytest.raises(ValueError, match=f"{name}="):
                use(["ACGT"])


def test_weighted_degree_needs_one_length():
    for use in (WeightedDegree().fit, WeightedDegree(), WeightedDegree().diag):
        with pytest.raises(ValueError, match=r"X\[1\] has 3 letters, but others have 4.*Spectrum"):
            use(["ACGT", "ACG"])
    with pytest.raises(ValueError, match=r"X\[0\] has 3 letters, but others have 4"):
        WeightedDegree()(["ACG"], ["ACGT"])


@pytest.mark.parametrize("degree", [1, 2, 8, 60])
def test_weighted_degree_between_two_sets(degree):
    X, Y = strings("ACé", [25] * 6), strings("ACé", [25] * 4)
    Y[0] = X[0]
    expected = naive.block(lambda x, z: naive.weighted_degree(x, z, degree), X, Y)
    assert_allclose(WeightedDegree(degree=degree)(X, Y), expected, rtol=1e-12)


def test_weighted_degree_of_many_strings_enters_no_more_functions_than_that_of_few():
    from kernelmosaic.kernels import _numba_pairs as loops

    def entered(X):
        """Return how many Python functions the kernel matrix enters, and the matrix."""
        events = []
        sys.setprofile(lambda frame, event, argument: events.append(event))
        try:
            K = WeightedDegree(degree=20)._block(X, X)
        finally:
            sys.setprofile(None)
        return events.count("call"), K

    assert is_jitted(loops.matching_words)
    X = strings("ACGT", [300] * 200)
    kernel = WeightedDegree(degree=20)
    views = kernel.validate(X)
    few = entered(views[:20])[0]
    many, K = entered(views)
    assert many == few
    assert_allclose(K[3, 5], naive.weighted_degree(X[3], X[5], 20))


@pytest.mark.parametrize(
    ("matrix", "table", "gaps"),
    [
        *(
            ("nuc44", naive.NUC44, gaps)
            for gaps in ((11, 1), (5, 5), (3, 0), (0, 0), (2, 1), (10**9, 10**9))
        ),
        *(("blosum62", naive.BLOSUM62, gaps) for gaps in ((11, 1), (3, 0), (2, 2))),
    ],
)
def test_alignment_equals_the_naive_dynamic_program(gaps, matrix, table):
    letters = sorted({pair[0] for pair in table})
    X = strings(letters, [1, 4, 9, 17, 17, 25])
    X[4] = X[3][:6] + X[3][9:] + X[4][:3]  # so that gaps pay
    kernel = SmithWaterman(matrix, *gaps)
    expected = naive.block(lambda x, z: naive.alignment_score(x, z, table, *gaps), X, X)
    assert_array_equal(kernel._scores(X), expected)
    new = strings(letters, [12, 3])
    kernel.fit(X)
    expected = naive.block(lambda x, z: naive.smith_waterman(x, z, X, table, *gaps), new, X)
    assert_allclose(kernel(new, X), expected, rtol=1e-9)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_more_strings_than_are_aligned_at_once(n_threads, monkeypatch):
    monkeypatch.setattr("kernelmosaic.kernels.strings._threads", lambda cells: n_threads)
    X, Y = strings("ACGT", rng.randint(1, 8, size=70)), strings("ACGT", rng.randint(1, 8, size=40))
    kernel = SmithWaterman("nuc44", 3, 1)
    expected = np.array(
        naive.block(lambda x, z: naive.alignment_score(x, z, naive.NUC44, 3, 1), X + Y, X)
    )
    assert_array_equal(kernel._scores(X), expected[:70])
    assert_array_equal(kernel._scores(Y, X), expected[70:])


@pytest.mark.parametrize("length", [2978, 2979])
def test_scores_at_the_end_of_16_bits(length):
    assert SmithWaterman()._scores(["W" * length]) == 11 * length  # 32,758 and 32,769


def test_a_gap_of_32768_is_beyond_16_bits():
    assert_array_equal(
        SmithWaterman("nuc44", 2**15, 2**15)._scores(["ACGT" * 1000, "CGT"])[1], [15, 15]
    )


def test_substitution_tables():
    from kernelmosaic.kernels.strings import _substitution, _tables

    names = {
        *(f"blosum{k}" for k in (*range(30, 95, 5), 62, 100, "n")),
        *(f"pam{k}" for k in range(10, 501, 10)),
    }
    assert set(_tables()) == names | {"nuc44", "dnafull"}
    for name in _tables():
        letters, table = _substitution(name)
        scores, unknown = table[:, :-1], letters.index("*")
        assert_array_equal(scores, scores.T)
        assert set(letters) >= set(
            "ACGT" if name in ("nuc44", "dnafull") else "ACDEFGHIKLMNPQRSTVWY"
        )
        own = scores.diagonal()[: 4 if name in ("nuc44", "dnafull") else 20]
        assert own.min() > 0
        # As distributed: * has the lowest score with all.
        others = np.delete(scores[unknown], unknown)
        assert_array_equal(others, scores.min())
        assert scores[unknown, unknown] == (scores.min() if name in ("nuc44", "dnafull") else 1)
    # Compared figure by figure with EMBOSS 6.6, Biopython 1.88 and Bioconductor's Biostrings 2.66;
    # the sum is of these.
    assert (
        zlib.crc32(" ".join(" ".join([name, *words]) for name, words in _tables().items()).encode())
        == 0xC1BAC625
    )


@pytest.mark.parametrize(
    ("matrix", "pair", "score"),
    [
        # From the published tables.
        ("blosum62", "WW", 11),
        ("blosum62", "LI", 2),
        ("blosum62", "BD", 4),
        ("blosum50", "WW", 15),
        ("pam250", "WW", 17),
        ("pam250", "FY", 7),
        ("pam250", "CC", 12),
        ("blosum62", "jO", 1),  # neither is listed
        ("blosum62", "J*", 1),
        ("nuc44", "UT", 0),
        ("nuc44", "uu", 0),
        ("nuc44", "SG", 1),
        ("dnafull", "uT", 5),
        ("dnafull", "UU", 5),
        ("dnafull", "QT", 0),
        ("dnafull", "QQ", 0),
    ],
)
def test_scores_of_two_letters(matrix, pair, score):
    assert SmithWaterman(matrix)._scores([pair[0]], [pair[1]]) == score


def test_raw_scores_are_no_kernel_but_this_is():
    # The halves swapped: each long string is the sum of the short ones, yet only one half of theirs
    # can be aligned.
    X = ["WWWWDDDD", "DDDDWWWW", "WWWW", "DDDD"]
    kernel = SmithWaterman().fit(X)
    assert np.linalg.eigvalsh(kernel.features_)[0] < -1e-3
    assert np.linalg.eigvalsh(kernel(X))[0] > -1e-12


def test_repeated_and_long_strings():
    X = ["WACD", "WACD", "W" * 4000]
    kernel = SmithWaterman().fit(X)
    assert_allclose(kernel.features_.diagonal(), 1.0)  # 44,000 is more than 16 bits hold
    assert_array_equal(kernel.features_[0], kernel.features_[1])
    assert kernel.features_.shape == (3, 3)
    lower = SmithWaterman().fit([s.lower() for s in X])
    assert_array_equal(lower.features_, kernel.features_)


def test_strings_of_unknown_letters_resemble_nothing():
    K = SmithWaterman().fit(["XXX", "WACD"])(["XXX", "WACD"])
    assert_array_equal(K, [[0, 0], [0, 1]])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"matrix": "blosum61"}, "matrix='blosum61'"),
        ({"matrix": "sw"}, "matrix='sw'"),
        ({"matrix": None}, "matrix=None"),
        ({"matrix": ["blosum62"]}, "matrix="),
        ({"gap_open": -1}, "gap_open=-1"),
        ({"gap_open": 2.5}, "gap_open=2.5"),
        ({"gap_extend": True}, "gap_extend=True"),
        ({"gap_open": 1, "gap_extend": 2}, "gap_open=1 is less than gap_extend=2"),
    ],
)
def test_bad_alignments_are_named(parameters, message):
    for use in (SmithWaterman(**parameters).fit, SmithWaterman(**parameters)):
        with pytest.raises(ValueError, match=message):
            use(["ACD", "WAC"])


def test_letters_beyond_ascii_are_not_aligned():
    with pytest.raises(ValueError, match=r"X\[1\] is 'Aé'"):
        SmithWaterman().fit(["AC", "Aé"])


def test_frequencies_of_sequences_are_refused_with_the_remedy():
    sequences = np.array(["abab", "baba", "aabb", "bbaa"], dtype=object)
    model = MKLClassifier([Spectrum(2)], approximation="fourier", rank=4)
    with pytest.raises(ValueError, match="use approximation='nystroem'"):
        model.fit(sequences, [0, 1, 0, 1])
