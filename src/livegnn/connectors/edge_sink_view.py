"""The view that keeps a sink as the scores of edges are: a `SinkView` whose rows are those of an edge output.

The id of an edge is a text, which a sink stores as any other: the JSON list of its source, its target and, in
a type that keeps parallel edges, its key.
"""

from typing import TypeGuard, Unpack

import numpy as np
import orjson

from livegnn.connectors.sink import Sink
from livegnn.connectors.sink_view import SinkSettings, SinkView
from livegnn.connectors.unsent import AnyIds
from livegnn.errors import InputError
from livegnn.graph import Graph, GraphDelta
from livegnn.inference import Engine, RowPredictor, Update
from livegnn.inference.followed_edges import EdgeNames
from livegnn.network.outputs import EdgeOutput
from livegnn.runtime.present_rows import PresentRows, read_present_edges
from livegnn.texts import Texts
from livegnn.types import Ids


class EdgeSinkView(SinkView):
    """Sends changed scores of the edge output `edges` of a model, which its engine must follow
    (`EngineOptions.follow`). The other arguments, and the errors, are those of `SinkView`.
    """

    def __init__(self, graph: Graph, sink: Sink, *, edges: str, **settings: Unpack[SinkSettings]) -> None:
        self._edge_output = edges
        super().__init__(graph, sink, **settings)

    def _has_text_ids(self) -> bool:
        return True

    def _note_batch(self, view: RowPredictor, update: object, change: GraphDelta, now: float) -> None:
        changes = update.edges.get(str(self._edge_output)) if isinstance(update, Update) else None
        if changes is not None and changes.complete:
            for names in (changes.edges, changes.removed):
                if len(names.source):
                    self._note(ListedEdges(names), change.trusted, now)
            return
        self._unsent.add_everything(now)
        if self._is_followed_by(view):
            found = change.edges(self._output_of(view).scores.edge_type, both_directions=True)
            gone = found.had & ~found.has
            key = None if found.key is None else found.key[gone]
            removed = EdgeNames(found.source[gone], found.target[gone], key)
            self._note(ListedEdges(removed), change.trusted, now)

    def _is_followed_by(self, model: RowPredictor) -> TypeGuard[Engine]:
        return isinstance(model, Engine) and self._edge_output in model.options.follow

    def _output_of(self, model: RowPredictor) -> EdgeOutput:
        """The edge output of a model. Raises `InputError` if its engine does not follow one of this name."""
        if self._is_followed_by(model):
            return model.edge_outputs.find(self._edge_output)
        raise InputError(
            f"a sink of scores needs an engine that follows them, got {model.name!r}, which does not follow "
            f"{self._edge_output!r}: name it in follow, of the engine"
        )

    def _check(self, model: RowPredictor) -> None:
        self._output_of(model)
        super()._check(model)

    def _width(self, model: RowPredictor) -> int:
        return self._output_of(model).scores.width

    def _type_of(self, model: RowPredictor) -> str:
        return ",".join(self._output_of(model).scores.edge_type)

    def _count_all(self, model: RowPredictor) -> int:
        edge_type = self._output_of(model).scores.edge_type
        directions = 2 if self.graph.schema.edge_types[edge_type].undirected else 1
        return directions * self.graph.num_edges(edge_type)

    def _list_ids(self, model: RowPredictor) -> AnyIds:
        edge_type = self._output_of(model).scores.edge_type
        index, native = self.graph.edge_type_index(edge_type), self.graph.native
        source, target = (self.graph.to_user_ids(numbers) for numbers in native.edge_numbers(index))
        keyed = self.graph.schema.edge_types[edge_type].duplicates == "keep"
        return to_texts(EdgeNames(source, target, native.coo(index)[4] if keyed else None))

    def _read_part(self, model: RowPredictor, ids: AnyIds) -> PresentRows:
        assert self._runtime is not None
        assert isinstance(model, Engine)
        return read_present_edges(self._runtime, model, from_texts(ids), str(self._edge_output))


class ListedEdges:
    """Edges of a batch, whose ids are made when they are needed: many more may change than are sent."""

    def __init__(self, names: EdgeNames) -> None:
        self.num_changed = len(names.source)
        self._names: EdgeNames | None = names
        self._texts = Texts.of([])

    @property
    def changed(self) -> AnyIds:
        """The ids."""
        if (names := self._names) is not None:
            self._texts = to_texts(names)
            self._names = None
        return self._texts


def to_texts(names: EdgeNames) -> Texts:
    """The ids of edges."""
    columns = [column.tolist() for column in names if column is not None]
    return Texts.of([orjson.dumps(edge).decode() for edge in zip(*columns, strict=True)])


def from_texts(ids: AnyIds) -> EdgeNames:
    """The edges of ids that `to_texts` returned, at least one."""
    source, target, *keys = zip(*map(orjson.loads, ids.tolist()), strict=True)
    return EdgeNames(_column(source), _column(target), np.array(keys[0], np.uint32) if keys else None)


def _column(ids: tuple[int | str, ...]) -> Ids:
    return np.array(ids, np.str_) if isinstance(ids[0], str) else np.array(ids, np.int64)
