"""A bound on paid calls per source and minute, which no number of racing callers exceeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstwrite.conditional import Applied, Update
from firstwrite.dynamodb import Table

if TYPE_CHECKING:
    from firstwrite.clock import Clock, Deadline
    from firstwrite.conditional import Conditional

WINDOW_MS = 60_000
KEPT_S = 3_600


class SpendGuard:
    """Counts paid calls by conditional writes on one item for each source and minute.

    Args:
        conditional: writes.
        clock: says which minute it is.
        table_name: the cache table.
    """

    def __init__(self, conditional: Conditional, clock: Clock, table_name: str) -> None:
        self._conditional = conditional
        self._clock = clock
        self._table = Table(table_name, "cache", ("pk",))

    def take(self, source: str, limit: int, deadline: Deadline) -> int:
        """Take one of the minute's calls.

        The bound is in the write. A repeat after a lost reply may count one call twice, which errs on the side of not
        paying.

        Returns:
            0 where the call may be made, else the milliseconds until the next minute.
        """
        now = self._clock.now_ms()
        window = now // WINDOW_MS
        outcome = self._conditional.write(
            Update(
                self._table,
                {"pk": f"spend#{source}#{window}"},
                update="SET calls = if_not_exists(calls, :zero) + :one, expires_at = :expires_at, write_id = :write_id",
                condition="attribute_not_exists(calls) OR calls < :limit",
                values={":zero": 0, ":one": 1, ":limit": limit, ":expires_at": now // 1000 + KEPT_S},
            ),
            "spend",
            deadline,
        )
        return 0 if isinstance(outcome, Applied) else (window + 1) * WINDOW_MS - now
