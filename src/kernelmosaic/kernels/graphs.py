"""Kernels between graphs: labels of nodes refined from neighbour to neighbour, and lengths of
shortest paths."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from hashlib import blake2b
from itertools import chain
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelmosaic._checks import check_choice
from kernelmosaic._typing import AnyArray, Array, Indices, MatrixLike, RowIndex
from kernelmosaic.kernels.base import Block, Kernel, is_whole
from kernelmosaic.kernels.distances import pairwise_statistic
from kernelmosaic.kernels.tanimoto import shared_counts

# Labels are numbers of 64 bits, those after an iteration hashes of those before it. They are a
# function of the graph alone: nothing is learned, kernels of several iterations share them, and a
# label that no training graph has is as good as any other, between two new graphs and on the
# diagonal, too. A dictionary, which two labels never collide in, would have to be kept by every
# fitted kernel and to grow with every new graph. Of a million different labels two are taken for
# one with a probability of 3e-8.
Labels = NDArray[np.uint64]
#: Apart from each other, so that a label as own, as neighbour's and as length of a path are
#: different numbers.
_OWN, _NEIGHBOUR, _LENGTH = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xC2B2AE3D27D4EB4F),
    np.uint64(0x165667B19E3779F9),
)


def _mixed(values: Labels) -> Labels:
    """Return a number for each, different for different ones, whose sums are as if drawn at random
    (splitmix64)."""
    x = values ^ (values >> np.uint64(30))
    x = x * np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


@dataclass(frozen=True, eq=False)
class Bags:
    """Values of several graphs, one graph after the other; those of graph i are ``values[ends[i] :
    ends[i + 1]]``."""

    ends: Indices
    values: AnyArray

    @property
    def owners(self) -> Indices:
        """Which graph every value is of."""
        return np.repeat(np.arange(len(self.ends) - 1), np.diff(self.ends))

    def take(self, rows: RowIndex) -> Bags:
        """Return those of some graphs."""
        sizes = np.diff(self.ends)[rows]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        return Bags(
            ends,
            self.values[np.arange(ends[-1]) + np.repeat(self.ends[:-1][rows] - ends[:-1], sizes)],
        )


@dataclass(frozen=True, eq=False)
class GraphSet:
    """Graphs as the kernels read them; slices by rows.

    Attributes
    ----------
    labels : Bags of uint64
        The label of every node.
    arcs : Bags of int, two columns
        Every edge in both directions, its nodes numbered from 0 in each graph.
    known : dict
        What was computed of them: labels by the number of iterations, and paths.
    """

    labels: Bags
    arcs: Bags
    known: dict[int | str, Bags] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int]:
        return (len(self.labels.ends) - 1,)

    def __getitem__(self, rows: RowIndex) -> GraphSet:
        return GraphSet(self.labels.take(rows), self.arcs.take(rows))

    def __reduce__(self) -> tuple[type[GraphSet], tuple[Bags, Bags]]:
        return GraphSet, (self.labels, self.arcs)  # what was computed is computed again

    def refined(self, iterations: int) -> Bags:
        """Return the labels after some iterations: each is that of a node with those of its
        neighbours before."""
        for h in range(1, iterations + 1):
            if h not in self.known:
                before = self.known.get(h - 1, self.labels).values
                tails, heads = self._links()
                # A sum does not depend on the order of the neighbours; it is taken modulo 2⁶⁴.
                sums = _mixed(before + _OWN)
                np.add.at(sums, tails, _mixed(before + _NEIGHBOUR)[heads])
                self.known[h] = Bags(self.labels.ends, _mixed(sums))
        return self.known.get(iterations, self.labels)

    def paths(self) -> Bags:
        """Return a number for every two nodes that a path joins: of their labels and the length of
        the shortest."""
        if "paths" not in self.known:
            labels, owners = _mixed(self.labels.values + _NEIGHBOUR), self.labels.owners
            codes, graphs = [labels[:0]], [owners[:0]]
            for length, (first, second) in enumerate(self._pairs(), start=1):
                code = _mixed(np.array([length], dtype=np.uint64) + _LENGTH)
                codes.append(_mixed(labels[first] + labels[second] + code))
                graphs.append(owners[first])
            of = np.concatenate(graphs)
            order, ends = (
                np.argsort(of, kind="stable"),
                np.cumsum(np.bincount(of, minlength=self.shape[0])),
            )
            self.known["paths"] = Bags(np.concatenate([[0], ends]), np.concatenate(codes)[order])
        return self.known["paths"]

    def _pairs(self) -> Iterator[tuple[Indices, Indices]]:
        """Yield the pairs of nodes, numbered in the set, whose distance is 1, 2, …: of all graphs
        at once."""
        tails, heads = self._links()
        n = len(self.labels.values)
        links = sparse.csr_array(
            (np.ones(len(tails), dtype=np.int32), (tails, heads)), shape=(n, n)
        )
        before, pairs = (
            sparse.csr_array((n, n), dtype=np.int32),
            sparse.eye_array(n, dtype=np.int32, format="csr"),
        )
        while pairs.nnz:
            # Neighbours of what is d away are d − 1, d or d + 1 away.
            near = links @ pairs
            near.data[:] = 1
            before, pairs = pairs, near - near.multiply(pairs) - near.multiply(before)
            pairs.eliminate_zeros()
            first, second = pairs.nonzero()
            yield first[first < second], second[first < second]

    def _links(self) -> AnyArray:
        """Return both ends of every arc, numbered in the set."""
        return (self.arcs.values + self.labels.ends[self.arcs.owners][:, np.newaxis]).T


# Graphs as they are given -------------------------------------------------------------------------


def graph_table(X: MatrixLike) -> MatrixLike:
    """Return a list of graphs as a table of one column, a list of lists row by row, and what has a
    shape as it is.

    NumPy would take a graph for a sequence and make rows of what it holds.
    """
    if hasattr(X, "shape"):
        return X
    rows = [one if isinstance(one, list) else [one] for one in X] if hasattr(X, "__iter__") else []
    if len({len(row) for row in rows}) != 1:
        raise ValueError(
            "X has no graphs, or rows of different lengths: give a list of graphs, each (edges,"
            " labels), or rows."
        )
    table = np.empty((len(rows), len(rows[0])), dtype=object)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            table[i, j] = value
    return table


def _read(graph: Any, name: str) -> tuple[Indices, int, Sequence[Hashable] | None]:
    """Return the edges of a graph, how many nodes it has, and their labels if there are any."""
    if hasattr(graph, "nodes") and hasattr(graph, "edges"):
        graph = _from_networkx(graph, name)
    if not isinstance(graph, tuple) or len(graph) != 2:
        raise TypeError(
            f"{name} is {str(graph)[:40]!r}, a {type(graph).__name__}: a graph is a tuple (edges,"
            " labels), two node numbers for every edge and one label for every node, or a graph of"
            " networkx."
        )
    given, labels = graph
    try:
        edges = np.asarray(given)
    except ValueError:  # rows of different lengths
        edges = np.empty(len(given), dtype=object)
    edges = np.empty((0, 2), dtype=np.intp) if edges.size == 0 else edges
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise ValueError(
            f"{name}: the edges have shape {edges.shape} and dtype {edges.dtype}; give two node"
            " numbers for every edge, such as [(0, 1), (1, 2)]."
        )
    if not is_whole(labels, 0) and not hasattr(labels, "__iter__"):
        raise TypeError(
            f"{name}: the labels are {labels!r}; give one for every node, or the number of nodes"
            " for degrees as labels."
        )
    listed = (
        None
        if is_whole(labels, 0)
        else labels.tolist()
        if isinstance(labels, np.ndarray)
        else list(labels)
    )
    n_nodes = int(labels) if listed is None else len(listed)
    wrong = (edges < 0) | (edges >= n_nodes)
    if wrong.any():
        raise ValueError(
            f"{name} has an edge to node {edges[wrong][0]}, and {n_nodes} nodes: number them from 0"
            f" to {n_nodes - 1}, and give every node a label."
        )
    return edges.astype(np.intp), n_nodes, listed


def _from_networkx(graph: Any, name: str) -> tuple[list[tuple[int, int]], Any]:
    if graph.is_directed():
        raise ValueError(
            f"{name} is directed: kernels read graphs without directions; give"
            " graph.to_undirected()."
        )
    number = {node: i for i, node in enumerate(graph.nodes())}
    labels = [data.get("label") for _, data in graph.nodes(data=True)]
    missing = sum(label is None for label in labels)
    if 0 < missing < len(labels):
        raise ValueError(
            f"{name}: {missing} of {len(labels)} nodes have no 'label'; give one to every node or"
            " to none."
        )
    return [(number[u], number[v]) for u, v in graph.edges()], len(labels) if missing else labels


def _codes(labels: Sequence[Any]) -> Labels:
    """Return 64 bits for every label, the same in every process; a whole number is what it is
    written as."""
    try:
        distinct: Sequence[Any] = list(dict.fromkeys(labels))
    except TypeError:  # something that is no label, and is found below
        distinct = labels
    codes = {}
    for label in distinct:
        whole = isinstance(label, Integral) or (
            isinstance(label, Real) and float(label).is_integer()
        )
        if not whole and not isinstance(label, str):
            raise TypeError(
                f"X has a node with the label {label!r}, a {type(label).__name__}: labels are"
                " strings or whole numbers; give the nodes' kinds, or the number of nodes in place"
                " of labels."
            )
        text = str(int(label)) if whole else label
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        codes[label] = int.from_bytes(digest, "little")
    return np.fromiter((codes[label] for label in labels), dtype=np.uint64, count=len(labels))


class GraphKernel(Kernel):
    """A kernel between graphs: X is a list, an array, a column or a series with one graph per
    sample.

    A graph is a tuple ``(edges, labels)``: two node numbers for every edge, counted from 0, and one
    label for every node, a string or a whole number. The number of nodes in place of the labels
    makes their degrees the labels. A graph of networkx has its labels in the node attribute
    ``"label"``, or none. Edges have no direction; repeated ones count once, loops not at all. A
    graph may have nodes without edges, or no nodes.
    """

    input_kind: ClassVar[str] = "graphs"

    def validate(self, X: MatrixLike) -> GraphSet:
        """Return X as a set of graphs, or raise naming what is wrong."""
        if isinstance(X, GraphSet):
            return X
        table = graph_table(X)
        if len(table.shape) == 2 and table.shape[1] == 1:
            table = np.asarray(table)[:, 0]
        if len(table.shape) != 1 or len(table) == 0:
            raise ValueError(
                f"X has shape {tuple(table.shape)}: {type(self).__name__} needs one graph per"
                " sample, a tuple (edges, labels); give a list of them, or one column."
            )
        return _graph_set([_read(graph, f"X[{i}]") for i, graph in enumerate(table)])

    @abstractmethod
    def _bags(self, X: GraphSet) -> list[Bags]:
        """Return the values by which graphs are compared, and whose comparisons are added."""

    def _compare(self, left: MatrixLike, right: MatrixLike) -> Block:
        """Compare all graphs by how often each value is in them."""
        return pairwise_statistic("products", left, right)

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        if Y is X:
            return reduce(
                np.add, (self._compare(one, one) for bags in self._bags(X) for one in _counts(bags))
            )
        pairs = zip(self._bags(X), self._bags(Y), strict=True)
        return reduce(np.add, (self._compare(*_counts(*pair)) for pair in pairs))

    def _diagonal(self, X: MatrixLike) -> Array:
        return np.asarray(
            np.sum([self._own(one) for bags in self._bags(X) for one in _counts(bags)], axis=0),
            np.float64,
        )

    def _own(self, counts: MatrixLike) -> AnyArray:
        """Compare every graph with itself."""
        return np.asarray(counts.multiply(counts).sum(axis=1))


def _graph_set(read: list[tuple[Indices, int, Sequence[Hashable] | None]]) -> GraphSet:
    """Put graphs one after the other; each has its edges, the number of its nodes and their labels
    or None."""
    ends, edge_ends = (
        np.concatenate([[0], np.cumsum(sizes)])
        for sizes in ([n for _, n, _ in read], [len(edges) for edges, _, _ in read])
    )
    edges = np.concatenate([edges for edges, _, _ in read])
    tails, heads = (edges + np.repeat(ends[:-1], np.diff(edge_ends))[:, np.newaxis]).T
    n = max(int(ends[-1]), 1)
    # Every edge once in each direction, in the order of the graphs, and no loops.
    pairs = np.unique(
        np.concatenate([tails * n + heads, heads * n + tails])[np.tile(tails != heads, 2)]
    )
    tails, heads = pairs // n, pairs % n
    owners = np.searchsorted(ends, tails, side="right") - 1
    arcs = np.column_stack([tails, heads]) - ends[owners][:, np.newaxis]
    degrees = np.bincount(tails, minlength=ends[-1])
    labels = (
        degrees[start:stop].tolist() if own is None else own
        for (_, _, own), start, stop in zip(read, ends[:-1], ends[1:], strict=True)
    )
    codes = _codes(list(chain.from_iterable(labels)))
    return GraphSet(Bags(ends, codes), Bags(np.searchsorted(owners, np.arange(len(ends))), arcs))


def _counts(*bags: Bags) -> list[MatrixLike]:
    """Return how often each value is in each graph: a sparse matrix for each of the bags, with
    columns in common."""
    found, columns = np.unique(np.concatenate([one.values for one in bags]), return_inverse=True)
    parts = np.split(columns, np.cumsum([len(one.values) for one in bags])[:-1])
    return [
        sparse.csr_array(
            (np.ones(len(part)), (one.owners, part)), shape=(len(one.ends) - 1, max(len(found), 1))
        )
        for one, part in zip(bags, parts, strict=True)
    ]


class WeisfeilerLehman(GraphKernel):
    """k(x, z) = Σ_h k_h(x, z), k_h by the labels of the nodes after h iterations; estimators learn
    a weight for each.

    An iteration gives every node a new label, which encodes its own and those of its neighbours:
    after h of them two nodes have the same label if their neighbourhoods of h edges are the same.
    Let c be the count of a label. Then k_h(x, z) = Σ_l c_l(x) c_l(z) with ``mode="subtree"``, and
    Σ_l min(c_l(x), c_l(z)) with ``mode="assignment"``: the most nodes that can be assigned to each
    other.

    In an estimator ``WeisfeilerLehman(5)`` is six kernels, ``weisfeilerlehman[0]`` to
    ``weisfeilerlehman[5]``, whose labels are computed once. By itself, and in sums and products, it
    is their sum, the kernel of the papers. ``normalize="diagonal"`` of the estimator gives cosines,
    which do not grow with the graphs.

    Parameters
    ----------
    iterations : int or sequence of int, default=5
        The last iteration, from 0 on, or a list of iterations. Those of number 0 are the labels as
        given.
    mode : {"subtree", "assignment"}, default="subtree"
        How graphs are compared.

    Notes
    -----
    X holds tuples ``(edges, labels)``, or graphs of networkx: see "Kernels" in the documentation.
    Labels of iterations are hashes of 64 bits, the same in every process, so that nothing is
    learned, and a new graph may have new labels.

    References
    ----------
    Shervashidze, Schweitzer, van Leeuwen, Mehlhorn and Borgwardt (2011), "Weisfeiler-Lehman graph
    kernels".

    Kriege, Giscard and Wilson (2016), "On valid optimal assignment kernels and applications to
    graph classification".

    Examples
    --------
    >>> from kernelmosaic.kernels import WeisfeilerLehman
    >>> chain = ([(0, 1), (1, 2)], ["C", "C", "O"])
    >>> ring = ([(0, 1), (1, 2), (2, 0)], ["C", "C", "O"])
    >>> WeisfeilerLehman(1)([chain, ring])
    array([[ 8.,  7.],
           [ 7., 10.]])
    """

    def __init__(self, iterations: int | Sequence[int] = 5, mode: str = "subtree") -> None:
        self.iterations = iterations
        self.mode = mode

    def terms(self) -> dict[str, Kernel]:
        """Return the kernel of every iteration."""
        self._check_parameters()
        several = {f"[{h}]": type(self)([h], self.mode) for h in self._numbers()}
        return {"": self} if len(several) == 1 else dict(several)

    def _numbers(self) -> list[int]:
        given: Any = self.iterations
        return [int(h) for h in (range(given + 1) if is_whole(given, 0) else given)]

    def _bags(self, X: GraphSet) -> list[Bags]:
        return [X.refined(h) for h in self._numbers()]

    def _compare(self, left: MatrixLike, right: MatrixLike) -> Block:
        return (
            shared_counts(left, right)
            if self.mode == "assignment"
            else super()._compare(left, right)
        )

    def _own(self, counts: MatrixLike) -> AnyArray:
        return np.asarray(counts.sum(axis=1)) if self.mode == "assignment" else super()._own(counts)

    def _check_parameters(self) -> None:
        given = self.iterations
        listed = (
            list(given)
            if isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
            else [given]
        )
        if not listed or not all(is_whole(h, 0) for h in listed) or len(set(listed)) < len(listed):
            raise ValueError(
                f"iterations={given!r}: give the last iteration, such as 5, or distinct ones, [0,"
                " 1, 2]."
            )
        check_choice("mode", self.mode, ("subtree", "assignment"))


class ShortestPath(GraphKernel):
    """k(x, z) = Σ_p c_p(x) c_p(z), c_p being how many shortest paths have the same length and
    labels at their ends.

    Every two nodes that are connected have one, whatever lies between them; a graph without edges
    has similarity 0 to all. ``normalize="diagonal"`` of the estimator gives cosines, which do not
    grow with the graphs.

    Notes
    -----
    X holds tuples ``(edges, labels)``, or graphs of networkx: see "Kernels" in the documentation.
    Takes time and memory of n² for a graph of n nodes.

    References
    ----------
    Borgwardt and Kriegel (2005), "Shortest-path kernels on graphs".

    Examples
    --------
    >>> from kernelmosaic.kernels import ShortestPath
    >>> chain = ([(0, 1), (1, 2)], ["C", "C", "O"])
    >>> ring = ([(0, 1), (1, 2), (2, 0)], ["C", "C", "O"])
    >>> ShortestPath()([chain, ring])
    array([[3., 3.],
           [3., 5.]])
    """

    def _bags(self, X: GraphSet) -> list[Bags]:
        return [X.paths()]
