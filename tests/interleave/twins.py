"""Broken twins: the real code with one fault each, of the kind that reviews miss. The explorer must catch every one.

A twin that no scenario catches is a hole in the proof: it says which rule nothing here depends on.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from firstwrite import conditional, dynamodb
from firstwrite.cache.circuit import Circuit
from firstwrite.cache.record import Flight, State
from firstwrite.cache.single_flight import FetchError, SingleFlight
from firstwrite.cache.store import CacheStore
from firstwrite.claim import claiming, expiry, group_commit, restocking, rules
from firstwrite.claim.expiry import Expiry
from firstwrite.claim.model import Claim, ClaimRequest
from firstwrite.claim.outcomes import SoldOut
from firstwrite.claim.store import Granted, StockStore
from firstwrite.claim.writes import Writes
from firstwrite.conditional import Applied, Busy, Conditional, Put, Rejected, Update

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from botocore.exceptions import ClientError

    from firstwrite.claim.model import Shard
    from firstwrite.conditional import Write


@dataclass(frozen=True)
class Twin:
    """Code with a fault.

    Attributes:
        name: the fault.
        scenarios: where it must show, the first that catches it is enough.
        patches: makes the fault.
        budget: faults that the schedule may need beside.
    """

    name: str
    scenarios: tuple[str, ...]
    patches: Callable[[], Sequence[Any]]
    budget: int = 1

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Let the code have the fault."""
        with ExitStack() as stack:
            for made in self.patches():
                stack.enter_context(made)
            yield


def _rewriting(operation: str, change: Callable[[Write], Write]) -> Callable[[], Sequence[Any]]:
    """Return patches that change the writes of one operation on their way out."""

    def patches() -> Sequence[Any]:
        write, transact = Conditional.write, Conditional.transact

        def broken_write(self: Conditional, made: Write, name: str, *args: Any, **kwargs: Any) -> Any:
            return write(self, change(made) if name == operation else made, name, *args, **kwargs)

        def broken_transact(self: Conditional, made: Sequence[Write], name: str, *args: Any, **kwargs: Any) -> Any:
            made = [change(one) for one in made] if name == operation else made
            return transact(self, made, name, *args, **kwargs)

        return patch.object(Conditional, "write", broken_write), patch.object(Conditional, "transact", broken_transact)

    return patches


def _conditioned(old: str, new: str, of: type = Put | Update) -> Callable[[Write], Write]:  # type: ignore[assignment]
    """Return what replaces a part of a condition."""

    def change(made: Write) -> Write:
        if not isinstance(made, of) or old not in made.condition:
            return made
        return _sparing(replace(made, condition=made.condition.replace(old, new)))

    return change


def _updating(old: str, new: str) -> Callable[[Write], Write]:
    """Return what replaces a part of an update."""

    def change(made: Write) -> Write:
        return _sparing(replace(made, update=made.update.replace(old, new))) if isinstance(made, Update) else made

    return change


def _unconditionally(made: Write) -> Write:
    return _sparing(replace(made, condition="attribute_exists(pk) OR attribute_not_exists(pk)"))


def _sparing(made: Write) -> Write:
    """Leave out the placeholders that nothing uses any more, as whoever wrote the fault would."""
    used = set(re.findall(r"[#:]\w+", made.condition + " " + (made.update if isinstance(made, Update) else "")))
    return replace(
        made,
        names={name: value for name, value in made.names.items() if name in used},
        values={name: value for name, value in made.values.items() if name in used},
    )


def _instead(owner: Any, name: str, broken: Any) -> Callable[[], Sequence[Any]]:
    return lambda: (patch.object(owner, name, broken),)


def _conflict_is_rejection() -> Sequence[Any]:
    """Take every cancelled transaction for a failed condition."""
    original = claiming.Claiming._try

    def broken(self: Any, *args: Any) -> Any:
        outcome = original(self, *args)
        return SoldOut() if isinstance(outcome, Busy) else outcome

    return (patch.object(claiming.Claiming, "_try", broken),)


def _forgets_write_ids() -> Sequence[Any]:
    """Take the rejection of a repeated write for the loss of a race."""
    original = Conditional._current

    def broken(self: Conditional, *args: Any) -> Any:
        item = original(self, *args)
        return {**item, "write_id": "another's"} if item else item

    return (patch.object(Conditional, "_current", broken),)


def _retries_with_new_token() -> Sequence[Any]:
    """Send each attempt of a write as a write of its own."""
    original = Conditional.write

    def broken(self: Conditional, made: Write, name: str, deadline: Any, **kwargs: Any) -> Any:
        outcome = original(self, made, name, deadline.within(0), **kwargs)
        return original(self, made, name, deadline, **kwargs) if isinstance(outcome, Busy) else outcome

    return (patch.object(Conditional, "write", broken),)


