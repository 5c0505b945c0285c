"""Faults: what must raise an alarm and never look like an ordinary outcome.

Losing a race, running out of stock and a busy table are values (see `conditional` and the protocols), not these.
"""

from __future__ import annotations


class FirstwriteError(Exception):
    """Base of every exception that this package raises on its own."""


class ConfigurationError(FirstwriteError):
    """The function was deployed with settings it cannot work with."""


class DataFaultError(FirstwriteError):
    """A stored item lacks an attribute, or holds one of the wrong type; somebody wrote past the protocols."""


class TransactionFaultError(FirstwriteError):
    """A transaction was cancelled for a reason that is neither a race nor load, such as a validation error."""


class StoreUnavailableError(FirstwriteError):
    """DynamoDB gave no usable answer to a read within the caller's deadline.

    Attributes:
        reason: `conflict`, `throttled` or `unreachable`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"DynamoDB did not answer in time: {reason}")
        self.reason = reason
