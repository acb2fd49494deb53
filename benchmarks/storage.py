#!/usr/bin/env python
"""Measure object stores with shardwright and its peers (`make bench-storage`).

Real servers on this machine, versitygw for S3 and tests/servers/gcs for GCS, hold photos (see
photos.py). A proxy process adds 30 ms to each request; with 0 there is none. Every client
runs in its own process and rounds are interleaved. Clients, server and proxy share the machine, so
the CPU of each is reported.

  read    objects of 80 KB, many at a time: objects/s, CPU, memory (storage_reads.py)
  build   whole builds from S3 with 30 ms added, to a folder and to S3, in steady state: the slope
          between two sizes (storage_builds.py)
  upload  one object of 150 MB from a stream
  list    200,000 keys in 100 folders, and half of them in one

A slower client reads, builds and lists less, so that each takes a few seconds; rates do not depend
on that. Exit code 1 if a required target fails, unless --no-check is given. Takes about 8 minutes,
and 6 GB.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import environments
import page
import raw_results
import storage_builds as builds
import storage_report as report
from ballast import Ballast
from measure import RunFailedError, measure
from outputs import check_output
from photos import make_photos
from storage_clients import LISTERS, UPLOADERS
from storage_reads import READERS
from storage_report import Results, Run
from storage_server import (
    GCS,
    OUT_BUCKET,
    PHOTOS_BUCKET,
    PROXY,
    S3,
    SERVERS,
    Endpoint,
    Stores,
    link_bucket,
    make_empty_objects,
    put_photos,
    server_versions,
    write_rows,
)
from systems import HERE

PARTS = ("read", "build", "upload", "list")
# Folders, and the fraction of --list-keys: versitygw reads a folder whole for each page.
LAYOUTS = {"100 folders": (100, 1.0), "one folder": (0, 0.5)}
# Fraction of --read-files that takes about as long as all of them with shardwright.
_SHARE = {
    "shardwright": 1.0,
    "obstore-threads": 1.0,
    "boto3-threads": 0.15,
    "google-threads": 0.15,
    "s3fs": 0.05,
    "gcsfs": 1.0,
}
_BEAM_SHARE = {S3: 0.003, GCS: 0.01}
# Fractions of the two sizes: the difference must take several times as long as start-up varies.
_BUILD_SHARE = {builds.OURS: 1.0, builds.BOTO3: 0.4, builds.BEAM: 0.002}
_PEERS_LIST = 0.1  # fraction of the keys
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}
_BYTES_PER_FILE = 100_000
_UPLOADS_A_ROUND = {S3: 2, GCS: 1}  # they take a second each; only those to S3 have a target
PROXY_TRIAL_MSEC = 1  # measures the throughput of the proxy itself


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = page.parser(__doc__)
    add = parser.add_argument
    add(
        "--parts",
        type=page.choice(PARTS),
        default=list(PARTS),
        help="comma-separated, of: " + ", ".join(PARTS),
    )
    add(
        "--msec",
        type=page.numbers,
        default=[30],
        help="milliseconds added to each request when reading (default 30)",
    )
    add(
        "--build-msec",
        type=int,
        default=30,
        help="milliseconds added to each request when building",
    )
    add("--photos", type=int, default=1000, help="number of different photos")
    add("--read-files", type=int, default=2000, help="objects for the fastest reader")
    add(
        "--build-files",
        type=page.numbers,
        default=[1000, 9000],
        help="two sizes for the fastest build (default 1000,9000)",
    )
    add("--list-keys", type=int, default=200_000, help="keys to list")
    add("--upload-bytes", type=int, default=150_000_000, help="bytes of the upload")
    add("--no-beam", action="store_true", help="leave Beam out")
    add("--quick", action="store_true", help="one round of few objects without targets, for CI")
    args = parser.parse_args(argv)
    if args.quick:
        args.rounds, args.photos, args.read_files, args.build_files = 1, 40, 40, [20, 40]
        args.msec, args.list_keys, args.upload_bytes, args.no_check = (
            [0, 30],
            2000,
            20_000_000,
            True,
        )
    if len(args.build_files) != 2 or args.build_files[0] == args.build_files[1]:
        parser.error(f"--build-files must be two different sizes, got {args.build_files}")
    return args


class Bench:
    """The runs of all clients against the stores, and their results."""

    def __init__(self, folder: Path, stores: Stores, args: argparse.Namespace) -> None:
        self.folder, self.stores, self.args = folder, stores, args
        self.results = Results()
        self.rows: dict[str, list[dict[str, object]]] = {}

    def has(self, client: str) -> bool:
        return not (self.args.no_beam and client.startswith("beam"))

    def measured(self, endpoint: Endpoint, run: Callable[[], Run], *case: object) -> None:
        """Record one run, with the CPU of the servers during it."""
        before = self.stores.cpu_s()
        found = run()
        took = {name: seconds - before[name] for name, seconds in self.stores.cpu_s().items()}
        found = found._replace(server_cpu_s=took[SERVERS[endpoint.scheme]], proxy_cpu_s=took[PROXY])
        self.results.add(case, found)
        page.say(
            f"{' '.join(map(str, case)):<52} {found.items:>7} in {found.wall_s:6.2f} s  "
            f"{report.brief(found)}"
        )

    def client(
        self, task: str, name: str, endpoint: Endpoint, bucket: str, *words: str
    ) -> Callable[[], Run]:
        """Return a function that runs storage_clients.py."""
        place = [
            "--scheme",
            endpoint.scheme,
            "--bucket",
            bucket,
            "--options",
            json.dumps(endpoint.options),
        ]
        python = environments.python_of("storage", name)
        command = [python, str(HERE / "storage_clients.py"), task, name, *place, *words]

        def run() -> Run:
            usage = measure(
                command,
                log=self.folder / "logs" / f"{task}-{name}",
                env=_QUIET | endpoint.env(),
                timeout_s=600,
            )
            told = usage.told()
            return Run(
                int(told["count"]),
                told["wall_s"],
                told["cpu_s"],
                int(told["growth_bytes"]),
                usage.peak_rss_bytes,
            )

        return run

    def read(self, round_number: int, msec: int, scheme: str) -> None:
        with self.stores.line(scheme, msec) as endpoint:
            for name in filter(self.has, page.turned(list(READERS[scheme]), round_number)):
                if name.startswith("beam") and (round_number or msec != self.args.msec[0]):
                    continue
                count = max(4, round(self.args.read_files * _SHARE.get(name, _BEAM_SHARE[scheme])))
                rows = write_rows(self.folder / "rows.json", self.rows[scheme], count)
                self.measured(
                    endpoint,
                    self.client("read", name, endpoint, PHOTOS_BUCKET, "--rows", str(rows)),
                    "read",
                    msec,
                    scheme,
                    name,
                )

    def try_proxy(self) -> None:
        with self.stores.line(S3, PROXY_TRIAL_MSEC) as endpoint:
            rows = write_rows(self.folder / "rows.json", self.rows[S3], self.args.read_files)
            run = self.client(
                "read", "obstore-threads", endpoint, PHOTOS_BUCKET, "--rows", str(rows)
            )
            self.measured(endpoint, run, "proxy", PROXY_TRIAL_MSEC, S3, "obstore-threads")

    def upload(self, round_number: int, msec: int, scheme: str) -> None:
        peers = {S3: ["shardwright", "boto3-transfer"], GCS: ["shardwright", "google-resumable"]}[
            scheme
        ]
        assert set(peers) <= set(UPLOADERS)
        with self.stores.line(scheme, msec) as endpoint:
            for name in page.turned(peers, round_number):
                words = ("--num-bytes", str(self.args.upload_bytes))
                self.measured(
                    endpoint,
                    self.client("upload", name, endpoint, OUT_BUCKET, *words),
                    "upload",
                    msec,
                    scheme,
                    name,
                )

    def list(self) -> None:
        """List once per client: the figure is CPU per key, over tens or hundreds of pages."""
        for number, (layout, (folders, share)) in enumerate(LAYOUTS.items()):
            every = round(self.args.list_keys * share)
            some = round(every * _PEERS_LIST)
            names = {size: f"keys-{number}-{size}" for size in (some, every)}
            for size, bucket in names.items():
                make_empty_objects(self.stores, bucket, size, min(folders, size))
            with self.stores.line(S3, 0) as endpoint:
                for name in filter(self.has, LISTERS):
                    bucket = names[every if name == builds.OURS else some]
                    run = self.client("list", name, endpoint, bucket, "--warm-bucket", OUT_BUCKET)
                    self.measured(endpoint, run, "list", layout, name)
            for bucket in names.values():
                self.stores.remove_bucket(bucket)

    def builds(self) -> None:
        files = self.args.build_files
        sizes = {
            name: [max(2 + 2 * place, round(size * share)) for place, size in enumerate(files)]
            for name, share in _BUILD_SHARE.items()
        }
        all_sizes = sorted({size for some in sizes.values() for size in some})
        num_bytes = {
            size: link_bucket(self.stores, f"files-{size}", self.rows[S3], size)
            for size in all_sizes
        }
        out_bytes = max(num_bytes.values()) * 5 // 4
        ballast = Ballast(
            self.folder / "ballast", 0 if page.directory_kind(self.folder) == "disk" else out_bytes
        )
        try:
            with self.stores.line(S3, self.args.build_msec) as endpoint:
                for round_number in range(self.args.rounds):
                    for name in filter(self.has, page.turned(list(builds.NAMES), round_number)):
                        for size in (
                            sizes[name] if not (name == builds.BEAM and round_number) else ()
                        ):
                            for kind in ("folder", "S3"):
                                run = self._build(
                                    name, kind, size, num_bytes[size], endpoint, ballast
                                )
                                self.measured(endpoint, run, "build", kind, name, size)
        finally:
            ballast.remove()

    def _build(
        self, name: str, kind: str, size: int, num_bytes: int, endpoint: Endpoint, ballast: Ballast
    ) -> Callable[[], Run]:
        folder = (
            self.folder / "out"
            if kind == "folder"
            else self.stores.bucket_folder(OUT_BUCKET) / "run"
        )
        out = str(folder) if kind == "folder" else f"s3://{OUT_BUCKET}/run"
        ballast.swap(folder)
        if kind == "folder":
            folder.mkdir()

        def run() -> Run:
            usage = measure(
                builds.build_command(name, f"s3://files-{size}", out),
                log=self.folder / "logs" / f"build-{name}",
                env=_QUIET | endpoint.env(),
                each_look=lambda rss_bytes: ballast.follow(folder, rss_bytes),
            )
            check_output(name, folder, files=size, num_bytes=num_bytes)
            ballast.swap(folder)
            return Run(size, usage.wall_s, usage.cpu_s, 0, usage.peak_rss_bytes)

        return run


def run_parts(bench: Bench, args: argparse.Namespace) -> None:
    """Run the chosen parts; reading and uploading in rounds."""
    if "read" in args.parts:
        bench.try_proxy()
    for number in range(args.rounds):
        for scheme in (S3, GCS):
            for msec in args.msec if "read" in args.parts else ():
                bench.read(number, msec, scheme)
            # A resumable upload goes to the address that the GCS server returns, not to the proxy.
            for msec in (
                ((0, args.build_msec) if scheme == S3 else (0,)) if "upload" in args.parts else ()
            ):
                for again in range(_UPLOADS_A_ROUND[scheme]):
                    bench.upload(number + again, msec, scheme)
    if "build" in args.parts:
        bench.builds()
    if "list" in args.parts:
        bench.list()


def main() -> int:
    args = parse_args(sys.argv[1:])
    clients = {
        "read": [name for of in READERS.values() for name in of],
        "build": builds.NAMES,
        "upload": UPLOADERS,
        "list": LISTERS,
    }
    used = [name for part in args.parts for name in clients[part]]
    if args.no_beam:
        used = [name for name in used if not name.startswith("beam")]
    peers = environments.releases("storage", used, dated=args.write)
    need_bytes = (
        3 * args.photos + 2 * max(args.build_files)
    ) * _BYTES_PER_FILE + 4 * args.upload_bytes
    folder = page.work_folder(args.dir, need_bytes)
    page.say(f"working in {folder} ({page.directory_kind(folder)}); making photos ...")
    photos = make_photos(folder / "photos", photos=args.photos)
    try:
        with Stores(folder / "stores") as stores:
            bench = Bench(folder, stores, args)
            bench.rows = put_photos(stores, photos)
            run_parts(bench, args)
    except RunFailedError as failure:  # without this run there is no fair comparison
        sys.exit(str(failure))
    about = raw_results.circumstances(
        folder, args.rounds, packages=["obstore"], notes=[server_versions()], peers=peers
    )
    name = "-".join(["storage", *(args.parts if args.parts != list(PARTS) else [])])
    result = raw_results.Result(name, about, report.packed(bench.results))
    return raw_results.finish(result, report, args)


if __name__ == "__main__":
    sys.exit(main())
