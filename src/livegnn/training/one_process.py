"""What cannot leave the process of its graph."""

from typing import NoReturn

from livegnn.errors import InputError


class OneProcess:
    """What belongs to a live graph, and cannot be sent to another process, which would have a copy of it."""

    def __reduce__(self) -> NoReturn:
        raise InputError(
            f"{type(self).__name__} belongs to the graph of this process and cannot be sent to another: fork "
            "the workers of a loader, with multiprocessing_context='fork', or leave num_workers at 0"
        )
