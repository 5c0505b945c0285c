"""What runs by itself: the audit of all items, a few at a time where there are many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstwrite.claim.records import ITEM_BUCKETS
from firstwrite.errors import DataFaultError, StoreUnavailableError
from firstwrite.observability import logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firstwrite.claim.audit import Audit
    from firstwrite.claim.lists import StockLists
    from firstwrite.claim.store import StockStore
    from firstwrite.clock import Deadline
    from firstwrite.observability import Count

ITEM_MS = 60_000
"""What one item may take, so that the others have their turn."""
LEAST_MS = 3_000
"""An audit that would begin with less time left waits for the next run."""


class AuditOfAll:
    """Audits one item after another, going on where the last run stopped.

    Args:
        store: settings, and where the last run stopped.
        lists: the names of all items.
        audit: one item's.
        count: told of items that cannot be audited as `AuditMismatches` and `Faults`.
    """

    def __init__(self, store: StockStore, lists: StockLists, audit: Audit, count: Count) -> None:
        self._store = store
        self._lists = lists
        self._audit = audit
        self._count = count

    def run(self, deadline: Deadline) -> int:
        """Audit until every item was looked at or time is up; return how many were.

        Raises:
            StoreUnavailableError: a read was not answered within the deadline.
        """
        # Nothing found is still a finding: the alarm tells a quiet stage from an audit that does not run.
        self._count("AuditMismatches", 0)
        self._count("AuditsInconclusive", 0)
        start = self._store.audit_progress(deadline)
        done, last = 0, start
        for bucket, item in self._items(start, deadline):
            if deadline.left_ms() < LEAST_MS:
                break
            self._audit_item(item, deadline)
            done, last = done + 1, (bucket, item)
        if last != start:
            self._store.save_audit_progress(start, last, deadline)
        return done

    def _audit_item(self, item: str, deadline: Deadline) -> None:
        try:
            settings = self._store.settings(item, deadline)
            report = self._audit.run(settings, deadline.within(ITEM_MS)) if settings else None
        except StoreUnavailableError as error:
            logger.warning("an item could not be read in time", extra={"item": item, "reason": error.reason})
            self._count("AuditsInconclusive")
            return
        except DataFaultError:
            logger.exception("an item's stock cannot be read", extra={"item": item})
            self._count("AuditMismatches")
            self._count("Faults")
            return
        if report and report.outcome != "balanced":
            logger.warning("audit", extra={"item": item, "outcome": report.outcome})

    def _items(self, start: tuple[int, str], deadline: Deadline) -> Iterator[tuple[int, str]]:
        """Yield every item once: those after where the last run stopped, and round to there."""
        first, after = start
        for bucket in (*range(first, ITEM_BUCKETS), *range(first)):
            yield from ((bucket, item) for item in self._bucket(bucket, after if bucket == first else "", deadline))
        yield from ((first, item) for item in self._bucket(first, "", deadline) if item <= after)

    def _bucket(self, bucket: int, after: str, deadline: Deadline) -> Iterator[str]:
        position: str | None = f"item#{after}"
        while position is not None:
            items, position = self._lists.items(bucket, position, deadline)
            yield from items
