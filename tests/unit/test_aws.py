from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from firstwrite import aws

if TYPE_CHECKING:
    from collections.abc import Callable

FUNCTION_TIMEOUT_S = 29


@pytest.mark.parametrize(
    "make", [aws.dynamodb, aws.s3, aws.secrets_manager, aws.lambda_, aws.sqs], ids=lambda make: make.__name__
)
def test_every_client_gives_up_well_before_its_function_does(make: Callable[[], Any]) -> None:
    """Time-outs and attempts are explicit; their product is far below the function's timeout."""
    config: Any = make().meta.config

    attempts = config.retries["total_max_attempts"]
    assert attempts * (config.connect_timeout + config.read_timeout) < FUNCTION_TIMEOUT_S / 2


def test_the_client_of_conditional_writes_never_repeats_by_itself() -> None:
    """Only `firstwrite.dynamodb` retries, so that every reply is seen."""
    config: Any = aws.dynamodb().meta.config
    assert config.retries["total_max_attempts"] == 1
