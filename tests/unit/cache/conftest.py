from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.upstream import running_paid_api

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.upstream import PaidApi


@pytest.fixture
def paid_api() -> Iterator[PaidApi]:
    with running_paid_api() as api:
        yield api
