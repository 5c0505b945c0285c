"""Metrics, their values over time, and the little metric math that our alarms and dashboard use.

The local cloud evaluates no expressions, so they are evaluated here, whatever the stage. What CloudWatch has beyond
arithmetic, `SUM([…])`, `FILL(…, number)` and `IF(…, …, …)` is refused and not guessed at.
"""

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Series = Mapping[int, float]
"""Values by the second at which their period begins. A period without data is not in it."""


class ExpressionError(Exception):
    """An expression uses more than is known here; the text says what."""


@dataclass(frozen=True)
class Metric:
    """What one series is of."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    """Sorted by name."""
    statistic: str
    period_s: int


@dataclass(frozen=True)
class Plot:
    """Series that are metrics or expressions over each other, by id."""

    parts: Mapping[str, Metric | str]

    @property
    def metrics(self) -> list[Metric]:
        """What has to be read."""
        return [part for part in self.parts.values() if isinstance(part, Metric)]

    def series(self, part: str, data: Mapping[Metric, Series], times: Sequence[int]) -> Series:
        """Return the values of the part called `part`.

        Args:
            part: an id.
            data: what was read.
            times: the periods that there are, with data or without.

        Raises:
            ExpressionError: an expression cannot be evaluated.
        """
        found = self.parts[part]
        if isinstance(found, Metric):
            known = data.get(found, {})
            return {at: known[at] for at in times if at in known}
        return _Evaluation(lambda name: self.series(name, data, times), times).run(found)


_Value = float | Series

_OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.GtE: operator.ge,
    ast.Gt: operator.gt,
    ast.LtE: operator.le,
    ast.Lt: operator.lt,
}


class _Evaluation:
    def __init__(self, find: Callable[[str], Series], times: Sequence[int]) -> None:
        self._find = find
        self._times = times

    def run(self, expression: str) -> Series:
        try:
            # Within these means, the grammar is Python's.
            tree = ast.parse(expression, mode="eval")
        except SyntaxError as error:
            raise ExpressionError(f"not understood: {expression}") from error
        return self._as_series(self._value(tree.body))

    def _value(self, node: ast.AST) -> _Value:
        match node:
            case ast.Constant(value=int() | float() as number):
                return float(number)
            case ast.Name(id=name):
                return self._find(name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return self._apply(_OPERATORS[type(op)], left, right)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return self._apply(_OPERATORS[type(op)], left, right)
            case ast.Call(func=ast.Name(id=function), args=arguments):
                return self._call(function, arguments)
        raise ExpressionError(f"not known here: {ast.unparse(node)}")

    def _call(self, function: str, arguments: Sequence[ast.expr]) -> Series:
        match function, arguments:
            case "FILL", [series, ast.Constant(value=int() | float() as number)]:
                known = self._as_series(self._value(series))
                return {at: known.get(at, float(number)) for at in self._times}
            case "SUM", [ast.List(elts=elements)]:
                return self._sum([self._as_series(self._value(element)) for element in elements])
            case "IF", [condition, then, otherwise]:
                return self._choose(condition, then, otherwise)
        raise ExpressionError(f"not known here: {function} of {', '.join(map(ast.unparse, arguments))}")

    def _apply(self, apply: Callable[[float, float], float], left: ast.AST, right: ast.AST) -> _Value:
        a, b = self._value(left), self._value(right)
        if isinstance(a, float) and isinstance(b, float):
            return float(apply(a, b))
        one, two = self._as_series(a), self._as_series(b)
        result = {}
        for at in one.keys() & two.keys():
            # CloudWatch has no data where there is no quotient.
            if apply is not operator.truediv or two[at]:
                result[at] = float(apply(one[at], two[at]))
        return result

    def _sum(self, series: Iterable[Series]) -> Series:
        every = list(series)
        # Missing where any part is.
        return {at: sum(each[at] for each in every) for at in self._times if all(at in each for each in every)}

    def _choose(self, condition: ast.AST, then: ast.AST, otherwise: ast.AST) -> Series:
        test, yes, no = (self._as_series(self._value(node)) for node in (condition, then, otherwise))
        chosen = {at: yes if test[at] else no for at in test}
        return {at: series[at] for at, series in chosen.items() if at in series}

    def _as_series(self, value: _Value) -> Series:
        return dict.fromkeys(self._times, value) if isinstance(value, float) else value
