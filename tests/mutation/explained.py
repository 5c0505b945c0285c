"""Mutants that no test notices, and why none should: `before -> after`, as `make mutation` prints them."""

from __future__ import annotations

_BY_THE_WRAPPER = "mutmut calls a mutant through a wrapper that fills in the defaults of the original"
_FALSY = "as false as False"
_FOR_THE_TYPES = "never reached: it tells the type checker what the data already ensures"
_A_MILLISECOND = "a bound of chance, or of patience, that is moved by a millisecond"

_DEFAULTS = "self, kind: FailureKind, *, retry_after_ms: int = 0, refused: bool = False, ambiguous: bool = False"

EXPLAINED = {
    f"{_DEFAULTS} -> {_DEFAULTS.replace('= 0', '= 1')}": _BY_THE_WRAPPER,
    f"{_DEFAULTS} -> {_DEFAULTS.replace('ambiguous: bool = False', 'ambiguous: bool = True')}": _BY_THE_WRAPPER,
    'forward: Forward = "miss", -> forward: Forward = "XXmissXX",': _BY_THE_WRAPPER,
    'forward: Forward = "miss", -> forward: Forward = "MISS",': _BY_THE_WRAPPER,
    "few = False -> few = None": _FALSY,
    "again = False -> again = None": _FALSY,
    "searched = False  # for holds that are due; once a request, however slow the table is -> "
    "searched = None  # for holds that are due; once a request, however slow the table is": _FALSY,
    'return Failed(record.failure or "failed", left_ms) -> '
    'return Failed(record.failure or "XXfailedXX", left_ms)': _FOR_THE_TYPES,
    'return Failed(record.failure or "failed", left_ms) -> '
    'return Failed(record.failure or "FAILED", left_ms)': _FOR_THE_TYPES,
    "return LimitReached(settings.limit_per_claimant or 0) -> "
    "return LimitReached(settings.limit_per_claimant or 1)": _FOR_THE_TYPES,
    "return self._uniform(0, CONTENDED_MS) -> return self._uniform(1, CONTENDED_MS)": _A_MILLISECOND,
    "left_ms = max(0, min(likely_ms, record.started_at + likely_ms - now)) -> "
    "left_ms = max(1, min(likely_ms, record.started_at + likely_ms - now))": _A_MILLISECOND,
    "return min(left_ms + STORING_MS + self._uniform(0, LOOK_SPREAD_MS), lease_left_ms) -> "
    "return min(left_ms + STORING_MS + self._uniform(1, LOOK_SPREAD_MS), lease_left_ms)": _A_MILLISECOND,
    "again = deadline.left_ms() > 0 -> again = deadline.left_ms() > 1": _A_MILLISECOND,
    "outcome = self._store.grant([claim], settings.limit_per_claimant, deadline.within(0), write_id) -> "
    "outcome = self._store.grant([claim], settings.limit_per_claimant, deadline.within(1), write_id)": _A_MILLISECOND,
    "left_ms = record.lease_until - now if record else 0 -> "
    "left_ms = record.lease_until - now if record else 1": "whoever gave up is told at least a second",
    "since_ms = 0.0 -> since_ms = 1.0": "set anew for the first fetch that is waited for; not read where there is none",
    "few = settings.shards > self._few and self._have_sufficed(settings.item, request.quantity) -> "
    "few = settings.shards >= self._few and self._have_sufficed(settings.item, request.quantity)": (
        "a few of four shards are all four"
    ),
    "case NotGranted(): pass  # the shard was short -> ": "says that there is nothing to do",
    "return meaning(existing[request.claim_id], request, write_id) -> "
    "return meaning(existing[request.claim_id], request, None)": (
        "a refused transaction met no item of this write: that would have been Applied"
    ),
}
