"""The cache table: one item a key, each transition one conditional write.

Every transition moves the fence, the owner or the state that its own condition asks for, so a repeat after a lost
reply changes nothing. The TTL attribute only cleans up; nothing here trusts it.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from firstwrite.cache.record import Answer, Flight, Record, State, Stored
from firstwrite.conditional import Applied, Busy, Put, Rejected, Update
from firstwrite.dynamodb import Table
from firstwrite.errors import DataFaultError

if TYPE_CHECKING:
    from firstwrite.cache.overflow import Overflow
    from firstwrite.cache.record import Policy
    from firstwrite.clock import Clock, Deadline
    from firstwrite.conditional import Conditional
    from firstwrite.dynamodb import Dynamo, Item

KEPT_AFTER_USE_MS = 86_400_000
"""How long a record outlives its last use, so that operators can look at it and a late winner finds it."""
FOREVER_MS = 253_402_300_799_000
"""The end of the year 9999: until somebody decides."""
COMPRESS_FROM_BYTES = 1_024
INLINE_MOST_BYTES = 65_536
"""Larger bodies stand in the overflow bucket: every write that touches a record costs by its whole size."""


class CacheStore:
    """Reads and transitions of cache records.

    Args:
        dynamo: reads.
        conditional: writes.
        clock: stamps the records.
        table_name: the cache table.
        overflow: bodies too large for the table.
    """

    def __init__(
        self, dynamo: Dynamo, conditional: Conditional, clock: Clock, table_name: str, overflow: Overflow
    ) -> None:
        self._dynamo = dynamo
        self._conditional = conditional
        self._clock = clock
        self._overflow = overflow
        self._table = Table(table_name, "cache", ("pk",))

    def read(self, key: str, deadline: Deadline, *, consistent: bool = False) -> Record | None:
        """Return the record of `key`, None where there is none.

        Eventually consistent unless told otherwise: a hit is as old as its freshness allows anyway, and whoever
        acts on a miss is judged by a conditional write.
        """
        item = self._dynamo.get(self._table, {"pk": key}, deadline, consistent=consistent)
        return None if item is None else _record(item)

    def with_body(self, stored: Stored) -> Stored | None:
        """Return `stored` with its body, wherever that stands; None where it has expired."""
        if stored.overflow_key is None:
            return stored
        body = self._overflow.get(stored.overflow_key)
        return None if body is None else replace(stored, answer=replace(stored.answer, body=body))

    def acquire(
        self,
        key: str,
        owner: str,
        policy: Policy,
        deadline: Deadline,
        *,
        expected_ms: int = 0,
        replacing: int | None = None,
    ) -> Flight | Record | Busy | None:
        """Take the right to fetch `key`, if nobody has it and no usable result stands there.

        Args:
            key: the record.
            owner: names this fetch; no other fetch may bear it.
            policy: lease and clock allowance.
            deadline: for the write.
            expected_ms: how long the fetch should take, for those who wait; zero where nothing says.
            replacing: also replace a result that is still fresh, if its fence is this one.

        Returns:
            The flight that was won, or the record that stood in the way (None where it vanished meanwhile).
        """
        now = self._clock.now_ms()
        lease_until = now + policy.lease_ms
        absent = "attribute_not_exists(pk)"
        pending = "#state = :pending"
        no_longer_fresh = "(#state = :completed AND fresh_until <= :now)"
        to_be_replaced = "(#state = :completed AND fence = :replacing)"
        cooled_down = "(#state = :failed AND retry_at <= :now)"
        lease_over = "(#state = :taken_over AND lease_until <= :now_less_skew)"
        outcome = self._conditional.write(
            Update(
                self._table,
                {"pk": key},
                # A fence that starts at the clock keeps growing even after the record was deleted by TTL.
                update="SET #state = :processing, fence = if_not_exists(fence, :epoch_s) + :one, #owner = :owner, "
                "lease_until = :lease_until, started_at = :now, expected_ms = :expected_ms, expires_at = :expires_at, "
                "refresh_id = if_not_exists(refresh_id, :owner), failures = if_not_exists(failures, :zero), "
                "write_id = :write_id",
                condition=f"{absent} OR {pending} OR {no_longer_fresh} OR {to_be_replaced} OR {cooled_down} "
                f"OR {lease_over}",
                names={"#state": "state", "#owner": "owner"},
                values={
                    ":processing": State.PROCESSING,
                    ":pending": State.PENDING,
                    ":completed": State.COMPLETED,
                    ":failed": State.FAILED,
                    # Where a dead winner may have paid, its key is not for the taking (see `declare_unknown`).
                    ":taken_over": State.PROCESSING if policy.on_unknown == "retry" else "nothing",
                    ":replacing": -1 if replacing is None else replacing,
                    ":owner": owner,
                    ":now": now,
                    ":now_less_skew": now - policy.clock_skew_ms,
                    ":lease_until": lease_until,
                    ":expected_ms": expected_ms,
                    ":epoch_s": now // 1000,
                    ":expires_at": _expires_at_s(lease_until + policy.stale_ms),
                    ":zero": 0,
                    ":one": 1,
                },
            ),
            "acquire",
            deadline,
            returning="UPDATED_NEW",
        )
        if isinstance(outcome, Applied):
            item = outcome.item
            return Flight(key, owner, item["fence"], item["lease_until"], item["refresh_id"], item["failures"])
        return _lost_to(outcome)

    def complete(
        self, flight: Flight, answer: Answer, policy: Policy, took_ms: int, deadline: Deadline
    ) -> Stored | Record | Busy | None:
        """Store the answer, if the key is still this flight's.

        Returns:
            What was stored; or the record of the newer fetch or invalidation that came between (None where it is gone).
        """
        now = self._clock.now_ms()
        fresh_until = now + (policy.negative_ms if answer.negative else policy.fresh_ms)
        stale_until = fresh_until if answer.negative else fresh_until + policy.stale_ms
        body, encoding = _compressed(answer.body)
        overflow_key = None
        if len(body) > INLINE_MOST_BYTES:
            overflow_key, body, encoding = self._overflow.put(flight, answer.body), b"", "identity"
        stored = Stored(answer, _etag(answer), now, fresh_until, stale_until, overflow_key)
        outcome = self._conditional.write(
            Put(
                self._table,
                {
                    "pk": flight.key,
                    "state": State.COMPLETED,
                    "fence": flight.fence,
                    "owner": flight.owner,
                    "started_at": now - took_ms,
                    "took_ms": took_ms,
                    "status": answer.status,
                    "content_type": answer.content_type,
                    "negative": answer.negative,
                    "body": body,
                    "body_encoding": encoding,
                    "overflow_key": overflow_key,
                    "etag": stored.etag,
                    "stored_at": now,
                    "fresh_until": fresh_until,
                    "stale_until": stale_until,
                    "expires_at": _expires_at_s(stale_until),
                },
                condition=_STILL_MINE,
                names=_STILL_MINE_NAMES,
                values=_still_mine(flight),
            ),
            "complete",
            deadline,
        )
        return stored if isinstance(outcome, Applied) else _lost_to(outcome)

    def fail(
        self, flight: Flight, failure: str, failures: int, retry_at: int, deadline: Deadline
    ) -> Applied | Rejected | Busy:
        """Share a failure until `retry_at` (epoch ms), if the key is still this flight's. An old answer stays."""
        return self._conditional.write(
            Update(
                self._table,
                {"pk": flight.key},
                update=_SET_FAILED,
                condition=_STILL_MINE,
                names=_STILL_MINE_NAMES,
                values={**_still_mine(flight), **_failed(failure, failures, retry_at)},
            ),
            "fail",
            deadline,
        )

    def declare_unknown(self, key: str, record: Record, policy: Policy, deadline: Deadline) -> None:
        """Settle the key of a winner that died, where its call may have been paid: nobody asks again.

        An operator ends it by invalidating the key. Whoever reads the record next sees what came of this.
        """
        now = self._clock.now_ms()
        self._conditional.write(
            Update(
                self._table,
                {"pk": key},
                update=_SET_FAILED,
                condition=f"{_STILL_MINE} AND lease_until <= :now_less_skew",
                names=_STILL_MINE_NAMES,
                values={
                    ":fence": record.fence,
                    ":owner": record.owner,
                    ":processing": State.PROCESSING,
                    ":now_less_skew": now - policy.clock_skew_ms,
                    **_failed("unknown", record.failures + 1, FOREVER_MS),
                },
            ),
            "declare-unknown",
            deadline,
        )

    def invalidate(self, key: str, deadline: Deadline) -> Applied | Rejected | Busy:
        """Drop what stands under `key`, and refuse the result of a fetch that began before.

        The fence moves on and the state is not Processing any more; either alone makes a running fetch's completion
        fail. `Rejected` where there is no record, which is as good.
        """
        return self._conditional.write(
            Update(
                self._table,
                {"pk": key},
                # An invalidation is harmless to repeat, so its condition need not be false afterwards.
                update="SET #state = :pending, fence = fence + :one, write_id = :write_id "
                "REMOVE body, body_encoding, overflow_key, stored_at, refresh_id, failure, failures, retry_at, "
                "lease_until",
                condition="attribute_exists(pk)",
                names={"#state": "state"},
                values={":pending": State.PENDING, ":one": 1},
            ),
            "invalidate",
            deadline,
        )


