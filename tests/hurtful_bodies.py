"""Bodies and messages that are made to hurt: each is small to send, and was large or slow to read.

`memory_of_bodies.py` measures what each costs in memory, `hurt.py` how long others wait meanwhile.
"""

from collections.abc import Callable
from itertools import cycle, islice
from typing import Final, NamedTuple

MIB: Final = 2**20
JSON, LINES, FILE = "application/json", "application/x-ndjson", "application/octet-stream"

EVENTS, PARTIAL = ("POST", "/v1/events"), ("POST", "/v1/events?partial=true")
PREDICTIONS, SAMPLES = ("POST", "/v1/predictions"), ("POST", "/v1/samples")
INFER = ("POST", "/v2/models/engine/infer")
REJECTIONS = ("GET", "/v1/rejections?limit=1000")
WHAT_IF, SERVING, MODEL = ("POST", "/v1/what-if"), ("PUT", "/v1/serving"), ("PUT", "/v1/models/other")
TOPIC = ("TOPIC", "topic")
"""Not a route: the body is a message of a Kafka topic."""

LONG = b"x" * 1024


class Hurtful(NamedTuple):
    """A body of about `size` bytes for a route; `text`: the graph's ids are texts.

    hub: how many nodes the first one leads to, in a graph of these alone; 0 for a small graph. refused: how
    many entries the log has that were refused, each of 40,000 events.
    """

    name: str
    route: tuple[str, str]
    kind: str
    size: int
    make: Callable[[int], bytes]
    text: bool = False
    hub: int = 0
    refused: int = 0

    def body(self) -> bytes:
        """The bytes to send."""
        return self.make(self.size)


