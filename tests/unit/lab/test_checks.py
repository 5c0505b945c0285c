"""The checker: it passes what was promised, and notices each way of breaking it."""

import dataclasses
import json

import pytest

from lab import checks
from lab.client import Exchange

STORED, COLLAPSED = "firstwrite; fwd=miss; stored", "firstwrite; fwd=miss; collapsed"


def answer(status: int, body: object = None, ended_s: float = 1.0, **headers: str) -> Exchange:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Exchange(0.0, ended_s, status, {name.replace("_", "-"): value for name, value in headers.items()}, content)


def cached(mark: str, body: bytes = b"paid") -> Exchange:
    return answer(200, body, cache_status=mark)


def claim(claim_id: str, *, replayed: bool = False, ended_s: float = 1.0) -> Exchange:
    headers = {"idempotency_replayed": "true"} if replayed else {}
    return answer(201, {"claim_id": claim_id}, ended_s, **headers)


def sold_out() -> Exchange:
    return answer(409, {"type": "urn:firstwrite:problem:sold-out"}, content_type="application/problem+json")


SHARED = [cached(STORED), *[cached(COLLAPSED)] * 19]


def test_one_call_shared_by_all_is_as_promised() -> None:
    """One call, twenty equal answers: nothing to find."""
    verdict = checks.safe_cache(SHARED, 1)
    assert verdict.ok
    assert verdict.outcome == "1 paid call, 20 answers, all equal"


@pytest.mark.parametrize(
    ("exchanges", "calls"),
    [
        pytest.param(SHARED, 2, id="a second paid call"),
        pytest.param(SHARED, 0, id="no paid call"),
        pytest.param([*SHARED[:-1], cached(COLLAPSED, b"other")], 1, id="another body"),
        pytest.param([*SHARED[:-1], answer(503)], 1, id="an error"),
        pytest.param([*SHARED[:-1], Exchange(0, 1, 0, {}, b"", "ReadTimeout")], 1, id="no answer"),
        pytest.param([cached(STORED), *SHARED[:-1]], 1, id="two say that they fetched"),
        pytest.param([*SHARED[:-1], cached("firstwrite; fwd=miss")], 1, id="one says nothing"),
        pytest.param([cached(STORED, b""), *[cached(COLLAPSED, b"")] * 19], 1, id="empty bodies"),
        pytest.param([], 1, id="nobody asked"),
    ],
)
def test_the_cache_check_fails_on_a_bad_outcome(exchanges: list[Exchange], calls: int) -> None:
    """Each way of not being one call for all is a fault."""
    assert not checks.safe_cache(exchanges, calls).ok


def test_a_fault_shows_what_was_answered() -> None:
    """Whoever reads the fault sees the statuses, and one odd answer."""
    verdict = checks.safe_cache([*SHARED[:-1], answer(502, b"worker died")], 1)
    assert any("19x 200, 1x 502" in fault and "worker died" in fault for fault in verdict.faults)


@pytest.mark.parametrize(("calls", "shown"), [(20, True), (2, True), (1, False), (0, False)])
def test_the_naive_cache_must_show_its_fault(calls: int, *, shown: bool) -> None:
    """A twin that paid only once proves nothing."""
    assert checks.naive_cache([cached("naive; fwd=miss; stored")] * 20, calls).ok is shown


def test_the_last_unit_goes_to_one_in_every_try() -> None:
    """One claim and one clean refusal, whoever is first."""
    assert checks.safe_last_unit([[claim("a"), sold_out()], [sold_out(), claim("b")]]).ok


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param([claim("a"), claim("b")], id="both"),
        pytest.param([sold_out(), sold_out()], id="neither"),
        pytest.param([claim("a"), answer(503)], id="an error instead of a refusal"),
        pytest.param([claim("a"), answer(409, {"type": "urn:firstwrite:problem:limit-reached"})], id="another 409"),
    ],
)
def test_one_bad_try_of_many_is_a_fault(bad: list[Exchange]) -> None:
    """A race that is lost once in five is not won."""
    assert not checks.safe_last_unit([[claim("a"), sold_out()], bad]).ok


def test_no_try_at_all_is_a_fault() -> None:
    """Nothing tried, nothing shown."""
    assert not checks.safe_last_unit([]).ok
    assert not checks.naive_last_unit([]).ok


def test_the_naive_last_unit_must_go_to_both_once() -> None:
    """One overlap in the tries is enough, none is a fault."""
    assert checks.naive_last_unit([[claim("a"), sold_out()], [claim("b"), claim("c")]]).ok
    assert not checks.naive_last_unit([[claim("a"), sold_out()]]).ok


