"""DynamoDB's expressions, as far as this project uses them: parsed once, then plain functions.

Refuses what DynamoDB refuses: reserved words, placeholders that are undefined or unused, and syntax it does not know.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

from moto.dynamodb.parsing.reserved_keywords import ReservedKeywords

Value = dict[str, Any]
"""An attribute value in wire form, such as `{"N": "1"}`."""
Attributes = Mapping[str, Value]
Values = Mapping[str, Value]
Condition = Callable[[Attributes, Values], bool]
Operand = Callable[[Attributes, Values], "Value | None"]
Step = Callable[[Attributes, Values, dict[str, Any]], None]

_TOKEN = re.compile(r"\s*(?:(<>|<=|>=|[=<>(),+\-])|([#:]?[A-Za-z_][A-Za-z0-9_]*))")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ORDERED = ("N", "S", "B")
_RESERVED = frozenset(word.upper() for word in ReservedKeywords.get_reserved_keywords())
REMOVED = object()


class RefusedError(Exception):
    """DynamoDB's ValidationException."""


class _Parser:
    def __init__(self, kind: str, text: str, names: Mapping[str, str]) -> None:
        self.kind = kind
        self.names = names
        self.used_names: set[str] = set()
        self.used_values: set[str] = set()
        self.tokens: list[str] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise RefusedError(f"Invalid {kind}: Syntax error; token: {text[position:][:10]!r}")
            self.tokens.append(match[1] or match[2])
            position = match.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def is_word(self, *words: str) -> bool:
        return self.peek().upper() in words

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def expect(self, token: str) -> None:
        if self.take() != token:
            raise RefusedError(f"Invalid {self.kind}: Syntax error; {token!r} expected")

    def accept(self, token: str) -> bool:
        if self.peek().upper() == token:
            self.at += 1
            return True
        return False

    def done(self) -> None:
        if self.peek():
            raise RefusedError(f"Invalid {self.kind}: Syntax error; token: {self.peek()!r}")

    def name(self) -> str:
        token = self.take()
        if token.startswith("#"):
            if token not in self.names:
                raise RefusedError(f"Invalid {self.kind}: an expression attribute name is not defined: {token}")
            self.used_names.add(token)
            return self.names[token]
        if not token or token[0] in ":<>=(),+-":
            raise RefusedError(f"Invalid {self.kind}: Syntax error; a name expected, not {token!r}")
        if token.upper() in _RESERVED:
            raise RefusedError(f"Invalid {self.kind}: Attribute name is a reserved keyword; reserved keyword: {token}")
        return token

    def value(self) -> str:
        token = self.take()
        if not token.startswith(":"):
            raise RefusedError(f"Invalid {self.kind}: Syntax error; a value expected, not {token!r}")
        self.used_values.add(token)
        return token

    def operand(self) -> Operand:
        if self.peek().startswith(":"):
            value = self.value()
            return lambda _, values: values[value]
        name = self.name()
        return lambda item, _: item.get(name)


@cache
def _condition(text: str, names: tuple[tuple[str, str], ...], kind: str) -> tuple[Condition, set[str], set[str]]:
    parser = _Parser(kind, text, dict(names))
    condition = _any_of(parser)
    parser.done()
    return condition, parser.used_names, parser.used_values


def _any_of(parser: _Parser) -> Condition:
    parts = [_all_of(parser)]
    while parser.accept("OR"):
        parts.append(_all_of(parser))
    return parts[0] if len(parts) == 1 else lambda item, values: any(part(item, values) for part in parts)


def _all_of(parser: _Parser) -> Condition:
    parts = [_one(parser)]
    while parser.accept("AND"):
        parts.append(_one(parser))
    return parts[0] if len(parts) == 1 else lambda item, values: all(part(item, values) for part in parts)


def _one(parser: _Parser) -> Condition:
    if parser.accept("NOT"):
        inner = _one(parser)
        return lambda item, values: not inner(item, values)
    if parser.accept("("):
        inner = _any_of(parser)
        parser.expect(")")
        return inner
    if parser.is_word("ATTRIBUTE_EXISTS", "ATTRIBUTE_NOT_EXISTS"):
        wanted = parser.take().lower() == "attribute_exists"
        parser.expect("(")
        name = parser.name()
        parser.expect(")")
        return lambda item, _: (name in item) is wanted
    return _comparison(parser)


def _comparison(parser: _Parser) -> Condition:
    left = parser.operand()
    comparator = parser.take()
    right = parser.operand()
    if comparator in ("=", "<>"):
        wanted = comparator == "="

        def equal(item: Attributes, values: Values) -> bool:
            one, other = left(item, values), right(item, values)
            if one is None or other is None:
                return not wanted  # what is not there is unequal to everything
            return _same(one, other) is wanted

        return equal
    compare = _COMPARE.get(comparator)
    if compare is None:
        raise RefusedError(f"Invalid {parser.kind}: Syntax error; token: {comparator!r}")

    def ordered(item: Attributes, values: Values) -> bool:
        one, other = left(item, values), right(item, values)
        if one is None or other is None:
            return False
        (kind, mine), (other_kind, theirs) = *one.items(), *other.items()
        if kind != other_kind or kind not in _ORDERED:
            return False
        return compare(number(mine), number(theirs)) if kind == "N" else compare(mine, theirs)

    return ordered


