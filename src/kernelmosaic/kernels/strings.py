"""Kernels between strings, which count shared words or score local alignments."""

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

#: A vector of non-empty strings.
Sequences = NDArray[np.object_]

#: `Spectrum` multiplies matrices of counts if the words of the alphabet are at most this many times
#: the words of a string; else it visits pairs of equal words. Chosen by hand.
_WORDS_PER_STRING = 3
#: Numbers up to which a table of all possible words is kept rather than of those that occur.
#: Chosen by hand: a table of truth values then takes 256 kB.
_MAX_WORD_NUMBERS = 2**18
#: Queries that are aligned in one task of a thread. Chosen by hand.
_QUERIES_PER_TASK = 64
#: Cells of alignment matrices, some milliseconds of work, from which several threads are started.
#: Chosen by hand.
_CELLS_FOR_THREADS = 1e7


class SequenceKernel(Kernel):
    """A kernel between strings.

    X is a list, an array, a column or a series of `str` or `bytes`, one per sample. Letters are
    compared as they are written: ``"a"`` is not ``"A"``.
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
        """Return one sample as a `str`, or raise an error that names its position."""
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
        # Latin-1 maps every byte to the letter of the same number, so that no bytes are refused.
        return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def letter_codes(X: Sequences) -> NDArray[np.uint32]:
    """Return the Unicode numbers of all letters, one string after the other."""
    encoded = "".join(X).encode("utf-32-le", "surrogatepass")
    return np.frombuffer(encoded, dtype="<u4").astype(np.uint32, copy=False)


def lengths(X: Sequences) -> Indices:
    """Return the length of every string."""
    return np.fromiter(map(len, X), dtype=np.intp, count=len(X))


class Spectrum(SequenceKernel):
    """k(x, z) = Σ_w count of w in x · count of w in z, over all words w of a given length.

    The strings may differ in length. A string that is shorter than the words contains none, and has
    similarity 0 to all strings.

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
        # X and Y are numbered together, so that a word has the same number in both.
        strings = X if Y is X else np.concatenate([X, Y])
        words, ends, n_numbers = self._words(strings)
        # If there are few words, multiplying matrices of counts is faster than visiting the pairs
        # of equal words.
        if n_numbers <= _WORDS_PER_STRING * words.size / max(len(ends), 1):
            owners = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
            flat_counts = np.bincount(owners * n_numbers + words, minlength=len(ends) * n_numbers)
            counts = flat_counts.reshape(len(ends), n_numbers).astype(np.float64)
            if Y is X:
                return np.asarray(counts @ counts.T)
            return np.asarray(counts[: len(X)] @ counts[len(X) :].T)
        from kernelmosaic.kernels._numba_pairs import shared_words

        if Y is X:
            return np.asarray(shared_words(words, ends, words, ends, n_numbers))
        split = ends[len(X) - 1]
        left_ends = ends[: len(X)]
        right_ends = ends[len(X) :] - split
        K = shared_words(words[:split], left_ends, words[split:], right_ends, n_numbers)
        return np.asarray(K)

    def _diagonal(self, X: MatrixLike) -> Array:
        words, ends, n_numbers = self._words(X)
        owners = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        # One key for every pair of a string and a word.
        keys, counts = np.unique(owners * n_numbers + words, return_counts=True)
        squares = counts.astype(np.float64) ** 2
        diagonal = np.bincount(keys // max(n_numbers, 1), squares, len(ends))
        return diagonal.astype(np.float64, copy=False)

    def _words(self, X: Sequences) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Return the words of all strings as numbers, with an end for each string.

        Returns
        -------
        words : ndarray of int
            The numbers of all words, one string after the other.
        ends : ndarray of int of shape (len(X),)
            The position behind the last word of every string.
        n_numbers : int
            A bound: all numbers are below it.
        """
        n_letters = lengths(X)
        # For every letter, the number of letters from it to the end of its string: a word starts
        # only where it does not run into the next string.
        remaining = np.repeat(np.cumsum(n_letters), n_letters) - np.arange(n_letters.sum())
        starts = np.flatnonzero(remaining >= self.length)
        words, n_numbers = _word_numbers(letter_codes(X), starts, self.length)
        return words, np.cumsum(np.maximum(n_letters - self.length + 1, 0)), n_numbers

    def _check_parameters(self) -> None:
        check_count("length", self.length)


def _word_numbers(
    codes: NDArray[np.uint32], starts: Indices, length: int
) -> tuple[NDArray[np.int64], int]:
    """Return the numbers of the words at `starts`, and a bound above them.

    Equal words have equal numbers. A number has the letters for digits, as long as there are at
    most `_MAX_WORD_NUMBERS` numbers; beyond that, the words that occur are numbered in order.

    Parameters
    ----------
    codes : ndarray of int
        The letters of all strings, one string after the other.
    starts : ndarray of int
        The positions of the first letters of words.
    length : int
        The letters of a word.
    """
    n_letters, letters = _renumbered(codes)
    # Words are numbered at all positions, also where they run from a string into the next one:
    # slices are faster than picking the letters at `starts`.
    n_positions = max(len(codes) - length + 1, 0)
    words = np.zeros(n_positions, dtype=np.int64)
    n_numbers = 1
    for i in range(length):
        if n_numbers * n_letters > _MAX_WORD_NUMBERS:
            # Leaving out the numbers that do not occur keeps them in range for every alphabet and
            # every length.
            n_numbers, words = _renumbered(words)
        words = words * n_letters + letters[i : i + n_positions]
        n_numbers = n_numbers * n_letters
    return words[starts], n_numbers


def _renumbered(values: AnyArray) -> tuple[int, AnyArray]:
    """Return the number of distinct values, and the rank of each value among them."""
    n_numbers = int(values.max(initial=0)) + 1
    if n_numbers > _MAX_WORD_NUMBERS:
        distinct, ranks = np.unique(values, return_inverse=True)
        return len(distinct), ranks
    occurs = np.zeros(n_numbers, dtype=bool)
    occurs[values] = True
    rank_of = np.cumsum(occurs) - 1
    return int(rank_of[-1]) + 1, rank_of[values]


class WeightedDegree(SequenceKernel):
    """k(x, z) = Σ_{d=1..D} β_d Σ_l 1[x[l:l+d] = z[l:l+d]], β_d = 2(D − d + 1) / (D(D + 1)).

    The words of up to D letters that both strings have at the same position are counted. All
    strings must have the same length.

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
        # Imported here, since Numba takes long to load and other kernels do not need it.
        from kernelmosaic.kernels._numba_pairs import matching_words

        _check_length(X, len(Y[0]))
        columns = np.ascontiguousarray(_letters(Y).T)
        return np.asarray(matching_words(_letters(X), columns, float(self.degree), Y is X))

    def _diagonal(self, X: MatrixLike) -> Array:
        d = np.arange(1, self.degree + 1)
        beta = 2.0 * (self.degree - d + 1) / (self.degree * (self.degree + 1.0))
        # A string of L letters has L - d + 1 words of length d, all of which match.
        return np.full(len(X), beta @ np.maximum(len(X[0]) - d + 1, 0))

    def _check_parameters(self) -> None:
        check_count("degree", self.degree)


def _check_length(X: Sequences, length: int) -> None:
    """Raise a ValueError that names the first string of another length."""
    is_different = lengths(X) != length
    if is_different.any():
        i = int(np.argmax(is_different))
        raise ValueError(
            f"X[{i}] has {len(X[i])} letters, but others have {length}: WeightedDegree compares"
            " letters at the same place; cut or pad the strings to one length, or use Spectrum."
        )


def _letters(X: Sequences) -> NDArray[np.uint32]:
    """Return the letters of strings of one length, a row per string."""
    return letter_codes(X).reshape(len(X), -1)


class SmithWaterman(FeatureKernel, SequenceKernel):
    """k(x, z) = Σ_t s_t(x) s_t(z), s_t(x) = SW(x, t) / √(SW(x, x) SW(t, t)).

    The sum is over the training strings t, and SW is the score of the best local alignment. The
    scores are not a kernel: their matrix has negative eigenvalues. Here a string is described by
    its scores against every training string, each between 0 and 1, and strings are compared by the
    inner product of these descriptions. That is positive semi-definite whatever the scores are, and
    a new string is described exactly as a training string is, so test-versus-train blocks agree
    with the training matrix.

    `fit` stores the training strings and their descriptions: n²/2 alignments and one matrix. A
    string outside the training set costs n alignments each time a block is computed for it.

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
        index = {s: i for i, s in enumerate(dict.fromkeys(self.sequences_))}
        rows = [index[s] for s in self.sequences_]
        S = self._scores(list(index))[np.ix_(rows, rows)]
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
        """Return the normalised scores of strings against the training strings.

        The shape is (len(X), n). Scores of training strings are stored. Each other string is
        aligned once, however often it occurs in X.
        """
        # The row of `features` for each string: training strings, then new ones.
        row_of = {s: i for i, s in enumerate(self.sequences_)}
        new_strings = list(dict.fromkeys(s for s in X if s not in row_of))
        features = self.features_
        if new_strings:
            row_of.update((s, len(features) + i) for i, s in enumerate(new_strings))
            S = self._scores(new_strings, list(self.sequences_))
            n_threads = _threads(sum(len(s) ** 2 for s in new_strings))
            # One string by one: together they would be aligned with each other, too.
            own_scores = map_threads(lambda s: self._scores([s])[0, 0], new_strings, n_threads)
            new_features = _normalised(S, np.array(own_scores), self.own_scores_)
            features = np.vstack([features, new_features])
        return features[[row_of[s] for s in X]]

    def _scores(self, queries: list[str], targets: list[str] | None = None) -> Array:
        """Return the scores of queries against targets, or of queries against each other.

        The result has the shape (len(queries), len(targets)), or is square without targets.
        """
        # Imported here, since Numba takes long to load and other kernels do not need it.
        from kernelmosaic.kernels._numba_pairs import LANES, local_scores

        # 1. Letters become their numbers in the substitution table; unlisted ones that of "*".
        letters, table = _substitution(self.matrix)
        strings = np.array(queries + (targets or []), dtype=object)
        sizes = lengths(strings)
        stops = np.cumsum(sizes)
        number = np.full(128, letters.index("*"), dtype=np.uint8)
        for i, letter in enumerate(letters):
            number[[ord(letter), ord(letter.lower())]] = i
        codes = number[letter_codes(strings)]
        first_target = 0 if targets is None else len(queries)
        S = np.zeros((len(queries), len(strings) - first_target))

        def align(task: tuple[Indices, Indices]) -> None:
            """Write the scores of some queries against a block of at most `LANES` targets."""
            rows, block = task
            # One column per target, padded by the number behind the last letter.
            padded = np.full((sizes[block].max(), LANES), len(letters), dtype=np.uint8)
            for lane, target in enumerate(block):
                padded[: sizes[target], lane] = codes[stops[target] - sizes[target] : stops[target]]
            max_score = int(min(sizes[rows].max(), len(padded))) * int(table.max())
            # A gap that costs the highest score or more is never part of a best alignment.
            gap_open = min(int(self.gap_open), max_score)
            gap_extend = min(int(self.gap_extend), max_score)
            fits_16_bits = max(max_score, gap_open + gap_extend) < 2**15
            scores = np.empty((len(rows), LANES), dtype=np.int16 if fits_16_bits else np.int32)
            starts = stops[rows] - sizes[rows]
            local_scores(codes, starts, stops[rows], padded, table, gap_open, gap_extend, scores)
            S[np.ix_(rows, block - first_target)] = scores[:, : len(block)]

        # 2. Targets of about the same length are aligned together, the longest first. Without
        # targets, a block's queries are its own strings and all later ones: one of two strings is
        # the query, and its score is copied to the other triangle.
        order = first_target + np.argsort(-sizes[first_target:], kind="stable")
        tasks = []
        for lanes in row_strips(len(order), LANES):
            rows = order[lanes.start :] if targets is None else np.arange(first_target)
            tasks += [
                (rows[strip], order[lanes]) for strip in row_strips(len(rows), _QUERIES_PER_TASK)
            ]
        n_cells = float(sizes[: len(queries)].sum()) * float(sizes[first_target:].sum())
        map_threads(align, tasks, _threads(n_cells))
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


def _normalised(S: AnyArray, own_scores: AnyArray, target_scores: AnyArray) -> Array:
    """Return S_ij / √(own_i · target_j), and zero where either score is zero.

    A string of unknown letters only has a score of zero with every string, itself included.
    """
    norms = np.sqrt(np.outer(own_scores, target_scores))
    return np.asarray(np.divide(S, norms, out=np.zeros_like(S), where=norms > 0))


def _threads(n_cells: float) -> int:
    """Return the number of threads for alignments with so many cells."""
    return allowed_threads() if n_cells > _CELLS_FOR_THREADS else 1


@cache
def _tables() -> dict[str, list[str]]:
    """Return the substitution scores of the package's file, by the names of the matrices.

    The first word of each is the string of its letters; the others are the lower triangle.
    """
    text = files("kernelmosaic.kernels").joinpath("substitution.txt").read_text("utf-8")
    return {words[0]: words[1:] for words in map(str.split, text.splitlines()) if words[0] != "#"}


@cache
def _substitution(name: str) -> tuple[str, NDArray[np.int8]]:
    """Return the letters of a substitution matrix, and their scores, one row per letter.

    The last column is zero: it belongs to the padding behind the end of a string.
    """
    letters, *scores = _tables()[name]
    table = np.zeros((len(letters), len(letters) + 1), dtype=np.int8)
    rows, columns = np.tril_indices(len(letters))
    triangle = np.array(scores, dtype=np.int8)
    table[columns, rows] = triangle
    table[rows, columns] = triangle
    return letters, table
