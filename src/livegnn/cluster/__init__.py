"""Workers of a log on many machines: Ray starts them, a coordinator watches and replaces them (Helios, 4.1).

`livegnn.cluster.cluster` has `Cluster`, which needs Ray: `pip install 'livegnn[cluster]'`.
"""

from livegnn.cluster.spec import ClusterSpec, Pace
from livegnn.cluster.watch import Patience

__all__ = ["ClusterSpec", "Pace", "Patience"]
