"""Renewing a stale result in the background: by an asynchronous invocation of the refresh function.

Lambda may deliver it twice, and several environments may ask for the same key; the acquiring write lets one through.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from firstwrite.observability import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mypy_boto3_lambda import LambdaClient

    from firstwrite.clock import Clock
    from firstwrite.observability import Count

REMEMBERED_KEYS = 1_000


class Background:
    """Asks the refresh function, once for each key and lease.

    Args:
        client: makes a Lambda client, at first use.
        function_name: the refresh function.
        clock: ends what was asked for.
        count: told of `RefreshesAsked` and `RefreshesNotAsked`.
    """

    def __init__(self, client: Callable[[], LambdaClient], function_name: str, clock: Clock, count: Count) -> None:
        self._make_client = client
        self._made: LambdaClient | None = None
        self._function_name = function_name
        self._clock = clock
        self._count = count
        self._asked_until: dict[str, float] = {}

    def renew(self, source: str, query: Mapping[str, str], key: str, lease_ms: int) -> None:
        """Have `key` renewed, unless this environment asked within the lease; never raises, for stale is served."""
        now_ms = self._clock.elapsed_ms()
        if self._asked_until.get(key, 0) > now_ms:
            return
        if len(self._asked_until) >= REMEMBERED_KEYS:
            self._asked_until.clear()
        self._asked_until[key] = now_ms + lease_ms
        if self._made is None:
            self._made = self._make_client()
        try:
            self._made.invoke(
                FunctionName=self._function_name,
                InvocationType="Event",
                Payload=json.dumps({"source": source, "query": dict(query)}).encode(),
            )
        except (ClientError, BotoCoreError) as error:
            # The next environment to serve this stale, or this one after the lease, asks again.
            logger.warning("a refresh could not be asked for", extra={"source": source, "fault": type(error).__name__})
            self._count("RefreshesNotAsked", source=source)
        else:
            self._count("RefreshesAsked", source=source)
