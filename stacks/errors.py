"""Configuration mistakes as one line that a person can act on: file, place, key, what is allowed."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

_UNION_MEMBERS = {"int", "float"}


class ConfigError(Exception):
    """A setting is wrong. Its text is one line; `app.py` prints it and exits with 1."""


def describe(error: ValidationError, model: type[BaseModel]) -> str:
    """Say on one line what is wrong with the data that `model` refused.

    Returns: every finding as ``key.subkey: text``, joined by ``; ``.
    """
    # A union reports once for each of its members: one line for each place is enough.
    findings = {_place(finding): finding for finding in reversed(error.errors(include_url=False))}
    return "; ".join(_text(place, findings[place], model) for place in reversed(findings))


def choices(names: Iterable[str]) -> str:
    """Write names as a person would: ``local, dev or prod``."""
    *most, last = [*names] or ["nothing"]
    return f"{', '.join(most)} or {last}" if most else last


def _place(finding: Mapping[str, Any]) -> str:
    return ".".join(str(step) for step in finding["loc"] if step not in _UNION_MEMBERS)


def _text(place: str, finding: Mapping[str, Any], model: type[BaseModel]) -> str:
    match finding["type"]:
        case "extra_forbidden":
            nested = _model_at(model, finding["loc"][:-1])
            allowed = f"; allowed: {', '.join(nested.model_fields)}" if nested else ""
            text = f"unknown key{allowed}"
        case "missing":
            text = "is required"
        case "int_type" if finding["loc"][-1] in _UNION_MEMBERS:
            text = f"{finding['input']!r} must be a finite number"
        case "value_error":
            text = str(finding["ctx"]["error"])
        case _:
            text = f"{finding['input']!r} is refused: {finding['msg'][:1].lower()}{finding['msg'][1:]}"
    one_line = " ".join(text.split())
    return f"{place}: {one_line}" if place else one_line


def _model_at(model: type[BaseModel], path: Iterable[str | int]) -> type[BaseModel] | None:
    """Follow a finding's path to the nested model whose keys are in question."""
    for step in path:
        field = model.model_fields.get(str(step))
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
        nested = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if nested is None:
            return None
        model = nested
    return model
