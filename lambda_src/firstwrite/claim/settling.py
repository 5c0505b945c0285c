"""The end of a hold, as its caller wants it: confirmed or released.

Guarantees: of confirm, release and expiry exactly one wins; each is one transaction with the stock it moves, so units
come back exactly once. A repeat finds the claim as the first left it, and is answered the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from firstwrite.claim.model import ClaimState, split_claim_id
from firstwrite.claim.outcomes import Refused, Settled, UnknownClaim
from firstwrite.claim.store import Overtaken
from firstwrite.conditional import Applied, Busy
from firstwrite.errors import DataFaultError

if TYPE_CHECKING:
    from typing import Literal

    from firstwrite.claim.model import Claim
    from firstwrite.claim.store import StockStore
    from firstwrite.clock import Clock, Deadline
    from firstwrite.observability import Count

Wanted = Settled | Refused | UnknownClaim | Busy


class Settling:
    """The protocol, over a store of stock and claims.

    Args:
        store: reads and transitions.
        clock: time; deadlines of holds are held against its wall time.
        count: told of every outcome as `Settlements`.
    """

    def __init__(self, store: StockStore, clock: Clock, count: Count) -> None:
        self._store = store
        self._clock = clock
        self._count = count

    def settle(
        self,
        claim_id: str,
        caller: str,
        to: Literal[ClaimState.CLAIMED, ClaimState.RELEASED],
        deadline: Deadline,
    ) -> Wanted:
        """Confirm or release a held claim.

        Args:
            claim_id: which.
            caller: who asks; another's claim looks like none, so that ids tell nobody anything.
            to: what becomes of it.
            deadline: after this, `Busy`; a repeat will tell what became of it.

        Raises:
            DataFaultError: the claim's stock is not as the claim says.
            StoreUnavailableError: a read was not answered within the deadline.
        """
        outcome = self._settle(claim_id, caller, to, deadline)
        self._count("Settlements", wanted=to, outcome=_NAMES[type(outcome)])
        return outcome

    def _settle(
        self, claim_id: str, caller: str, to: Literal[ClaimState.CLAIMED, ClaimState.RELEASED], deadline: Deadline
    ) -> Wanted:
        before: Claim | None = None
        while True:
            claim = self._store.claim(claim_id, deadline) if split_claim_id(claim_id) else None
            if claim is None or claim.caller != caller:
                return UnknownClaim()
            if claim.state is to:
                return Settled(claim)
            if claim.state is not ClaimState.HELD:
                return Refused(claim)
            if claim == before:
                raise DataFaultError("a shard holds fewer units than its claims")
            now = self._clock.now_ms()
            # Nobody can confirm it any more, so its units need not wait for the schedule.
            late = to is ClaimState.CLAIMED and claim.is_due(now)
            outcome = self._move(claim, ClaimState.EXPIRED if late else to, now, deadline)
            match outcome:
                case Applied():
                    return (
                        Refused(replace(claim, state=ClaimState.EXPIRED)) if late else Settled(replace(claim, state=to))
                    )
                case Busy():
                    return outcome
                case Overtaken():
                    before = claim

    def _move(self, claim: Claim, to: ClaimState, now_ms: int, deadline: Deadline) -> Applied | Overtaken | Busy:
        settings = self._store.settings(claim.item, deadline)
        if settings is None:
            raise DataFaultError("a claim exists without its item")
        limited = settings.limit_per_claimant is not None
        return self._store.settle([claim], to, now_ms, deadline, limited=limited)


_NAMES: dict[type, str] = {Settled: "settled", Refused: "refused", UnknownClaim: "unknown-claim", Busy: "busy"}
