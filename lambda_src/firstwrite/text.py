"""What counts as a name and as text, wherever it comes from."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}")


def is_name(value: str) -> bool:
    """Is this 1 to 128 of letters, digits and `. _ ~ -`, beginning with a letter or digit?"""
    return _NAME.fullmatch(value) is not None


def is_clean_text(value: str, most_bytes: int) -> bool:
    """Is this 1 to `most_bytes` bytes of UTF-8 without control characters?"""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return 0 < size <= most_bytes and value.isprintable()