def _mixed_is_final() -> Sequence[Any]:
    """Take a cancellation that names a failed condition beside a conflict for a failed condition."""
    codes = dynamodb.cancellation_codes

    def broken(error: ClientError) -> list[str]:
        found = codes(error)
        failed = "ConditionalCheckFailed"
        return [code if code == failed else "None" for code in found] if failed in found else found

    return [patch.object(module, "cancellation_codes", broken) for module in (conditional, dynamodb)]


def _a_few_are_proof(before: Any, now: Sequence[Shard], quantity: int, shards: int) -> bool:
    del shards
    return rules.is_sold_out(before, now, quantity, len(now))


def _one_look_is_proof(before: Any, now: Sequence[Shard], quantity: int, shards: int) -> bool:
    del before, shards
    return sum(shard.available for shard in now) < quantity


def _two_looks_without_returns(before: Any, now: Sequence[Any], quantity: int, shards: int) -> bool:
    del shards
    if len(now) == 1:
        return bool(now[0].available < quantity)
    return (
        before is not None
        and sum(shard.available for shard in before) < quantity
        and sum(shard.available for shard in now) < quantity
    )


def _sold_out(broken: Any) -> Callable[[], Sequence[Any]]:
    return lambda: [patch.object(module, "is_sold_out", broken) for module in (claiming, group_commit, restocking)]


def _expiring(answer: Callable[[Any], bool]) -> Callable[[], Sequence[Any]]:
    """Let whoever turns a caller away make something else of what came of the holds that are due."""
    original = Expiry.expire_item

    def broken(self: Expiry, settings: Any, deadline: Any) -> bool:
        return answer(original(self, settings, deadline))

    return lambda: [patch.object(Expiry, "expire_item", broken)]


def _settles_what_is_settled() -> Sequence[Any]:
    """Leave it to the shard's condition that there is something to settle."""
    original = Writes.settle_claim

    def broken(self: Writes, claim: Any, to: Any, now_ms: int) -> Write:
        return _sparing(replace(original(self, claim, to, now_ms), condition="attribute_exists(pk)"))

    return (patch.object(Writes, "settle_claim", broken),)


def _fetches_when_it_gave_up() -> Sequence[Any]:
    """Call without having won, when the wait ends, as nginx does."""
    original = SingleFlight._gave_up

    def broken(self: SingleFlight, record: Any, policy: Any, now: int) -> Any:
        ask = asking[-1]
        if record is None:
            return original(self, record, policy, now)
        return self._fetch(ask, Flight(ask.key, "?", record.fence, record.lease_until, "r", 0), record)

    get = SingleFlight._get
    asking: list[Any] = []

    def noting(self: SingleFlight, ask: Any) -> Any:
        asking.append(ask)
        return get(self, ask)

    return patch.object(SingleFlight, "_gave_up", broken), patch.object(SingleFlight, "_get", noting)


def _swallows_late_results() -> Sequence[Any]:
    """Tell the caller who paid that it failed, where its result could not be stored."""
    original = SingleFlight._complete

    def broken(self: SingleFlight, *args: Any) -> Any:
        served = original(self, *args)
        if served.how == "stored":
            return served
        raise FetchError("failed")

    return (patch.object(SingleFlight, "_complete", broken),)


def _takes_over_from_what_it_read() -> Sequence[Any]:
    """Take over because the record, as it was read, said that the lease was over."""
    original = CacheStore.acquire

    def broken(self: CacheStore, key: str, owner: str, policy: Any, deadline: Any, **kwargs: Any) -> Any:
        record = self.read(key, deadline, consistent=True)
        now = self._clock.now_ms()
        if record and record.state is State.PROCESSING and record.lease_until + policy.clock_skew_ms <= now:
            with ExitStack() as stack:
                for made in _rewriting("acquire", _unconditionally)():
                    stack.enter_context(made)
                return original(self, key, owner, policy, deadline, **kwargs)
        return original(self, key, owner, policy, deadline, **kwargs)

    return (patch.object(CacheStore, "acquire", broken),)


def _circuit_asks_nobody(*_: Any) -> bool:
    return True


def _ignores_fingerprints() -> Sequence[Any]:
    """Take whatever stands under a key for the answer to the request."""
    original = rules.meaning

    def broken(claim: Claim, request: ClaimRequest, write_id: str) -> Any:
        return original(replace(claim, fingerprint=request.fingerprint), request, write_id)

    return [patch.object(module, "meaning", broken) for module in (claiming, group_commit)]


def _without_token(*_: Any, **__: Any) -> str:
    return "the same for all"


