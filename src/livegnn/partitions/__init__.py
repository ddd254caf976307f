"""A graph and the engine of a model, divided into parts that together keep the bits of one engine."""

from livegnn.partitions.fitting import refuse_unfit
from livegnn.partitions.local import LocalPartitions

__all__ = ["LocalPartitions", "refuse_unfit"]
