"""The last ticket: twenty people ask for it in the same moment, one gets it, and asking again changes nothing."""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import httpx

LOCAL_OUTPUTS = Path(__file__).parents[1] / ".local" / "outputs.json"
PEOPLE = 20


def main() -> None:
    """Sell one ticket to twenty people; exit with an error where that did not come out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--api-url", help="default: the local cloud that `make up` started")
    url = parser.parse_args().api_url or json.loads(LOCAL_OUTPUTS.read_text())["ApiUrl"]
    ticket = f"ticket-{uuid4().hex}"

    with httpx.Client(base_url=url, timeout=30) as api:
        api.put(f"/v1/items/{ticket}", json={"stock": 1}).raise_for_status()

        def buy(person: str) -> httpx.Response:
            # The key names this purchase, so a repeat after a lost answer is the same purchase.
            key = {"Idempotency-Key": f"purchase-of-{person}"}
            return api.post(f"/v1/items/{ticket}/claims", json={"claimant": person}, headers=key)

        people = [f"person-{number}" for number in range(PEOPLE)]
        with ThreadPoolExecutor(PEOPLE) as crowd:
            answers = dict(zip(people, crowd.map(buy, people), strict=True))

        winners = [person for person, answer in answers.items() if answer.status_code == httpx.codes.CREATED]
        losers = [answer.json()["type"] for answer in answers.values() if answer.status_code == httpx.codes.CONFLICT]
        if len(winners) != 1 or losers != ["urn:firstwrite:problem:sold-out"] * (PEOPLE - 1):
            raise SystemExit(f"expected one winner and {PEOPLE - 1} sold out: {answers}")
        print(f"{winners[0]} has the last ticket; {len(losers)} others were told that it is sold out.")

        again = buy(winners[0])
        if again.json() != answers[winners[0]].json() or again.headers["Idempotency-Replayed"] != "true":
            raise SystemExit(f"a repeat must be the same claim: {again.text}")
        print("The winner asked again, as after a lost answer, and was shown the same ticket.")


if __name__ == "__main__":
    main()
