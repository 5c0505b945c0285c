"""What a function is told by its environment, read once at first use and never at import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from firstwrite.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

Auth = Literal["iam", "jwt", "header"]


@dataclass(frozen=True, slots=True)
class Settings:
    """A function's environment.

    Attributes:
        stage: the stage's name.
        auth: how callers are told apart.
        cache_table: the cache table's name, empty in functions that do not use it.
        stock_table: the stock table's name, empty in functions that do not use it.
        overflow_bucket: the bucket for bodies too large for the cache table.
        refresh_function: renews stale results in the background, empty in functions that do not ask for it.
        demo_url: base URL of the demo API, empty where there is none.
        intake_queue_url: where claims wait for the queue to decide them, empty where all are decided at once.
    """

    stage: str
    auth: Auth
    cache_table: str
    stock_table: str
    overflow_bucket: str
    refresh_function: str
    demo_url: str
    intake_queue_url: str = ""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings.

        Raises:
            ConfigurationError: `AUTH` is missing or unknown; guessing it could open the API.
        """
        auth = environ.get("AUTH", "")
        if auth not in ("iam", "jwt", "header"):
            raise ConfigurationError(f"AUTH is {auth!r}; it must be iam, jwt or header")
        demo_url = environ.get("DEMO_URL", "")
        if demo_url.startswith("/"):
            # The local cloud's address is known only to the emulator, which gives it to functions in this variable.
            demo_url = environ.get("AWS_ENDPOINT_URL", "") + demo_url
        return cls(
            stage=environ.get("STAGE", ""),
            auth=cast("Auth", auth),
            cache_table=environ.get("CACHE_TABLE", ""),
            stock_table=environ.get("STOCK_TABLE", ""),
            overflow_bucket=environ.get("OVERFLOW_BUCKET", ""),
            refresh_function=environ.get("REFRESH_FUNCTION", ""),
            demo_url=demo_url,
            intake_queue_url=environ.get("INTAKE_QUEUE_URL", ""),
        )
