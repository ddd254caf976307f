"""The inputs of a model, and the entries of mappings that give them."""

from collections.abc import Iterator, Mapping

from livegnn.errors import InputError
from livegnn.model import EdgeInput, Input, Model
from livegnn.tables import EdgeRows, NodeRows, TableMapping


def mapped_inputs(
    model: Model, tables: Mapping[str, TableMapping]
) -> Iterator[tuple[str, Input | EdgeInput, NodeRows | EdgeRows, str]]:
    """The features that a model reads: the name of its input, the input, an entry that gives them, and the
    place of the entry's table, for errors."""
    inputs: dict[str, Input | EdgeInput] = {**model.inputs, **model.edge_inputs}
    for value, given in inputs.items():
        if isinstance(given, EdgeInput) and given.column == "weight":
            continue
        type_ = given.edge_type if isinstance(given, EdgeInput) else given.node_type
        for name, mapping in tables.items():
            entries = mapping.edges if isinstance(given, EdgeInput) else mapping.nodes
            for rows in entries:
                if _type_of(rows) in (None, type_):
                    yield value, given, rows, f"[tables.{name}]"


def refuse_exchanged(model: Model, tables: Mapping[str, TableMapping]) -> None:
    """Raises InputError if a mapping gives the raw columns of a model in another order."""
    for _, given, rows, place in mapped_inputs(model, tables):
        got = tuple(rows.features)
        if got != given.columns and sorted(got) == sorted(given.columns):
            name = "x" if isinstance(rows, NodeRows) else "edge_attr"
            raise InputError(
                f"{place}: {name} must be {', '.join(map(repr, given.columns))}, in the order of the model's "
                f"transforms, got {', '.join(map(repr, got))}"
            )


def _type_of(rows: NodeRows | EdgeRows) -> object:
    return rows.node_type if isinstance(rows, NodeRows) else rows.edge_type
