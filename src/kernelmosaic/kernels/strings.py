"""Kernels between strings: shared words, words at the same place, local alignment."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._checks import check_count
from kernelmosaic._typing import AnyArray, Array, Indices, MatrixLike
from kernelmosaic.backend import allowed_threads, map_threads, row_strips
from kernelmosaic.kernels.base import Block, FeatureKernel, Kernel
from kernelmosaic.kernels.distances import FitSamples

Sequences = NDArray[np.object_]


class SequenceKernel(Kernel):
    """A kernel between strings: X is a list, an array, a column or a series of `str` or `bytes`,
    one per sample.

    Letters are compared as they are written: ``"a"`` is not ``"A"``.
    """

    input_kind: ClassVar[str] = "sequences"

    def validate(self, X: MatrixLike) -> Sequences:
        """Return X as a vector of non-empty `str`, or raise naming what is wrong."""
        if isinstance(X, str | bytes):
            raise TypeError(
                f"X is one string, {X[:20]!r}: {type(self).__name__} needs a list of strings, one"
                " per sample."
            )
        strings = np.asarray(X, dtype=object)
        if strings.ndim == 2 and strings.shape[1] == 1:
            strings = strings[:, 0]
        if strings.ndim != 1 or strings.size == 0:
            raise ValueError(
                f"X has shape {strings.shape}: {type(self).__name__} needs one string per sample: a"
                " list or one column."
            )
        if all(type(s) is str and s for s in strings):
            return strings
        return np.array([self._read(s, i) for i, s in enumerate(strings)], dtype=object)

    def _read(self, value: object, position: int) -> str:
        if not isinstance(value, str | bytes):
            raise TypeError(
                f"X[{position}] is {value!r}, a {type(value).__name__}: {type(self).__name__} needs"
                " str or bytes."
            )
        if not value:
            raise ValueError(
                f"X[{position}] is empty: {type(self).__name__} needs a letter at least; leave the"
                " sample out."
            )
        # Latin-1 reads every byte as the letter of the same number, so no bytes are refused.
        return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def letter_codes(X: Sequences) -> NDArray[np.uint32]:
    """Return the numbers of all letters, one string after the other."""
    return np.frombuffer("".join(X).encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(
        np.uint32, copy=False
    )


def lengths(X: Sequences) -> Indices:
    """Return the length of every string."""
    return np.fromiter(map(len, X), dtype=np.intp, count=len(X))


class Spectrum(SequenceKernel):
    """k(x, z) = Σ_w count of w in x · count of w in z, over all words w of a given length.

    The strings may differ in length; one shorter than the words has none, and similarity 0 to all.

    Parameters
    ----------
    length : int, default=3
        The length of the words.

    References
    ----------
    Leslie, Eskin and Noble (2002), "The spectrum kernel: a string kernel for SVM protein
    classification".

    Examples
    --------
    >>> from kernelmosaic.kernels import Spectrum
    >>> Spectrum(length=2)([["abab"], ["bab"]])
    array([[5., 3.],
           [3., 2.]])
    """

    def __init__(self, length: int = 3) -> None:
        self.length = length

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        # Numbered together, so that a word has the same number in both.
        words, ends, count = self._words(X if Y is X else np.concatenate([X, Y]))
        # Counts of all words, multiplied as matrices, beat meeting equal words one by one where
        # there are few of them.
        if count <= 3 * words.size / max(len(ends), 1):
            owner = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
            flat = np.bincount(owner * count + words, minlength=len(ends) * count)
            counts = flat.reshape(len(ends), count).astype(np.float64)
            return np.asarray(
                counts @ counts.T if Y is X else counts[: len(X)] @ counts[len(X) :].T
            )
        from kernelmosaic.kernels._numba_pairs import shared_words

        if Y is X:
            return np.asarray(shared_words(words, ends, words, ends, count))
        first = ends[len(X) - 1]
        return np.asarray(
            shared_words(
                words[:first], ends[: len(X)], words[first:], ends[len(X) :] - first, count
            )
        )

    def _diagonal(self, X: MatrixLike) -> Array:
        words, ends, count = self._words(X)
        owner = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        keys, times = np.unique(owner * count + words, return_counts=True)
        squares = times.astype(np.float64) ** 2
        return np.bincount(keys // max(count, 1), squares, len(ends)).astype(np.float64, copy=False)

    def _words(self, X: Sequences) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Return the numbers of all words, one string after the other, where each string's end, and
        their count."""
        n_letters = lengths(X)
        # Where words may start: not so near the end of a string that they would run into the next
        # one.
        left = np.repeat(np.cumsum(n_letters), n_letters) - np.arange(n_letters.sum())
        words, count = _word_numbers(
            letter_codes(X), np.flatnonzero(left >= self.length), self.length
        )
        return words, np.cumsum(np.maximum(n_letters - self.length + 1, 0)), count

    def _check_parameters(self) -> None:
        check_count("length", self.length)


