"""The plan in the streams of older versions: `worker-changes` had the states, `worker-plan` the rest."""

from collections.abc import Sequence
from contextlib import closing
from typing import Final

import orjson

from livegnn.errors import LogError
from livegnn.log import Origin
from livegnn.log.streams import Record, StoredRecord
from livegnn.workers.messages import ANEW, read_all
from livegnn.workers.places import Place

_STATES: Final = "worker-changes"
_REST: Final = "worker-plan"
_REGISTERED: Final = "plan"  # the type of the record by which a cluster had the workers


def read_older(place: Place, state: str, cluster: str, source: str) -> Sequence[Record]:
    """The records of an older version as those of this one; none if no worker of an older version was there.

    state, cluster: the types of records. source: of the origins of states. Steps of sampling workers name a
    state by its position in the old stream, and of this version by its number and one. In SQLite the two are
    the same. In Kafka they are if the plan was never changed. Raises LogError otherwise, and if a coordinator
    of an older version runs.
    """
    states = [
        Record(state, one.payload, Origin(source, 0, number))
        for number, one in enumerate(_read_states(place))
    ]
    rest = _read_rest(place)
    if states and any(one.type == _REGISTERED for one in rest):
        states.append(Record(cluster, orjson.dumps(True)))
    return [*states, *(Record(one.type, one.payload) for one in rest if one.type != _REGISTERED)]


def _read_states(place: Place) -> Sequence[StoredRecord]:
    try:
        stream = place.read(_STATES, 0)
    except LogError:  # it does not exist
        return []
    with closing(stream):
        return check_positions(read_all(stream))


def check_positions(states: Sequence[StoredRecord]) -> Sequence[StoredRecord]:
    """States of an older version. Raises LogError if steps of its workers would mean others of them."""
    for number, record in enumerate(states):
        if record.position != number + 1:
            raise LogError(
                f"the stream {_STATES!r} of an older version must have state {number} at position "
                f"{number + 1}, got it at {record.position}: the numbers of workers were changed. {ANEW}"
            )
    return states


def _read_rest(place: Place) -> Sequence[StoredRecord]:
    try:
        place.read(_REST, 0).close()
    except LogError:  # it does not exist
        return []
    with closing(place.write(_REST, 0)) as stream:  # which a coordinator that runs refuses, or loses
        return read_all(stream)
