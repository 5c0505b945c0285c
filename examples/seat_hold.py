"""A seat, held while its buyer pays: who pays in time has it, who does not frees it for the next by themselves."""

import argparse
import json
import time
from pathlib import Path
from uuid import uuid4

import httpx

LOCAL_OUTPUTS = Path(__file__).parents[1] / ".local" / "outputs.json"
HOLD_S = 2


def main() -> None:
    """Hold a seat, let the hold run out, and sell it to the next; exit with an error where that did not come out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--api-url", help="default: the local cloud that `make up` started")
    url = parser.parse_args().api_url or json.loads(LOCAL_OUTPUTS.read_text())["ApiUrl"]
    seat = f"seat-{uuid4().hex}"

    with httpx.Client(base_url=url, timeout=30) as api:
        api.put(f"/v1/items/{seat}", json={"stock": 1, "hold_seconds": HOLD_S}).raise_for_status()

        def hold(person: str, key: str) -> httpx.Response:
            headers = {"Idempotency-Key": key}
            return api.post(f"/v1/items/{seat}/claims", json={"claimant": person}, headers=headers)

        def expect(answer: httpx.Response, outcome: str) -> httpx.Response:
            body = answer.json()
            if outcome not in (body.get("state"), body.get("type", "").rpartition(":")[2]):
                raise SystemExit(f"expected {outcome}: {answer.status_code} {answer.text}")
            return answer

        ann = expect(hold("ann", "ann-1"), "held")
        print(f"Ann holds the seat until {ann.json()['hold_until']}.")
        expect(hold("bob", "bob-1"), "sold-out")
        print("Bob is told that there is none.")

        time.sleep(HOLD_S + 0.1)
        # No schedule has to run first: an item that looks sold out first takes back what is due.
        bob = expect(hold("bob", "bob-1"), "held")
        print("Ann did not pay in time. Bob asks again, with the same key, and holds the seat.")

        late = f"{ann.headers['Location']}/confirm"
        expect(api.post(late), "hold-expired")
        print("Ann's payment comes late, and is refused: the seat is not sold twice.")

        paid = f"{bob.headers['Location']}/confirm"
        for _ in range(2):
            expect(api.post(paid), "claimed")
        expect(api.post(f"{bob.headers['Location']}/release"), "already-confirmed")
        print("Bob pays; confirming again is harmless, and what is confirmed is final.")

        stock = api.get(f"/v1/items/{seat}").json()
        if (stock["available"], stock["held"], stock["claimed"]) != (0, 0, 1):
            raise SystemExit(f"expected one seat, claimed: {stock}")


if __name__ == "__main__":
    main()