def _same(one: Value, other: Value) -> bool:
    if "N" in one and "N" in other:
        return number(one["N"]) == number(other["N"])
    return one == other


def number(text: str) -> int | Decimal:
    """Return a number as DynamoDB compares it."""
    return int(text) if text.lstrip("-").isdigit() else Decimal(text)


@cache
def _update(text: str, names: tuple[tuple[str, str], ...]) -> tuple[list[Step], list[str], set[str], set[str]]:
    parser = _Parser("UpdateExpression", text, dict(names))
    steps: list[Step] = []
    changed: list[str] = []
    seen: set[str] = set()
    while parser.peek():
        clause = parser.take().upper()
        if clause not in ("SET", "REMOVE", "ADD") or clause in seen:
            raise RefusedError(f"Invalid UpdateExpression: Syntax error; token: {clause!r}")
        seen.add(clause)
        while True:
            name = parser.name()
            if name in changed:
                raise RefusedError(f"Invalid UpdateExpression: Two document paths overlap with each other: {name}")
            changed.append(name)
            steps.append(_STEPS[clause](parser, name))
            if not parser.accept(","):
                break
    return steps, changed, parser.used_names, parser.used_values


def _set(parser: _Parser, name: str) -> Step:
    parser.expect("=")
    left = _term(parser)
    if parser.peek() in ("+", "-"):
        sign = 1 if parser.take() == "+" else -1
        right = _term(parser)

        def arithmetic(item: Attributes, values: Values, changes: dict[str, Any]) -> None:
            changes[name] = _sum(left(item, values), right(item, values), sign)

        return arithmetic

    def assign(item: Attributes, values: Values, changes: dict[str, Any]) -> None:
        value = left(item, values)
        if value is None:
            raise RefusedError("The provided expression refers to an attribute that does not exist in the item")
        changes[name] = value

    return assign


def _term(parser: _Parser) -> Operand:
    if parser.is_word("IF_NOT_EXISTS"):
        parser.take()
        parser.expect("(")
        name = parser.name()
        parser.expect(",")
        default = parser.operand()
        parser.expect(")")
        return lambda item, values: item[name] if name in item else default(item, values)
    return parser.operand()


def _sum(left: Value | None, right: Value | None, sign: int) -> Value:
    if left is None or right is None:
        raise RefusedError("The provided expression refers to an attribute that does not exist in the item")
    if "N" not in left or "N" not in right:
        raise RefusedError("An operand in the update expression has an incorrect data type")
    return {"N": str(number(left["N"]) + sign * number(right["N"]))}


def _remove(_: _Parser, name: str) -> Step:
    def remove(_: Attributes, __: Values, changes: dict[str, Any]) -> None:
        changes[name] = REMOVED

    return remove


def _add(parser: _Parser, name: str) -> Step:
    value = parser.value()

    def add(item: Attributes, values: Values, changes: dict[str, Any]) -> None:
        changes[name] = _sum(item.get(name, {"N": "0"}), values[value], 1)

    return add


_STEPS: dict[str, Callable[[_Parser, str], Step]] = {"SET": _set, "REMOVE": _remove, "ADD": _add}


class Expressions:
    """The expressions of one request, checked together, for placeholders count over all of them.

    Args:
        request: the arguments of a client call, or one write of a transaction.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        names = request.get("ExpressionAttributeNames")
        values = request.get("ExpressionAttributeValues")
        has_any = any(name.endswith("Expression") for name in request)
        for what, given in (("ExpressionAttributeNames", names), ("ExpressionAttributeValues", values)):
            if given is not None and not has_any:
                raise RefusedError(f"{what} can only be specified when using expressions")
            if given is not None and not given:
                raise RefusedError(f"{what} must not be empty")
        self.values: Values = values or {}
        pairs = tuple(sorted((names or {}).items()))
        used_names: set[str] = set()
        used_values: set[str] = set()
        self.condition: Condition | None = None
        self.key_condition: Condition | None = None
        self.steps: list[Step] = []
        self.changed: list[str] = []
        if "UpdateExpression" in request:
            self.steps, self.changed, more_names, more_values = _update(request["UpdateExpression"], pairs)
            used_names |= more_names
            used_values |= more_values
        for kind in ("ConditionExpression", "KeyConditionExpression"):
            if kind in request:
                condition, more_names, more_values = _condition(request[kind], pairs, kind)
                used_names |= more_names
                used_values |= more_values
                setattr(self, "condition" if kind == "ConditionExpression" else "key_condition", condition)
        _check_placeholders("Names", set(names or ()), used_names)
        _check_placeholders("Values", set(self.values), used_values)


def _check_placeholders(kind: str, given: set[str], used: set[str]) -> None:
    if used - given:
        raise RefusedError(f"An expression attribute value is not defined: {sorted(used - given)}")
    if given - used:
        raise RefusedError(f"Value provided in ExpressionAttribute{kind} unused in expressions: {sorted(given - used)}")
