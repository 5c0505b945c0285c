"""Holds that have passed their deadline, and the units that come back with them.

Guarantees: a hold expires once, never before its deadline, and never when it was confirmed; its units come back in the
same transaction. The index that names what is due is eventually consistent, and only a hint: the transaction decides.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING

from firstwrite.claim.model import ClaimState
from firstwrite.claim.records import all_due_partitions, due_partitions, item_of_partition
from firstwrite.claim.remembered import Remembered
from firstwrite.claim.store import MOST_WRITES, Overtaken
from firstwrite.conditional import Applied, Busy
from firstwrite.errors import DataFaultError, StoreUnavailableError
from firstwrite.observability import logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from firstwrite.claim.lists import StockLists
    from firstwrite.claim.model import Claim, ItemSettings
    from firstwrite.claim.store import StockStore
    from firstwrite.clock import Clock, Deadline
    from firstwrite.dynamodb import Item, Key
    from firstwrite.observability import Count

SEARCH_AGAIN_MS = 100
"""One execution environment looks no more often than so for an item's due holds, however many callers it turns away."""
INDEX_LAG_MS = 2_000
"""Holds younger than this may not be in the index yet."""
MOST_PAGES = 2
"""Of one partition, on behalf of a caller who waits."""
ON_DEMAND_MS = 2_000
SCHEDULED_MS = 2_000
"""What one item may cost the schedule before the others have their turn."""


