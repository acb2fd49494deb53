"""Write to a sink in a thread, while the caller makes what is written next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from shardwright.storage.folder import Sink


class BackgroundSink:
    """A sink with at most one write under way; the next one waits for it and raises its error."""

    def __init__(self, sink: Sink, thread: ThreadPoolExecutor) -> None:
        self._sink = sink
        self._thread = thread
        self._writing: Future[None] | None = None

    def write(self, pieces: Sequence[bytes]) -> None:
        self.wait()
        self._writing = self._thread.submit(self._sink.write, pieces)

    def wait(self) -> None:
        """Wait for the write under way.

        Raises:
            StorageError: It failed.
        """
        if self._writing is not None:
            self._writing.result()


@contextmanager
def in_background(sink: Sink) -> Iterator[BackgroundSink]:
    """Yield a sink that writes in a thread; when the block ends, everything is written."""
    with ThreadPoolExecutor(1, thread_name_prefix="shardwright-spool") as thread:
        background = BackgroundSink(sink, thread)
        yield background
        background.wait()
