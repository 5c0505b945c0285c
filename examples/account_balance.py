"""An account: money is stock, a payment is a claim of so many cents, and the balance never goes below zero."""

import argparse
import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import httpx

LOCAL_OUTPUTS = Path(__file__).parents[1] / ".local" / "outputs.json"
CENTS, DEPOSIT, PAYMENTS = 10_000, 5_000, 40


def main() -> None:
    """Pay more from an account than is on it; exit with an error where a cent is missing or made up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--api-url", help="default: the local cloud that `make up` started")
    url = parser.parse_args().api_url or json.loads(LOCAL_OUTPUTS.read_text())["ApiUrl"]
    account = f"account-{uuid4().hex}"

    with httpx.Client(base_url=url, timeout=30) as api:
        api.put(f"/v1/items/{account}", json={"stock": CENTS}).raise_for_status()

        def pay(number_and_amount: tuple[int, int]) -> int:
            number, amount = number_and_amount
            headers = {"Idempotency-Key": f"payment-{number}"}
            answer = api.post(f"/v1/items/{account}/claims", json={"quantity": amount}, headers=headers)
            if answer.status_code not in (httpx.codes.CREATED, httpx.codes.CONFLICT):
                raise SystemExit(f"expected 201 or 409: {answer.status_code} {answer.text}")
            return amount if answer.status_code == httpx.codes.CREATED else 0

        def deposit() -> None:
            headers = {"Idempotency-Key": "deposit-1"}
            api.post(f"/v1/items/{account}/stock", json={"add": DEPOSIT}, headers=headers).raise_for_status()

        amounts = [random.randint(100, 900) for _ in range(PAYMENTS)]
        with ThreadPoolExecutor(8) as crowd:
            # The deposit is sent twice, as after a lost answer, and counts once.
            deposits = [crowd.submit(deposit), crowd.submit(deposit)]
            paid = sum(crowd.map(pay, enumerate(amounts)))
            for sent in deposits:
                sent.result()

        balance = api.get(f"/v1/items/{account}").json()["available"]
        if balance < 0 or paid + balance != CENTS + DEPOSIT:
            raise SystemExit(f"{CENTS} + {DEPOSIT} must be {paid} paid + {balance} left")
        print(f"Asked for {sum(amounts)} cents, paid {paid}; {balance} of {CENTS + DEPOSIT} are left, none is lost.")

        headers = {"Idempotency-Key": "empty-the-account"}
        too_much = api.post(f"/v1/items/{account}/stock", json={"add": -balance - 1}, headers=headers)
        if too_much.status_code != httpx.codes.CONFLICT:
            raise SystemExit(f"expected 409: {too_much.text}")
        audit = api.post(f"/v1/items/{account}/audit").json()
        if audit["outcome"] != "balanced" or audit["counted"]["claimed"] != paid:
            raise SystemExit(f"the recount must say the same: {audit}")
        print("Taking back one cent more than there is was refused, and a recount of all payments agrees.")


if __name__ == "__main__":
    main()
