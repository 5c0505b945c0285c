"""What must hold of the cache, judged by what was written, paid and answered, in the words of docs/design.md.

Paid calls are numbered in the order in which they go out, and call n's answer has the body `n`; so a body tells when it
was asked for. The numbers are what "older" and "newer" mean here, not the code's fences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from firstwrite.cache.single_flight import Failed, InProgress, Served
from tests.interleave.explorer import Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstwrite.cache.record import Policy
    from tests.interleave.explorer import Event, Scene
    from tests.interleave.world import Change

TABLE = "cache"


@dataclass(frozen=True, slots=True)
class Paying:
    """A paid call that went out and was not heard of since."""

    number: int
    racer: str
    key: str
    fence: int
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Asking:
    """A question that is not answered yet.

    Attributes:
        at_ms: when it was asked.
        renew: a result that stood there will not do.
        found: whose result its first look found, None where it has not looked; what is renewed is not older than that.
        dropped: what was sent before the last invalidation then.
    """

    racer: str
    key: str
    at_ms: int
    renew: bool
    dropped: int
    found: int | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What happened so far, as far as it matters.

    Attributes:
        paying: calls out, those of the dead included.
        fences: under which calls went out, by key.
        came: the number of a call whose answer a racer has and did not pass on yet.
        newest: the newest call whose result was stored, by key.
        dropped: the newest call sent before the last invalidation, by key.
        asking: open questions.
        trouble: something went wrong with a call, or its caller died.
        unknown: a call of this key may have been paid in vain since the last invalidation.
        declared: keys that wait for an operator.
        trying: who may try while the circuit is open, None where somebody has.
    """

    paying: tuple[Paying, ...] = ()
    fences: frozenset[tuple[str, int]] = frozenset()
    came: frozenset[tuple[str, int]] = frozenset()
    newest: tuple[tuple[str, int], ...] = ()
    dropped: tuple[tuple[str, int], ...] = ()
    sent: int = 0
    asking: tuple[Asking, ...] = ()
    trouble: bool = False
    unknown: frozenset[str] = frozenset()
    declared: frozenset[str] = frozenset()
    trying: str | None = None