def filled(
    *parts: bytes, begin: bytes = b"", between: bytes = b",", end: bytes = b""
) -> Callable[[int], bytes]:
    """Makes `parts` in turns, as often as fits."""

    def make(size: int) -> bytes:
        count = max(1, size * len(parts) // sum(len(part) + len(between) for part in parts))
        return begin + between.join(islice(cycle(parts), count)) + end

    return make


def ids(*parts: bytes) -> Callable[[int], bytes]:
    return filled(*parts, begin=b'{"ids":[', end=b"]}")


def events(*parts: bytes) -> Callable[[int], bytes]:
    return filled(*parts, begin=b'{"events":[', end=b"]}")


def supposed(*parts: bytes) -> Callable[[int], bytes]:
    return filled(*parts, begin=b'{"ids":[1],"events":[', end=b"]}")


def lines(*parts: bytes, first: bytes = b"") -> Callable[[int], bytes]:
    return filled(*parts, begin=first, between=b"\n")


def as_many(part: bytes) -> Callable[[int], bytes]:
    """Ids that are about as many lists or objects as there may be, and then numbers."""

    def make(size: int) -> bytes:
        parts = b",".join([part] * (size // 16 - 8))
        return b'{"ids":[' + parts + b",1" * ((size - len(parts)) // 2 - 16) + b"]}"

    return make


def as_tensor(make: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """The ids of a body of `make` as a tensor, with its other fields beside it."""
    tensor = b'{"inputs":[{"name":"ids","shape":[1],"datatype":"INT64","data":'

    def made(size: int) -> bytes:
        ids, end = make(size).removeprefix(b'{"ids":').rsplit(b"]", 1)
        return tensor + ids + b"]}]" + end

    return made


def with_one_long(short: Callable[[int], bytes], begin: bytes, long: bytes) -> Callable[[int], bytes]:
    """`short`, with `long` put in after `begin`."""
    return lambda size: short(size).replace(begin, begin + long, 1)


EDGE = b'{"event":"add_edge","src":1,"dst":2}'
GONE = b'{"event":"remove_edge","src":1,"dst":2}'
NODE = b'{"event":"remove_node","id":"%b"}'
FEATURES = b'{"event":"set_features","id":1,"x":[%b]}'
TYPED = b'{"event":"add_edge","src":1,"dst":2,"edge_type":["node","to","node"]}'
KEYED = b'{"event":"add_edge","src":1,"dst":2,"idempotency_key":"k"}'

_OF_EVENTS: Final[dict[str, Callable[[int], bytes]]] = {
    "edges": lines(EDGE),
    "edges that come and go": lines(EDGE, GONE),
    "edges of other shapes in turns": lines(EDGE, TYPED[:-1] + b',"weight":2}', GONE),
    "empty lists as features": lines(FEATURES % b"[],[],[],[],[],[],[],[]"),
    "a row of digits": lambda size: FEATURES % (b"1," * (size // 2) + b"1"),
    "rows of digits": lines(FEATURES % (b"1," * 999 + b"1")),
    "a line of empty lists": lambda size: FEATURES % (b"[]," * (size // 3) + b"1"),
    "a line of empty objects": lambda size: FEATURES % (b"{}," * (size // 3) + b"1"),
    "a line of escaped names": lambda size: FEATURES % (b'{"\\u0061":1},' * (size // 13) + b"1"),
    "many fields": lambda size: (
        b'{"event":"add_node",%b"id":1}' % b"".join(b'"%x":1,' % i for i in range(size // 9))
    ),
    "empty lines": lambda size: b"\n" * size + EDGE,
    "no events": lines(b"{}"),
    "numbers": lines(b"1"),
    "one long text": lambda size: b'{"event":"remove_node","id":"%b"}' % (b"x" * size),
    "bytes": lambda size: b"\xff" * size,
    "keys": lines(KEYED),
}
_OF_TEXTS: Final[dict[str, Callable[[int], bytes]]] = {
    "short texts": lines(NODE % b"a"),
    "a long text beside short ones": lines(NODE % b"a", first=NODE % LONG + b"\n"),
    "a long end beside short ones": lines(
        b'{"event":"remove_edge","src":"a","dst":"b"}',
        first=b'{"event":"remove_edge","src":"a","dst":"%b"}\n' % LONG,
    ),
}
_OF_REQUESTS: Final[dict[str, Callable[[int], bytes]]] = {
    "empty lists": ids(b"[]"),
    "empty objects": ids(b"{}"),
    "objects": ids(b'{"":0}'),
    "as many lists as there may be": as_many(b"[]"),
    "as many objects as there may be": as_many(b'{"":0}'),
    "numbers": ids(b"1"),
    "fractions": ids(b".5".replace(b".", b"0.")),
    "texts": ids(b'""'),
    "numbers and texts": ids(b"1", b'"a"'),
    "fields": lambda size: b'{"ids":[1]%b}' % b"".join(b',"%x":1' % i for i in range(size // 9)),
    "fields, the last one twice": lambda size: (
        b'{"ids":[1]%b,"0":1}' % b"".join(b',"%x":1' % i for i in range(size // 10 - 20))
    ),
    "escaped names": ids(b'{"\\u0061":1}'),
    "a deep list": lambda size: b'{"ids":%b1%b}' % (b"[" * 1000, b"]" * 1000),
}


def cases(
    events_size: int = 4 * MIB, json_size: int = MIB - 1024, file_size: int = 64 * MIB
) -> list[Hurtful]:
    """All of them, for every route and for a source.

    events_size: bytes of JSON lines; json_size: of what becomes objects as a whole; file_size: of a model.
    """
    some: list[Hurtful] = []
    for name, make in _OF_EVENTS.items():
        some += [
            Hurtful(f"{name}, as lines", EVENTS, LINES, events_size, make),
            Hurtful(f"{name}, each by itself", PARTIAL, LINES, min(events_size, MIB // 4), make),
            Hurtful(f"{name}, in a message", TOPIC, LINES, events_size, make),
        ]
    for name, make in _OF_TEXTS.items():
        some += [
            Hurtful(f"{name}, as lines", EVENTS, LINES, events_size, make, text=True),
            Hurtful(f"{name}, in a message", TOPIC, LINES, events_size, make, text=True),
        ]
    for name, make in _OF_REQUESTS.items():
        for route in (PREDICTIONS, SAMPLES):
            some.append(Hurtful(f"{name}, to {route[1]}", route, JSON, json_size, make))
        some.append(Hurtful(f"{name}, to infer", INFER, JSON, json_size, as_tensor(make)))
    long_text = with_one_long(ids(b'"a"'), b"[", b'"%b",' % LONG[:1000])
    some += [
        Hurtful(f"a long id, to {at[1]}", at, JSON, json_size, long_text, True)
        for at in (PREDICTIONS, SAMPLES)
    ]
    for name, part in (
        ("edges", EDGE),
        ("empty objects", b"{}"),
        ("objects", b'{"":0}'),
        ("lists", b"[]"),
        ("keys", KEYED),
    ):
        some += [
            Hurtful(f"{name}, as a list", EVENTS, JSON, json_size, events(part)),
            Hurtful(f"{name}, as a list, each by itself", PARTIAL, JSON, json_size, events(part)),
            Hurtful(f"{name}, supposed", WHAT_IF, JSON, json_size, supposed(part)),
        ]
    for route in (EVENTS, PARTIAL):
        some.append(
            Hurtful(f"more entries than there may be, to {route[1]}", route, LINES, events_size, lines(KEYED))
        )
    for at in (PREDICTIONS, SAMPLES):
        some.append(Hurtful(f"as many ids as there may be, to {at[1]}", at, JSON, 190_000, ids(b"1")))
    some += [
        Hurtful("too much to be objects", PREDICTIONS, JSON, 16 * MIB, ids(b"[]")),
        Hurtful("too many events to be objects", EVENTS, JSON, 16 * MIB, events(b"{}")),
        Hurtful(
            "ids to suppose for",
            WHAT_IF,
            JSON,
            json_size,
            filled(b"1", begin=b'{"events":[],"ids":[', end=b"]}"),
        ),
        Hurtful(
            "a name of a model", SERVING, JSON, json_size, lambda size: b'{"model":"%b"}' % (b"x" * size)
        ),
        Hurtful(
            "fields for a model",
            SERVING,
            JSON,
            json_size,
            lambda size: b'{%b"model":"x"}' % (b'"a":[],' * (size // 7)),
        ),
        Hurtful("zeros for a model", MODEL, FILE, file_size, bytes),
        Hurtful(
            "a head of lists",
            MODEL,
            FILE,
            file_size,
            lambda size: size.to_bytes(8, "little") + b'{"a":[' + b"[]," * (size // 3),
        ),
        Hurtful("a head of objects", MODEL, FILE, file_size // 4, _head_of_objects),
    ]
    return some


def exactly(body: bytes) -> Callable[[int], bytes]:
    """Makes this body, whatever its size is to be."""
    return lambda size: body


def large_answers() -> list[Hurtful]:
    """Small requests whose answers would be large, in graphs and logs that are made for that."""
    some = []
    for text, hub, name in ((False, 600_000, "ids"), (True, 20_000, "texts, one of them long")):
        first = b'"n0"' if text else b"0"
        at = ("GET", f"/v1/neighbors?id={'n0' if text else 0}&direction=out")
        some.append(Hurtful(f"{name}, as neighbours", at, JSON, 0, bytes, text, hub))
        for without in (b"", b'"changed":false,'):
            event = b'{"event":"set_features","id":%b,"x":[9,9,9,9]}' % first
            body = b'{%b"ids":[%b],"events":[%b]}' % (without, first, event)
            some.append(
                Hurtful(
                    f"{name}, as changed nodes{', not listed' if without else ''}",
                    WHAT_IF,
                    JSON,
                    0,
                    exactly(body),
                    text,
                    hub if text else hub // 10,
                )
            )
    some.append(Hurtful("a page of large refused entries", REJECTIONS, JSON, 0, bytes, refused=20))
    return some


def _head_of_objects(size: int) -> bytes:
    head = b'{"a":[' + b"{}," * ((size - 10) // 3) + b"1]}"
    return len(head).to_bytes(8, "little") + head