def _word_numbers(
    codes: NDArray[np.uint32], starts: Indices, length: int, most: int = 2**18
) -> tuple[NDArray[np.int64], int]:
    """Number the words at the given starts, equal words alike; return the numbers, and a bound
    above them.

    Up to so many numbers words are numbered as their letters say, and by those that occur beyond.
    """
    letters, numbers = _renumbered(codes)
    # Everywhere first, strings run into each other: slices are faster than picking the starts for
    # every letter.
    places = max(len(codes) - length + 1, 0)
    words, count = np.zeros(places, dtype=np.int64), 1
    for i in range(length):
        # Numbers of words that do not occur are left out where there are many: for every alphabet
        # and length.
        if count * letters > most:
            count, words = _renumbered(words)
        words, count = words * letters + numbers[i : i + places], count * letters
    return words[starts], count


def _renumbered(values: AnyArray, most: int = 2**18) -> tuple[int, AnyArray]:
    """Return how many different numbers there are, and the rank of each among them."""
    top = int(values.max(initial=0)) + 1
    if top > most:
        found, ranks = np.unique(values, return_inverse=True)
        return len(found), ranks
    occurs = np.zeros(top, dtype=bool)
    occurs[values] = True
    ranks = np.cumsum(occurs) - 1
    return int(ranks[-1]) + 1, ranks[values]


class WeightedDegree(SequenceKernel):
    """k(x, z) = Σ_{d=1..D} β_d Σ_l 1[x[l:l+d] = z[l:l+d]], β_d = 2(D − d + 1) / (D(D + 1)).

    Counts the words, of up to D letters, that both strings have at the same place. All strings must
    have one length.

    Parameters
    ----------
    degree : int, default=3
        The length D of the longest word.

    References
    ----------
    Rätsch and Sonnenburg (2004), "Accurate splice site prediction for Caenorhabditis elegans".

    Examples
    --------
    >>> from kernelmosaic.kernels import WeightedDegree
    >>> K = WeightedDegree(degree=2)([["acgt"], ["acga"], ["tttt"]])
    >>> bool(K[0, 1] > K[0, 2])
    True
    """

    def __init__(self, degree: int = 3) -> None:
        self.degree = degree

    def validate(self, X: MatrixLike) -> Sequences:
        strings: Sequences = super().validate(X)
        _check_length(strings, len(strings[0]))
        return strings

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        # Numba takes long to load, and only this kernel's users should wait for it.
        from kernelmosaic.kernels._numba_pairs import matching_words

        _check_length(X, len(Y[0]))
        places = np.ascontiguousarray(_letters(Y).T)
        return np.asarray(matching_words(_letters(X), places, float(self.degree), Y is X))

    def _diagonal(self, X: MatrixLike) -> Array:
        d = np.arange(1, self.degree + 1)
        beta = 2.0 * (self.degree - d + 1) / (self.degree * (self.degree + 1.0))
        # A string of L letters has L - d + 1 words of length d, all of which match.
        return np.full(len(X), beta @ np.maximum(len(X[0]) - d + 1, 0))

    def _check_parameters(self) -> None:
        check_count("degree", self.degree)