EXACT = [*[claim(f"c{number}") for number in range(3)], *[sold_out()] * 7]
BOOKS = {"available": 0, "held": 0, "claimed": 3, "total": 3}


def test_exactly_the_stock_is_as_promised() -> None:
    """As many claims as units, everybody else told so, nothing left."""
    verdict = checks.safe_stock(EXACT, 3, BOOKS)
    assert verdict.ok
    assert verdict.outcome == "3x 201, 7x 409; available 0"


@pytest.mark.parametrize(
    ("exchanges", "books"),
    [
        pytest.param([*EXACT, claim("c4")], BOOKS, id="oversold"),
        pytest.param([*EXACT[1:], sold_out()], BOOKS, id="undersold"),
        pytest.param([*EXACT[:-1], answer(503)], BOOKS, id="busy is not sold out"),
        pytest.param([*EXACT[:-1], answer(409, {"type": "conflict"})], BOOKS, id="409 of another kind"),
        pytest.param([claim("c1"), *EXACT[1:]], BOOKS, id="one id twice"),
        pytest.param(EXACT, BOOKS | {"available": 1}, id="something is left"),
        pytest.param(EXACT, BOOKS | {"available": -1}, id="below zero"),
        pytest.param(EXACT, BOOKS | {"claimed": 4}, id="the books disagree"),
        pytest.param(EXACT, {}, id="no books"),
    ],
)
def test_the_stock_check_fails_on_a_bad_outcome(exchanges: list[Exchange], books: dict[str, object]) -> None:
    """Each way of not being exact is a fault."""
    assert not checks.safe_stock(exchanges, 3, books).ok


def test_the_naive_stock_must_be_oversold() -> None:
    """A twin that happened to be exact proves nothing."""
    assert checks.naive_stock([claim(str(number)) for number in range(4)], 3).ok
    assert not checks.naive_stock(EXACT, 3).ok


KEYS = ["a", "a", "b", "b"]
REPEATED = [claim("1"), claim("1", replayed=True), claim("2"), claim("2", replayed=True)]
TAKEN_ONCE = {"available": 8, "claimed": 2}


def test_a_repeat_gets_its_first_claim() -> None:
    """Two keys, each sent twice: two claims, two replays, two units."""
    assert checks.safe_repeats(REPEATED, KEYS, 10, TAKEN_ONCE).ok


@pytest.mark.parametrize(
    ("exchanges", "books"),
    [
        pytest.param([*REPEATED[:3], claim("3")], TAKEN_ONCE, id="a second claim"),
        pytest.param([*REPEATED[:3], claim("2")], TAKEN_ONCE, id="a replay that doesn't say so"),
        pytest.param([*REPEATED[:2], claim("1"), claim("1", replayed=True)], TAKEN_ONCE, id="two keys, one claim"),
        pytest.param([*REPEATED[:3], answer(409)], TAKEN_ONCE, id="an error for the repeat"),
        pytest.param(REPEATED, {"available": 6, "claimed": 4}, id="stock taken twice"),
        pytest.param([dataclasses.replace(each, body=b"{}") for each in REPEATED], TAKEN_ONCE, id="claims without ids"),
    ],
)
def test_the_repeat_check_fails_on_a_bad_outcome(exchanges: list[Exchange], books: dict[str, object]) -> None:
    """Each way of not being the same claim is a fault."""
    assert not checks.safe_repeats(exchanges, KEYS, 10, books).ok


def test_the_naive_repeat_must_claim_again() -> None:
    """A twin that replayed proves nothing."""
    assert checks.naive_repeats([claim(str(number)) for number in range(4)], KEYS).ok
    assert not checks.naive_repeats(REPEATED, KEYS).ok


def test_surplus_claims_are_those_that_came_last() -> None:
    """Of three claims on two units, the last answered is the one too many."""
    late, early, middle = (claim(name, ended_s=at) for name, at in (("a", 3.0), ("b", 1.0), ("c", 2.0)))
    assert checks.surplus([late, early, sold_out(), middle], 2) == {0}


def test_second_claims_are_those_that_came_later_for_their_key() -> None:
    """A replay is not one, another claim for the same key is."""
    exchanges = [claim("1", ended_s=2), claim("2", ended_s=1), claim("3"), claim("3", replayed=True)]
    assert checks.second_claims(exchanges, KEYS) == {0}
