"""Remove what a store keeps of a dataset beside its objects: their earlier versions."""

from __future__ import annotations

from shardwright.errors import StorageError
from shardwright.storage import gcs_peer, peers
from shardwright.storage.addresses import parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.folder import Folder
from shardwright.transforms.erasure.leftovers import is_dataset_file
from shardwright.transforms.erasure.receipt import Receipt

_VERSIONS = "old versions of objects"


def remove_old_objects(root: Folder, receipt: Receipt) -> None:
    """Remove old versions of a dataset's objects, which a local folder does not have.

    What the store does not let be removed or listed is noted in the receipt.
    """
    if not root.is_remote:
        return
    store, key = parse_address(root.uri)
    start, client = f"{key}/" if key else "", client_for(store, root.options)
    # Of this run: what an earlier one could not remove may be gone by now.
    receipt.not_removed, receipt.not_checked = [], []
    if client.scheme not in ("s3", "gs"):
        why = f"not supported for {client.scheme}://"
        receipt.not_checked.append({"what": _VERSIONS, "why": why})
        return
    try:
        for version in peers.remove_old_versions(
            client, start, lambda found: is_dataset_file(found[len(start) :])
        ):
            if version.fault:
                what = f"version {version.version} of {version.key}"
                receipt.not_removed.append({"what": what, "why": version.fault})
            else:
                count = receipt.old_versions.get(version.key, 0)
                receipt.old_versions[version.key] = count + 1
    except StorageError as error:
        receipt.not_checked.append({"what": _VERSIONS, "why": str(error)})
    if client.scheme == "gs":
        try:
            seconds = gcs_peer.bucket_facts(client).soft_delete_seconds
        except StorageError as error:
            receipt.not_checked.append({"what": "soft delete of the bucket", "why": str(error)})
        else:
            if seconds:
                why = f"the bucket keeps what is deleted for {seconds:,} s"
                receipt.not_removed.append({"what": "softly deleted objects", "why": why})
