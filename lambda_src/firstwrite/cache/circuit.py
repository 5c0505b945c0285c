"""A circuit for each source: when its upstream is down, no key asks it for a while, and then one does first.

Closed, nothing is written: each process counts its own failures in a row. The shared record holds one thing, until
when the circuit is open. Whoever finds that time over moves it on by a conditional write, and so becomes the only one
to try; success removes it, failure moves it on again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstwrite.conditional import Applied, Update
from firstwrite.dynamodb import Table

if TYPE_CHECKING:
    from firstwrite.clock import Clock, Deadline
    from firstwrite.conditional import Conditional
    from firstwrite.dynamodb import Dynamo

OPENS_AFTER_FAILURES = 5
KEPT_S = 86_400


class Circuit:
    """The circuits of all sources.

    Args:
        dynamo: reads.
        conditional: writes.
        clock: time.
        table_name: the cache table.
    """

    def __init__(self, dynamo: Dynamo, conditional: Conditional, clock: Clock, table_name: str) -> None:
        self._dynamo = dynamo
        self._conditional = conditional
        self._clock = clock
        self._table = Table(table_name, "cache", ("pk",))
        self._failures: dict[str, int] = {}
        self._trying: dict[str, int] = {}

    def closed_in_ms(self, source: str, open_ms: int, deadline: Deadline) -> int:
        """Ask to call `source`.

        Args:
            source: whose circuit.
            open_ms: how long it stays open; longer than one call takes.
            deadline: for the read and the write.

        Returns:
            0 where the call may be made, else the milliseconds until somebody may try.
        """
        key = {"pk": f"circuit#{source}"}
        # Eventually consistent: a circuit that opened a moment ago lets one more call through.
        record = self._dynamo.get(self._table, key, deadline, consistent=False)
        open_until = int(record.get("open_until", 0)) if record else 0
        if not open_until:
            return 0
        now = self._clock.now_ms()
        if open_until > now:
            return open_until - now
        if not self._move(source, open_until, now + open_ms, deadline):
            return open_ms
        self._trying[source] = now + open_ms
        return 0

    def succeeded(self, source: str, deadline: Deadline) -> None:
        """Note a call that went well; close the circuit if this was the one that tried."""
        self._failures.pop(source, None)
        mine = self._trying.pop(source, None)
        if mine is not None:
            self._conditional.write(
                Update(
                    self._table,
                    {"pk": f"circuit#{source}"},
                    update="SET write_id = :write_id REMOVE open_until",
                    condition="open_until = :mine",
                    values={":mine": mine},
                ),
                "close-circuit",
                deadline,
            )

    def failed(self, source: str, open_ms: int, deadline: Deadline) -> None:
        """Note a failed call; open the circuit if there were enough in a row, or if this was the one that tried."""
        failures = self._failures.get(source, 0) + 1
        self._failures[source] = failures
        mine = self._trying.pop(source, None)
        if mine is not None or failures >= OPENS_AFTER_FAILURES:
            self._move(source, mine, self._clock.now_ms() + open_ms, deadline)

    def _move(self, source: str, open_until: int | None, later: int, deadline: Deadline) -> bool:
        """Open the circuit until `later`, if it is as this caller saw it: open until `open_until`, or closed."""
        outcome = self._conditional.write(
            Update(
                self._table,
                {"pk": f"circuit#{source}"},
                update="SET open_until = :later, expires_at = :expires_at, write_id = :write_id",
                condition="attribute_not_exists(open_until)" if open_until is None else "open_until = :seen",
                values={
                    ":later": later,
                    ":expires_at": later // 1000 + KEPT_S,
                    **({} if open_until is None else {":seen": open_until}),
                },
            ),
            "open-circuit",
            deadline,
        )
        return isinstance(outcome, Applied)
