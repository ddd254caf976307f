"""A bad network between two sockets: what `channel_network.Faults` decides, in real time."""

import heapq
import itertools
import threading
import time
from contextlib import suppress

import zmq

from channel_network import Faults, Frames


class Relay:
    """Between two real sockets: one connects to `address`, the other to the relay's own."""

    def __init__(self, address: str, own: str, faults: Faults) -> None:
        self.address, self.faults = own, faults
        self._context = zmq.Context()
        self._near, self._far = (self._context.socket(zmq.DEALER) for _ in range(2))
        for socket in (self._near, self._far):
            socket.linger = 0
        self._near.bind(own)
        self._far.connect(address)
        self._ended, self._is_cut = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        others = {self._near: self._far, self._far: self._near}
        waiting: list[tuple[float, int, zmq.Socket[bytes], Frames]] = []
        count = itertools.count()
        poller = zmq.Poller()
        for socket in others:
            poller.register(socket, zmq.POLLIN)
        while not self._ended.is_set():
            for socket, _ in poller.poll(5):
                for delay, frames in self.faults.decide(socket.recv_multipart()):
                    heapq.heappush(waiting, (time.monotonic() + delay, next(count), others[socket], frames))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, socket, frames = heapq.heappop(waiting)
                if not self._is_cut.is_set():
                    with suppress(zmq.Again):  # the other end is not there
                        socket.send_multipart(frames, zmq.NOBLOCK)

    def cut(self) -> None:
        """From here on nothing arrives, and neither end can see it."""
        self._is_cut.set()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._context.destroy(0)