class CacheInvariants:
    """The rules.

    Args:
        policy: by which all keys are shared and kept.
        limit: paid calls that may go out at all, None where nothing bounds them.
        circuit: the source's circuit is open at the start: one may try, and nobody else until it is closed.
    """

    def __init__(self, policy: Policy, limit: int | None = None, *, circuit: str | None = None) -> None:
        self._policy = policy
        self._limit = limit
        self._circuit = circuit

    def begin(self, scene: Scene) -> Memory:
        """Return the memory at the start: what stands in the table was fetched by call 0."""
        del scene
        return Memory()

    def see(self, memory: Memory, event: Event, scene: Scene) -> Memory:
        """Return the memory after an event."""
        match event.kind:
            case "wrote":
                for change in event.changes:
                    memory = self._wrote(memory, change, event, scene)
            case "sent":
                memory = self._sent(memory, event, scene)
            case "received":
                memory = self._received(memory, event)
            case "read":
                memory = _looked(memory, event, scene)
            case "noted":
                memory = self._noted(memory, event, scene)
            case "died":
                dead = tuple(replace(call, dead=call.dead or call.racer == event.racer) for call in memory.paying)
                asking = tuple(asked for asked in memory.asking if asked.racer != event.racer)
                came = frozenset(one for one in memory.came if one[0] != event.racer)
                memory = replace(memory, paying=dead, asking=asking, trouble=True, came=came)
            case "raised":
                raise Violation(f"{event.racer} raised {event.value!r}")
        return memory

    def end(self, memory: Memory, scene: Scene) -> None:
        """Judge the end: whoever asked was answered."""
        del scene
        if memory.asking:
            raise Violation(f"{memory.asking[0].racer} was not answered")

    def _wrote(self, memory: Memory, change: Change, event: Event, scene: Scene) -> Memory:
        key, before, after = change.slot[1][0], change.before, change.after
        if key == self._circuit:
            return replace(memory, trying=event.racer)
        if "state" not in after:
            return memory  # a budget, which is judged by the calls it lets out
        if before and after["fence"] < before["fence"]:
            raise Violation(f"the fence went back from {before['fence']} to {after['fence']}")
        match after["state"]:
            case "processing":
                self._acquired(memory, change, event, scene)
            case "completed":
                return self._completed(memory, key, before, after)
            case "pending":
                return _dropped(memory, key, before, after)
            case "failed":
                return self._failed(memory, key, before, after)
        return memory

    def _acquired(self, memory: Memory, change: Change, event: Event, scene: Scene) -> None:
        """Judge a record that was taken: the table of events in the design, once more."""
        before, after = change.before, change.after
        if not 0 < after.get("lease_until", 0) <= scene.now_ms + self._policy.lease_ms:
            raise Violation("a record is processing without a lease that ends")
        if before is None:
            return
        if after["fence"] <= before["fence"]:
            raise Violation(f"fence {before['fence']} was handed out again")
        self._may_take(memory, before, event.racer, scene.now_ms)
        if before["state"] in {"processing", "failed"} and after["refresh_id"] != before.get("refresh_id"):
            raise Violation("a fetch that goes on after a failure has another idempotency key")

    def _may_take(self, memory: Memory, before: Mapping[str, Any], racer: str, now_ms: int) -> None:
        match before["state"]:
            case "processing":
                if before["lease_until"] + self._policy.clock_skew_ms > now_ms:
                    raise Violation(f"{racer} took the key within the lease of {before['owner']}")
                if self._policy.on_unknown == "fail":
                    raise Violation(f"{racer} took over a key whose call may have been paid")
            case "failed":
                if before["retry_at"] > now_ms:
                    raise Violation(f"{racer} took a key that has to cool down")
            case "completed":
                mine = [asked for asked in memory.asking if asked.racer == racer]
                renewed = any(asked.renew and asked.found == _body(before) for asked in mine)
                if before["fresh_until"] > now_ms and not renewed:
                    raise Violation(f"{racer} took a key whose result is fresh")

    def _failed(self, memory: Memory, key: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Memory:
        if before and before["state"] != "processing":
            raise Violation(f"a {before['state']} record became failed")
        if before and before["fence"] != after["fence"]:
            raise Violation("a failure was noted for another fence")
        if after["failure"] != "unknown":
            return memory
        if self._policy.on_unknown != "fail":
            raise Violation("an outcome was declared unknown that is to be tried again")
        return replace(memory, declared=memory.declared | {key})

    def _completed(
        self, memory: Memory, key: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]
    ) -> Memory:
        body, newest = _body(after), _of(memory.newest, key)
        if body < 0:
            raise Violation("a record is completed without a result")
        if body < newest:
            raise Violation(f"the result of call {newest} was replaced by that of call {body}, which is older")
        if body <= _of(memory.dropped, key):
            raise Violation(f"the result of call {body}, which went out before the invalidation, was stored")
        if before is None or before["state"] != "processing" or before["fence"] != after["fence"]:
            raise Violation("a result was stored for a key that was not its own any more")
        if (key, after["fence"]) not in memory.fences:
            raise Violation("a result was stored under a fence under which nobody called")
        newest_by_key = (*(pair for pair in memory.newest if pair[0] != key), (key, body))
        return replace(memory, newest=newest_by_key, unknown=memory.unknown - {key})

    def _sent(self, memory: Memory, event: Event, scene: Scene) -> Memory:
        flight = event.value
        if (flight.key, flight.fence) in memory.fences:
            raise Violation(f"two paid calls went out under fence {flight.fence}")
        if self._limit is not None and event.number > self._limit:
            raise Violation(f"{event.number} paid calls went out where {self._limit} are allowed")
        if flight.key in memory.unknown and self._policy.on_unknown == "fail":
            raise Violation("a paid call went out although an earlier one may have been paid")
        if self._circuit and "open_until" in (scene.item(TABLE, self._circuit) or {}):
            if memory.trying != event.racer:
                raise Violation(f"{event.racer} called while the circuit is open, and was not the one to try")
            memory = replace(memory, trying=None)
        record = scene.item(TABLE, flight.key)
        mine = record is not None and record["fence"] == flight.fence and record["state"] == "processing"
        others = [
            call
            for call in memory.paying
            if call.key == flight.key and not call.dead and call.number > _of(memory.dropped, flight.key)
        ]
        # Of two calls out at once, the older one must have been overtaken: its lease is over.
        if mine and any(call.fence >= flight.fence for call in others):
            raise Violation("a paid call went out while one with the same or a higher fence is out")
        unknown = memory.unknown | {flight.key} if self._policy.on_unknown == "fail" else memory.unknown
        return replace(
            memory,
            paying=(*memory.paying, Paying(event.number, event.racer, flight.key, flight.fence)),
            fences=memory.fences | {(flight.key, flight.fence)},
            sent=event.number,
            unknown=unknown,
        )

    def _received(self, memory: Memory, event: Event) -> Memory:
        (call,) = (call for call in memory.paying if call.number == event.number)
        memory = replace(memory, paying=tuple(one for one in memory.paying if one is not call))
        if event.value == "ok":
            return replace(memory, came=memory.came | {(event.racer, event.number)})
        known = memory.unknown - {call.key} if event.value == "fails" else memory.unknown
        return replace(memory, trouble=True, unknown=known)

    def _noted(self, memory: Memory, event: Event, scene: Scene) -> Memory:
        note = event.note
        assert note is not None
        if note.name == "asks":
            key, renew = note.value
            asked = Asking(event.racer, key, scene.now_ms, renew, _of(memory.dropped, key))
            return replace(memory, asking=(*memory.asking, asked))
        if note.name != "is answered":
            return memory
        (asked,) = (asked for asked in memory.asking if asked.racer == event.racer)
        outcome, slept_ms = note.value
        if slept_ms > self._policy.wait_ms + _BACKOFF_ALLOWED_MS:
            raise Violation(f"{event.racer} waited {slept_ms} ms")
        self._answered(memory, asked, outcome, scene)
        paid = any(racer == event.racer for racer, _ in memory.came)
        return replace(
            memory,
            unknown=memory.unknown - {asked.key} if paid else memory.unknown,
            asking=tuple(one for one in memory.asking if one is not asked),
            came=frozenset(one for one in memory.came if one[0] != event.racer),
        )

    def _answered(self, memory: Memory, asked: Asking, outcome: object, scene: Scene) -> None:
        paid = [number for racer, number in memory.came if racer == asked.racer]
        match outcome:
            case Served():
                _served(memory, asked, outcome, own=outcome.how == "unstored" and _body_of(outcome) in paid)
            case _ if paid:
                raise Violation(f"{asked.racer} has paid for an answer and was given none")
            case InProgress() if _holds(scene.item(TABLE, asked.key), asked.racer, scene.now_ms):
                raise Violation(f"{asked.racer} has the key, does not know it, and was told to wait")
            case InProgress() | Failed() if asked.racer == "Z" and asked.key not in memory.declared:
                raise Violation(f"long after all was over the key is stuck: {outcome!r}")
            case Failed() if not (memory.trouble or scene.faults or self._limit is not None or self._circuit):
                raise Violation(f"{asked.racer} was told of a failure that there was not")
            case InProgress() | Failed():
                pass
            case _:
                raise Violation(f"{asked.racer} was answered {outcome!r}")


