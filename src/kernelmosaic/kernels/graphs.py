"""Kernels between graphs, which count refined labels of nodes or lengths of shortest paths."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from hashlib import blake2b
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

# Labels are numbers of 64 bits; the labels after an iteration are hashes of those before it. They
# are a function of the graph alone: nothing is learned, kernels of several iterations share them,
# and labels that no training graph has are compared between two new graphs, and on the diagonal, as
# any others are. A dictionary, in which two labels never collide, would have to be kept by every
# fitted kernel and would grow with every new graph. Among a million different labels, two are
# mapped to the same number with a probability of 3e-8.
Labels = NDArray[np.uint64]
#: Numbers that are added to a node's own label, to a neighbour's label and to the length of a path
#: before hashing, so that equal values in these three roles have different hashes.
_OWN = np.uint64(0x9E3779B97F4A7C15)
_NEIGHBOUR = np.uint64(0xC2B2AE3D27D4EB4F)
_LENGTH = np.uint64(0x165667B19E3779F9)


def _hashed(values: Labels) -> Labels:
    """Return a hash of every number: different for different numbers, and as if drawn at random.

    The function is the finaliser of splitmix64, a bijection of 64 bits. Sums of such hashes collide
    as rarely as random numbers do.
    """
    x = values ^ (values >> np.uint64(30))
    x = x * np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


@dataclass(frozen=True, eq=False)
class Bags:
    """Values of several graphs in one array, one graph after the other.

    The values of graph i are ``values[ends[i] : ends[i + 1]]``; ``ends[0]`` is 0.
    """

    ends: Indices
    values: AnyArray

    @property
    def owners(self) -> Indices:
        """The number of the graph of every value."""
        return np.repeat(np.arange(len(self.ends) - 1), np.diff(self.ends))

    def take(self, rows: RowIndex) -> Bags:
        """Return the values of some graphs."""
        sizes = np.diff(self.ends)[rows]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        shifts = self.ends[:-1][rows] - ends[:-1]
        positions = np.arange(ends[-1]) + np.repeat(shifts, sizes)
        return Bags(ends, self.values[positions])


@dataclass(frozen=True, eq=False)
class GraphSet:
    """Graphs in the form that the kernels read; slices by rows.

    Attributes
    ----------
    labels : Bags of uint64
        The label of every node.
    arcs : Bags of int, two columns
        Every edge in both directions, its nodes numbered from 0 in each graph.
    cache : dict
        What was computed from the graphs: labels by the number of iterations, and ``"paths"``.
    """

    labels: Bags
    arcs: Bags
    cache: dict[int | str, Bags] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int]:
        return (len(self.labels.ends) - 1,)

    def __getitem__(self, rows: RowIndex) -> GraphSet:
        return GraphSet(self.labels.take(rows), self.arcs.take(rows))

    def __reduce__(self) -> tuple[type[GraphSet], tuple[Bags, Bags]]:
        # The cache is not pickled; it is computed again when needed.
        return GraphSet, (self.labels, self.arcs)

    def refined(self, iterations: int) -> Bags:
        """Return the labels of the nodes after some iterations; all iterations are cached.

        A new label is a hash of the node's label and of the multiset of its neighbours' labels.
        """
        for h in range(1, iterations + 1):
            if h not in self.cache:
                labels = self.cache.get(h - 1, self.labels).values
                tails, heads = self._links()
                # The sum, modulo 2⁶⁴, does not depend on the order of the neighbours.
                sums = _hashed(labels + _OWN)
                np.add.at(sums, tails, _hashed(labels + _NEIGHBOUR)[heads])
                self.cache[h] = Bags(self.labels.ends, _hashed(sums))
        return self.cache.get(iterations, self.labels)

    def paths(self) -> Bags:
        """Return a number for every two nodes that a path joins; the numbers are cached.

        The number is a hash of the labels of both nodes and of the length of the shortest path.
        """
        if "paths" in self.cache:
            return self.cache["paths"]
        node_hashes = _hashed(self.labels.values + _NEIGHBOUR)
        node_graphs = self.labels.owners
        hashes = [node_hashes[:0]]
        graphs = [node_graphs[:0]]
        for length, (first, second) in enumerate(self._pairs_by_distance(), start=1):
            length_hash = _hashed(np.array([length], dtype=np.uint64) + _LENGTH)
            hashes.append(_hashed(node_hashes[first] + node_hashes[second] + length_hash))
            graphs.append(node_graphs[first])
        # So far the paths are in the order of their lengths: put those of a graph together.
        path_graphs = np.concatenate(graphs)
        order = np.argsort(path_graphs, kind="stable")
        ends = np.cumsum(np.bincount(path_graphs, minlength=self.shape[0]))
        paths = Bags(np.concatenate([[0], ends]), np.concatenate(hashes)[order])
        self.cache["paths"] = paths
        return paths

    def _pairs_by_distance(self) -> Iterator[tuple[Indices, Indices]]:
        """Yield the pairs of nodes at distance 1, then those at distance 2, and so on.

        The pairs of all graphs come together, their nodes numbered in the whole set.
        """
        tails, heads = self._links()
        n = len(self.labels.values)
        links = sparse.csr_array(
            (np.ones(len(tails), dtype=np.int32), (tails, heads)), shape=(n, n)
        )
        # Matrices of zeros and ones: the pairs at distance d - 1 and those at distance d.
        previous = sparse.csr_array((n, n), dtype=np.int32)
        current = sparse.eye_array(n, dtype=np.int32, format="csr")
        while current.nnz:
            # A neighbour of a node at distance d is at distance d − 1, d or d + 1.
            reached = links @ current
            reached.data[:] = 1
            successor = reached - reached.multiply(current) - reached.multiply(previous)
            previous = current
            current = successor
            current.eliminate_zeros()
            first, second = current.nonzero()
            yield first[first < second], second[first < second]

    def _links(self) -> AnyArray:
        """Return the tails and the heads of all arcs, their nodes numbered in the whole set."""
        return (self.arcs.values + self.labels.ends[self.arcs.owners][:, np.newaxis]).T


# Reading graphs -----------------------------------------------------------------------------------


def graph_table(X: MatrixLike) -> MatrixLike:
    """Return samples that hold graphs as a table: a list of graphs becomes one column.

    A list of lists becomes a table row by row; what has a shape is returned as it is. NumPy would
    take a graph, which is a tuple, for a sequence and make columns of what it holds.
    """
    if hasattr(X, "shape"):
        return X
    rows = []
    if hasattr(X, "__iter__"):
        rows = [sample if isinstance(sample, list) else [sample] for sample in X]
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


def _read_graph(graph: Any, name: str) -> tuple[Indices, int, Sequence[Hashable] | None]:
    """Return the edges, the number of nodes and the labels of a graph; None for no labels.

    Parameters
    ----------
    graph : tuple (edges, labels) or graph of networkx
        The labels may be the number of nodes.
    name : str
        The graph's name in messages.
    """
    if hasattr(graph, "nodes") and hasattr(graph, "edges"):
        graph = _from_networkx(graph, name)
    if not isinstance(graph, tuple) or len(graph) != 2:
        raise TypeError(
            f"{name} is {str(graph)[:40]!r}, a {type(graph).__name__}: a graph is a tuple (edges,"
            " labels), two node numbers for every edge and one label for every node, or a graph of"
            " networkx."
        )
    edge_list, labels = graph
    edges = _read_edges(edge_list, name)
    if is_whole(labels, 0):
        n_nodes = int(labels)
        label_list = None
    elif hasattr(labels, "__iter__"):
        label_list = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
        n_nodes = len(label_list)
    else:
        raise TypeError(
            f"{name}: the labels are {labels!r}; give one for every node, or the number of nodes"
            " for degrees as labels."
        )
    is_wrong = (edges < 0) | (edges >= n_nodes)
    if is_wrong.any():
        raise ValueError(
            f"{name} has an edge to node {edges[is_wrong][0]}, and {n_nodes} nodes: number them"
            f" from 0 to {n_nodes - 1}, and give every node a label."
        )
    return edges.astype(np.intp), n_nodes, label_list


def _read_edges(edge_list: Any, name: str) -> AnyArray:
    """Return edges as an array of two columns of integers, or raise a ValueError."""
    try:
        edges = np.asarray(edge_list)
    except ValueError:
        # Rows of different lengths: the shape of this array is refused below.
        edges = np.empty(len(edge_list), dtype=object)
    if edges.size == 0:
        return np.empty((0, 2), dtype=np.intp)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise ValueError(
            f"{name}: the edges have shape {edges.shape} and dtype {edges.dtype}; give two node"
            " numbers for every edge, such as [(0, 1), (1, 2)]."
        )
    return edges


def _from_networkx(graph: Any, name: str) -> tuple[list[tuple[int, int]], Any]:
    """Return the edges of a graph of networkx, and its labels or, without labels, its node count.

    Nodes are numbered in their order in the graph.
    """
    if graph.is_directed():
        raise ValueError(
            f"{name} is directed: kernels read graphs without directions; give"
            " graph.to_undirected()."
        )
    number = {node: i for i, node in enumerate(graph.nodes())}
    edges = [(number[u], number[v]) for u, v in graph.edges()]
    labels = [data.get("label") for _, data in graph.nodes(data=True)]
    n_missing = sum(label is None for label in labels)
    if n_missing == 0:
        return edges, labels
    if n_missing < len(labels):
        raise ValueError(
            f"{name}: {n_missing} of {len(labels)} nodes have no 'label'; give one to every node or"
            " to none."
        )
    return edges, len(labels)


def _label_codes(labels: Sequence[Any]) -> Labels:
    """Return 64 bits for every label, the same in every process.

    A label is coded by its text, so that the whole numbers 1 and 1.0 and the text "1" are equal.
    """
    try:
        distinct_labels: Sequence[Any] = list(dict.fromkeys(labels))
    except TypeError:
        # A value that cannot be hashed is no label, and is refused below.
        distinct_labels = labels
    codes = {}
    for label in distinct_labels:
        is_whole_number = isinstance(label, Integral) or (
            isinstance(label, Real) and float(label).is_integer()
        )
        if is_whole_number:
            text = str(int(label))
        elif isinstance(label, str):
            text = label
        else:
            raise TypeError(
                f"X has a node with the label {label!r}, a {type(label).__name__}: labels are"
                " strings or whole numbers; give the nodes' kinds, or the number of nodes in place"
                " of labels."
            )
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        codes[label] = int.from_bytes(digest, "little")
    return np.fromiter((codes[label] for label in labels), dtype=np.uint64, count=len(labels))


class GraphKernel(Kernel):
    """A kernel between graphs.

    X is a list, an array, a column or a series with one graph per sample. A graph is a tuple
    ``(edges, labels)``: two node numbers for every edge, counted from 0, and one label for every
    node, a string or a whole number. The number of nodes in place of the labels makes their degrees
    the labels. A graph of networkx has its labels in the node attribute ``"label"``, or none. Edges
    have no direction; repeated ones count once, loops not at all. A graph may have nodes without
    edges, or no nodes.
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
        return _join_graphs([_read_graph(graph, f"X[{i}]") for i, graph in enumerate(table)])

    @abstractmethod
    def _bags(self, X: GraphSet) -> list[Bags]:
        """Return the values that are counted in graphs; the kernel is a sum over these bags."""

    def _compare(self, left: MatrixLike, right: MatrixLike) -> Block:
        """Return the kernel of one bag from its counts; the columns of both are the values.

        By default it is the inner product of the counts.
        """
        return pairwise_statistic("products", left, right)

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        if Y is X:
            counts = (_counts(bags)[0] for bags in self._bags(X))
            return reduce(np.add, (self._compare(C, C) for C in counts))
        bag_pairs = zip(self._bags(X), self._bags(Y), strict=True)
        count_pairs = (_counts(left, right) for left, right in bag_pairs)
        return reduce(np.add, (self._compare(C, D) for C, D in count_pairs))

    def _diagonal(self, X: MatrixLike) -> Array:
        diagonals = [self._compare_to_itself(_counts(bags)[0]) for bags in self._bags(X)]
        return np.asarray(np.sum(diagonals, axis=0), np.float64)

    def _compare_to_itself(self, counts: MatrixLike) -> AnyArray:
        """Return the diagonal of `_compare` for the counts of one bag."""
        return np.asarray(counts.multiply(counts).sum(axis=1))


