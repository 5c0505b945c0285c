"""What the cache is worth: calls, hits and calls avoided for each source and day, for operators.

Calls are written as they happen. What was answered without one is counted in memory and written every few seconds; what
a process counted since is lost when Lambda ends it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from firstwrite.dynamodb import Table, to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from firstwrite.clock import Clock, Deadline
    from firstwrite.dynamodb import Dynamo

DAY_MS = 86_400_000
KEPT_S = 30 * 86_400
WRITE_EVERY_MS = 10_000
_NAMES = {
    "UpstreamCalls": "calls",
    "CacheHits": "hits",
    "CacheStale": "stale",
    "CacheCollapsed": "collapsed",
}


class Stats:
    """Counts by source and UTC day.

    Args:
        dynamo: writes and reads; adding up is not conditional.
        clock: says which day it is.
        table_name: the cache table.
    """

    def __init__(self, dynamo: Dynamo, clock: Clock, table_name: str) -> None:
        self._dynamo = dynamo
        self._clock = clock
        self._table = Table(table_name, "cache", ("pk",))
        self._pending: dict[str, Counter[str]] = {}
        self._written_ms = -float("inf")
        self._is_due = False

    def count(self, name: str, value: int = 1, **dimensions: str) -> None:
        """Take note of a metric, if it is one of those that are kept."""
        if name in _NAMES:
            self._pending.setdefault(dimensions["source"], Counter())[_NAMES[name]] += value
            self._is_due = self._is_due or name == "UpstreamCalls"

    def write(self, deadline: Deadline) -> None:
        """Add what is pending to the day's counts, if it is time."""
        elapsed_ms = self._clock.elapsed_ms()
        if not self._pending or not (self._is_due or elapsed_ms - self._written_ms >= WRITE_EVERY_MS):
            return
        pending, self._pending = self._pending, {}
        self._written_ms, self._is_due = elapsed_ms, False
        for source, counts in pending.items():
            names = sorted(counts)
            self._dynamo.call(
                "update_item",
                deadline,
                TableName=self._table.name,
                Key=to_wire({"pk": self._key(source)}),
                UpdateExpression=f"ADD {', '.join(f'#{name} :{name}' for name in names)} SET expires_at = :expires_at",
                ExpressionAttributeNames={f"#{name}": name for name in names},
                ExpressionAttributeValues=to_wire(
                    {
                        ":expires_at": self._clock.now_ms() // 1000 + KEPT_S,
                        **{f":{name}": counts[name] for name in names},
                    }
                ),
            )

    def read(self, sources: Sequence[str], deadline: Deadline) -> Mapping[str, Mapping[str, int]]:
        """Return today's counts of each source."""
        keys = {self._key(source): source for source in sources}
        items = self._dynamo.get_many(self._table, [{"pk": key} for key in keys], deadline) if keys else []
        found = {keys[item["pk"]]: item for item in items}
        return {source: {name: found.get(source, {}).get(name, 0) for name in _NAMES.values()} for source in sources}

    def _key(self, source: str) -> str:
        return f"stats#{source}#{self._clock.now_ms() // DAY_MS}"
