"""Kernels between strings: shared words, words at the same place, local alignment."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, MatrixLike, TargetLike
from kernelmosaic.kernels.base import Block, Kernel, is_whole

Sequences = NDArray[np.object_]


class SequenceKernel(Kernel):
    """A kernel between strings: X is a list, an array, a column or a series of `str` or `bytes`, one per sample.

    Letters are compared as they are written: ``"a"`` is not ``"A"``.
    """

    input_kind: ClassVar[str] = "sequences"

    def validate(self, X: MatrixLike) -> Sequences:
        """Return X as a vector of non-empty `str`, or raise naming what is wrong."""
        if isinstance(X, str | bytes):
            raise TypeError(
                f"X is one string, {X[:20]!r}: {type(self).__name__} needs a list of strings, one per sample."
            )
        strings = np.asarray(X, dtype=object)
        if strings.ndim == 2 and strings.shape[1] == 1:
            strings = strings[:, 0]
        if strings.ndim != 1 or strings.size == 0:
            raise ValueError(
                f"X has shape {strings.shape}: {type(self).__name__} needs one string per sample: a list or one column."
            )
        if all(type(s) is str and s for s in strings):
            return strings
        result = np.empty(strings.size, dtype=object)
        result[:] = [self._read(s, i) for i, s in enumerate(strings)]
        return result

    def _read(self, value: object, position: int) -> str:
        if not isinstance(value, str | bytes):
            raise TypeError(
                f"X[{position}] is {value!r}, a {type(value).__name__}: {type(self).__name__} needs str or bytes."
            )
        if not value:
            raise ValueError(
                f"X[{position}] is empty: {type(self).__name__} needs a letter at least; leave the sample out."
            )
        # Latin-1 reads every byte as the letter of the same number, so no bytes are refused.
        return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def letter_codes(X: Sequences) -> NDArray[np.uint32]:
    """Return the numbers of all letters, one string after the other."""
    return np.frombuffer("".join(X).encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint32, copy=False)


def lengths(X: Sequences) -> NDArray[np.intp]:
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
    Leslie, Eskin and Noble (2002), "The spectrum kernel: a string kernel for SVM protein classification".

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
        # Counts of all words, multiplied as matrices, beat meeting equal words one by one where there are few of them.
        if count <= 3 * words.size / max(len(ends), 1):
            counts = _counts(words, ends, count)
            return np.asarray(counts @ counts.T if Y is X else counts[: len(X)] @ counts[len(X) :].T)
        from kernelmosaic.kernels._numba_pairs import shared_words

        if Y is X:
            return np.asarray(shared_words(words, ends, words, ends, count))
        first = ends[len(X) - 1]
        return np.asarray(shared_words(words[:first], ends[: len(X)], words[first:], ends[len(X) :] - first, count))

    def _diagonal(self, X: MatrixLike) -> NDArray[np.float64]:
        words, ends, count = self._words(X)
        owner = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        keys, times = np.unique(owner * count + words, return_counts=True)
        squares = times.astype(np.float64) ** 2
        return np.bincount(keys // max(count, 1), squares, len(ends)).astype(np.float64, copy=False)

    def _words(self, X: Sequences) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Return the numbers of all words, one string after the other, where each string's end, and their count."""
        n_letters = lengths(X)
        # Where words may start: not so near the end of a string that they would run into the next one.
        left = np.repeat(np.cumsum(n_letters), n_letters) - np.arange(n_letters.sum())
        words, count = _word_numbers(letter_codes(X), np.flatnonzero(left >= self.length), self.length)
        return words, np.cumsum(np.maximum(n_letters - self.length + 1, 0)), count

    def _check_parameters(self) -> None:
        if not is_whole(self.length):
            raise ValueError(f"length={self.length!r}: the length of the words must be a positive integer.")


