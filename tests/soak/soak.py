"""One soak: load and faults, then peace until all is settled, then the evidence, the checks and the report."""

from __future__ import annotations

import random
import time
import tomllib
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from firstwrite.cache.sources import record_key
from firstwrite.dynamodb import from_wire
from local.emulator import client as aws_client
from tests.soak.answer_checks import check_answers
from tests.soak.cache_checks import check_cache
from tests.soak.claim_checks import check_claims
from tests.soak.client import Client
from tests.soak.history import Evidence, PaidCall, Request, Source, Struck
from tests.soak.load import Load, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from local.folder import Emulator
    from tests.soak.history import Asked, Item, Violation

SOURCES = Path(__file__).with_name("sources.toml")
RATES: Mapping[str, float] = {
    "kill": 0.008,
    "pause": 0.003,
    "lose-reply": 0.02,
    "cut-reply": 0.01,
    "lose-request": 0.01,
    "late-request": 0.01,
    "conflict": 0.04,
    "throttle": 0.02,
    "delay": 0.03,
    "duplicate": 0.2,
    "paid-fails": 0.05,
    "paid-slow": 0.03,
    "paid-unheard": 0.03,
}
"""How often a call of a function meets a fault, by its kind."""
SETTLE_S = 90.0
ASK_AGAIN_S = 1.0
VISIBLE_AGAIN_S = 4
SAMPLE = 40
CREATED = 201
HISTORY_LINES = 40


@dataclass(frozen=True, slots=True)
class Report:
    """What a soak came to."""

    seconds: float
    evidence: Evidence
    violations: Sequence[Violation]

    @property
    def lines(self) -> list[str]:
        """The report for a person; the last line says it all."""
        attempts = [attempt for asked in self.evidence.asked for attempt in asked.attempts]
        faults = Counter(struck.kind for struck in self.evidence.struck)
        lines = [
            _counted("requests", Counter(asked.request.kind for asked in self.evidence.asked)),
            _counted("answers", Counter(f"{one.status} {one.problem}".strip() for one in attempts)),
            _counted("faults", faults),
            _counted("paid calls", Counter(self.evidence.values[call.of][0] for call in self.evidence.paid)),
        ]
        for rule, number in Counter(violation.rule for violation in self.violations).items():
            first = next(violation for violation in self.violations if violation.rule == rule)
            lines += [f"VIOLATED, {number} times: {rule}. {first.of}: {first.what}", *self._history(first)]
        kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(faults.items()))
        lines.append(
            f"soak: {self.seconds:.0f} s, {len(attempts):,} requests, {faults.total():,} faults ({kinds}), "
            f"{len(self.violations)} violations"
        )
        return lines

    def _history(self, violation: Violation) -> Iterator[str]:
        """Yield what is known of a claim, a value or an item, the last of it where it is much."""
        asked = [one for one in self.evidence.asked if _is_about(one, violation.of)]
        events = [(one.began, line) for one in asked for line in one.lines]
        events += [(call.began, call.line) for call in self.evidence.paid if call.of == violation.of]
        of_fault = {violation.of, self.evidence.values.get(violation.of, ("", violation.of))[1]}
        events += [
            (struck.at, f"{struck.at:.3f} {struck.kind} {' '.join(struck.of)}")
            for struck in self.evidence.struck
            if any(name in part for name in of_fault for part in struck.of)
        ]
        yield from (f"    {line}" for _, line in sorted(events)[-HISTORY_LINES:])


def _is_about(asked: Asked, name: str) -> bool:
    shown = {attempt.body.get("claim_id") for attempt in asked.attempts}
    return name in {asked.request.of, asked.request.claim_id, *shown}


def _counted(what: str, counts: Counter[str]) -> str:
    return f"{what}: {counts.total():,} ({', '.join(f'{name} {count:,}' for name, count in counts.most_common())})"


