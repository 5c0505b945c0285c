"""Requests in any order to both HTTP faces, judged by their answers alone; and proof that the judges can say no."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from aws_lambda_powertools.event_handler import Response
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from firstwrite.cache import store as cache_store
from firstwrite.cache.routes import CacheRoutes
from firstwrite.cache.store import CacheStore
from firstwrite.claim import claiming
from firstwrite.claim.model import Claim, ClaimRequest
from firstwrite.claim.routes import ClaimRoutes
from firstwrite.claim.views import claim_view
from tests.support.upstream import running_paid_api
from tests.unit.faces.cache_machine import CacheMachine
from tests.unit.faces.claim_machine import ClaimMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hypothesis.stateful import RuleBasedStateMachine

    Break = Callable[[pytest.MonkeyPatch], None]

STEPS = 30


@pytest.fixture
def cache_machine() -> Iterator[type[CacheMachine]]:
    with running_paid_api() as api:

        class Machine(CacheMachine):
            paid_api = api

        yield Machine


def run(machine: type[RuleBasedStateMachine], examples: int, **more: Any) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # Shrinking takes minutes; the steps that led to a failure are printed as they are.
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            **more,
        ),
    )


def test_whatever_is_asked_of_the_claims_is_answered_as_the_contract_says() -> None:
    """Claims, repeats, holds, the queue, restock, time and faults in any order: each answer is the model's."""
    run(ClaimMachine, 120)


def test_whatever_is_asked_of_the_cache_is_answered_as_the_contract_says(cache_machine: type[CacheMachine]) -> None:
    """Fresh, stale and gone, owners that stall and die, failures and budgets: each answer and each call is the model's.

    Owners stop after the paid call, so that time passes and others ask before the result is stored.
    """
    run(cache_machine, 100)


def anybody_sees_a_claim(patch: pytest.MonkeyPatch) -> None:
    def get_claim(self: Any, claim_id: str) -> Any:
        claim = self._api.store.claim(claim_id, self._deadline())
        return Response(200, "application/json", claim_view(claim), {"Cache-Control": "no-store"})

    patch.setattr(ClaimRoutes, "get_claim", get_claim)


def a_key_means_whatever_was_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClaimRequest, "fingerprint", "same")


def a_repeat_is_not_told_from_its_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claiming, "new_write_id", lambda: "same")


def a_hold_is_never_due(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Claim, "is_due", lambda *_: False)


def stale_is_served_as_fresh(patch: pytest.MonkeyPatch) -> None:
    complete = CacheStore.complete

    def keep_longer(self: Any, flight: Any, answer: Any, policy: Any, *more: Any) -> Any:
        return complete(self, flight, answer, replace(policy, fresh_ms=policy.fresh_ms + policy.stale_ms), *more)

    patch.setattr(CacheStore, "complete", keep_longer)


def a_lease_ends_before_its_time(patch: pytest.MonkeyPatch) -> None:
    acquire = CacheStore.acquire

    def take_briefly(self: Any, key: str, owner: str, policy: Any, *more: Any, **options: Any) -> Any:
        return acquire(self, key, owner, replace(policy, lease_ms=policy.timeout_ms), *more, **options)

    patch.setattr(CacheStore, "acquire", take_briefly)


def a_late_winner_overwrites(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cache_store, "_STILL_MINE", f"attribute_exists(pk) OR ({cache_store._STILL_MINE})")


def an_invalidation_that_does_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CacheRoutes, "invalidate", lambda *_, **__: Response(204))


CLAIM_TWINS: list[Break] = [
    anybody_sees_a_claim,
    a_key_means_whatever_was_first,
    a_repeat_is_not_told_from_its_first,
    a_hold_is_never_due,
]
CACHE_TWINS: list[Break] = [
    stale_is_served_as_fresh,
    a_lease_ends_before_its_time,
    a_late_winner_overwrites,
    an_invalidation_that_does_nothing,
]


def is_caught(machine: type[RuleBasedStateMachine]) -> None:
    with pytest.raises(AssertionError):
        run(machine, 400, derandomize=True, database=None, report_multiple_bugs=False, print_blob=False)


@pytest.mark.parametrize("twin", CLAIM_TWINS, ids=lambda twin: twin.__name__)
def test_a_broken_twin_of_the_claims_is_caught(twin: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine says no where one rule is missing."""
    twin(monkeypatch)
    is_caught(ClaimMachine)


@pytest.mark.parametrize("twin", CACHE_TWINS, ids=lambda twin: twin.__name__)
def test_a_broken_twin_of_the_cache_is_caught(
    twin: Break, monkeypatch: pytest.MonkeyPatch, cache_machine: type[CacheMachine]
) -> None:
    """The machine says no where one rule is missing."""
    twin(monkeypatch)
    is_caught(cache_machine)
