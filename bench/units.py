"""What DynamoDB charges for, by its published rules, and at which price.

Rules: "DynamoDB item sizes and formats" and "DynamoDB read and write operations" in the Developer Guide. The engine
here does not meter reads as DynamoDB does, so units come from the sizes of the items that were really there.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

PRICES_AS_OF = "us-east-1, on demand, list prices in force since 1 November 2024"
DOLLARS_PER_MILLION_WRITE_UNITS = 0.625
DOLLARS_PER_MILLION_READ_UNITS = 0.125
DOLLARS_PER_MILLION_S3_GETS = 0.40
DOLLARS_PER_MILLION_S3_PUTS = 5.00

READ_UNIT_BYTES = 4_096
WRITE_UNIT_BYTES = 1_024


def item_bytes(item: Mapping[str, Any]) -> int:
    """Return the size of an item in wire form, as it counts for units (without the storage overhead)."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return _number_bytes(content)
        case "B":
            return len(base64.b64decode(content) if isinstance(content, str) else bytes(content))
        case "BOOL" | "NULL":
            return 1
        case "M":
            return 3 + sum(1 + len(name.encode()) + _value_bytes(part) for name, part in content.items())
        case "L":
            return 3 + sum(1 + _value_bytes(part) for part in content)
        case _:
            raise ValueError(f"no rule for attribute type {kind}")


def _number_bytes(text: str) -> int:
    digits = text.lstrip("-").replace(".", "").strip("0")
    return 1 + math.ceil(len(digits) / 2) + text.startswith("-")


def read_units(size: int, *, consistent: bool) -> float:
    """Return the read units of one item of `size` bytes; an item that is not there counts as the smallest."""
    return max(1, math.ceil(size / READ_UNIT_BYTES)) * (1.0 if consistent else 0.5)


def write_units(before: int, after: int, *, transactional: bool = False) -> float:
    """Return the write units of one write: by the larger of the item's sizes before and after.

    A write whose condition fails costs by the item that it met, so `after` is then what `before` is.
    """
    return max(1, math.ceil(max(before, after) / WRITE_UNIT_BYTES)) * (2.0 if transactional else 1.0)


@dataclass(slots=True)
class Cost:
    """What calls cost together.

    Attributes:
        round_trips: requests to DynamoDB.
        consistent_reads: of these, how many read consistently.
        writes: of these, how many write.
        stock_writes: records written under the sort key `stock`.
        request_bytes: bodies sent.
        reply_bytes: bodies received.
        read_units: by the rules.
        write_units: by the rules.
        reported_write_units: by the engine, for the writes that it reports on.
        checked_write_units: by the rules, for the same writes.
        s3_gets: requests to S3 that read.
        s3_puts: requests to S3 that write.
    """

    round_trips: float = 0
    consistent_reads: float = 0
    writes: float = 0
    stock_writes: float = 0
    request_bytes: float = 0
    reply_bytes: float = 0
    read_units: float = 0
    write_units: float = 0
    reported_write_units: float = 0
    checked_write_units: float = 0
    s3_gets: float = 0
    s3_puts: float = 0

    def over(self, number: int) -> Cost:
        """Return the mean of `number` outcomes that cost this together."""
        return Cost(**{name: getattr(self, name) / number for name in self.__slots__})

    @property
    def dollars_per_million(self) -> float:
        """What a million of these cost in requests."""
        return (
            self.read_units * DOLLARS_PER_MILLION_READ_UNITS
            + self.write_units * DOLLARS_PER_MILLION_WRITE_UNITS
            + self.s3_gets * DOLLARS_PER_MILLION_S3_GETS
            + self.s3_puts * DOLLARS_PER_MILLION_S3_PUTS
        )