def _join_graphs(graphs: list[tuple[Indices, int, Sequence[Hashable] | None]]) -> GraphSet:
    """Return a set of graphs, each given by its edges, its number of nodes and its labels or None.

    Every edge comes once in each direction, loops are left out, and the degree of a node takes the
    place of a label that is missing.
    """
    ends = np.concatenate([[0], np.cumsum([n_nodes for _, n_nodes, _ in graphs])])
    edge_ends = np.concatenate([[0], np.cumsum([len(edges) for edges, _, _ in graphs])])
    edges = np.concatenate([edges for edges, _, _ in graphs])
    # Nodes are numbered in the whole set, and an arc is the number tail · n + head.
    tails, heads = (edges + np.repeat(ends[:-1], np.diff(edge_ends))[:, np.newaxis]).T
    n = max(int(ends[-1]), 1)
    both_directions = np.concatenate([tails * n + heads, heads * n + tails])
    is_no_loop = np.tile(tails != heads, 2)
    arc_numbers = np.unique(both_directions[is_no_loop])
    tails = arc_numbers // n
    heads = arc_numbers % n
    # The arcs are sorted by tails, and so by graphs; their nodes are numbered in each graph again.
    owners = np.searchsorted(ends, tails, side="right") - 1
    arcs = np.column_stack([tails, heads]) - ends[owners][:, np.newaxis]
    arc_ends = np.searchsorted(owners, np.arange(len(ends)))
    degrees = np.bincount(tails, minlength=ends[-1])
    labels: list[Any] = []
    for (_, _, graph_labels), start, stop in zip(graphs, ends[:-1], ends[1:], strict=True):
        labels += degrees[start:stop].tolist() if graph_labels is None else graph_labels
    return GraphSet(Bags(ends, _label_codes(labels)), Bags(arc_ends, arcs))