class Expiry:
    """The protocol, over a store of stock and claims.

    Args:
        store: reads and transitions.
        lists: the index of holds.
        clock: time; deadlines are held against its wall time.
        count: told of what expired as `HoldsExpired`, of claims that cannot as `Faults`, and by the schedule of how
            long the oldest hold it found had been due as `OldestDueHoldSeconds`.
    """

    def __init__(self, store: StockStore, lists: StockLists, clock: Clock, count: Count) -> None:
        self._store = store
        self._lists = lists
        self._clock = clock
        self._count = count
        self._nothing_due_before: Remembered[int] = Remembered()

    def expire_item(self, settings: ItemSettings, deadline: Deadline) -> bool | Busy:
        """Expire the holds of one item that are due, so that no caller is turned away for their sake.

        Cheap for a storm of callers: a search tells until when nothing comes due, and until then there is no other.

        Returns:
            Whether to look at the stock again: a search was made, and what was due came back by it, or meanwhile by
            another. `Busy` where load keeps something that is due, for which nobody is turned away.

        Raises:
            StoreUnavailableError: the index did not answer.
        """
        now = self._clock.now_ms()
        if settings.hold_seconds is None or now < (self._nothing_due_before.get(settings.item) or 0):
            return False
        # What is not in the index yet was made a moment ago, and comes due a whole hold later.
        next_due = now + settings.hold_seconds * 1000 - INDEX_LAG_MS
        due: list[Key] = []
        for partition in due_partitions(settings.item):
            for page in self._pages(partition, deadline, MOST_PAGES):
                due += [_key(entry) for entry in page if _is_due(entry, now) and _item(entry) == settings.item]
                later = [entry["hold_until"] for entry in page if not _is_due(entry, now)]
                if later:
                    next_due = min(next_due, later[0])
                    break
        if due:
            busy = self._expire(settings, due, deadline.within(ON_DEMAND_MS))
            if busy:
                return busy
        next_search = now + SEARCH_AGAIN_MS if due else max(next_due, now + SEARCH_AGAIN_MS)
        self._nothing_due_before.put(settings.item, next_search)
        return True

    def expire_all(self, deadline: Deadline) -> bool:
        """Expire every hold that is due, as far as time allows.

        Returns:
            Whether all was looked at before the deadline.
        """
        partitions = all_due_partitions()
        # Another order each time, so that what a short run leaves undone is not always the same.
        random.shuffle(partitions)
        oldest_ms = 0
        try:
            for partition in partitions:
                for page in self._pages(partition, deadline):
                    now = self._clock.now_ms()
                    due = [entry for entry in page if _is_due(entry, now)]
                    oldest_ms = max([oldest_ms, *(now - entry["hold_until"] for entry in due)])
                    self._expire_page(due, deadline)
                    if not deadline.left_ms():
                        return False
                    if len(due) < len(page):
                        break
        except StoreUnavailableError as error:
            logger.warning("the table did not answer in time", extra={"reason": error.reason})
            return False
        finally:
            self._count("OldestDueHoldSeconds", oldest_ms // 1000)
        return True

    def _expire_page(self, due: Sequence[Item], deadline: Deadline) -> None:
        for item, keys in _by_item(due).items():
            settings = self._store.settings(item, deadline)
            if settings is not None:
                self._expire(settings, keys, deadline.within(SCHEDULED_MS))

    def _pages(self, partition: str, deadline: Deadline, most: int | None = None) -> Iterator[Sequence[Item]]:
        """Yield what is in a partition of the index, what comes due first in front."""
        start: Item | None = None
        pages = 0
        while most is None or pages < most:
            page, start = self._lists.holds(partition, start, deadline)
            pages += 1
            yield page
            if start is None:
                return

    def _expire(self, settings: ItemSettings, keys: Sequence[Key], deadline: Deadline) -> Busy | None:
        """Expire holds of one item, many in a transaction; `Busy` where some are still due."""
        limited = settings.limit_per_claimant is not None
        # Each hold is a write, and a claimant's count another; the rest are the shards'.
        room = (MOST_WRITES - settings.shards) // (2 if limited else 1)
        outcomes = [
            self._expire_together(keys[start : start + room], deadline, limited=limited)
            for start in range(0, len(keys), room)
        ]
        return next(filter(None, outcomes), None)

    def _expire_together(self, keys: Sequence[Key], deadline: Deadline, *, limited: bool) -> Busy | None:
        """Expire holds in one transaction; those that were settled meanwhile drop out, and it is tried again."""
        before: Sequence[Claim] | None = None
        while True:
            now = self._clock.now_ms()
            try:
                claims = [claim for claim in self._store.claims(keys, deadline) if claim.is_due(now)]
            except DataFaultError:
                claims = None
            if claims == []:
                return None
            if claims is None or claims == before:
                # Nobody came between, so one of them is at fault.
                return self._single_out(keys, deadline, limited=limited)
            outcome = self._store.settle(claims, ClaimState.EXPIRED, now, deadline, limited=limited)
            if isinstance(outcome, Applied):
                self._count("HoldsExpired", len(claims))
            if isinstance(outcome, Busy):
                return outcome
            if not isinstance(outcome, Overtaken):
                return None
            if not deadline.left_ms():
                return Busy("conflict")
            before = claims

    def _single_out(self, keys: Sequence[Key], deadline: Deadline, *, limited: bool) -> Busy | None:
        """Expire the holds among `keys` that can, in halves, and report the one that cannot.

        Whoever waits for units has nothing to do with it, and the other holds have not either.
        """
        if len(keys) == 1:
            item = keys[0]["pk"].split("#")[1]  # an audit of it names the claim
            logger.error("a hold cannot expire: it, or its shard, is not as this code left it", extra={"item": item})
            self._count("Faults")
            return None
        middle = len(keys) // 2
        halves = [self._expire_together(half, deadline, limited=limited) for half in (keys[:middle], keys[middle:])]
        return next(filter(None, halves), None)


def _by_item(entries: Iterable[Item]) -> dict[str, list[Key]]:
    keys: dict[str, list[Key]] = defaultdict(list)
    for entry in entries:
        keys[_item(entry)].append(_key(entry))
    return keys


def _key(entry: Item) -> Key:
    return {"pk": entry["pk"], "sk": entry["sk"]}


def _item(entry: Item) -> str:
    return item_of_partition(entry["pk"])


def _is_due(entry: Item, now_ms: int) -> bool:
    return bool(entry["hold_until"] <= now_ms)