class Soak:
    """A soak of a local cloud that was deployed with the sources beside this file.

    Args:
        emulator: where it runs.
        outputs: of the deployment.
        seed: of the load and of the faults; threads interleave as they will.
        say: told what happens, in lines for a person.
    """

    def __init__(self, emulator: Emulator, outputs: Mapping[str, str], seed: int, say: Callable[[str], None]) -> None:
        self._emulator = emulator
        self._outputs = outputs
        self._api = f"{outputs['ApiUrl']}/v1"
        self._seed = seed
        self._say = say
        self._name = f"soak-{seed}-{time.time_ns() // 1_000_000_000}"

    def run(self, seconds: float) -> Report:
        """Load the cloud for so long, let it settle, and judge."""
        plan = Plan(self._name, seconds)
        self._create(plan.items.values())
        load = Load(self._api, plan, seconds, self._seed)
        self._say(f"load and faults for {seconds:.0f} s, seed {self._seed}")
        with self._redelivering_soon():
            self._fail(RATES)
            try:
                load.run()
            finally:
                self._fail({})
            self._say("faults are off; settling")
            self._settle(plan, load)
        evidence = self._evidence(plan, load)
        violations = [*check_answers(evidence), *check_claims(evidence), *check_cache(evidence)]
        return Report(seconds, evidence, violations)

    def _create(self, items: Iterable[Item]) -> None:
        for item in items:
            settings = {"limit_per_claimant": item.limit, "hold_seconds": item.hold_s, "shards": item.shards}
            body = {"stock": item.stock, **{name: value for name, value in settings.items() if value is not None}}
            url = f"{self._api}/items/{item.name}"
            httpx.put(url, json=body, timeout=40, trust_env=False).raise_for_status()

    def _fail(self, rates: Mapping[str, float]) -> dict[str, Any]:
        tables = [self._outputs[name] for name in ("CacheTableName", "StockTableName")]
        asked = {"rates": rates, "tables": tables, "functions": "firstwrite-local-api-", "seed": self._seed}
        return self._faults(httpx.post, json=asked)

    def _faults(self, send: Callable[..., httpx.Response] = httpx.get, **options: Any) -> dict[str, Any]:
        answer = send(f"{self._emulator.url}/_firstwrite/faults", timeout=40, trust_env=False, **options)
        told: dict[str, Any] = answer.raise_for_status().json()
        return told

    @contextmanager
    def _redelivering_soon(self) -> Iterator[None]:
        """Let a message whose worker died come again in seconds instead of a minute."""
        sqs = aws_client("sqs", self._emulator)
        urls = sqs.list_queues(QueueNamePrefix="firstwrite-local-api-")["QueueUrls"]
        [url] = [url for url in urls if "DeadLetters" not in url]
        before = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"]
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": str(VISIBLE_AGAIN_S)})
        try:
            yield
        finally:
            sqs.set_queue_attributes(QueueUrl=url, Attributes=before)

    def _settle(self, plan: Plan, load: Load) -> None:
        """Wait until nothing is under way or open; sell out what is in demand; repeat some requests; audit."""
        give_up = time.monotonic() + SETTLE_S
        self._wait_for_rest(give_up)
        client = Client(self._api, load.history, random.Random(self._seed))
        asked = {asked.request for asked in load.history.asked}
        self._decide(client, load.history.asked, give_up)
        for item in plan.in_demand:
            number = 0
            while client.ask(Request("claim", item.name, key=f"last-{number}", claimant="last")).status == CREATED:
                number += 1
        again = sorted((one for one in asked if one.key), key=lambda one: (one.of, one.key, one.kind))
        for request in random.Random(self._seed).sample(again, min(SAMPLE, len(again))):
            client.ask(request)
        self._decide(client, load.history.asked, give_up)  # who was refused may have got something now
        for name in plan.items:
            client.ask(Request("item", name))
            client.ask(Request("audit", name))
        client.close()
        self._wait_for_rest(give_up)

    def _wait_for_rest(self, give_up: float) -> None:
        """Wait until no worker is at work, none is paused in the middle of it, and no request will land late."""
        told = self._faults()
        while (told["late"] or told["at_work"]) and time.monotonic() < give_up:
            time.sleep(0.1)
            told = self._faults()

    def _decide(self, client: Client, asked: Sequence[Asked], give_up: float) -> None:
        """Until no claim is held or queued: expire as the schedule does, ask again as a client of the queue does."""
        functions = aws_client("lambda", self._emulator)
        names = [function["FunctionName"] for function in functions.list_functions()["Functions"]]
        [expiry] = [name for name in names if "ExpiryFunction" in name]
        queued = {one.last.body.get("claim_id"): one.request for one in asked if one.request.kind == "queue"}
        while time.monotonic() < give_up:
            claims = (record for record in self._records() if record["sk"].startswith("claim#"))
            undecided = [claim for claim in claims if claim["state"] in {"held", "queued"}]
            if not undecided:
                break
            functions.invoke(FunctionName=expiry)
            time.sleep(ASK_AGAIN_S)
            for claim in undecided:
                if claim["state"] == "queued" and claim["claim_id"] in queued:
                    client.ask(queued[claim["claim_id"]])

    def _records(self) -> list[dict[str, Any]]:
        pages = aws_client("dynamodb", self._emulator).get_paginator("scan")
        found = pages.paginate(TableName=self._outputs["StockTableName"], ConsistentRead=True)
        return [from_wire(record) for page in found for record in page["Items"]]

    def _evidence(self, plan: Plan, load: Load) -> Evidence:
        told = self._faults()
        values = {value.id: (value.source, record_key(value.source, dict(value.query))) for value in plan.values}
        return Evidence(
            asked=load.history.asked,
            items=plan.items,
            records=self._records(),
            sources=read_sources(),
            values=values,
            paid=[_paid_call(call) for call in told["paid"] if call["query"].get("id") in values],
            counted={value: self._counted(value) for value in values},
            struck=[Struck(**struck) for struck in told["struck"]],
        )

    def _counted(self, value: str) -> int:
        url = f"{self._outputs['DemoUrl']}/paid/calls"
        return int(httpx.get(url, params={"id": value}, timeout=40, trust_env=False).json()["calls"])


def read_sources() -> dict[str, Source]:
    """Return what the sources promise, as their file says."""
    declared = tomllib.loads(SOURCES.read_text(encoding="utf-8"))["sources"]
    return {
        name: Source(
            fresh_s=source["fresh_seconds"],
            stale_s=source.get("stale_seconds", 0),
            timeout_s=source["timeout_seconds"],
            lease_s=source["lease_seconds"],
            cooldown_s=source["cooldown_seconds"],
            careful=source.get("on_unknown") == "fail",
        )
        for name, source in declared.items()
    }


def _paid_call(told: Mapping[str, Any]) -> PaidCall:
    return PaidCall(
        of=told["query"]["id"],
        refresh=told["idempotency-key"],
        fence=int(told["firstwrite-fence"]),
        began=told["began"],
        ended=told.get("ended"),
        status=told.get("status", 0),
        heard=told.get("heard", False),
        digest=told.get("body", ""),
    )
