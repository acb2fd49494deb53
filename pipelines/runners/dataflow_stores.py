"""Check that Dataflow's workers can use the stores of a build, before a job is submitted."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from shardwright.errors import DeniedError, MissingError, MissingPeerError, UsageError
from shardwright.storage.addresses import is_remote, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.gcs_peer import bucket_facts
from shardwright.storage.options import SECRET_KEYS, StorageOptions, parse_bool

_LOG = logging.getLogger("shardwright.dataflow")
# Values that name a file or a profile; an image may have them.
_LOCAL_KEYS = frozenset(
    {"application_credentials", "profile", "service_account", "web_identity_token_file"}
)
_DAY = 86_400


def check_credentials(
    places: Mapping[str, str | None], storage: StorageOptions, *, has_image: bool
) -> None:
    """Reject credentials that would be staged, or that workers do not have. No request is sent.

    Args:
        places: Name on the command line -> path or address that workers read or write, or None.
        storage: Their options.
        has_image: Workers have the user's own image, which may have credentials.

    Raises:
        UsageError: With the option or the address, and the fix.
    """
    for _, key, _ in storage.settings:
        if key in SECRET_KEYS:
            raise UsageError(
                f"--storage-option {key}: Dataflow stores the options of a job, and this one is a "
                "secret: leave it out; workers use gs:// as their service account, and s3:// with "
                "--storage-option role_arn=ARN (docs/dataflow.md)"
            )
        if key in _LOCAL_KEYS and not has_image:
            raise UsageError(
                f"--storage-option {key} names a file or profile of this machine, which workers of "
                "Dataflow do not have: leave it out, or give --sdk_container_image of an image "
                "that has it"
            )
    for name, place in places.items():
        store = parse_address(place).store if place is not None and is_remote(place) else ""
        if store.startswith("s3://") and not _has_access(storage.for_store(store)):
            raise UsageError(
                f"{name} {place}: workers of Dataflow have no AWS credentials: give "
                "--storage-option role_arn=ARN of a role that trusts their service account "
                "(docs/dataflow.md), or anonymous=true for a public bucket"
            )


def _has_access(values: Mapping[str, str]) -> bool:
    """Return whether options of an S3 bucket give workers access to it."""
    anonymous = parse_bool("skip_signature", values.get("skip_signature", "false"))
    return anonymous or "role_arn" in values or "profile" in values


def check_buckets(places: Iterable[str | None], output: str, storage: StorageOptions) -> None:
    """Reject Rapid buckets; warn if OUTPUT's bucket keeps what a build deletes.

    One request per bucket of Google. Those whose metadata may not be read are not checked, nor are
    missing ones, which reading INPUT and OUTPUT reports.

    Args:
        places: Paths and addresses that workers read or write, or None.
        output: OUTPUT, one of them.
        storage: Their options.

    Raises:
        UsageError: A bucket is zonal.
        StorageError: A bucket does not respond.
    """
    remote = [place for place in places if place is not None and is_remote(place)]
    for store in dict.fromkeys(parse_address(place).store for place in remote):
        if not store.startswith("gs://"):
            continue
        try:
            facts = bucket_facts(client_for(store, storage))
        except (DeniedError, MissingError, MissingPeerError) as error:
            _LOG.info("%s was not checked: %s", store, error)
            continue
        if facts.is_zonal:
            raise UsageError(
                f"{store} is a Rapid bucket (in one zone), which is not supported: its objects are "
                "written with gRPC only; use a bucket in a region"
            )
        if facts.soft_delete_seconds and is_remote(output) and parse_address(output).store == store:
            _LOG.warning(
                "shardwright: %s keeps what is deleted or replaced for %g days and bills it (soft "
                "delete): if it holds datasets only, run `gcloud storage buckets update %s "
                "--clear-soft-delete`",
                store,
                round(facts.soft_delete_seconds / _DAY, 1),
                store,
            )
