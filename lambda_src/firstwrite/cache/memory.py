"""Results of hot keys in this execution environment's own memory: off unless a source asks for it.

What is in memory does not hear of an invalidation; it is served for at most the source's `memory_seconds` more.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firstwrite.cache.record import Stored
    from firstwrite.clock import Clock

MAX_BYTES = 16_777_216
OVERHEAD_BYTES = 512
"""What an entry takes beside its body, roughly."""


class Memory:
    """A bounded memory of stored answers, least recently used out first.

    Args:
        clock: ends what was put for a time.
        max_bytes: bound on all bodies together.
    """

    def __init__(self, clock: Clock, max_bytes: int = MAX_BYTES) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[str, tuple[Stored, float]] = OrderedDict()

    def get(self, key: str) -> Stored | None:
        """Return what was put under `key`, None where it ended, was fresh no longer, or made room."""
        found = self._entries.get(key)
        if found is None:
            return None
        stored, until_ms = found
        if self._clock.elapsed_ms() >= until_ms or self._clock.now_ms() >= stored.fresh_until:
            self.forget(key)
            return None
        self._entries.move_to_end(key)
        return stored

    def put(self, key: str, stored: Stored, for_ms: int) -> None:
        """Keep `stored` for `for_ms`, if it fits at all."""
        self.forget(key)
        size = _size(stored)
        if size > self._max_bytes:
            return
        while self._bytes + size > self._max_bytes:
            self.forget(next(iter(self._entries)))
        self._entries[key] = (stored, self._clock.elapsed_ms() + for_ms)
        self._bytes += size

    def forget(self, key: str) -> None:
        """Drop what is under `key`."""
        found = self._entries.pop(key, None)
        if found:
            self._bytes -= _size(found[0])


def _size(stored: Stored) -> int:
    return len(stored.answer.body) + OVERHEAD_BYTES
