"""What nobody should send, by kind."""

from __future__ import annotations

SECRET = "s3cr3t-canary"  # noqa: S105 - looked for in logs, where nothing that was sent may be
"""Part of every text, so that it is found where it must not be."""

TEXTS: dict[str, str] = {
    "empty": "",
    "blank": "   ",
    "plain": SECRET,
    "256 bytes": (SECRET * 20)[:256],
    "2,049 bytes": (SECRET * 200)[:2_049],
    "2,049 bytes that look like a claim's id": f"{'0' * 40}.{(SECRET * 200)[:2_049]}",
    "a claim's id of a foreign key": f"{'0' * 40}.seat#shard#0",
    "NUL": f"{SECRET}\x00",
    "control characters": f"{SECRET}\x01\x1b[31m\x7f\x85",
    "new lines": f"{SECRET}\r\nSet-Cookie: a=b\r\n\r\n",
    "line separator": f"{SECRET}\u2028",
    "emoji": f"{SECRET}\U0001f600\U0001f468\u200d\U0001f469",
    "replaced bytes": f"{SECRET}\ufffd\ufffd",
    "right to left": f"\u202e{SECRET}",
    "up and out": f"../../{SECRET}",
    "encoded way out": f"..%2f..%2F{SECRET}%00",
    "fragment": f"#{SECRET}",
    "a foreign key": f"item#{SECRET}#shard#0",
    "quotes": f"\"'`{SECRET}",
    "repeated": f"{SECRET},{SECRET}",
    "placeholder": f"{{symbol}}${{DemoUrl}}:now{SECRET}",
    "markup": f"<script>{SECRET}</script>",
    "many digits": "9" * 5_000,
    "superscript digit": "\u00b2",
    "no number": "NaN",
}

TEN_MEGABYTES = 10_000_000
BODIES: dict[str, str | bytes] = {
    "no JSON": f'{{"{SECRET}',
    "null": "null",
    "a list": f'["{SECRET}"]',
    "a string": f'"{SECRET}"',
    "a number": "1e999",
    "NaN": f'{{"stock": NaN, "{SECRET}": 1}}',
    "repeated member": f'{{"{SECRET}": 1, "{SECRET}": 2}}',
    "unknown member": f'{{"{SECRET}": 1}}',
    "member with a long name": f'{{"{SECRET * 200}": 1}}',
    "member named by a lone surrogate": '{"\\ud800": 1}',
    "more digits than a number may have": '{"stock": ' + "9" * 5_000 + "}",
    "NUL": f'{{"{SECRET}\x00": 1}}',
    "byte order mark": "\ufeff{}",
    "no UTF-8": b'{"' + SECRET.encode() + b'\xff\xfe": 1}',
    "half a character": b'{"\xf0\x9f": 1}',
    "UTF-16": f'{{"{SECRET}": 1}}'.encode("utf-16"),
    "deep": '{"a":' * 5_000 + "1" + "}" * 5_000,
    "deep and unclosed": "[" * 60_000,
    "10 MB of text": f'{{"{SECRET}": "' + "a" * TEN_MEGABYTES + '"}',
    "10 MB of bytes": b"\x00" * TEN_MEGABYTES,
}
