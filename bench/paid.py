"""A paid API inside this process: takes its time, counts its calls, and no two answers are alike."""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import dataclass, field

_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"


@dataclass(slots=True)
class Paid:
    """What it does next, and how often it was asked.

    Attributes:
        takes_s: how long a call takes.
        size: bytes of an answer.
        compressible: answers as JSON rows that repeat themselves, as APIs give, and not as noise.
        calls: how many there were.
    """

    takes_s: float = 0.0
    size: int = 200
    compressible: bool = False
    calls: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self) -> str:
        """Pay and return the answer."""
        with self._lock:
            self.calls += 1
            number = self.calls
        time.sleep(self.takes_s)
        return _body(number, self.size, compressible=self.compressible)


def _body(number: int, size: int, *, compressible: bool) -> str:
    rng = random.Random(number)
    head = f'{{"call":{number},"rows":"'
    if not compressible:
        return head + "".join(rng.choices(_ALPHABET, k=size - len(head) - 2)) + '"}'
    rows: list[str] = []
    length = 0
    while length < size:
        row = json.dumps({"pair": rng.choice(("EURUSD", "EURCHF", "USDJPY")), "rate": round(rng.random(), 6)})
        rows.append(row)
        length += len(row)
    return (head + "".join(rows).replace('"', "'"))[: size - 2] + '"}'