# A late winner fails this: whoever took over moved the fence, and an invalidation moved the state.
_STILL_MINE = "fence = :fence AND #owner = :owner AND #state = :processing"
_STILL_MINE_NAMES = {"#owner": "owner", "#state": "state"}
_SET_FAILED = (
    "SET #state = :failed, failure = :failure, failures = :failures, retry_at = :retry_at, write_id = :write_id"
)


def _still_mine(flight: Flight) -> dict[str, Any]:
    return {":fence": flight.fence, ":owner": flight.owner, ":processing": State.PROCESSING}


def _failed(failure: str, failures: int, retry_at: int) -> dict[str, Any]:
    return {":failed": State.FAILED, ":failure": failure, ":failures": failures, ":retry_at": retry_at}


def _lost_to(outcome: Rejected | Busy) -> Record | Busy | None:
    if isinstance(outcome, Busy):
        return outcome
    return None if outcome.current is None else _record(outcome.current)


def _expires_at_s(last_use_ms: int) -> int:
    """Return the TTL attribute: epoch seconds, as DynamoDB demands."""
    return -(-(last_use_ms + KEPT_AFTER_USE_MS) // 1000)


def _etag(answer: Answer) -> str:
    return f'"{hashlib.sha256(answer.body).hexdigest()[:32]}"'


def _compressed(body: bytes) -> tuple[bytes, str]:
    """Return the body as it is stored, and how: a smaller item costs less to read and to write."""
    if len(body) >= COMPRESS_FROM_BYTES:
        compressed = zlib.compress(body)
        if len(compressed) < len(body):
            return compressed, "zlib"
    return body, "identity"


def _stored(item: Item) -> Stored | None:
    if "stored_at" not in item:
        return None
    body = zlib.decompress(item["body"]) if item["body_encoding"] == "zlib" else item["body"]
    return Stored(
        Answer(item["status"], item["content_type"], body, item["negative"]),
        item["etag"],
        item["stored_at"],
        item["fresh_until"],
        item["stale_until"],
        item["overflow_key"],
    )


def _record(item: Item) -> Record:
    try:
        return Record(
            state=State(item["state"]),
            fence=item["fence"],
            owner=item["owner"],
            lease_until=item.get("lease_until", 0),
            started_at=item.get("started_at", 0),
            expected_ms=item.get("expected_ms", 0),
            took_ms=item.get("took_ms", 0),
            retry_at=item.get("retry_at", 0),
            failure=item.get("failure"),
            failures=item.get("failures", 0),
            stored=_stored(item),
        )
    except (KeyError, ValueError, zlib.error) as error:
        raise DataFaultError("a cache record is not of the form this code writes") from error
