"""A Google machine's metadata server and AWS's STS, which takes its identity tokens, in one server.

https://cloud.google.com/compute/docs/instances/verifying-instance-identity
https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

from tests.support.buckets import Answer, Request, answering

ROLE = "arn:aws:iam::123456789012:role/reader"
_IDENTITY = "/computeMetadata/v1/instance/service-accounts/default/identity"
_ANSWER = """\
<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{key}</AccessKeyId>
<SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{session}</SessionToken>
<Expiration>{expires}</Expiration></Credentials><AssumedRoleUser>
<Arn>arn:aws:sts::123456789012:assumed-role/reader/shardwright</Arn>
<AssumedRoleId>A:shardwright</AssumedRoleId></AssumedRoleUser></AssumeRoleWithWebIdentityResult>
<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></AssumeRoleWithWebIdentityResponse>"""
_REFUSAL = b"""<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not
authorized to perform sts:AssumeRoleWithWebIdentity</Message></Error></ErrorResponse>"""


@dataclass
class GoogleMachine:
    """The servers of a machine whose account may assume `ROLE`.

    Attributes:
        key: The access key that STS gives; of one number per exchange if it has `{}`.
        secret: Its secret.
        lifetime: How long it is valid.
        failures: Number of requests for a token that fail before one succeeds.
        tokens: The identity tokens given.
        sessions: The session tokens given by STS, one per exchange.
    """

    key: str = "ASIA{}"
    secret: str = "secret"
    lifetime: timedelta = timedelta(hours=1)
    failures: int = 0
    endpoint: str = ""
    tokens: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def options(self) -> dict[str, str]:
        """Storage options of a bucket that the role may read."""
        return {"role_arn": ROLE, "endpoint_url_sts": self.endpoint}

    @property
    def environment(self) -> dict[str, str]:
        return {"GCE_METADATA_HOST": self.endpoint.removeprefix("http://")}

    def answer(self, request: Request) -> Answer:
        with self._lock:
            return self._exchange(request) if request.method == "POST" else self._metadata(request)

    def _metadata(self, request: Request) -> Answer:
        url, flavor = urlsplit(request.path), {"Metadata-Flavor": "Google"}
        if request.headers.get("Metadata-Flavor") != "Google":
            return 403, {}, b"Missing Metadata-Flavor:Google header."
        if url.path != _IDENTITY:
            return 200, flavor, b"computeMetadata/\n"
        if self.failures:
            self.failures -= 1
            return 503, flavor, b"try again"
        [audience] = parse_qs(url.query)["audience"]
        self.tokens.append(f"identity-{len(self.tokens)}-for-{audience}")
        return 200, flavor, self.tokens[-1].encode()

    def _exchange(self, request: Request) -> Answer:
        form = {name: value for name, [value] in parse_qs(request.body.decode()).items()}
        trusted = (form["RoleArn"], form["WebIdentityToken"]) == (ROLE, (self.tokens or [""])[-1])
        if not trusted or "Authorization" in request.headers:
            return 403, {"Content-Type": "text/xml"}, _REFUSAL
        self.sessions.append(f"session-{len(self.sessions)}")
        text = _ANSWER.format(
            key=self.key.format(len(self.sessions)),
            secret=self.secret,
            session=self.sessions[-1],
            expires=(datetime.now(UTC) + self.lifetime).isoformat(timespec="seconds"),
        )
        return 200, {"Content-Type": "text/xml"}, text.encode()


@contextmanager
def google_machine(**given: object) -> Iterator[GoogleMachine]:
    """Start the servers of a machine with the given attributes."""
    machine = GoogleMachine(**given)  # type: ignore[arg-type]
    with answering(machine.answer) as machine.endpoint:
        yield machine