def _without_limit(made: Write) -> Write:
    return _unconditionally(made) if ":most_before" in made.condition else made


def _put_anyway(made: Write) -> Write:
    return _unconditionally(made) if isinstance(made, Put) else made


def _expires_too_early() -> Sequence[Any]:
    """Expire holds without asking for their deadline."""
    drop = _rewriting("expire", _conditioned(" AND hold_until <= :now", ""))()
    always = [patch.object(Claim, "is_due", lambda *_: True), patch.object(expiry, "_is_due", lambda *_: True)]
    return [*drop, *always]


def _leaves_claimants_counted() -> Sequence[Any]:
    """Give the units back and not the claimant's allowance."""
    original = StockStore.settle

    def broken(self: StockStore, *args: Any, limited: bool) -> Any:
        del limited
        return original(self, *args, limited=False)

    return (patch.object(StockStore, "settle", broken),)


def _grants_first() -> Sequence[Any]:
    """Record the claim first and take the units afterwards, in two steps."""
    transact = Conditional.transact

    def broken(self: Conditional, made: Sequence[Write], name: str, deadline: Any, **kwargs: Any) -> Any:
        if name != "claim":
            return transact(self, made, name, deadline, **kwargs)
        for one in made:
            outcome = transact(self, [one], name, deadline, **kwargs)
            if not isinstance(outcome, Applied):
                return outcome
        return outcome

    return (patch.object(Conditional, "transact", broken),)


def _acks_before_writing() -> Sequence[Any]:
    """Say that a claim was made although its write was not answered."""
    original = StockStore.grant

    def broken(self: StockStore, claims: Any, *args: Any, **kwargs: Any) -> Any:
        outcome = original(self, claims, *args, **kwargs)
        return Granted(claims) if isinstance(outcome, Busy) and outcome.reason == "unreachable" else outcome

    return (patch.object(StockStore, "grant", broken),)


def _lost_is_won() -> Sequence[Any]:
    original = Conditional.write

    def broken(self: Conditional, made: Write, name: str, *args: Any, **kwargs: Any) -> Any:
        outcome = original(self, made, name, *args, **kwargs)
        if name == "spend" and isinstance(outcome, (Rejected, Busy)):
            return Applied()
        return outcome

    return (patch.object(Conditional, "write", broken),)


CACHE = (
    Twin("complete without a condition", ("cache-two",), _rewriting("complete", _unconditionally)),
    Twin(
        "complete without the owner and the fence",
        ("cache-two",),
        _rewriting("complete", _conditioned("fence = :fence AND #owner = :owner AND ", "")),
    ),
    Twin("fail without a condition", ("cache-invalidate-result",), _rewriting("fail", _unconditionally)),
    Twin("acquire without a condition", ("cache-two",), _rewriting("acquire", _unconditionally)),
    Twin(
        "a lease that never ends",
        ("cache-two",),
        _rewriting("acquire", _conditioned("lease_until <= :now_less_skew", "lease_until < :zero")),
    ),
    Twin(
        "a takeover that does not ask whether the lease is over",
        ("cache-two",),
        _rewriting("acquire", _conditioned(" AND lease_until <= :now_less_skew", "")),
    ),
    Twin("a takeover decided by what was read", ("cache-two",), _takes_over_from_what_it_read, budget=2),
    Twin(
        "a takeover that keeps the fence",
        ("cache-two",),
        _rewriting("acquire", _updating(" + :one, #owner", " + :zero, #owner")),
    ),
    Twin(
        "an invalidation that leaves the fence and the state",
        ("cache-invalidate",),
        _rewriting("invalidate", _updating("SET #state = :pending, fence = fence + :one, ", "SET ")),
    ),
    Twin(
        "an invalidation that does not move the fence",
        ("cache-invalidate",),
        _rewriting("invalidate", _updating("fence = fence + :one, ", "")),
    ),
    Twin(
        "an invalidation that leaves the body",
        ("cache-invalidate-result",),
        _rewriting("invalidate", _updating("REMOVE body, body_encoding, overflow_key, stored_at, ", "REMOVE ")),
    ),
    Twin(
        "a renewal that replaces whatever stands there",
        ("cache-renew",),
        _rewriting("acquire", _conditioned(" AND fence = :replacing", "")),
    ),
    Twin(
        "a failure that nobody cools down from",
        ("cache-two",),
        _rewriting("acquire", _conditioned(" AND retry_at <= :now", "")),
    ),
    Twin(
        "an unknown outcome that is tried again",
        ("cache-unknown",),
        _rewriting("acquire", lambda made: replace(made, values={**made.values, ":taken_over": State.PROCESSING})),
    ),
    Twin(
        "a time-out that is an ordinary failure although it may have been paid",
        ("cache-unknown",),
        lambda: (patch.object(FetchError, "ambiguous", property(lambda _: False, lambda _, __: None), create=True),),
    ),
    Twin("a paid result kept from its caller", ("cache-two",), _swallows_late_results),
    Twin("a waiter that calls when its wait ends", ("cache-two",), _fetches_when_it_gave_up),
    Twin(
        "an idempotency key that changes with each takeover",
        ("cache-two",),
        _rewriting("acquire", _updating("refresh_id = if_not_exists(refresh_id, :owner)", "refresh_id = :owner")),
    ),
    Twin("lost replies taken for lost races", ("cache-two", "claim-last"), _forgets_write_ids),
    Twin("each attempt with a token of its own", ("cache-two", "cache-three"), _retries_with_new_token),
    Twin("a budget that is read and then written", ("cache-spend",), _lost_is_won),
    Twin(
        "a budget without a bound in the write",
        ("cache-spend",),
        _rewriting("spend", _unconditionally),
    ),
    Twin("a circuit that lets everyone try", ("cache-circuit",), _instead(Circuit, "_move", _circuit_asks_nobody)),
    Twin(
        "a circuit whose mover does not ask what it saw",
        ("cache-circuit",),
        _rewriting("open-circuit", _unconditionally),
    ),
)

