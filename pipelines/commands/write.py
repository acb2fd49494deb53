"""Write datasets from Python: `sw.write` and `sw.Writer`.

Records are an input format like any other: their images go to the spool, or stay where their paths
lead, and the rest is the build of the command line.
"""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Lock, Thread
from time import monotonic
from types import TracebackType
from typing import Any

from shardwright.dataset import Dataset, open_dataset
from shardwright.errors import UsageError
from shardwright.format.schema import ExampleSchema
from shardwright.pipelines.commands.append import append_version
from shardwright.pipelines.commands.build import prepare_build, run_job
from shardwright.pipelines.commands.results import ProgressDisplay, say_result
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.python import (
    PYTHON_ERRORS,
    RecordOptions,
    Split,
    record_options,
)
from shardwright.terminal import say
from shardwright.transforms.inputs.formats.record_columns import SAMPLE_RECORDS, Record
from shardwright.transforms.inputs.formats.records import (
    RecordSource,
    forget_records,
    open_records,
    records_of,
    simple_record,
    spool_records,
)
from shardwright.transforms.inputs.source import InputSource, SourceRequest
from shardwright.transforms.progress import PROGRESS

_WAIT_SECONDS = 0.2  # between two looks if the thread that reads records has failed


@PYTHON_ERRORS
def write(
    records: Any,
    output: str,
    *,
    schema: ExampleSchema | str | None = None,
    split: Split | None = None,
    shards: int | None = None,
    **options: Any,
) -> Dataset:
    """Write records as a dataset, with the plan, the rejects and the bytes of `shardwright build`.

    A record is a dict. Its key `image` (or the only one with images) holds the image: encoded
    bytes, a path, a PIL image, or an array [height, width(, 1|3|4)] of uint8 or uint16. Bytes and
    files are stored unchanged, pixels as PNG, unless `encode` says otherwise. Other keys become the
    label, split and features, as columns of a table do. Records without a key `id` are numbered
    from 0, in shards as "SHARD/NUMBER".

    A pair (X, y) is an input and its label. The input's key is `features` if it is a vector or a
    number, so that there is no image; else it is `image`.

    Calling it again with the same records and options resumes: finished shards are kept, and a
    finished dataset is left as it is. Lists, tables, arrays and data sets can be given again; for a
    generator, make it anew. Records are read again in any case.

    With `if_exists="append"`, it compares the records with those of the dataset by their ids, and
    commits what has changed as the next version: new records are added, and changed ones replace
    theirs. Records that are not given again are taken away, unless `keep_missing=True`. An image is
    unchanged if its bytes are, or a file's address and time; a record without an image always
    counts as changed.

    Args:
        records: An iterable of dicts or (input, label) pairs, a pandas DataFrame, an Arrow table, a
            torch-style data set (`__len__` and `__getitem__`), a `tf.data.Dataset`, a pair or dict
            of NumPy arrays; or with `shards` a function that returns the records of a shard, given
            its number, the same ones in every call.
        output: The dataset's folder: a local path, `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`.
        schema: The features; inferred from the first 64 records, and logged, by default. If no key
            holds images, that is the ready schema "records".
        split: A key of the records, fractions or counts such as {"train": 0.9, "test": 0.1}, or one
            name for all records.
        shards: Number of parts that the function `records` makes, on the workers of any runner.
        options: Options of `shardwright build`, and of Beam, with underscores.

    Raises:
        UsageError: An option, a key or the records are invalid.
        BuildError: The build failed, such as by too many rejects, which the message names; nothing
            is published.
    """
    started = monotonic()
    PROGRESS.start()
    chosen = record_options(output, schema, options)
    with ProgressDisplay(PROGRESS):
        if shards is None:
            job = _spooled_job(records_of(records), chosen, split)
        else:
            job = _job_of_shards(records, shards, chosen, split)
        return _published(job, started)


