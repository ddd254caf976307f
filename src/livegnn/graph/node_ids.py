"""Maps the user's ids of nodes to internal numbers and back.

Integer ids are their own numbers. A text id has a number from the first event that names it until its node is
removed and no pin holds it.

Thread safety: any thread may call. A caller that reads numbers outside a batch must hold a pin while it needs
their texts.
"""

from typing import TYPE_CHECKING

import numpy as np

import livegnn._core as _core
from livegnn.arguments import check_texts, listed_ids
from livegnn.errors import InputError, UnknownNodeError
from livegnn.texts import Texts
from livegnn.types import Ids, IntArray

if TYPE_CHECKING:
    from jaxtyping import Int64, Shaped, UInt32
    from numpy.typing import ArrayLike, NDArray

_INT64 = np.dtype(np.int64)


class NodeIds:
    """texts: the table of texts and their numbers; None if ids are integers."""

    def __init__(self, *, text: bool) -> None:
        self.texts = _core.TextIds() if text else None
        self._no_pin = _core.TextPin(None)

    def pin(self) -> _core.TextPin:
        """As `Graph.pin`."""
        return self._no_pin if self.texts is None else _core.TextPin(self.texts)

    def to_user_ids(self, numbers: "Int64[IntArray, 'nodes']") -> "Shaped[Ids, 'nodes']":
        """As `Graph.to_user_ids`."""
        if self.texts is None:
            return numbers
        try:
            return np.array(self.texts.texts(numbers), dtype=np.str_)
        except IndexError as error:
            raise UnknownNodeError(
                f"expected numbers of nodes, but {error}: its node was removed, so read ids before that"
            ) from None

    def named(self, names: "Int64[IntArray, 'nodes'] | list[str]") -> "Shaped[Ids, 'nodes']":
        """Ids that a read of the native core returned, as an array; the read has looked up their texts."""
        return np.array(names, dtype=np.str_) if isinstance(names, list) else names

    def given(
        self, ids: "Shaped[NDArray[np.generic], '...'] | Texts"
    ) -> (
        "Int64[IntArray, '...'] | UInt32[NDArray[np.uint32], '...'] | tuple[bytes, Int64[IntArray, 'places']]"
    ):
        """Ids in the form that reads of the native core take: integers, or texts in one of two forms."""
        ids = self._as_listed(ids)
        return self._integers(ids) if self.texts is None else _as_texts(ids)

    def to_numbers(self, ids: "ArrayLike") -> "Int64[IntArray, 'ids']":
        """The internal numbers of ids that may or may not be known."""
        listed = self._as_listed(listed_ids(ids))
        return self._integers(listed) if self.texts is None else self.texts.find(_as_texts(listed))

    def intern(self, ids: "Shaped[Ids, 'ids'] | Texts") -> "Int64[IntArray, 'ids']":
        """The internal numbers of ids; a new text gets a number. Pin first, or it may be freed at once."""
        if self.texts is not None:
            return self.texts.intern(_as_texts(ids))
        if ids.dtype is not _INT64 and (isinstance(ids, Texts) or ids.dtype.kind != "i"):
            raise InputError(f"this graph's ids are integers, got {ids.dtype}")
        return ids  # type: ignore[return-value]  # a call of `cast` is felt in a batch of one event

    def _as_listed(self, ids: "NDArray[np.generic] | Texts") -> "NDArray[np.generic] | Texts":
        if ids.ndim != 1:
            raise InputError(f"ids must be one id or a list of ids, got an array of shape {list(ids.shape)}")
        # The dtype of an empty list says nothing about ids.
        return ids if len(ids) else np.empty(0, dtype=np.int64 if self.texts is None else np.str_)

    def _integers(self, ids: "NDArray[np.generic] | Texts") -> IntArray:
        if isinstance(ids, Texts) or ids.dtype.kind not in "iu":
            raise InputError(f"this graph's ids are integers, got {ids.dtype}")
        return np.ascontiguousarray(ids, dtype=np.int64)


def _as_texts(ids: "NDArray[np.generic] | Texts") -> "NDArray[np.uint32] | tuple[bytes, IntArray]":
    return (ids.utf8, ids.places) if isinstance(ids, Texts) else _code_points(ids)


def _code_points(ids: "NDArray[np.generic]") -> "NDArray[np.uint32]":
    if ids.dtype.kind == "O":
        check_texts(ids, "this graph's ids are")
        ids = ids.astype(np.str_)
    if ids.dtype.kind != "U":
        raise InputError(f"this graph's ids are text, got {ids.dtype}")
    width = ids.dtype.itemsize // np.dtype(np.uint32).itemsize
    return np.ascontiguousarray(ids).view(np.uint32).reshape(len(ids), width)
