"""A single-flight cache in front of paid APIs: one caller fetches, everybody gets the result.

`single_flight` here is the decorator. The protocol's module bears the same name and is imported by its full one.
"""

from firstwrite.cache.decorator import FetchFailedError, FetchInProgressError, single_flight

__all__ = ["FetchFailedError", "FetchInProgressError", "single_flight"]
