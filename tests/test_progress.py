"""The counters of a build that runs in this process."""

from __future__ import annotations

import threading

from transforms.progress import Progress


def test_work_is_added_up_from_many_threads() -> None:
    progress = Progress()
    workers = [
        threading.Thread(target=lambda: [progress.add(images=1, num_bytes=3) for _ in range(5000)])
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (progress.images, progress.num_bytes) == (20_000, 60_000)


def test_reused_work_counts_as_done_and_apart() -> None:
    progress = Progress()
    progress.start(total_images=9, total_shards=3)
    progress.add(images=2, num_bytes=5)
    progress.add(shards=1)
    progress.add_reused(images=4, shards=1)
    assert progress.snapshot() == Progress(
        9, 3, images=6, num_bytes=5, shards=2, reused_images=4, reused_shards=1
    )


def test_what_is_found_of_a_build_elsewhere_replaces_what_was_counted() -> None:
    progress = Progress()
    progress.add(images=100)
    progress.show(Progress(9, 3, images=3, num_bytes=5, shards=1))
    assert progress.snapshot() == Progress(
        9, 3, images=3, num_bytes=5, shards=1, reused_images=3, reused_shards=1
    )
    progress.show(Progress(9, 3, images=6, num_bytes=10, shards=2))
    assert progress.snapshot() == Progress(
        9, 3, images=6, num_bytes=10, shards=2, reused_images=3, reused_shards=1
    )


def test_a_new_build_starts_at_zero() -> None:
    progress = Progress()
    progress.add(images=2, num_bytes=5, shards=1)
    progress.add_reused(images=4, shards=1)
    progress.start(total_images=1, total_shards=1)
    assert progress == Progress(1, 1)


def test_a_snapshot_does_not_move() -> None:
    progress = Progress()
    before = progress.snapshot()
    progress.add(images=1)
    assert (before.images, progress.images) == (0, 1)