def _check_length(X: Sequences, length: int) -> None:
    other = lengths(X) != length
    if other.any():
        i = int(np.argmax(other))
        raise ValueError(
            f"X[{i}] has {len(X[i])} letters, but others have {length}: WeightedDegree compares"
            " letters at the same place; cut or pad the strings to one length, or use Spectrum."
        )


def _letters(X: Sequences) -> NDArray[np.uint32]:
    return letter_codes(X).reshape(len(X), -1)


class SmithWaterman(FeatureKernel, SequenceKernel):
    """k(x, z) = Σ_t s_t(x) s_t(z), s_t(x) = SW(x, t) / √(SW(x, x) SW(t, t)), over the training
    strings t.

    SW is the score of the best local alignment. The scores are not a kernel: their matrix has
    negative eigenvalues. Here a string is described by its scores against every training string,
    each between 0 and 1, and strings are compared by the inner product of these descriptions. That
    is positive semi-definite whatever the scores are, and a new string is described exactly as a
    training string is, so test-versus-train blocks agree with the training matrix.

    `fit` keeps the training strings and their descriptions: n²/2 alignments and one matrix. A
    string outside the training set costs n alignments each time it is met.

    Parameters
    ----------
    matrix : str, default="blosum62"
        Substitution scores: ``"blosum30"``, 35, …, 90 or 100, ``"blosum62"``, ``"blosumn"``,
        ``"pam10"``, 20, …, 500, or, for nucleotides, ``"nuc44"`` or ``"dnafull"`` (with U as T).
        Letters that a matrix does not list count as its ``*``, which has its lowest score with all
        others, and 1 with itself, or that score, too, for nucleotides. Case does not matter.
    gap_open, gap_extend : int, default=11 and 1
        A gap of n letters costs gap_open + (n − 1) gap_extend.

    Attributes
    ----------
    sequences_ : ndarray of str
        The training strings.
    features_ : ndarray of shape (n, n)
        Their descriptions, one row per string.
    own_scores_ : ndarray of shape (n,)
        Their scores against themselves.

    References
    ----------
    Liao and Noble (2003), "Combining pairwise sequence similarity and support vector machines for
    detecting remote protein evolutionary and structural relationships".

    Examples
    --------
    >>> from kernelmosaic.kernels import SmithWaterman
    >>> K = SmithWaterman()([["ACGTACGT"], ["TTACGTAC"], ["GGGGGGGG"]])
    >>> bool(K[0, 1] > K[0, 2])
    True
    """

    learned: ClassVar[str] = "features_"

    def __init__(self, matrix: str = "blosum62", gap_open: int = 11, gap_extend: int = 1) -> None:
        self.matrix = matrix
        self.gap_open = gap_open
        self.gap_extend = gap_extend

    def _learn(self, samples: FitSamples) -> Self:
        self.sequences_ = samples.X
        # Strings that repeat are aligned once.
        place = {s: i for i, s in enumerate(dict.fromkeys(self.sequences_))}
        rows = [place[s] for s in self.sequences_]
        S = self._scores(list(place))[np.ix_(rows, rows)]
        self.own_scores_ = S.diagonal().copy()
        self.features_ = _normalised(S, self.own_scores_, self.own_scores_)
        return self

    def validate(self, X: MatrixLike) -> Sequences:
        strings: Sequences = super().validate(X)
        for i, s in enumerate(strings):
            if not s.isascii():
                raise ValueError(
                    f"X[{i}] is {s[:20]!r}: SmithWaterman aligns letters of the ASCII alphabet"
                    " only."
                )
        return strings

    def _features(self, X: MatrixLike) -> Array:
        known = {s: i for i, s in enumerate(self.sequences_)}
        new = list(dict.fromkeys(s for s in X if s not in known))
        features = self.features_
        if new:
            known.update((s, len(features) + i) for i, s in enumerate(new))
            S = self._scores(new, list(self.sequences_))
            own = np.array(
                map_threads(
                    lambda s: self._scores([s])[0, 0], new, _threads(sum(len(s) ** 2 for s in new))
                )
            )
            features = np.vstack([features, _normalised(S, own, self.own_scores_)])
        return features[[known[s] for s in X]]

    def _scores(self, queries: list[str], targets: list[str] | None = None) -> Array:
        """Return the scores of queries against targets, or against each other."""
        # Numba takes long to load, and only this kernel's users should wait for it.
        from kernelmosaic.kernels._numba_pairs import LANES, local_scores

        letters, table = _substitution(self.matrix)
        strings = np.array(queries + (targets or []), dtype=object)
        sizes = lengths(strings)
        stops = np.cumsum(sizes)
        number = np.full(128, letters.index("*"), dtype=np.uint8)
        for i, letter in enumerate(letters):
            number[[ord(letter), ord(letter.lower())]] = i
        codes = number[letter_codes(strings)]
        first = 0 if targets is None else len(queries)
        S = np.zeros((len(queries), len(strings) - first))

        def align(task: tuple[Indices, Indices]) -> None:
            rows, block = task
            places = np.full((sizes[block].max(), LANES), len(letters), dtype=np.uint8)
            for lane, target in enumerate(block):
                places[: sizes[target], lane] = codes[stops[target] - sizes[target] : stops[target]]
            top = int(min(sizes[rows].max(), len(places))) * int(table.max())
            # A gap that costs the highest score or more is never of use.
            gaps = [min(int(gap), top) for gap in (self.gap_open, self.gap_extend)]
            scores = np.empty(
                (len(rows), LANES), dtype=np.int16 if max(top, sum(gaps)) < 2**15 else np.int32
            )
            local_scores(
                codes, stops[rows] - sizes[rows], stops[rows], places, table, *gaps, scores
            )
            S[np.ix_(rows, block - first)] = scores[:, : len(block)]

        # Strings of about one length are aligned together, the longest first. Of two strings one is
        # the query.
        order = first + np.argsort(-sizes[first:], kind="stable")
        tasks = []
        for lanes in row_strips(len(order), LANES):
            rows = order[lanes.start :] if targets is None else np.arange(first)
            tasks += [(rows[strip], order[lanes]) for strip in row_strips(len(rows), 64)]
        map_threads(
            align, tasks, _threads(float(sizes[: len(queries)].sum()) * float(sizes[first:].sum()))
        )
        return np.maximum(S, S.T) if targets is None else S

    def _check_parameters(self) -> None:
        for name in ("gap_open", "gap_extend"):
            check_count(name, getattr(self, name), least=0)
        if self.gap_open < self.gap_extend:
            raise ValueError(
                f"gap_open={self.gap_open} is less than gap_extend={self.gap_extend}: opening a gap"
                " must cost at least as much as making it longer."
            )
        if not isinstance(self.matrix, str) or self.matrix not in _tables():
            raise ValueError(
                f"matrix={self.matrix!r} is not a substitution matrix: use 'blosum30' to"
                " 'blosum100', 'pam10' to 'pam500' or, for nucleotides, 'nuc44' or 'dnafull'."
            )


