"""What must hold of all answers: they are final in the end, and a bare server error is a killed worker's.

The functions answer errors as problems; what fails without one did not come from them. The gateway answers so for a
worker that died, and there the log of faults must show one that was killed meanwhile. It cannot be told from outside
which of two requests at once a killed worker had; either is excused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.soak.history import PASSING, Violation, is_final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.soak.history import Attempt, Evidence, Request, Struck

MOST_SHOWN = 3
FIRST_SERVER_ERROR = 500
BEFORE_S = 1.0
"""A worker that is killed when it has just answered fails the request that is handed to it next."""


def check_answers(evidence: Evidence) -> Iterator[Violation]:
    """Yield every answer that should not have been."""
    kills = [struck for struck in evidence.struck if struck.kind == "kill"]
    for asked in evidence.asked:
        request = asked.request
        if not is_final(request, asked.last):
            what = f"{len(asked.attempts)} tries, the last ones {[one.line for one in asked.attempts[-MOST_SHOWN:]]}"
            yield Violation("every request is answered in the end", f"{request.line}: {what}", request.of)
        for attempt in asked.attempts:
            if not (is_final(request, attempt) or attempt.problem in PASSING or _died(request, attempt, kills)):
                yield Violation("an error is a known problem", f"{request.line}: {attempt.line}", request.of)


def _died(request: Request, attempt: Attempt, kills: Sequence[Struck]) -> bool:
    """Is this the gateway's answer for a worker that was killed, or none at all?"""
    if attempt.status == 0:
        return True
    function = "CacheFunction" if request.is_cache else "ClaimFunction"
    return (
        attempt.status >= FIRST_SERVER_ERROR
        and not attempt.problem
        and any(function in kill.of[0] and attempt.began - BEFORE_S <= kill.at <= attempt.ended for kill in kills)
    )