CLAIMS = (
    Twin(
        "a claim that reads and then writes",
        ("claim-last",),
        _rewriting("claim", lambda made: made if isinstance(made, Put) else _unconditionally(made)),
    ),
    Twin(
        "a claim put without a condition",
        ("claim-repeat",),
        _rewriting("claim", _put_anyway),
    ),
    Twin("a claim in two steps", ("claim-last",), _grants_first),
    Twin("a conflict shown as sold out", ("claim-last",), _conflict_is_rejection),
    Twin("a conflict beside a failed condition shown as an answer", ("hold-settle",), _mixed_is_final),
    Twin("silence shown as success", ("claim-last",), _acks_before_writing),
    Twin("write ids that are all the same", ("claim-last",), _instead(claiming, "new_write_id", _without_token)),
    Twin("a look at a few shards proves sold out", ("claim-few-shards",), _sold_out(_a_few_are_proof)),
    Twin("one look proves sold out", ("claim-sold-out-proof",), _sold_out(_one_look_is_proof)),
    Twin(
        "two looks prove sold out whatever came back", ("claim-sold-out-twice",), _sold_out(_two_looks_without_returns)
    ),
    Twin(
        "units that come back without being told of",
        ("claim-sold-out-proof",),
        _rewriting("release", _updating("#returns = #returns + :one, ", "")),
    ),
    Twin("a limit that is not in the write", ("claim-limit",), _rewriting("claim", _without_limit)),
    Twin("a used key means whatever was first", ("claim-reused-key",), _ignores_fingerprints),
    Twin("a hold that is settled twice", ("hold-settle",), _settles_what_is_settled),
    Twin(
        "a refund that does not ask whether it is held",
        ("hold-settle",),
        _rewriting("release", _conditioned("#state = :held", "attribute_exists(pk)")),
    ),
    Twin(
        "an expiry that ends confirmed claims",
        ("hold-confirm-expire",),
        _rewriting("expire", _conditioned("#state = :held AND ", "")),
    ),
    Twin(
        "a refusal though load keeps a due hold",
        ("hold-due-claimed",),
        _expiring(lambda came_back: came_back is True),
        budget=2,
    ),
    Twin(
        "a refusal without a look at what came back",
        ("hold-due-claimed",),
        _expiring(lambda _: False),
    ),
    Twin(
        "an expiry before its time",
        ("hold-confirm-expire", "hold-settle"),
        _expires_too_early,
    ),
    Twin(
        "a release that leaves the claimant counted",
        ("hold-limited",),
        _leaves_claimants_counted,
    ),
    Twin(
        "a restock that forgets its key",
        ("stock-restock",),
        _rewriting("adjust", _put_anyway),
    ),
    Twin(
        "a withdrawal below zero",
        ("stock-withdraw",),
        _rewriting("adjust", _conditioned("available >= :units", "attribute_exists(pk)")),
    ),
    Twin(
        "a group that commits a duplicate twice",
        ("queue-duplicates", "queue-and-direct"),
        _rewriting("claim", _put_anyway),
    ),
    Twin(
        "a group that vouches for itself with one write id",
        ("queue-duplicates",),
        _instead(group_commit, "new_write_id", _without_token),
    ),
    Twin(
        "a rejection noted over a grant",
        ("queue-duplicates", "queue-and-direct"),
        _rewriting("reject", _unconditionally),
    ),
)
