"""Whether a model replaces the missing numbers that the mappings of a deployment keep."""

from collections.abc import Mapping

from livegnn.deployment.mapped_inputs import mapped_inputs
from livegnn.errors import InputError
from livegnn.model import Model
from livegnn.network.raw_inputs import needs_every_number
from livegnn.tables import EdgeRows, NodeRows, TableMapping
from livegnn.tables.mapping import KEEP


def refuse_unreplaced(model: Model, tables: Mapping[str, TableMapping]) -> None:
    """Raises InputError if a mapping keeps missing numbers in a column that the model reads as it is."""
    needed = needs_every_number(model)
    for value, given, rows, place in mapped_inputs(model, tables):
        _refuse(rows, needed[value], given.width, place, value)


def _refuse(rows: NodeRows | EdgeRows, needed: tuple[int, ...], width: int, place: str, value: str) -> None:
    features = rows.features * (width if len(rows.features) == 1 else 1)
    for channel in needed:
        if channel < len(features) and rows.nulls.get(features[channel]) == KEEP:
            raise InputError(
                f"{place}: nulls of {features[channel]!r} must not be 'keep', as the model reads column "
                f"{channel} of {value!r} without a transform that replaces missing numbers: write a value, "
                "or deploy a model with an imputer for it"
            )
