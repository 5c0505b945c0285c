"""An item's claims, a page at a time, with a cursor that tells nothing and is trusted for nothing.

A page is strongly consistent; pages together are no snapshot: what is claimed meanwhile may show or not.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstwrite.claim.records import CLAIM_BUCKETS, read_claim

if TYPE_CHECKING:
    from firstwrite.claim.lists import StockLists
    from firstwrite.claim.model import Claim
    from firstwrite.clock import Deadline

_SORT_KEY = re.compile(r"claim#[0-9a-f]{40}")
_MOST_CURSOR_BYTES = 1_024


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a listing goes on.

    Attributes:
        item: whose claims; a cursor of another item's is none.
        bucket: of the claims.
        after: the sort key to go on from, None for the bucket's beginning.
    """

    item: str
    bucket: int = 0
    after: str | None = None

    def encode(self) -> str:
        """Return the cursor as clients pass it on."""
        text = json.dumps([self.item, self.bucket, self.after], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, item: str) -> Cursor | None:
        """Return the cursor of `item` that `text` says, None where it says none; whatever it is, it may be forged."""
        if len(text) > _MOST_CURSOR_BYTES:
            return None
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            match json.loads(raw):
                case [str(named), int(bucket), str() | None as after] if type(bucket) is int:
                    cursor = cls(named, bucket, after)
                case _:
                    return None
        except (binascii.Error, ValueError, RecursionError):
            return None
        # Written anew it must be the same, so that there is one way to write a cursor.
        genuine = (
            cursor.item == item
            and 0 <= cursor.bucket < CLAIM_BUCKETS
            and (cursor.after is None or _SORT_KEY.fullmatch(cursor.after) is not None)
            and cursor.encode() == text
        )
        return cursor if genuine else None


def page_of_claims(
    lists: StockLists, cursor: Cursor, most: int, deadline: Deadline
) -> tuple[list[Claim], Cursor | None]:
    """Return up to `most` claims from `cursor` on, and where the next page starts, None where there is none."""
    claims: list[Claim] = []
    bucket, after = cursor.bucket, cursor.after
    while bucket < CLAIM_BUCKETS:
        records, last = lists.claims(cursor.item, bucket, after, most - len(claims), deadline)
        claims += [read_claim(record) for record in records]
        bucket, after = (bucket, last) if last else (bucket + 1, None)
        if len(claims) == most:
            return claims, Cursor(cursor.item, bucket, after) if bucket < CLAIM_BUCKETS else None
    return claims, None
