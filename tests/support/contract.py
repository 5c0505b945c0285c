"""Whether an answer is one that the contract describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.openapi import EVERYWHERE, OPERATIONS

if TYPE_CHECKING:
    from tests.support.http import Reply


def check_described(method: str, template: str, reply: Reply) -> None:
    """Assert that the contract lists this status, and this problem type under it, for the call."""
    operation = OPERATIONS[method, template]
    if reply.headers.get("content-type") == "application/problem+json":
        kinds = {(kind.slug, kind.status) for kind in (*operation.problems, *EVERYWHERE)}
        assert (reply.problem, reply.status) in kinds, (method, template, reply)
    else:
        assert reply.status in {*operation.answers, *operation.passed_on}, (method, template, reply)
