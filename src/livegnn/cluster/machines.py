"""The machines of a Ray cluster, and their names: an address, or the beginning of Ray's id.

Needs `ray`: `pip install 'livegnn[cluster]'`.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import ray

from livegnn.errors import InputError

SHORT: Final = 8
"""Letters of Ray's id that name a machine."""


class Machine(NamedTuple):
    """A machine that Ray holds to be alive. id: Ray's. resources: the names of those that it has."""

    id: str
    address: str
    resources: frozenset[str]

    def is_named(self, names: Collection[str]) -> bool:
        """Whether one of the names is that of this machine."""
        return any(
            name == self.address or (len(name) >= SHORT and self.id.startswith(name)) for name in names
        )


def find_machines() -> Sequence[Machine]:
    """All machines that Ray holds to be alive."""
    return [
        Machine(node["NodeID"], node["NodeManagerAddress"], frozenset(node["Resources"]))
        for node in ray.nodes()
        if node["Alive"]
    ]


def choose_drained(machines: Sequence[Machine], name: str, drained: Collection[str]) -> Collection[str]:
    """The ids of the machines that are meant by `name`, and may be drained. drained: names of others.

    Raises InputError for an unknown machine, and if no other one would be left.
    """
    meant = {machine.id for machine in machines if machine.is_named({name})}
    if not meant:
        known = ", ".join(f"{one.address} ({one.id[:SHORT]})" for one in sorted(machines))
        raise InputError(f"the machine must be one of {known}, got {name!r}")
    if all(machine.id in meant or machine.is_named(drained) for machine in machines):
        raise InputError(
            f"a cluster must have a machine that takes processes, got {name!r}, the last one: start Ray on "
            "another machine first, or end the cluster"
        )
    return meant