def _counts(*bags: Bags) -> list[MatrixLike]:
    """Return for each of the bags a sparse matrix: how often each value is in each graph.

    The matrices have the same columns, one for every value that is in any of the bags.
    """
    all_values = np.concatenate([bag.values for bag in bags])
    distinct_values, columns = np.unique(all_values, return_inverse=True)
    n_columns = max(len(distinct_values), 1)
    splits = np.cumsum([len(bag.values) for bag in bags])[:-1]
    counts = []
    for bag, bag_columns in zip(bags, np.split(columns, splits), strict=True):
        entries = (np.ones(len(bag_columns)), (bag.owners, bag_columns))
        counts.append(sparse.csr_array(entries, shape=(len(bag.ends) - 1, n_columns)))
    return counts


class WeisfeilerLehman(GraphKernel):
    """k(x, z) = Σ_h k_h(x, z), where k_h compares the node labels after h iterations.

    An iteration gives every node a new label, which encodes its own label and those of its
    neighbours: after h iterations two nodes have the same label if their neighbourhoods up to h
    edges away are the same. Let c_l be the count of label l. Then k_h(x, z) = Σ_l c_l(x) c_l(z)
    with ``mode="subtree"``, and Σ_l min(c_l(x), c_l(z)) with ``mode="assignment"``: the largest
    number of nodes that can be assigned to each other. Estimators learn a weight for each k_h.

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
        """Return the kernel of every iteration, or this kernel if there is only one iteration."""
        self._check_parameters()
        numbers = self._iteration_numbers()
        if len(numbers) == 1:
            return {"": self}
        return {f"[{h}]": type(self)([h], self.mode) for h in numbers}

    def _iteration_numbers(self) -> list[int]:
        """Return the iterations whose labels are compared."""
        iterations: Any = self.iterations
        if is_whole(iterations, 0):
            iterations = range(iterations + 1)
        return [int(h) for h in iterations]

    def _bags(self, X: GraphSet) -> list[Bags]:
        return [X.refined(h) for h in self._iteration_numbers()]

    def _compare(self, left: MatrixLike, right: MatrixLike) -> Block:
        if self.mode == "assignment":
            return shared_counts(left, right)
        return super()._compare(left, right)

    def _compare_to_itself(self, counts: MatrixLike) -> AnyArray:
        if self.mode == "assignment":
            return np.asarray(counts.sum(axis=1))
        return super()._compare_to_itself(counts)

    def _check_parameters(self) -> None:
        iterations = self.iterations
        is_list = isinstance(iterations, Sequence | np.ndarray) and not isinstance(iterations, str)
        numbers: list[Any] = list(iterations) if is_list else [iterations]  # type: ignore[arg-type]
        are_whole = all(is_whole(h, 0) for h in numbers)
        if not numbers or not are_whole or len(set(numbers)) < len(numbers):
            raise ValueError(
                f"iterations={iterations!r}: give the last iteration, such as 5, or distinct ones,"
                " [0, 1, 2]."
            )
        check_choice("mode", self.mode, ("subtree", "assignment"))


class ShortestPath(GraphKernel):
    """k(x, z) = Σ_p c_p(x) c_p(z), where c_p counts shortest paths of kind p.

    The kind of a path is its length and the labels of its two ends. Every two nodes that are
    connected have one shortest path, whatever lies between them; a graph without edges has
    similarity 0 to all. ``normalize="diagonal"`` of the estimator gives cosines, which do not
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
