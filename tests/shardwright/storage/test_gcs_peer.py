"""Google's own client: its credentials."""

from __future__ import annotations

from pathlib import Path

from shardwright.storage import gcs_peer
from shardwright.storage.clients import client_for
from shardwright.storage.options import StorageOptions
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
