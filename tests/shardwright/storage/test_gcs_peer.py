"""Google's own client: its credentials, errors, and old versions of objects."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from shardwright.errors import MissingError, MissingPeerError
from shardwright.storage import gcs_peer
from shardwright.storage.clients import Client, client_for
from shardwright.storage.options import StorageOptions
from shardwright.storage.peers import remove_old_versions
from tests.servers.dataflow.credentials import make_credentials
from tests.support.buckets import Answer, Request, answering


def test_a_token_is_requested_once(tmp_path: Path) -> None:
    tokens: list[str] = []

    def answer(request: Request) -> Answer:
        if request.path == "/token":
            tokens.append(request.path)
            return 200, {}, b'{"access_token": "t", "expires_in": 3600, "token_type": "Bearer"}'
        return 200, {"Content-Type": "application/json"}, b'{"size": "1"}'

    with answering(answer) as endpoint:
        credentials = make_credentials(tmp_path)
        credentials.write_key_file(f"{endpoint}/token")
        key_file = str(credentials.key_file)
        options = StorageOptions.of({"base_url": endpoint, "application_credentials": key_file})
        client = client_for("gs://bucket", options)
        assert [gcs_peer.stated_content(client, "x").num_bytes for _ in range(3)] == [1, 1, 1]
    assert len(tokens) == 1


def anonymous(endpoint: str) -> Client:
    return client_for(
        "gs://bucket", StorageOptions.of({"base_url": endpoint, "skip_signature": "true"})
    )


def test_an_error_is_no_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response's body is JSON then, too, with other fields; without google-auth none is asked."""
    refusal = 404, {}, b'{"error": {"code": 404}}'
    with answering(lambda _: refusal) as endpoint:
        client = anonymous(endpoint)
        with pytest.raises(MissingError, match="gs://bucket"):
            gcs_peer.stated_content(client, "x")
        monkeypatch.setitem(sys.modules, "google.auth.transport.requests", None)
        with pytest.raises(MissingPeerError, match=r"pip install 'shardwright\[gcp\]'"):
            gcs_peer.stated_content(client, "x")


def test_old_versions_are_removed_by_their_generations() -> None:
    """fake-gcs-server keeps none in files, so the responses are those that the API documents.

    https://cloud.google.com/storage/docs/json_api/v1/objects
    """
    when = "2026-01-01T00:00:00Z"
    pages = {
        "": [{"name": "d/a b", "generation": "1", "timeDeleted": when}],
        "2": [
            {"name": "d/a b", "generation": "5"},
            {"name": "d/held", "generation": "3", "timeDeleted": when},
            {"name": "d/other", "generation": "4", "timeDeleted": when},
        ],
    }
    removed: list[tuple[str, str]] = []

    def answer(request: Request) -> Answer:
        url = urlsplit(request.path)
        query = {name: found[0] for name, found in parse_qs(url.query).items()}
        if request.method == "DELETE":
            removed.append((url.path.rpartition("/o/")[2], query["generation"]))
            return (403 if "held" in url.path else 204), {}, b""
        assert (query["versions"], query["prefix"]) == ("true", "d/")
        page = {"items": pages[query.get("pageToken", "")]}
        more = {} if "pageToken" in query else {"nextPageToken": "2"}
        return 200, {}, json.dumps(page | more).encode()

    with answering(answer) as endpoint:
        client = anonymous(endpoint)
        done, held = remove_old_versions(client, "d/", lambda key: key != "d/other")
    assert done == ("d/a b", "1", "")
    assert held[:2] == ("d/held", "3")
    assert "403" in held.fault
    assert removed == [("d%2Fa%20b", "1"), ("d%2Fheld", "3")]