class Writer:
    """A writer of one record at a time, which publishes the dataset when its block ends.

        with sw.Writer("dataset/", split={"train": 0.9, "test": 0.1}) as writer:
            writer.write({"image": pixels, "label": "cat"})

    If the block raises an exception, nothing is published. Records are written to the spool while
    the block runs; planning and shards follow at its end. `if_exists="append"` works as for
    `write`. Threads may write at the same time; the
    numbers of records without an id then depend on who comes first.

    Args:
        output: As for `write`, and so are `schema`, `split` and `options`.

    Raises:
        UsageError: An option is unknown or invalid.
    """

    @PYTHON_ERRORS
    def __init__(
        self,
        output: str,
        *,
        schema: ExampleSchema | str | None = None,
        split: Split | None = None,
        **options: Any,
    ) -> None:
        self._options = record_options(output, schema, options)
        self._split = split
        self._feed: queue.Queue[list[Record] | BaseException | None] = queue.Queue(2)
        self._some: list[Record]  # handed over together, because each time waits for a lock
        self._lock = Lock()  # of `_some`
        self._thread: Thread | None = None
        self._job: Future[BuildJob]

    def __enter__(self) -> Writer:
        self._started, self._some = monotonic(), []
        PROGRESS.start()
        self._job = Future()
        # Not waited for at the end of a script that never leaves the block.
        self._thread = Thread(target=self._spool, name="shardwright-writer", daemon=True)
        self._thread.start()
        return self

    @PYTHON_ERRORS
    def write(self, record: Any) -> None:
        """Add a record: a dict, or a pair of input and label. It may be changed afterwards.

        Raises:
            UsageError: The record is neither, or the writer is not open.
        """
        if self._thread is None:
            raise UsageError("the writer is not open: write in `with sw.Writer(...) as writer:`")
        simple = simple_record(record)
        with self._lock:
            self._some.append(simple)
            if len(self._some) == SAMPLE_RECORDS:
                self._hand_over()

    @PYTHON_ERRORS
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._thread is not None
        thread, self._thread = self._thread, None
        try:
            if error is None:
                self._hand_over()
                self._put(None)
            else:
                with suppress(Exception):  # of the thread; the block's own is raised
                    self._put(error)
        finally:
            thread.join()
        if error is None:
            with ProgressDisplay(PROGRESS):
                _published(self._job.result(), self._started)

    def _spool(self) -> None:
        try:
            self._job.set_result(_spooled_job(self._fed(), self._options, self._split))
        except BaseException as error:
            self._job.set_exception(error)

    def _fed(self) -> Iterator[Record]:
        """Yield the records of the block until it ends; raise the exception that ends it."""
        while (item := self._feed.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield from item

    def _hand_over(self) -> None:
        some, self._some = self._some, []
        self._put(some)

    def _put(self, item: list[Record] | BaseException | None) -> None:
        """Hand an item to the thread; raise what ended the thread."""
        while not self._job.done():
            try:
                return self._feed.put(item, timeout=_WAIT_SECONDS)
            except queue.Full:
                continue
        self._job.result()
        return None


def _spooled_job(
    records: Iterable[Record], options: RecordOptions, split: Split | None
) -> BuildJob:
    """Return the job of records that are in the spool."""
    source = iter(records)
    sample = list(itertools.islice(source, SAMPLE_RECORDS))
    job = _prepared(options, split, sample, partial(open_records, sample))
    spool_records(job.source, itertools.chain(sample, source))
    return job


def _job_of_shards(
    make: Callable[[int], Any], shards: int, options: RecordOptions, split: Split | None
) -> BuildJob:
    """Return the job of records that a function makes, shard by shard, on the workers."""
    if not callable(make) or type(shards) is not int or shards < 1:
        raise UsageError(
            f"shards={shards!r} needs a function of a shard's number and a whole number of shards, "
            f"at least 1; got {type(make).__name__}"
        )
    # Pickles functions of notebooks and scripts by value; not at the top, as Beam takes seconds.
    from apache_beam.internal import cloudpickle

    each = (itertools.islice(records_of(make(shard)), SAMPLE_RECORDS) for shard in range(shards))
    sample = next((found for records in each if (found := list(records))), [])
    opened = partial(open_records, sample, maker=cloudpickle.dumps(make), shards=shards)
    job = _prepared(options, split, sample, opened)
    forget_records(job.source)
    return job


def _prepared(
    options: RecordOptions, split: Split | None, sample: list[Record], opened: Any
) -> BuildJob:
    keys = {name for record in sample for name in record}
    chosen = options.for_records(sample).with_split(split, keys)

    def detect(request: SourceRequest) -> InputSource:
        source: InputSource = opened(request)
        assert isinstance(source, RecordSource)
        if chosen.if_exists == "append" and source.records.numbered:
            raise UsageError(
                "--if-exists append compares records by their ids: give each record a key 'id'"
            )
        return source

    job = prepare_build(chosen, detect)
    say(job.describe_inputs())
    return job


def _published(job: BuildJob, started: float) -> Dataset:
    source, options = job.source, job.options
    assert isinstance(source, RecordSource)
    # The graph is for functions of shards and options of Beam; its start takes longest of all.
    needs_graph = source.maker or options.beam_args or options.writer == "beam"
    try:
        if needs_graph:
            run_job(job)
        elif job.known is not None:
            append_version(job, here=True)
        else:
            build_here(job)
    finally:
        # Nothing would use them: they are spooled anew in any case. A cluster may still do.
        forget_records(job.source, with_bytes=not needs_graph)
    say_result(job, monotonic() - started)
    output = options.output if job.known is None else job.known.append.root.uri
    return open_dataset(output, options.storage)
