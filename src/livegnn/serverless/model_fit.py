"""Whether a model fits the graph of a snapshot."""

from livegnn.errors import ModelError
from livegnn.graph import Schema
from livegnn.model import Model


def check_fit(model: Model, schema: Schema) -> None:
    """Raises `ModelError` if a model reads what graphs of this schema do not have."""
    for given in model.inputs.values():
        have = schema.node_types.get(given.node_type)
        if have != given.width:
            raise ModelError(
                f"the model reads {given.width} features of {given.node_type!r} nodes, the snapshot has "
                f"{'no such nodes' if have is None else have}: write it of the graph that the model is for"
            )
    for name in model.edge_types:
        if name not in schema.edge_types:
            have_types = ", ".join(map(str, schema.edge_types))
            raise ModelError(f"the model propagates along {name}, the snapshot has {have_types}")
    for read in model.edge_inputs.values():
        width = schema.edge_types[read.edge_type].edge_dim
        if read.column == "edge_attr" and width != read.width:
            raise ModelError(
                f"the model reads {read.width} features of {read.edge_type} edges, the snapshot has {width}"
            )
