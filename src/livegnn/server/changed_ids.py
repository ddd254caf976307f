"""The ids of the nodes whose predictions have changed lately, for clients that read only these.

Ids are kept from the first request on that could continue with them. Thread-safe.
"""

import threading
from typing import TYPE_CHECKING

import numpy as np

from livegnn.errors import InputError
from livegnn.http.refusals import ChangesNotKept
from livegnn.runtime import Change, Runtime, Switch
from livegnn.server.ring import Ring
from livegnn.texts import Texts
from livegnn.types import Ids

if TYPE_CHECKING:
    from jaxtyping import Shaped

_ENTRY_BYTES = 320  # of an entry without ids


class ChangedIds:
    """The ids of the latest batches: nodes with another prediction of the first output of the serving model,
    and removed ones. capacity: bytes of all ids.
    """

    def __init__(self, runtime: Runtime, capacity: int = 16 << 20) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._ring = Ring["Shaped[Ids, 'ids'] | Texts"](capacity, 0)
        self._begun = self._listed = False
        self._reached = 0
        runtime.subscribe(
            self._note, on_switch=self._forget, wanted=lambda: False, ids_wanted=self._is_wanted
        )

    def begin(self) -> int:
        """Keeps ids from now on; returns an event after which all are kept."""
        with self._lock:
            if not self._begun:
                self._begun = True
                # Read when ids are wanted: a batch that is visible, but was not published, may have none.
                self._reached = self._runtime.seq
                self._ring.clear(self._reached)
            return self._reached

    def since(self, since: int) -> "tuple[int, Shaped[Ids, 'ids'] | Texts]":
        """The ids of nodes that have changed after `since`, each once, and the event up to which they are
        these. Raises ChangesNotKept if they are not kept, and InputError if `since` is in the future.
        """
        self.begin()
        if since > (now := self._runtime.seq):
            raise InputError(
                f"since must be an event that the graph has reached, got {since}, and it is at {now}: read "
                "all predictions, because they may be of another log"
            )
        with self._lock:
            ring, floor = self._ring, self._ring.floor
            if since < floor:
                raise ChangesNotKept(
                    f"changes are kept since event {floor}, got since={since}: read all predictions, "
                    "without since"
                )
            parts = [ring.at(position)[1] for position in range(ring.after(since), ring.end)]
            reached = max(self._reached, since)
        if self._runtime.graph.schema.text_ids:
            return reached, Texts.of(sorted(set(Texts.join(parts).tolist())))
        return reached, np.unique(np.concatenate([np.empty(0, np.int64), *parts]))

    def _is_wanted(self) -> bool:
        self._listed = self._begun
        return self._listed

    def _note(self, change: Change) -> None:
        if not self._begun:
            return
        with self._lock:
            self._reached = max(self._reached, change.seq)
            if not (self._listed and change.known):
                self._ring.clear(change.seq)
                return
        parts = [part for part in (change.ids, change.removed) if len(part)]
        if not parts:
            return
        text = self._runtime.graph.schema.text_ids
        ids: Shaped[Ids, ids] | Texts = Texts.join(parts) if text else np.concatenate(parts, dtype=np.int64)
        with self._lock:
            self._ring.append(change.seq, ids, ids.nbytes + _ENTRY_BYTES)

    def _forget(self, switch: Switch) -> None:
        # A client that read at this event may have the predictions of the model before.
        with self._lock:
            self._ring.clear(switch.seq + 1)