def _normalised(S: AnyArray, own: AnyArray, own_targets: AnyArray) -> Array:
    norms = np.sqrt(np.outer(own, own_targets))
    # A string that does not even match itself, being all unknown letters, scores 0 with all.
    return np.asarray(np.divide(S, norms, out=np.zeros_like(S), where=norms > 0))


def _threads(cells: float) -> int:
    """Return the threads to align on; they are worth starting for some milliseconds of work."""
    return allowed_threads() if cells > 1e7 else 1


@cache
def _tables() -> dict[str, list[str]]:
    """Return the lines of the file of substitution scores: letters and the lower triangle, by
    name."""
    text = files("kernelmosaic.kernels").joinpath("substitution.txt").read_text("utf-8")
    return {words[0]: words[1:] for words in map(str.split, text.splitlines()) if words[0] != "#"}


@cache
def _substitution(name: str) -> tuple[str, NDArray[np.int8]]:
    """Return the letters of a table, and their scores; a last column of zeros is for what follows
    the end."""
    letters, *scores = _tables()[name]
    table = np.zeros((len(letters), len(letters) + 1), dtype=np.int8)
    rows, columns = np.tril_indices(len(letters))
    table[rows, columns] = table[columns, rows] = np.array(scores, dtype=np.int8)
    return letters, table