def _word_numbers(
    codes: NDArray[np.uint32], starts: NDArray[np.intp], length: int, most: int = 2**18
) -> tuple[NDArray[np.int64], int]:
    """Number the words at the given starts, equal words alike; return the numbers, and a bound above them.

    Up to so many numbers words are numbered as their letters say, and by those that occur beyond.
    """
    letters, numbers = _renumbered(codes)
    # Everywhere first, strings run into each other: slices are faster than picking the starts for every letter.
    places = max(len(codes) - length + 1, 0)
    words, count = np.zeros(places, dtype=np.int64), 1
    for i in range(length):
        # Numbers of words that do not occur are left out where there are many: for every alphabet and length.
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


def _counts(words: NDArray[np.int64], ends: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Return how often each word is in each string."""
    owner = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    return np.bincount(owner * count + words, minlength=len(ends) * count).reshape(len(ends), count).astype(np.float64)


class WeightedDegree(SequenceKernel):
    """k(x, z) = Σ_{d=1..D} β_d Σ_l 1[x[l:l+d] = z[l:l+d]], β_d = 2(D − d + 1) / (D(D + 1)).

    Counts the words, of up to D letters, that both strings have at the same place. All strings must have one length.

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

    def _diagonal(self, X: MatrixLike) -> NDArray[np.float64]:
        d = np.arange(1, self.degree + 1)
        beta = 2.0 * (self.degree - d + 1) / (self.degree * (self.degree + 1.0))
        # A string of L letters has L - d + 1 words of length d, all of which match.
        return np.full(len(X), beta @ np.maximum(len(X[0]) - d + 1, 0))

    def _check_parameters(self) -> None:
        if not is_whole(self.degree):
            raise ValueError(f"degree={self.degree!r}: the length of the longest word must be a positive integer.")


def _check_length(X: Sequences, length: int) -> None:
    other = lengths(X) != length
    if other.any():
        i = int(np.argmax(other))
        raise ValueError(
            f"X[{i}] has {len(X[i])} letters, but others have {length}: WeightedDegree compares letters at the same "
            "place; cut or pad the strings to one length, or use Spectrum."
        )


def _letters(X: Sequences) -> NDArray[np.uint32]:
    return letter_codes(X).reshape(len(X), -1)


class SmithWaterman(SequenceKernel):
    """k(x, z) = Σ_t s_t(x) s_t(z), s_t(x) = SW(x, t) / √(SW(x, x) SW(t, t)), over the training strings t.

    SW is the score of the best local alignment. Scores themselves are no kernel: their matrix has negative eigenvalues.
    Here a string is described by its scores against every training string, each between 0 and 1, and strings are
    compared by the inner product of these descriptions. That is positive semi-definite whatever the scores are, and a
    new string is described exactly as a training string is, so test-versus-train blocks agree with the training matrix.

    `fit` keeps the training strings and their descriptions: n²/2 alignments and one matrix. A string outside the
    training set costs n alignments each time it is met. Needs parasail.

    Parameters
    ----------
    matrix : str, default="blosum62"
        Substitution scores: a matrix that parasail has by this name, such as ``"blosum50"``, ``"pam250"`` or, for
        nucleotides, ``"nuc44"``. Letters it does not list count as its ``*``; case does not matter.
    gap_open, gap_extend : int, default=11 and 1
        A gap of n letters costs gap_open + (n − 1) gap_extend.

    Attributes
    ----------
    sequences_ : ndarray of str
        The training strings.
    features_ : ndarray of shape (n, n)
        Their descriptions, one row per string.

    References
    ----------
    Liao and Noble (2003), "Combining pairwise sequence similarity and support vector machines for detecting remote
    protein evolutionary and structural relationships".

    Examples
    --------
    >>> from kernelmosaic.kernels import SmithWaterman
    >>> K = SmithWaterman()([["ACGTACGT"], ["TTACGTAC"], ["GGGGGGGG"]])  # needs parasail
    >>> bool(K[0, 1] > K[0, 2])
    True
    """

    learned: ClassVar[str] = "features_"

    def __init__(self, matrix: str = "blosum62", gap_open: int = 11, gap_extend: int = 1) -> None:
        self.matrix = matrix
        self.gap_open = gap_open
        self.gap_extend = gap_extend

    def fit(self, X: MatrixLike, y: TargetLike = None) -> Self:
        self.sequences_ = self.validate(X)
        self._check_parameters()
        # Strings that repeat are aligned once.
        place = {s: i for i, s in enumerate(dict.fromkeys(self.sequences_))}
        rows = [place[s] for s in self.sequences_]
        self.features_ = self._normalised_scores(list(place), None)[np.ix_(rows, rows)]
        return self

    def validate(self, X: MatrixLike) -> Sequences:
        strings: Sequences = super().validate(X)
        for i, s in enumerate(strings):
            if not s.isascii():
                raise ValueError(f"X[{i}] is {s[:20]!r}: SmithWaterman aligns letters of the ASCII alphabet only.")
        return strings

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        features = self._features(X)
        return np.asarray(features @ (features if Y is X else self._features(Y)).T)

    def _diagonal(self, X: MatrixLike) -> NDArray[np.float64]:
        features = self._features(X)
        return np.asarray(np.einsum("ij,ij->i", features, features))

    def _features(self, X: Sequences) -> NDArray[np.float64]:
        known = {s: i for i, s in enumerate(self.sequences_)}
        new = list(dict.fromkeys(s for s in X if s not in known))
        features = self.features_
        if new:
            known.update((s, len(features) + i) for i, s in enumerate(new))
            features = np.vstack([features, self._normalised_scores(new, list(self.sequences_))])
        return features[[known[s] for s in X]]

    def _normalised_scores(self, queries: list[str], targets: list[str] | None) -> NDArray[np.float64]:
        """Return the scores of queries against targets, or against each other, over those against themselves."""
        score = self._scorer()
        if targets is None:
            S = np.zeros((len(queries), len(queries)))
            for i, query in enumerate(queries):
                S[i, i:] = S[i:, i] = score(query, queries[i:])
            own = own_targets = S.diagonal()
        else:
            S = np.array([score(query, targets) for query in queries], dtype=np.float64)
            own, own_targets = (np.array([score(s, [s])[0] for s in strings]) for strings in (queries, targets))
        norms = np.sqrt(np.outer(own, own_targets))
        # A string that does not even match itself, being all unknown letters, scores 0 with all.
        return np.divide(S, norms, out=np.zeros_like(S), where=norms > 0)

    def _scorer(self) -> Any:
        """Return a function of one string and several others that gives the score with each."""
        parasail = _parasail()
        table = getattr(parasail, self.matrix)
        gaps = int(self.gap_open), int(self.gap_extend)
        # The faster of the two misses some alignments where a gap costs no more to open than to extend.
        align = parasail.sw_striped_profile_sat if gaps[0] > gaps[1] else parasail.sw_scan_profile_sat

        def score(query: str, targets: list[str]) -> list[int]:
            profile = parasail.profile_create_sat(query, table)
            return [align(profile, target, *gaps).score for target in targets]

        return score

    def _check_parameters(self) -> None:
        for name in ("gap_open", "gap_extend"):
            value = getattr(self, name)
            if not is_whole(value, 0):
                raise ValueError(f"{name}={value!r}: the cost of a gap must be an integer of at least 0.")
        if self.gap_open < self.gap_extend:
            raise ValueError(
                f"gap_open={self.gap_open} is less than gap_extend={self.gap_extend}: opening a gap must cost at least "
                "as much as making it longer."
            )
        parasail = _parasail()
        if not isinstance(self.matrix, str) or not isinstance(getattr(parasail, self.matrix, None), parasail.Matrix):
            raise ValueError(
                f"matrix={self.matrix!r}: parasail has no such substitution matrix; it has 'blosum30' to 'blosum100', "
                "'pam10' to 'pam500' and, for nucleotides, 'nuc44' and 'dnafull'."
            )


def _parasail() -> Any:
    try:
        import parasail
    except ImportError as error:
        raise ImportError('SmithWaterman needs parasail: pip install "kernelmosaic[sequences]"') from error
    return parasail
