"""Sources that are Python functions: many paid APIs are a POST or an SDK.

A fetcher's parameters are the source's parameters; their annotations (str, int, float or bool) say how a query value
is read. One that also takes `deadline` is told how long it has. It returns bytes, text, JSON values or an `Answer`.
"""

from __future__ import annotations

import importlib
import inspect
import json
from typing import TYPE_CHECKING, Any

from firstwrite.cache.record import Answer
from firstwrite.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from firstwrite.clock import Deadline

DEADLINE = "deadline"
_BOOLEANS = {"true": True, "false": False}


def _boolean(text: str) -> bool:
    if text not in _BOOLEANS:
        raise ValueError(text)
    return _BOOLEANS[text]


_READERS: dict[Any, Callable[[str], Any]] = {str: str, int: int, float: float, bool: _boolean}


class Fetcher:
    """A function that makes the paid call.

    Args:
        function: what to call.

    Raises:
        ConfigurationError: a parameter has another annotation than str, int, float or bool.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        parameters = inspect.signature(function, eval_str=True).parameters
        self._takes_deadline = DEADLINE in parameters
        self._readers: dict[str, Callable[[str], Any]] = {}
        for name, parameter in parameters.items():
            if name == DEADLINE:
                continue
            annotation = str if parameter.annotation is inspect.Parameter.empty else parameter.annotation
            if annotation not in _READERS:
                raise ConfigurationError(f"parameter {name} of a fetcher must be str, int, float or bool")
            self._readers[name] = _READERS[annotation]

    @classmethod
    def named(cls, path: str) -> Fetcher:
        """Return the fetcher that `path`, as `module:function`, names.

        Raises:
            ConfigurationError: there is no such function.
        """
        module, _, function = path.partition(":")
        try:
            return cls(getattr(importlib.import_module(module), function))
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(f"there is no fetcher {path}") from error

    def read(self, name: str, text: str) -> Any:  # noqa: ANN401 - as annotated
        """Return a query value as the parameter's type.

        Raises:
            ValueError: it is not of that type.
        """
        return self._readers[name](text)

    def fetch(self, params: Mapping[str, Any], deadline: Deadline) -> Answer:
        """Call the function; what it raises is its caller's to see."""
        extra = {DEADLINE: deadline} if self._takes_deadline else {}
        return as_answer(self._function(**params, **extra))


def as_answer(result: Any) -> Answer:  # noqa: ANN401 - whatever a function returns
    """Return a function's result as an answer: bytes and text as they are, anything else as JSON.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(result, Answer):
        return result
    if isinstance(result, bytes):
        return Answer(200, "application/octet-stream", result)
    if isinstance(result, str):
        return Answer(200, "text/plain; charset=utf-8", result.encode())
    return Answer(200, "application/json", json.dumps(result, separators=(",", ":"), allow_nan=False).encode())
