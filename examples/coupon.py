"""A coupon, once per person: everybody tries three times, through the queue, and gets exactly one."""

import argparse
import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import httpx

LOCAL_OUTPUTS = Path(__file__).parents[1] / ".local" / "outputs.json"
PEOPLE, TRIES, COUPONS = 15, 3, 100
PATIENCE_S = 30


def main() -> None:
    """Hand out coupons; exit with an error where anybody has other than one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--api-url", help="default: the local cloud that `make up` started")
    url = parser.parse_args().api_url or json.loads(LOCAL_OUTPUTS.read_text())["ApiUrl"]
    coupon = f"coupon-{uuid4().hex}"

    with httpx.Client(base_url=url, timeout=30) as api:
        api.put(f"/v1/items/{coupon}", json={"stock": COUPONS, "limit_per_claimant": 1}).raise_for_status()

        def ask(person_and_try: tuple[str, int]) -> str:
            person, number = person_and_try
            # `respond-async` puts the claim into the queue, which decides many of them in one transaction.
            headers = {"Idempotency-Key": f"{person}-{number}", "Prefer": "respond-async"}
            answer = api.post(f"/v1/items/{coupon}/claims", json={"claimant": person}, headers=headers)
            if answer.status_code != httpx.codes.ACCEPTED:
                raise SystemExit(f"expected 202 and a Location: {answer.text}")
            return answer.headers["Location"]

        def fate(location: str) -> tuple[str, str]:
            give_up = time.monotonic() + PATIENCE_S
            while time.monotonic() < give_up:
                claim = api.get(location).raise_for_status().json()
                if claim["state"] != "queued":
                    return claim["claimant"], claim.get("reason", claim["state"])
                time.sleep(0.2)
            raise SystemExit(f"{location} was not decided within {PATIENCE_S} s")

        tries = [(f"person-{person}", number) for person in range(PEOPLE) for number in range(TRIES)]
        with ThreadPoolExecutor(PEOPLE) as crowd:
            fates = Counter(crowd.map(fate, crowd.map(ask, tries)))

        wanted = Counter({(f"person-{person}", "claimed"): 1 for person in range(PEOPLE)})
        wanted.update({(f"person-{person}", "limit-reached"): TRIES - 1 for person in range(PEOPLE)})
        if fates != wanted:
            raise SystemExit(f"expected one coupon each: {fates}")
        left = api.get(f"/v1/items/{coupon}").json()["available"]
        if left != COUPONS - PEOPLE:
            raise SystemExit(f"expected {COUPONS - PEOPLE} coupons left: {left}")
        print(
            f"{PEOPLE} people sent {PEOPLE * TRIES} requests and have {PEOPLE} coupons; {left} of {COUPONS} are left."
        )


if __name__ == "__main__":
    main()
