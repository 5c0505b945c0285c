"""A job that must run once: its lease is a hold, so a worker that dies frees it, and one that is done ends it."""

import argparse
import json
import time
from pathlib import Path
from uuid import uuid4

import httpx

LOCAL_OUTPUTS = Path(__file__).parents[1] / ".local" / "outputs.json"
LEASE_S = 2


class Job:
    """One run of a job, known by its name, such as the day it is for."""

    def __init__(self, api: httpx.Client, name: str) -> None:
        self._api = api
        self._name = name
        # Every worker may do this: whoever is first creates it, the others find it as it is.
        api.put(f"/v1/items/{name}", json={"stock": 1, "hold_seconds": LEASE_S}).raise_for_status()

    def lease(self, worker: str) -> str | None:
        """Return the lease, or None where another worker has the job or it is done."""
        headers = {"Idempotency-Key": f"{worker}-{uuid4().hex}"}
        answer = self._api.post(f"/v1/items/{self._name}/claims", json={"claimant": worker}, headers=headers)
        return answer.headers["Location"] if answer.status_code == httpx.codes.CREATED else None

    def done(self, lease: str) -> bool:
        """End the job; False where the lease had run out, so that another worker may be at it."""
        return self._api.post(f"{lease}/confirm").status_code == httpx.codes.OK


def main() -> None:
    """Let a worker die and another take over; exit with an error where the job ran other than once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--api-url", help="default: the local cloud that `make up` started")
    url = parser.parse_args().api_url or json.loads(LOCAL_OUTPUTS.read_text())["ApiUrl"]
    name = f"report-{uuid4().hex}"
    finished: list[str] = []

    with httpx.Client(base_url=url, timeout=30) as api:
        first = Job(api, name).lease("worker-1")
        if first is None or Job(api, name).lease("worker-2") is not None:
            raise SystemExit("one worker must have the lease")
        print("Worker 1 has the lease and dies; worker 2 is turned away.")

        time.sleep(LEASE_S + 0.1)
        second = Job(api, name).lease("worker-2")
        if second is None:
            raise SystemExit("the lease of a dead worker must run out")
        print("The lease has run out, and worker 2 takes over.")

        if Job(api, name).done(second):
            finished.append("worker-2")
        if Job(api, name).done(first):
            finished.append("worker-1")
        if finished != ["worker-2"] or Job(api, name).lease("worker-3") is not None:
            raise SystemExit(f"the job must be done once, and for good: {finished}")
        print("Worker 2 is done. Worker 1 wakes up and is told that it is late; worker 3 finds the job done.")


if __name__ == "__main__":
    main()
