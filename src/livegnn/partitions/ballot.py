"""The decision of all parts on one batch: each part votes, and then all commit it or all abandon it."""

import threading
from typing import TYPE_CHECKING, Final

import livegnn._core as _core
import livegnn.errors as errors

if TYPE_CHECKING:
    from collections.abc import Mapping


class GivenUpError(Exception):
    """The batch is abandoned, because another part cannot commit it."""


def first_cause(of: "Mapping[int, BaseException]") -> BaseException | None:
    """The error of the first part that did not only follow another. of: by part."""
    own = [
        of[part] for part in sorted(of) if not isinstance(of[part], (GivenUpError, _core.ExchangeEndedError))
    ]
    return own[0] if own else next(iter(of.values()), None)


def error_of(vote: "Mapping[str, object]") -> BaseException:
    """The error of a process that cannot commit, from its vote (`explain`)."""
    name, text = str(vote["error"]), str(vote["text"])
    if vote["follows"]:
        return GivenUpError(text)
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.InputError):
        return kind(text)
    return errors.LiveGNNError(f"{name}: {text}")


class Ballot:
    """One batch. `vote`, `fail` and `leave` are called by the threads of parts; `wait`, `decide` and
    `wait_for_all` by the thread that leads them. No interrupt keeps its lock.
    """

    def __init__(self, parts: int) -> None:
        self._changed = threading.Condition()
        self._voting = self._inside = parts
        self._decision: bool | None = None
        self.errors: Final[dict[int, BaseException]] = {}
        """By part."""

    def vote(self) -> None:
        """Agrees, and returns once the batch is to be committed. Raises GivenUpError if it is not."""
        with self._changed:
            self._voting -= 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._decision is not None)
            if not self._decision:
                raise GivenUpError

    def fail(self, part: int, error: BaseException) -> None:
        """Notes the error of a part that abandons the batch, or fails after it voted."""
        with self._changed:
            if self._decision is None:
                self._voting -= 1
            self.errors[part] = error
            self._changed.notify_all()

    def leave(self) -> None:
        """The last call of a part: it has committed or abandoned the batch."""
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def wait(self) -> BaseException | None:
        """Waits until each part has voted or failed. Returns the error to show, None if all agree."""
        _core.holding(self._changed, self._changed.wait_for, lambda: not self._voting)
        return self.cause()

    def decide(self, commit: bool) -> None:
        """Ends the wait of all parts that voted. The first decision stays."""
        if self._decision is None:
            self._decision = commit
        _core.holding(self._changed, self._changed.notify_all)

    def wait_for_all(self) -> None:
        """Waits until all parts have left."""
        _core.holding(self._changed, self._changed.wait_for, lambda: not self._inside)

    def cause(self) -> BaseException | None:
        """The error to show, None if no part has one."""
        return first_cause(self.errors)
