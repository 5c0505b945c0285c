"""The report: complete in itself, honest about faults, and nothing a service said is taken for markup."""

import dataclasses
import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from lab import report, terminal
from lab.checks import Verdict
from lab.client import Exchange
from lab.drawing import KINDS, draw_callers, draw_sales, kind_of
from lab.stories import STORIES, Result, Side

HOSTILE = "<script>alert('&')</script>"
RUN = report.Run("a test", datetime(2026, 11, 30, 12, 0, tzinfo=UTC), 12.3)
PAID = Exchange(0.0, 1.0, 200, {"cache-status": "firstwrite; fwd=miss; stored"}, b"x")
SHARED = Exchange(0.01, 1.1, 200, {"cache-status": "firstwrite; fwd=miss; collapsed"}, b"x")
CLAIMED = Exchange(0.0, 0.4, 201, {}, b'{"claim_id": "a"}')
REPLAYED = Exchange(0.0, 0.4, 201, {"idempotency-replayed": "true"}, b'{"claim_id": "a"}')
REFUSED = Exchange(0.0, 0.5, 409, {}, b"{}")
SILENT = Exchange(0.0, 0.5, 0, {}, b"", HOSTILE)
VOID = {"meta", "br"}


def result(*, story: int = 0, faults: tuple[str, ...] = ()) -> Result:
    naive = Side([PAID, PAID], Verdict("2 paid calls"), ["caller 1", "caller 2"])
    safe = Side([PAID, SHARED], Verdict("1 paid call", faults), ["caller 1", "caller 2"])
    return Result(STORIES[story], naive, safe)


class Balance(HTMLParser):
    """Finds tags that don't close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else() -> None:
    """No script, no address of anything to load, one timeline a side, both colour schemes."""
    page = report.render([result(), result(story=2)], RUN)
    assert not re.search(r"<script|<link|<img|@import|url\(|https?://|src=", page)
    assert page.count("<svg ") == 4
    assert "prefers-color-scheme: dark" in page
    assert "color-scheme: light dark" in page


def test_the_page_is_well_formed() -> None:
    """Every tag closes."""
    parser = Balance()
    parser.feed(report.render([result(story=number) for number in range(len(STORIES))], RUN))
    assert parser.open == []
    assert parser.seen.count("svg") == 2 * len(STORIES)


def test_what_a_service_said_is_text() -> None:
    """Outcome, fault, caller, error and address are escaped."""
    side = Side([SILENT], Verdict(HOSTILE, (HOSTILE,)), [HOSTILE])
    hostile = Result(dataclasses.replace(STORIES[0], title=HOSTILE), side, side)
    page = report.render([hostile], dataclasses.replace(RUN, where=HOSTILE))
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_the_page_says_that_a_promise_was_broken() -> None:
    """A fault shows in the banner, in the table and beside its timeline."""
    page = report.render([result(), result(faults=("exactly one call is paid",))], RUN)
    assert "1 of 2 stories did not come out as promised" in page
    assert "not so: exactly one call is paid" in page
    assert "Every promise was kept" not in page


@pytest.mark.parametrize(
    ("exchange", "kind"),
    [
        (PAID, "paid"),
        (SHARED, "shared"),
        (CLAIMED, "claimed"),
        (REPLAYED, "replayed"),
        (REFUSED, "refused"),
        (SILENT, "failed"),
        (Exchange(0, 1, 503, {}, b""), "failed"),
        (Exchange(0, 1, 200, {"cache-status": "firstwrite; hit; ttl=3"}, b""), "hit"),
        (Exchange(0, 1, 200, {}, b""), "failed"),
    ],
)
def test_each_answer_is_drawn_as_what_it_was(exchange: Exchange, kind: str) -> None:
    """Who called upstream, who waited, who was refused."""
    assert kind_of(exchange) == kind
    assert f'class="{kind}"' in draw_callers(["caller"], [exchange], 2.0)
    assert KINDS[kind] in draw_callers(["caller"], [exchange], 2.0)


def test_a_claim_that_should_not_be_is_drawn_so() -> None:
    """The second of two who got one unit stands out."""
    drawing = draw_callers(["a", "b"], [CLAIMED, CLAIMED], 1.0, wrong={1})
    assert drawing.count('class="claimed"') == drawing.count('class="wrong"') == 1


def test_bars_begin_and_end_when_requests_did() -> None:
    """A request of the second half is drawn in the second half."""
    drawing = draw_callers(["early", "late"], [dataclasses.replace(PAID, ended_s=0.5), PAID], 1.0)
    early, late = re.findall(r'<rect class="paid" x="([\d.]+)".*? width="([\d.]+)"', drawing)
    assert early[0] == late[0]
    assert float(late[1]) == pytest.approx(2 * float(early[1]), abs=0.2)


def test_sales_above_the_stock_are_drawn_so() -> None:
    """The curve that crosses the line is marked; one that ends on it is not."""
    assert 'class="sales over"' in draw_sales([CLAIMED] * 3, 2, 1.0, 3)
    assert 'class="sales within"' in draw_sales([CLAIMED, CLAIMED, REFUSED], 2, 1.0, 3)


def test_an_empty_race_can_be_drawn() -> None:
    """Nothing sent, nothing drawn, nothing raised."""
    assert draw_callers([], [], 0.0).startswith("<svg")
    assert draw_sales([], 100, 0.0, 0).startswith("<svg")


def test_the_table_names_every_fault() -> None:
    """The closing table says NO, and why, below."""
    table = terminal.table([result(), result(story=1, faults=("one caller gets it",))])
    assert "NO" in table
    assert "last-unit, Firstwrite: not so: one caller gets it" in table
    assert max(map(len, table.splitlines())) <= 120
