"""Samples of the live graph: nodes, neighbours, subgraphs; each sees the graph before or after a batch.

A sample depends only on the graph, the request and `seed`: the same seed draws the same sample, on any number
of threads.
"""

from livegnn.sampling.nodes import NeighborSample, sample_neighbors, sample_nodes
from livegnn.sampling.query import sample_query
from livegnn.sampling.request import Direction, NeighborsBy, NodesBy
from livegnn.sampling.subgraph import HeteroSubgraph, Subgraph, sample_metapath, sample_subgraph

__all__ = [
    "Direction",
    "HeteroSubgraph",
    "NeighborSample",
    "NeighborsBy",
    "NodesBy",
    "Subgraph",
    "sample_metapath",
    "sample_neighbors",
    "sample_nodes",
    "sample_query",
    "sample_subgraph",
]