_BACKOFF_ALLOWED_MS = 200


def _dropped(memory: Memory, key: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Memory:
    if before and after["fence"] <= before["fence"]:
        raise Violation("an invalidation did not move the fence, so that a fetch that runs could be stored")
    if "body" in after:
        raise Violation("an invalidation left the body")
    dropped = (*(pair for pair in memory.dropped if pair[0] != key), (key, memory.sent))
    return replace(memory, dropped=dropped, unknown=memory.unknown - {key}, declared=memory.declared - {key})


def _served(memory: Memory, asked: Asking, outcome: Served, *, own: bool) -> None:
    body = _body_of(outcome)
    if body > memory.sent:
        raise Violation(f"{asked.racer} was answered what no call has brought")
    if body <= asked.dropped and asked.dropped and not own:
        raise Violation(f"{asked.racer} was answered what was invalidated before it asked")
    if asked.renew and asked.found is not None and body <= asked.found and outcome.how != "stale":
        raise Violation(f"{asked.racer} asked for a new result and was answered an old one")
    if outcome.how == "hit" and outcome.stored.fresh_until <= asked.at_ms:
        raise Violation(f"{asked.racer} was served as fresh what was not")
    if outcome.how == "stale" and outcome.stored.stale_until <= asked.at_ms:
        raise Violation(f"{asked.racer} was served what is too old even to be served stale")


def _body_of(outcome: Served) -> int:
    return int(outcome.stored.answer.body)


def _holds(record: Mapping[str, Any] | None, racer: str, now_ms: int) -> bool:
    if record is None or record["state"] != "processing" or record["lease_until"] <= now_ms:
        return False
    return str(record["owner"]).startswith(racer)


def _body(record: Mapping[str, Any] | None) -> int:
    """Return which call brought what stands in a record, -1 where nothing does."""
    return int(record["body"]) if record and "body" in record else -1


def _looked(memory: Memory, event: Event, scene: Scene) -> Memory:
    """Note what a caller that wants something new finds first."""
    for asked in memory.asking:
        if asked.racer == event.racer and asked.renew and asked.found is None:
            found = _body(scene.item(TABLE, asked.key))
            asking = tuple(replace(one, found=found) if one is asked else one for one in memory.asking)
            return replace(memory, asking=asking)
    return memory


def _of(pairs: tuple[tuple[str, int], ...], key: str) -> int:
    return next((value for name, value in pairs if name == key), 0)
