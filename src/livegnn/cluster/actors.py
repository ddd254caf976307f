"""The process of a worker: the worker, in a thread of its own, and answers to the coordinator.

The coordinator makes actors of these classes; they know nothing of Ray. A constructor returns at once, so
that a worker that takes long to begin, because it takes many steps again, answers meanwhile. The coordinator
passes the function by which a worker finds out whether the cluster still has it.

Thread safety: every method may be called from any thread.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from livegnn.cluster.orphan import OrphanCheck
from livegnn.cluster.spec import ClusterSpec
from livegnn.errors import LiveGNNError, LogError, TimeoutExpired
from livegnn.workers import SamplingWorker, ServingWorker, WorkerPlan

if TYPE_CHECKING:
    from livegnn.http.serving import HttpServer


class Report(NamedTuple):
    """The state of a worker.

    process: its number. seq: the last event that it has taken, or that its answers have seen. stuck_seconds:
    how long its thread has been in its present step. failure: why it has ended. address: of a serving worker
    that has all data of its seeds. ready: whether it works.
    """

    process: int
    seq: int = 0
    stuck_seconds: float = 0.0
    failure: str | None = None
    address: str | None = None
    ready: bool = False


class SamplingActor:
    """Sampling worker `number`; node: the address of the machine. orphan_check: what makes its check."""

    def __init__(
        self,
        spec: ClusterSpec,
        plan: WorkerPlan,
        number: int,
        node: str,
        orphan_check: Callable[[], OrphanCheck] | None = None,
    ) -> None:
        self._orphan_check = None if orphan_check is None else orphan_check()
        self._open: Callable[[], SamplingWorker] = lambda: spec.open_sampling(plan, number, node)
        self._changed = threading.Condition()
        self._worker: SamplingWorker | None = None
        self._turned: float | None = None  # when the last step began
        self._asked = self._saved = 0  # checkpoints
        self._stopped = False
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"sampling-{number}", daemon=True)
        self._thread.start()

    def report(self) -> Report:
        """The state of the worker. The coordinator calls this repeatedly."""
        if self._orphan_check is not None:
            self._orphan_check.note_asked()
        turned, worker = self._turned, self._worker
        stuck = 0.0 if turned is None else time.monotonic() - turned
        if worker is None or self._failure is not None:
            return Report(os.getpid(), failure=self._failure)
        return Report(os.getpid(), worker.seq, stuck, ready=True)

    def save(self, timeout: float) -> int:
        """Has a checkpoint written; returns its event. Raises TimeoutExpired, LogError."""
        with self._changed:
            self._asked += 1
            mine = self._asked
            done = self._changed.wait_for(
                lambda: self._saved >= mine or self._failure is not None or self._stopped, timeout
            )
            if self._failure is not None:
                raise LogError(self._failure)
            if not done or self._saved < mine or self._worker is None:
                raise TimeoutExpired(f"expected a checkpoint within {timeout} seconds, got none")
            return self._worker.seq

    def stop(self) -> None:
        """Ends the worker with a checkpoint, after the step that it is in."""
        with self._changed:
            self._stopped = True
            worker = self._worker
        if worker is not None:
            worker.stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            worker = self._open()
            try:
                with self._changed:
                    self._worker = worker
                    if self._stopped:
                        return
                worker.run(self._before_each)
            finally:
                worker.close()
        except Exception as error:
            with self._changed:
                self._failure = _said(error)
                self._changed.notify_all()
        finally:
            self._turned = None

    def _before_each(self) -> None:
        self._turned = time.monotonic()
        asked = self._asked
        if asked > self._saved:
            assert self._worker is not None
            self._worker.save()
            with self._changed:
                self._saved = asked
                self._changed.notify_all()


class ServingActor:
    """Serving worker `number`, or a replica of it, over HTTP at a free port of loopback, or of `node`, an
    address, if the specification says so."""

    def __init__(
        self,
        spec: ClusterSpec,
        plan: WorkerPlan,
        number: int,
        replica: int,
        node: str,
        orphan_check: Callable[[], OrphanCheck] | None = None,
    ) -> None:
        self._orphan_check = None if orphan_check is None else orphan_check()
        self._open: Callable[[], ServingWorker] = lambda: spec.open_serving(plan, number, replica, node)
        self._host = node if spec.listen == "node" else "127.0.0.1"
        self._spec = spec
        self._worker: ServingWorker | None = None
        self._server: HttpServer | None = None
        self._address: str | None = None
        self._stopped = threading.Event()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"serving-{number}", daemon=True)
        self._thread.start()

    def report(self) -> Report:
        """The state of the worker. The coordinator calls this repeatedly."""
        if self._orphan_check is not None:
            self._orphan_check.note_asked()
        worker = self._worker
        failure = self._failure
        if worker is None or failure is not None:
            return Report(os.getpid(), failure=failure)
        if worker.failure is not None:
            return Report(os.getpid(), failure=_said(worker.failure))
        try:
            seq = worker.wait(0, 0)
        except TimeoutExpired:  # it does not have all yet
            return Report(os.getpid())
        except LiveGNNError as error:
            return Report(os.getpid(), failure=_said(error))
        return Report(os.getpid(), seq, address=self._address, ready=self._address is not None)

    def stop(self) -> None:
        """Ends the worker; requests that it has begun are answered."""
        self._stopped.set()
        if self._server is not None:
            self._server.stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            worker = self._open()
            worker.start()
            try:
                self._worker = worker
                self._serve(worker)
            finally:
                worker.stop()
        except Exception as error:
            self._failure = _said(error)

    def _serve(self, worker: ServingWorker) -> None:
        from livegnn.http.listening import address_of, listen  # sampling workers need no server
        from livegnn.http.serving import HttpServer
        from livegnn.workers.app import create_serving_app

        access, tls = self._spec.access(behind_front=True), self._spec.tls()
        with listen(self._host, 0) as listener:
            self._server = HttpServer(create_serving_app(worker, access), listener, tls=tls)
            self._address = address_of(listener, "http" if tls is None else "https")
            if not self._stopped.is_set():
                self._server.run()
            if not self._stopped.is_set():
                raise LogError("its server has ended")


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
