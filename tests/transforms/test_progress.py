"""The counters of a build that runs in this process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from shardwright.transforms.progress import Progress


def test_many_threads_add_up() -> None:
    progress = Progress()

    def work(_: int) -> None:
        for _ in range(5000):
            progress.add(images=1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert progress == Progress(images=20_000)


def test_reused_work_counts_as_done_and_apart_and_a_new_build_starts_at_zero() -> None:
    progress = Progress()
    progress.start(total_images=9, total_shards=3)
    before = progress.snapshot()
    progress.add(images=2)
    progress.add(shards=1)
    progress.add_reused(images=4, shards=1)
    expected = Progress(9, 3, images=6, shards=2, reused_images=4, reused_shards=1)
    assert progress.snapshot() == expected
    assert before == Progress(9, 3), "a snapshot does not change"
    progress.start(total_images=1, total_shards=1)
    assert progress == Progress(1, 1)


def test_progress_of_a_remote_build_replaces_the_counters() -> None:
    progress = Progress()
    progress.add(images=100)
    for images, shards in ((3, 1), (6, 2)):
        progress.show(Progress(9, 3, images, shards))
        expected = Progress(9, 3, images, shards, reused_images=3, reused_shards=1)
        assert progress.snapshot() == expected
