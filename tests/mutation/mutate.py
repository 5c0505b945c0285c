"""Mutants of a module: comparisons turned, conditions negated, numbers moved, statements dropped.

A mutant is named by its place in the order in which the changes are found, so that it can be made again.
"""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OTHER: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


def unchanged(source: str) -> str:
    """Return a module as its mutants are written, without a change."""
    return ast.unparse(_parsed(source))


def mutants(source: str) -> list[tuple[str, str]]:
    """Return each change of a module, and the module with it."""
    tree = _parsed(source)
    found = []
    idle = _idle(tree)
    for index, node in enumerate(ast.walk(tree)):
        for about, change in () if id(node) in idle else _changes(node):
            changed = copy.deepcopy(tree)
            target = next(twin for place, twin in enumerate(ast.walk(changed)) if place == index)
            change(target)
            line = getattr(node, "lineno", 0)
            found.append((f"line {line}: {about}", ast.unparse(ast.fix_missing_locations(changed))))
    return found


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], None]]]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _TURNED:
            turned = _TURNED[type(op)]
            yield f"{ast.unparse(node)}: {type(op).__name__} for {turned.__name__}", _set("ops", [turned()])
        case ast.BoolOp(op=op):
            yield f"{ast.unparse(node)}: and for or", _set("op", ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield f"{ast.unparse(node)}: without not", _set("op", ast.UAdd())
        case ast.BinOp(op=op) if type(op) in _OTHER:
            yield f"{ast.unparse(node)}: {_OTHER[type(op)].__name__}", _set("op", _OTHER[type(op)]())
        case ast.Constant(value=bool() | int() as value):
            other = not value if isinstance(value, bool) else value + 1
            yield f"{value}: {other}", _set("value", other)
        case ast.If() | ast.IfExp():
            yield f"if {ast.unparse(node.test)}: never", _set("test", ast.Constant(value=False))
            yield f"if {ast.unparse(node.test)}: always", _set("test", ast.Constant(value=True))
        case ast.Expr(value=ast.Call()):
            yield f"{ast.unparse(node)}: left out", _set("value", ast.Constant(value=None))
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield f"return {ast.unparse(value)}: nothing", _set("value", ast.Constant(value=None))
        case ast.match_case(guard=guard) if guard is not None:
            yield f"case … if {ast.unparse(guard)}: always", _set("guard", None)


def _set(name: str, value: object) -> Callable[[ast.AST], None]:
    return lambda node: setattr(node, name, value)


def _idle(tree: ast.Module) -> set[int]:
    """Return what does nothing at run time: annotations, decorators' arguments, imports for the type checker."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(returns=returns, decorator_list=decorators):
                roots += [returns, *decorators]
            case ast.ClassDef(decorator_list=decorators):
                roots += decorators
            case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
                roots.append(annotation)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                roots.append(node)
    return {id(node) for root in roots if root for node in ast.walk(root)}


def _parsed(source: str) -> ast.Module:
    """Return a module without docstrings, which nobody tests."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                first.value = ast.Constant(value="")  # still a docstring, or the imports from __future__ come too late
    return tree
