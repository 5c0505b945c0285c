"""Says whether an outcome is what was promised. Pure: exchanges and counts in, a verdict out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.client import Exchange

CREATED, CONFLICT = 201, 409
SHOWN_BYTES = 200


@dataclass(frozen=True)
class Verdict:
    """What came out, and everything that is not as it should be."""

    outcome: str
    faults: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


def _verdict(outcome: str, expectations: Mapping[str, bool]) -> Verdict:
    return Verdict(outcome, tuple(expected for expected, met in expectations.items() if not met))


def statuses(exchanges: Sequence[Exchange]) -> str:
    """Return the answers by status, such as `100x 201, 900x 409`."""
    counted = Counter(exchange.status for exchange in exchanges)
    return ", ".join(f"{count}x {status or 'no answer'}" for status, count in sorted(counted.items()))


def claim_ids(exchanges: Sequence[Exchange]) -> list[str]:
    """Return the claim ids of all answers that are claims, as often as they were given."""
    return [str(exchange.json().get("claim_id")) for exchange in exchanges if exchange.status == CREATED]


def refusals(exchanges: Sequence[Exchange]) -> int:
    """Return how many answers are a clean sold-out: a problem of that type, not merely a 409."""
    return sum(
        exchange.status == CONFLICT
        and exchange.headers.get("content-type", "").startswith("application/problem+json")
        and str(exchange.json().get("type", "")).endswith("sold-out")
        for exchange in exchanges
    )


def surplus(exchanges: Sequence[Exchange], stock: int) -> frozenset[int]:
    """Return which claims were granted when all units had been."""
    granted = [number for number, exchange in enumerate(exchanges) if exchange.status == CREATED]
    return frozenset(sorted(granted, key=lambda number: exchanges[number].ended_s)[stock:])


def second_claims(exchanges: Sequence[Exchange], keys: Sequence[str]) -> frozenset[int]:
    """Return which answers are another claim than the one their key had got before."""
    first: dict[str, str] = {}
    wrong = set()
    for number in sorted(range(len(exchanges)), key=lambda number: exchanges[number].ended_s):
        for claim_id in claim_ids([exchanges[number]]):
            if first.setdefault(keys[number], claim_id) != claim_id:
                wrong.add(number)
    return frozenset(wrong)


def naive_cache(exchanges: Sequence[Exchange], calls: int) -> Verdict:
    """The fault to show: more than one call paid for one key."""
    return _verdict(
        f"{calls} paid calls",
        {_answered(exchanges, 200): _all_are(exchanges, 200), "more than one call is paid": calls > 1},
    )


def safe_cache(exchanges: Sequence[Exchange], calls: int) -> Verdict:
    """One call, and its bytes for everybody."""
    bodies = {exchange.body for exchange in exchanges}
    marks = [exchange.headers.get("cache-status", "") for exchange in exchanges]
    return _verdict(
        f"{calls} paid call{'s' * (calls != 1)}, {len(exchanges)} answers"
        f"{', all equal' if len(bodies) == 1 else f' of {len(bodies)} kinds'}",
        {
            _answered(exchanges, 200): _all_are(exchanges, 200),
            "exactly one call is paid": calls == 1,
            "all bodies are equal, and not empty": len(bodies) == 1 and b"" not in bodies,
            "exactly one answer says that it was fetched": sum("stored" in mark for mark in marks) == 1,
            "all others say that they were shared": sum("collapsed" in mark or "hit" in mark for mark in marks)
            == len(marks) - 1,
        },
    )


def naive_last_unit(tries: Sequence[Sequence[Exchange]]) -> Verdict:
    """The fault to show: in one of the tries both callers got the one unit."""
    both = sum(_all_are(exchanges, CREATED) for exchanges in tries)
    return _verdict(
        f"both got it in {both} of {len(tries)} tries",
        {"both callers get the last unit in one try at least": both > 0},
    )


def safe_last_unit(tries: Sequence[Sequence[Exchange]]) -> Verdict:
    """In every try, one claim and one clean refusal."""
    clean = sum(
        sorted(exchange.status for exchange in exchanges) == [CREATED, CONFLICT] and refusals(exchanges) == 1
        for exchanges in tries
    )
    return _verdict(
        f"one 201, one 409 in {clean} of {len(tries)} tries",
        {"one caller gets it and one is told sold-out, in every try": clean == len(tries) > 0},
    )


def naive_stock(exchanges: Sequence[Exchange], stock: int) -> Verdict:
    """The fault to show: more claims than units."""
    sold = len(claim_ids(exchanges))
    return _verdict(
        f"{sold:,} claims on {stock:,} units",
        {f"more than {stock:,} claims are granted": sold > stock},
    )


def safe_stock(exchanges: Sequence[Exchange], stock: int, item: Mapping[str, object]) -> Verdict:
    """As many claims as units, a clean refusal for the rest, and books that agree."""
    ids = claim_ids(exchanges)
    return _verdict(
        f"{statuses(exchanges)}; available {item.get('available')}",
        {
            f"exactly {stock:,} claims are granted": len(ids) == stock,
            "no two claims have one id": len(set(ids)) == len(ids),
            _answered(exchanges, CREATED, CONFLICT): refusals(exchanges) == len(exchanges) - stock,
            "nothing is available after": item.get("available") == 0,
            "what is claimed is what was there": item.get("claimed") == stock and item.get("held") == 0,
        },
    )


def naive_repeats(exchanges: Sequence[Exchange], keys: Sequence[str]) -> Verdict:
    """The fault to show: a repeated request is another claim."""
    wanted, given = len(set(keys)), len(set(claim_ids(exchanges)))
    return _verdict(f"{given} claims for {wanted} keys", {f"more than {wanted} claims are granted": given > wanted})


def safe_repeats(exchanges: Sequence[Exchange], keys: Sequence[str], stock: int, item: Mapping[str, object]) -> Verdict:
    """One claim a key, given again to whoever asks again, taken from the stock once."""
    wanted = len(set(keys))
    ids: dict[str, set[str]] = {key: set() for key in keys}
    for key, exchange in zip(keys, exchanges, strict=True):
        ids[key].update(claim_ids([exchange]))
    given = set().union(*ids.values())
    replays = sum(exchange.headers.get("idempotency-replayed") == "true" for exchange in exchanges)
    return _verdict(
        f"{len(given)} claims for {wanted} keys, {replays} replayed; available {item.get('available')} of {stock}",
        {
            _answered(exchanges, CREATED): _all_are(exchanges, CREATED),
            "each key has one claim id": all(len(found) == 1 for found in ids.values()),
            "no two keys share one": len(given) == wanted,
            "every repeat says that it is one": replays == len(exchanges) - wanted,
            "the stock is taken once a key": item.get("available") == stock - wanted and item.get("claimed") == wanted,
        },
    )


def _answered(exchanges: Sequence[Exchange], *wanted: int) -> str:
    """Return the expectation that all answers are of `wanted`, with one that is not, for whoever has to find out."""
    odd = next((exchange for exchange in exchanges if exchange.status not in wanted), None)
    expected = f"everyone is answered {' or '.join(map(str, wanted))}"
    if odd is None:
        return expected
    said = odd.error or odd.body[:SHOWN_BYTES].decode(errors="replace")
    return f"{expected}; answered were {statuses(exchanges)}, one of them: {odd.status} {said}"


def _all_are(exchanges: Sequence[Exchange], status: int) -> bool:
    return bool(exchanges) and all(exchange.status == status for exchange in exchanges)
