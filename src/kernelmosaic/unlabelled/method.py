"""Embeddings and clusters as methods of a fit: weights of views, then eigenvectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from kernelmosaic._checks import warn_caller
from kernelmosaic._typing import Array, ArrayOrTensor, Indices, Settings, TargetLike
from kernelmosaic.engine.expansion import Function
from kernelmosaic.engine.fit import Fit, Method
from kernelmosaic.engine.tasks import Task
from kernelmosaic.engine.training_set import TrainingSet
from kernelmosaic.learning.certificate import Start
from kernelmosaic.learning.fixed import given_weights
from kernelmosaic.unlabelled import learning
from kernelmosaic.unlabelled.learning import (
    Components,
    EmbeddingOptions,
    NeighborGraph,
    ViewSimilarity,
)

#: The most clusters that are suggested.
MOST_SUGGESTED = 10


@dataclass(frozen=True, eq=False)
class NoTargets(Task):
    """Samples without targets, which no machine is fitted to."""

    host_samples: ClassVar[int] = 0
    merges_repeats: ClassVar[bool] = False

    def machines(self, y: TargetLike, weight: Array) -> list[Any]:
        return []

    def decide(self, outputs: Array, intercept: Array) -> Array:
        return outputs


@dataclass(frozen=True)
class ViewWeights:
    """The weights of the kernels, and the similarity of the views that decided them.

    Attributes
    ----------
    kernels : ndarray of shape (P,)
        The weights.
    names : list of str
        The names of the V views.
    similarity : ViewSimilarity
        Of every two views.
    """

    kernels: Array
    names: list[str]
    similarity: ViewSimilarity


@dataclass(frozen=True)
class Embedding:
    """What was learned: coordinates of the samples, and clusters of them if these were wanted.

    Attributes
    ----------
    view_weights : ViewWeights
        The weights of the kernels.
    components : Components or None
        The leading components of the combined kernel; None for an embedding of a graph.
    graph : NeighborGraph or None
        The graph of neighbours; None for an embedding of components.
    clusters : Clusters or None
        The clusters.
    """

    view_weights: ViewWeights
    components: Components | None = None
    graph: NeighborGraph | None = None
    clusters: Clusters | None = None

    @property
    def weights(self) -> Array:
        """The weights of the kernels."""
        return self.view_weights.kernels

    @property
    def eigenvalues(self) -> Array:
        """The eigenvalues of the coordinates, the largest first."""
        if self.components is not None:
            return self.components.values
        assert self.graph is not None
        return self.graph.values


@dataclass(frozen=True)
class Clusters:
    """Clusters of the samples in their embedding.

    Attributes
    ----------
    coordinates : ndarray of shape (n, k)
        The embedding.
    labels : ndarray of shape (n,)
        The cluster of every sample.
    centers : ndarray of shape (clusters, k)
        The centres.
    n_neighbors : int
        Neighbours of a sample in the graph.
    """

    coordinates: Array
    labels: Indices
    centers: Array
    n_neighbors: int


@dataclass(frozen=True)
class EmbeddingMethod(Method):
    """Equal or similar views weigh equally, and the combined kernel has an embedding.

    Attributes
    ----------
    options : EmbeddingOptions
        The accuracy of eigenvalues, and what draws at random.
    weights : str or array of shape (P,)
        The name of a rule, or the weights.
    n_components : int
        Number of components.
    """

    options: EmbeddingOptions
    weights: ArrayOrTensor
    n_components: int

    is_plain: ClassVar[bool] = False
    is_certified: ClassVar[bool] = False

    def learner(self, task: Task, data: TrainingSet, machines: Sequence[Any]) -> ViewWeights:
        view_names = data.names()[1]
        names = list(dict.fromkeys(view_names))
        view_of_kernel = np.array([names.index(name) for name in view_names])
        factors = None
        if data.missing is not None and data.present is not None:
            factors = data.missing.factors(data.present)
        similarity = learning.compare_views(data.stack, view_of_kernel, self.options, factors)
        if not isinstance(self.weights, str):
            weights = given_weights(self.weights, len(view_of_kernel))
        else:
            n_kernels = np.bincount(view_of_kernel)
            of_views = self._weights_of_views(task, names, similarity, n_kernels)
            weights = (of_views / of_views.sum() / n_kernels)[view_of_kernel]
        return ViewWeights(weights, names, similarity)

    def _weights_of_views(
        self, task: Task, names: list[str], similarity: ViewSimilarity, n_kernels: Indices
    ) -> Array:
        """Return the weight of every view by the rule, and warn of views that it leaves out."""
        if self.weights == "statis":
            # Kernels have the weight of their sum: several in a view are not divided by their
            # number again.
            return np.asarray(n_kernels * learning.statis_weights(similarity))
        weights = np.ones(len(names))
        if self.weights == "screen":
            weights = learning.screen(similarity).astype(np.float64)
            left_out = [
                repr(name) for name, weight in zip(names, weights, strict=True) if not weight
            ]
            if left_out:
                warn_caller(
                    f"{task.name}: {', '.join(left_out)} left out, since no other view depends on"
                    " it at the 0.05 level, duplicates aside. An independent view can still"
                    " contain clusters; weights='equal' keeps it."
                )
        return weights

    def learn(
        self, task: Task, data: TrainingSet, machines: list[Any], learner: Any, starts: list[Start]
    ) -> list[Any]:
        return [Embedding(learner, self._components(data, learner, self.n_components))]

    def _components(
        self, data: TrainingSet, view_weights: ViewWeights, n_components: int
    ) -> Components:
        """Return the leading components of the combined kernel."""
        gram = data.stack.combine(view_weights.kernels)
        return learning.kernel_components(gram, n_components, self.options)

    def support(self, fit: Fit) -> Indices:
        # Every sample has a coefficient.
        return np.arange(len(fit.data.kept))

    def coefficients(self, fit: Fit) -> tuple[Array, Array]:
        (embedding,) = fit.learned
        if embedding.components is not None:
            return embedding.components.coefficients.T, -embedding.components.center
        # The mean similarity to the training samples; its expansion has the combined kernel.
        n = len(fit.data.kept)
        return np.full((1, n), 1.0 / n), np.zeros(1)

    def function(self, fit: Fit) -> Function:
        beta, intercept = self.coefficients(fit)
        n_outputs, n_samples = beta.shape
        weights = np.tile(fit.weights, (n_outputs, 1))
        return Function(fit.data.expansion(beta, np.arange(n_samples), weights), intercept)

    def progress(self, fit: Fit) -> Settings:
        return {}

    def attributes(self, fit: Fit) -> Settings:
        (embedding,) = fit.learned
        view_weights = embedding.view_weights
        return {
            "views_": view_weights.names,
            "similarity_": view_weights.similarity.unbiased,
            "pvalues_": view_weights.similarity.pvalues,
            "eigenvalues_": embedding.eigenvalues,
            **self.coordinates(embedding),
        }

    def coordinates(self, embedding: Embedding) -> Settings:
        """Return the fitted attributes of the embedding."""
        components = embedding.components
        assert components is not None
        return {
            "explained_": components.values / components.trace,
            "embedding_": components.scores,
            "_n_features_out": len(components.values),
        }


@dataclass(frozen=True)
class ClusterMethod(EmbeddingMethod):
    """Clusters by k-means in an embedding of components, or of a graph of neighbours.

    Attributes
    ----------
    n_components : int or None
        Number of coordinates; None follows from the number of clusters.
    n_clusters, n_neighbors : int or None
        As in `MKLClustering`; None means that they are chosen.
    embedding : str
        ``"kernel"`` or ``"graph"``.
    n_init : int
        Starts of k-means.
    """

    n_components: Any
    n_clusters: int | None
    n_neighbors: int | None
    embedding: str
    n_init: int

    def learn(
        self, task: Task, data: TrainingSet, machines: list[Any], learner: Any, starts: list[Start]
    ) -> list[Any]:
        n_samples = len(data.kept)
        n_neighbors = self._count_neighbors(n_samples)
        n_clusters = self.n_clusters
        graph = components = None
        # 1. The graph of neighbours, from which the number of clusters follows if none is given.
        if self.embedding == "graph" or n_clusters is None:
            n_vectors = max(self.n_components or 0, n_clusters or MOST_SUGGESTED + 1)
            graph = learning.neighbor_graph(
                data.stack, learner.kernels, n_neighbors, min(n_vectors, n_samples), self.options
            )
            if n_clusters is None:
                n_clusters = learning.suggest_clusters(graph.values[: MOST_SUGGESTED + 1])
        # 2. The coordinates.
        if self.embedding == "kernel":
            components = self._components(data, learner, self.n_components or 2 * n_clusters)
            graph, coordinates = None, components.directions
        else:
            assert graph is not None
            n_coordinates = self.n_components or n_clusters
            graph = replace(
                graph,
                values=graph.values[:n_coordinates],
                vectors=graph.vectors[:, :n_coordinates],
            )
            coordinates = graph.vectors
        # 3. The clusters. scikit-learn's are loaded here, since nothing else needs them.
        from sklearn.cluster import KMeans

        means = KMeans(n_clusters, n_init=self.n_init, random_state=self.options.random_state)
        means.fit(coordinates)
        clusters = Clusters(coordinates, means.labels_, means.cluster_centers_, n_neighbors)
        return [Embedding(learner, components, graph, clusters)]

    def _count_neighbors(self, n_samples: int) -> int:
        """Return how many neighbours a sample has in the graph, or raise if samples are too few."""
        if self.n_clusters is not None and self.n_clusters > n_samples:
            raise ValueError(
                f"n_clusters={self.n_clusters}: X has {n_samples} samples; give at most as many"
                " clusters."
            )
        if self.n_neighbors is None:
            return min(max(int(np.ceil(np.log2(n_samples))), 1), n_samples - 1)
        if self.n_neighbors >= n_samples:
            raise ValueError(
                f"n_neighbors={self.n_neighbors}: X has {n_samples} samples; give at most"
                f" {n_samples - 1}."
            )
        return self.n_neighbors

    def coordinates(self, embedding: Embedding) -> Settings:
        clusters = embedding.clusters
        assert clusters is not None
        return {
            "embedding_": clusters.coordinates,
            "labels_": clusters.labels,
            "cluster_centers_": clusters.centers,
            "n_clusters_": len(clusters.centers),
            "n_neighbors_": clusters.n_neighbors,
            "_graph": embedding.graph,
        }
