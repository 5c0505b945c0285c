"""Secrets that paid APIs ask for, read once for each execution environment and never logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_secretsmanager import SecretsManagerClient


class Secrets:
    """Reads secrets by name.

    Args:
        client: makes a Secrets Manager client, at first use.
    """

    def __init__(self, client: Callable[[], SecretsManagerClient]) -> None:
        self._make_client = client
        self._values: dict[str, str] = {}

    def get(self, name: str) -> str:
        """Return the secret's text, from memory where it was read before."""
        if name not in self._values:
            self._values[name] = self._make_client().get_secret_value(SecretId=name)["SecretString"]
        return self._values[name]

    def forget(self, name: str) -> None:
        """Read it again next time: upstream refused it, so it may have been rotated."""
        self._values.pop(name, None)
