"""What stands under a cache key, and the policy by which it is shared and kept."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class State(StrEnum):
    """The states of a key."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Policy:
    """How the results of one source are shared, kept and retried. Times in milliseconds.

    Attributes:
        name: the source, from a closed set; used in metrics.
        timeout_ms: how long one call may take.
        lease_ms: how long a winner owns the key; longer than `timeout_ms`.
        wait_ms: how long a loser waits for the winner's result.
        fresh_ms: how long a result is served without asking.
        stale_ms: how long after that it may be served while it is renewed, or when renewing fails.
        negative_ms: how long an answer like 404 is kept.
        cooldown_ms: how long after a failure nobody asks again; doubles with each further failure.
        on_unknown: what a dead winner, or a call without an answer, means: `retry` asks again; `fail` asks never again
            until an operator invalidates the key, because the call may have been paid.
        expected_ms: first guess of how long a call takes, None where there is none.
        memory_ms: how long an execution environment may serve a result from its own memory, without reading the table.
        clock_skew_ms: how far two machines' clocks may differ before a lease could be taken over early.
    """

    name: str
    timeout_ms: int = 5_000
    lease_ms: int = 8_000
    wait_ms: int = 10_000
    fresh_ms: int = 60_000
    stale_ms: int = 0
    negative_ms: int = 10_000
    cooldown_ms: int = 2_000
    on_unknown: Literal["retry", "fail"] = "retry"
    expected_ms: int | None = None
    memory_ms: int = 0
    clock_skew_ms: int = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """What an upstream said.

    Attributes:
        status: its HTTP status.
        content_type: as it named it.
        body: its bytes, unchanged.
        negative: an answer such as 404 that is kept only briefly.
    """

    status: int
    content_type: str
    body: bytes
    negative: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """An answer with the times that go with it, in epoch milliseconds.

    Attributes:
        answer: what upstream said; its body is empty while it stands only in the overflow bucket.
        etag: of the body.
        stored_at: when it was stored.
        fresh_until: until when it is served without asking.
        stale_until: until when it may be served if need be.
        overflow_key: where the body stands if it is too large for the table.
    """

    answer: Answer
    etag: str
    stored_at: int
    fresh_until: int
    stale_until: int
    overflow_key: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """The state of one key. Times in epoch milliseconds, zero where they do not apply.

    Attributes:
        state: where the key is in its life.
        fence: grows with every fetch, takeover and invalidation.
        owner: who fetches, or fetched last.
        lease_until: until when the owner may be at it.
        started_at: when the owner began.
        expected_ms: how long the owner should be at it.
        took_ms: how long the last successful fetch took.
        retry_at: until when a failure is shared and nobody asks again.
        failure: what went wrong last, None where nothing did.
        failures: how many fetches in a row have failed.
        stored: the newest answer, None where there is none.
    """

    state: State
    fence: int
    owner: str
    lease_until: int = 0
    started_at: int = 0
    expected_ms: int = 0
    took_ms: int = 0
    retry_at: int = 0
    failure: str | None = None
    failures: int = 0
    stored: Stored | None = None


@dataclass(frozen=True, slots=True)
class Flight:
    """One winner's right to fetch a key.

    Attributes:
        key: the record's key.
        owner: names this fetch.
        fence: orders this fetch among all fetches of the key; also sent upstream.
        lease_until: epoch milliseconds after which somebody else may take over.
        refresh_id: stays the same over failures and takeovers until a result is stored, so that an upstream that
            knows idempotency keys charges once.
        failures: how many fetches in a row have failed before this one.
    """

    key: str
    owner: str
    fence: int
    lease_until: int
    refresh_id: str
    failures: int
