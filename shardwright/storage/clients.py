"""Clients of object stores: one per process, bucket and configuration, with retries.

Transient errors are retried with exponential backoff until a deadline:

* 5 seconds if the endpoint has never responded: it is probably wrong.
* 30 seconds if other requests to the store succeed: only this object fails.
* 3 minutes, or the `deadline` option, if no request succeeds: the store has an outage. As long if
  more than a tenth are refused (429, 503), because the store serves only so many a second. Their
  number is limited (`request_rate`), and the wait for a turn does not count.

A web server that failed so is left alone for a minute: a table may name thousands of its images.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store

from shardwright.errors import ClientError, StorageError, UnreachableError, UnreadableError
from shardwright.storage.addresses import HIDDEN, redact
from shardwright.storage.cancellation import pause
from shardwright.storage.counters import COUNTERS
from shardwright.storage.credentials import Login, gcs_login, profile_settings, s3_login
from shardwright.storage.faults import StoreFault, cause_of, fault_of, is_past_end, is_whole_answer
from shardwright.storage.options import (
    AZURE_KEYS,
    CLIENT_KEYS,
    GCS_KEYS,
    S3_KEYS,
    StorageOptions,
    parse_seconds,
    typed,
)
from shardwright.storage.request_rate import RequestRate

T = TypeVar("T")
_LOG = logging.getLogger("shardwright.storage")

FIRST_CONTACT_SECONDS = 5.0
ONE_OBJECT_SECONDS = 30.0
_DEADLINE = "180s"
REST_SECONDS = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_SAY_EVERY_SECONDS = 10.0
# read_timeout bounds the wait for the next byte, timeout a whole part on a slow network.
_TIMEOUTS = {"connect_timeout": "5s", "read_timeout": "15s", "timeout": "300s"}
# Completing an upload is a single request, to which large stores respond slowly.
_UPLOAD_TIMEOUTS = {**_TIMEOUTS, "read_timeout": "120s"}
_NO_RETRIES: Any = {"max_retries": 0}
_UPLOAD_RETRIES: Any = {"max_retries": 1000}  # the deadline ends them
_KINDS: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_HOSTS = {"s3": "the AWS endpoint", "gs": "storage.googleapis.com", "az": "the Azure endpoint"}


class Client:
    """A client of one store, with the recent successes and failures that decide on retries.

    Attributes:
        store: The store's address, such as `s3://bucket`.
        endpoint: The endpoint, for messages.
        objects: obstore's client for single requests, which `call` retries.
        uploads: obstore's client for multipart uploads, whose parts obstore itself retries.
        config: obstore's configuration of both.
        login: The credentials of both.
        read_seconds: Seconds without a byte after which a response times out.
        deadline: Seconds for which requests are retried during an outage.
        has_answered: Whether the store has ever responded to a request of `call`.
        etags_are_md5: Whether an etag that looks like an MD5 digest has proved to be one.
    """

    def __init__(self, store: str, options: StorageOptions) -> None:
        values = options.for_store(store)
        self.store = store
        self.scheme = store.partition("://")[0]
        self.read_seconds, self.deadline = (
            parse_seconds(key, values.get(key, usual)).total_seconds()
            for key, usual in (("read_timeout", _TIMEOUTS["read_timeout"]), ("deadline", _DEADLINE))
        )
        self.login, self.config = configure(store, values)
        self.endpoint = redact(
            str(
                self.config.get("endpoint")
                or self.config.get("base_url")
                or _HOSTS.get(self.scheme, store)
            )
        )
        self._values = values
        self.objects = self._make(_TIMEOUTS, _NO_RETRIES)
        upload_retries = {**_UPLOAD_RETRIES, "retry_timeout": timedelta(seconds=self.deadline)}
        self.uploads = self._make(_UPLOAD_TIMEOUTS, upload_retries)
        self.etags_are_md5 = False
        self._rate = RequestRate()
        self.has_answered = False
        self._last_success = 0.0
        self._last_failure = 0.0
        self._down_since = 0.0
        self._last_said = 0.0
        self._rests_until = 0.0

    def call(
        self,
        uri: str,
        verb: str,
        operation: Callable[[], T],
        explain: Callable[[], object] | None = None,
    ) -> T:
        """Run one request and retry transient errors.

        Args:
            uri: The object, for messages.
            verb: "read", "write", "list" or "delete", for messages.
            operation: The request.
            explain: Another request for the object, run for its error text if `operation` fails
                without one.

        Raises:
            StorageError: One of its subclasses, with the object and, if there is one, the fix.
        """
        started, attempt, counts = time.monotonic(), 0, self._rate.counts
        # Before a request: thousands of images of one dead server would each take the full
        # deadline.
        if started < self._rests_until:
            raise UnreachableError(f"{uri}: {self.endpoint} did not respond to earlier requests")
        while True:
            # The wait for a turn is not the store's silence, so it does not count against the
            # deadline.
            started += self._rate.wait()
            sent = time.monotonic()
            COUNTERS.add("requests")
            try:
                result = operation()
            except (BaseError, OSError, ValueError) as error:
                fault = self._fault_of(error, uri, verb, explain)
                if fault is None:
                    raise
                # Such as a wrong key: a retry changes nothing.
                if not fault.passes:
                    raise fault.error from cause_of(error)
                if fault.refused:
                    self._rate.refused(sent)
                # Refusals of many requests are overload. Of this one alone they are a fault of its
                # object.
                overloaded = fault.refused and self._rate.is_overload_since(counts)
                if self._gives_up(started, attempt, overloaded=overloaded):
                    raise self._last_word(fault, started) from cause_of(error)
                self._say(fault, attempt, started)
            else:
                self.has_answered, self._last_success = True, time.monotonic()
                self._rate.served()
                return result
            COUNTERS.add(f"retries_{fault.kind}")
            # Random, so that the threads that an outage stopped do not all return at once.
            pause(random.uniform(0.5, 1.0) * min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE))
            attempt += 1

    def _fault_of(
        self, error: Exception, uri: str, verb: str, explain: Callable[[], object] | None
    ) -> StoreFault | None:
        fault = fault_of(error, uri, verb, self.endpoint)
        if fault is None:
            return None
        # Also a refusal proves that the endpoint is right.
        self.has_answered |= fault.answered
        self._note(fault)
        # A HEAD of a missing object and of a missing bucket are both a bare 404: a GET has the
        # error code.
        if fault.bodiless and explain is not None and not fault.refused:
            try:
                explain()
            except (BaseError, OSError, ValueError) as told:
                return (
                    fault
                    if is_past_end(told) or is_whole_answer(told)
                    else fault_of(told, uri, verb, self.endpoint) or fault
                )
        return fault

    def _note(self, fault: StoreFault) -> None:
        now = time.monotonic()
        if not fault.passes:
            # The store works, whatever it says about this object.
            if fault.answered:
                self._last_success = now
            return
        # An outage begins with the first failure after a success, or after a quiet period, which is
        # longer than the pauses between the tries of one request.
        quiet = max(self.deadline, 2 * _LONGEST_PAUSE)
        if self._down_since <= self._last_success or now - self._last_failure > quiet:
            self._down_since = now
        self._last_failure = now

    def _gives_up(self, started: float, attempt: int, *, overloaded: bool) -> bool:
        elapsed = time.monotonic() - started
        if not self.has_answered:
            # By tries, too: a refused connection fails in milliseconds, a silent one takes the
            # whole timeout.
            return elapsed > FIRST_CONTACT_SECONDS or attempt > 5
        if not attempt:  # after a process was halted, no request has had its time
            return False
        if self._serves_others(started):
            return elapsed > (
                self.deadline if overloaded else min(ONE_OBJECT_SECONDS, self.deadline)
            )
        # Once the outage is longer than the deadline, queued requests get only a few attempts:
        # otherwise each would wait for the full deadline again.
        return elapsed > self.deadline or (
            attempt > 2 and time.monotonic() - self._down_since > self.deadline
        )

    def _serves_others(self, started: float) -> bool:
        """Return whether other requests succeeded in the second half of this one's time.

        Earlier successes prove nothing: the store may have failed while this request ran.
        """
        return self._last_success > (started + time.monotonic()) / 2

    def _last_word(self, fault: StoreFault, started: float) -> StorageError:
        if self._serves_others(started):
            return UnreadableError(f"{fault.error}, while other objects are served")
        # Only of web servers: a store that fails ends the build anyway.
        if self.scheme in ("http", "https"):
            self._rests_until = time.monotonic() + REST_SECONDS
        return type(fault.error)(f"{fault.error}; tried for {time.monotonic() - started:.0f} s")

    def _say(self, fault: StoreFault, attempt: int, started: float) -> None:
        """Log a warning every 10 seconds, so that an outage does not look like a hung build."""
        now = time.monotonic()
        if now - started > _SAY_EVERY_SECONDS and now - self._last_said > _SAY_EVERY_SECONDS:
            self._last_said = now
            _LOG.warning(
                "%s (%d attempts in %.0f s, retrying)", fault.error, attempt + 1, now - started
            )

    def signed(self, query: str) -> Any:
        """Return a client like `objects` for one signed URL, with connections of its own.

        obstore adds the query of a web server's address to every request.
        """
        return self._make(_TIMEOUTS, _NO_RETRIES, f"?{query}")

    def _make(self, timeouts: Mapping[str, str], retries: Any, query: str = "") -> Any:
        given = {k: typed(k, value) for k, value in self._values.items() if k in CLIENT_KEYS}
        client: Any = {**timeouts, **given}
        if self.endpoint.startswith("http://"):
            client["allow_http"] = True
        if (kind := _KINDS.get(self.scheme)) is None:
            return HTTPStore(self.store + query, client_options=client, retry_config=retries)
        provider = {"credential_provider": self.login.provider} if self.login.provider else {}
        name, config = self.store.partition("://")[2], self.config
        return kind(name, config=config, client_options=client, retry_config=retries, **provider)


_clients: dict[tuple[str, StorageOptions], Client] = {}
_lock = threading.Lock()
_process = 0


def client_for(store: str, options: StorageOptions) -> Client:
    """Return this process's client for a store and its options.

    Raises:
        CredentialsError: No credentials were found.
        ClientError: The process was forked after a store was used, which obstore's clients do not
            survive; or the options are invalid.
    """
    global _process
    # obstore's runtime has threads, which a fork does not copy: a request would hang for ever.
    if _process not in (0, os.getpid()):
        raise ClientError(
            f"{store}: this process was forked after a store was used, and storage clients do not "
            "survive a fork: start processes with 'spawn' or 'forkserver' "
            "(multiprocessing.set_start_method), or use stores only after the fork"
        )
    with _lock:
        _process = os.getpid()
        client = _clients.get((store, options))
        if client is None:
            try:
                client = _clients[store, options] = Client(store, options)
            except (BaseError, ValueError) as error:
                told = str(error).partition("\n")[0]
                for value in options.for_store(store).values():
                    # obstore quotes the value that it does not like, which may be a key.
                    told = told.replace(value, HIDDEN) if value else told
                raise ClientError(f"{store}: invalid storage options: {told}") from error
    return client


def configure(store: str, values: dict[str, str]) -> tuple[Login, dict[str, object]]:
    """Return the login and obstore's configuration, with the environment's endpoint and region."""
    login, found, known = Login(), {}, AZURE_KEYS
    match store.partition("://")[0]:
        case "s3":
            login, found = s3_login(store, values), _s3_environment(store, values.get("profile"))
            known = S3_KEYS - {"profile"}
        case "gs":
            login, known = gcs_login(store, values), GCS_KEYS
            emulator = os.environ.get("STORAGE_EMULATOR_HOST")
            if emulator is not None:
                found = {"base_url": emulator if "://" in emulator else f"http://{emulator}"}
    given = {key: typed(key, value) for key, value in values.items() if key in known}
    # In this order: an option that the user gave is the last word.
    config = {
        key: value for key, value in {**login.config, **found, **given}.items() if value is not None
    }
    if "endpoint" in config:
        config["endpoint"] = str(config["endpoint"]).rstrip("/")
    return login, config


def _s3_environment(store: str, profile: str | None) -> dict[str, object]:
    env, settings = os.environ, profile_settings(store, profile)
    return {
        "endpoint": env.get("AWS_ENDPOINT_URL_S3")
        or env.get("AWS_ENDPOINT_URL")
        or settings.get("endpoint"),
        "region": env.get("AWS_REGION")
        or env.get("AWS_DEFAULT_REGION")
        or settings.get("region")
        or "us-east-1",
    }
