"""A short soak with every test run, and the same clients and checks against the naive twin, which they must catch."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from local import cloud
from local.folder import Folder
from tests.soak.claim_checks import check_claims
from tests.soak.client import Client, History
from tests.soak.history import Evidence, Item, Request
from tests.soak.soak import RATES, SOURCES, Soak

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.folder import Emulator

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SECONDS = 22
SEED = 1
SAY = logging.getLogger(__name__).info


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Emulator, dict[str, str]]]:
    """A local cloud of its own: it has other sources, and its faults are nobody else's."""
    folder = Folder(tmp_path_factory.mktemp("cloud"))
    with cloud.running(folder, sources=SOURCES, say=SAY) as outputs:
        emulator = folder.read_note()
        assert emulator is not None
        yield emulator, outputs


def test_nothing_is_violated_while_everything_fails(soaked: tuple[Emulator, dict[str, str]]) -> None:
    """Claims, stock and paid calls are right after load with every kind of fault."""
    emulator, outputs = soaked
    report = Soak(emulator, outputs, SEED, SAY).run(SECONDS)
    struck = {fault.kind for fault in report.evidence.struck}
    assert not report.violations, "\n".join(report.lines)
    assert struck >= {kind for kind in RATES if not kind.startswith("paid-")}
    assert report.evidence.paid


def test_the_naive_twin_is_caught(soaked: tuple[Emulator, dict[str, str]]) -> None:
    """Without faults: a repeated request is another claim, and another, until more are sold than there are."""
    _, outputs = soaked
    item = Item("soak-naive", 5, 1)
    settings = {"stock": item.stock, "shards": 1}
    httpx.put(f"{outputs['ApiUrl']}/v1/items/{item.name}", json=settings, timeout=40, trust_env=False)
    history = History()
    client = Client(f"{outputs['DemoUrl']}/naive", history, random.Random(SEED))
    for _ in range(2):
        client.ask(Request("claim", item.name, key="k", claimant="ann"))
    client.close()
    caught: set[Any] = {violation.rule for violation in check_claims(Evidence(history.asked, {item.name: item}))}
    assert "one claim for a key" in caught
