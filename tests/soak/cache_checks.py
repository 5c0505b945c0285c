"""What must hold of the cache, judged by answers, by the paid API's own log and by its own count.

Checked: every answer is one that the paid API gave for that value; answers never go back to an older call, and never
past an operator's drop; none is older than its source allows; each call has a fence of its own and each refresh one
Idempotency-Key, until a result was stored; the next call comes when it is due (the answer no longer fresh, the failure
cooled down), unless an operator asked for it, or the last one's owner died or could not store its result: then only
when its lease is over, and where the log of faults shows it. Where a call may have been paid although its caller heard
nothing, a careful source makes no other until an operator drops the value.

What cannot be checked from outside: whether a result whose owner was killed or paused had been stored. So a careful
source is judged by calls without an answer alone, and a kill or a pause excuses a takeover of the value that its worker
was asked for, even where that worker only waited. A request that the faults delay may land when it has long been given
up; an operator's request therefore excuses what happens for so long after it.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from local.faults import MOST_LATE_S, PAUSE_S
from tests.soak.history import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.soak.history import Asked, Attempt, Evidence, PaidCall, Source, Struck

ROUNDING_S = 0.002
"""The functions count whole milliseconds."""
ANSWERED = frozenset({200, 404})
LOSSES = frozenset({"lose-reply", "lose-request", "late-request", "throttle", "conflict"})
PATIENCE_S = 10.0
"""How much later than its source allows an answer may come: what a machine may stand still."""


def check_cache(evidence: Evidence) -> Iterator[Violation]:
    """Yield everything that is wrong with cached values."""
    calls: dict[str, list[PaidCall]] = defaultdict(list)
    asked: dict[str, list[Asked]] = defaultdict(list)
    for call in sorted(evidence.paid, key=lambda call: call.fence):
        calls[call.of].append(call)
    for one in evidence.asked:
        if one.request.is_cache:
            asked[one.request.of].append(one)
    for value, (name, key) in evidence.values.items():
        source = evidence.sources[name]
        answers = _answers(asked[value])
        yield from _was_paid_for(value, source, answers, calls[value])
        yield from _never_goes_back(value, answers, calls[value])
        yield from _not_past_a_drop(value, asked[value], answers, calls[value])
        yield from _fences_and_keys(value, asked[value], answers, calls[value])
        struck = [one for one in evidence.struck if _concerns(one, value, key)]
        yield from _when_due(value, source, calls[value], asked[value], struck)
        if evidence.counted.get(value, 0) != len(calls[value]):
            what = f"it counted {evidence.counted.get(value, 0)}, {len(calls[value])} are in the log"
            yield Violation("the paid API's count agrees with its log", what, value)


def _answers(asked: Sequence[Asked]) -> list[Attempt]:
    """Return the answers that have a value."""
    attempts = (attempt for one in asked if one.request.kind != "drop" for attempt in one.attempts)
    return sorted((one for one in attempts if one.status in ANSWERED and not one.problem), key=lambda one: one.began)


def _by_digest(calls: Sequence[PaidCall]) -> Mapping[str, PaidCall]:
    return {call.digest: call for call in calls if call.status in ANSWERED}


def _was_paid_for(
    value: str, source: Source, answers: Sequence[Attempt], calls: Sequence[PaidCall]
) -> Iterator[Violation]:
    paid = _by_digest(calls)
    for answer in answers:
        call = paid.get(answer.digest)
        if call is None or call.began > answer.ended or call.status != answer.status:
            yield Violation("an answer is one that was paid for", f"{answer.line} is none", value)
        elif call.ended and call.ended + source.fresh_s + source.stale_s + PATIENCE_S < answer.began:
            yield Violation("no answer is older than its source allows", f"{answer.line} is of {call.line}", value)


def _never_goes_back(value: str, answers: Sequence[Attempt], calls: Sequence[PaidCall]) -> Iterator[Violation]:
    """Once somebody was served from the cache, nobody who asks afterwards is served what is older."""
    paid = _by_digest(calls)
    served = [(answer, paid[answer.digest]) for answer in answers if _is_kept(answer) and answer.digest in paid]
    ended = iter(sorted(served, key=lambda one: one[0].ended))
    newest: tuple[Attempt, PaidCall] | None = None
    following = next(ended, None)
    for answer, call in served:
        while following and following[0].ended < answer.began:
            if newest is None or following[1].fence > newest[1].fence:
                newest = following
            following = next(ended, None)
        if newest and call.fence < newest[1].fence:
            what = f"{newest[0].line} (fence {newest[1].fence}), then {answer.line} (fence {call.fence})"
            yield Violation("answers never go back", what, value)


def _is_kept(answer: Attempt) -> bool:
    """Does this answer stand in the cache? What its caller paid for and could not store does not."""
    return any(word in answer.mark for word in ("hit", "stored", "collapsed"))


def _not_past_a_drop(
    value: str, asked: Sequence[Asked], answers: Sequence[Attempt], calls: Sequence[PaidCall]
) -> Iterator[Violation]:
    paid = _by_digest(calls)
    drops = [one.last for one in asked if one.request.kind == "drop" and one.last.status == 204]
    for answer in answers:
        call = paid.get(answer.digest)
        for drop in drops:
            if call and drop.ended < answer.began and call.began < drop.began:
                yield Violation("what was dropped is not served", f"{answer.line} after {drop.line}", value)


def _fences_and_keys(
    value: str, asked: Sequence[Asked], answers: Sequence[Attempt], calls: Sequence[PaidCall]
) -> Iterator[Violation]:
    """Each call has a fence of its own; each refresh one key, which ends with a stored result or a drop."""
    stored = {answer.digest for answer in answers if answer.mark.endswith("stored")}
    over: set[str] = set()
    for first, second in pairwise(calls):
        if first.fence == second.fence:
            yield Violation("each call has a fence of its own", f"{first.line}; {second.line}", value)
        if first.refresh == second.refresh:
            if first.digest in stored:
                what = f"{first.line} was stored; {second.line}"
                yield Violation("a refresh ends with a stored result", what, value)
            continue
        over.add(first.refresh)
        if second.refresh in over:
            yield Violation("a refresh has one key", f"{second.line} takes up an old one", value)
        kept = first.status in ANSWERED and first.heard
        if not kept and not _operated(asked, first.began, second.began, "drop"):
            yield Violation("a refresh has one key", f"{first.line} was not stored; {second.line}", value)


def _when_due(
    value: str, source: Source, calls: Sequence[PaidCall], asked: Sequence[Asked], struck: Sequence[Struck]
) -> Iterator[Violation]:
    """The next call comes when it is due, or an operator or a fault says why not."""
    for first, second in pairwise(calls):
        if _operated(asked, first.began, second.began, "drop", "renew"):
            continue
        # Its caller's patience began before the call was seen here: it may have ended a little earlier, not later.
        took_s = (first.ended or second.began) - first.began
        if source.careful and (not first.heard or took_s > source.timeout_s):
            yield Violation("what may have been paid is not paid again", f"{first.line}; {second.line}", value)
        if first.ended is None or not first.heard or took_s > source.timeout_s / 2 or _timed_out(asked, first):
            continue
        due = first.ended + (source.fresh_s if first.status in ANSWERED else source.cooldown_s)
        if second.began >= due - ROUNDING_S:
            continue
        took_over = source.lease_s < source.fresh_s and second.began - first.began >= source.timeout_s
        excused = took_over and any(first.began - 1 <= one.at <= second.began for one in struck)
        # Stopped between its decision and its call, which it made when another had long been made in its stead.
        came_late = second.began < first.began and any(
            one.kind == "pause" and second.began - PAUSE_S <= one.at <= first.began for one in struck
        )
        if not (excused or came_late):
            yield Violation("one call until the next is due", f"{first.line}; {second.line}", value)


def _timed_out(asked: Sequence[Asked], call: PaidCall) -> bool:
    """Was somebody who waited for it told that it took too long? Under load a call is seen here late."""
    return any(
        attempt.problem == "upstream-timeout" and attempt.began <= call.began and (call.ended or 0) <= attempt.ended
        for one in asked
        for attempt in one.attempts
    )


def _operated(asked: Sequence[Asked], began: float, ended: float, *kinds: str) -> bool:
    """Did an operator ask for one of `kinds`, so that it may have landed between two instants?"""
    return any(
        one.request.kind in kinds and one.began <= ended and one.last.ended + MOST_LATE_S + 1 >= began for one in asked
    )


def _concerns(struck: Struck, value: str, key: str) -> bool:
    """May this fault have kept a fetch of this value from being stored?"""
    if struck.kind in {"kill", "pause"}:
        return any(value in part for part in struck.of)
    return struck.kind in LOSSES and struck.of[0] in {"PutItem", "UpdateItem"} and key in struck.of
