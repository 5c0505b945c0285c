"""What schedules act on: the stored items, the answers DynamoDB gives, and the faults that it and the network give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, ReadTimeoutError

from firstwrite.dynamodb import from_wire
from tests.interleave.racer import Call, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from tests.interleave.engine import Engine, Wire

Slot = tuple[str, tuple[str, ...]]
"""A table and the key of an item in it."""
Store = tuple[int, ...]
"""For each slot, in the order they were first met, the number of the item that stands there; 0 for none."""

WRITES = frozenset({"put_item", "update_item", "transact_write_items"})


@dataclass(frozen=True, slots=True)
class Change:
    """An item before and after a write, as plain values; None where there was none."""

    slot: Slot
    before: Mapping[str, Any] | None
    after: Mapping[str, Any]


def freeze(value: Any) -> Hashable:
    """Return a hashable twin of a request or an item."""
    if isinstance(value, dict):
        return tuple(sorted((name, freeze(part)) for name, part in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(freeze(part) for part in value)
    return value  # type: ignore[no-any-return]


class World:
    """Items by number, replies by number, and what each call does to which items: all worked out once.

    Args:
        engine: does the calls; what it holds is replaced before each.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._slots: dict[Slot, int] = {}
        self._slot_list: list[Slot] = []
        self._items: list[Wire | None] = [None]
        self._plain: list[Mapping[str, Any] | None] = [None]
        self._item_numbers: dict[Hashable, int] = {}
        self._replies: dict[Hashable, Reply] = {}
        self._effects: dict[Any, tuple[Reply, tuple[tuple[int, int], ...]]] = {}
        self._touched: dict[int, tuple[Call, tuple[int, ...]]] = {}

    def store_now(self) -> Store:
        """Return what the engine holds."""
        store: dict[int, int] = {}
        for name, table in self._engine.tables.items():
            for key, item in table.items.items():
                store[self._slot((name, key))] = self._item(item)
        return tuple(store.get(index, 0) for index in range(len(self._slot_list)))

    def item(self, store: Store, slot: Slot) -> Mapping[str, Any] | None:
        """Return an item as plain values."""
        index = self._slots.get(slot)
        return None if index is None or index >= len(store) else self._plain[store[index]]

    def items(self, store: Store) -> dict[Slot, Mapping[str, Any]]:
        """Return all items as plain values."""
        return {self._slot_list[index]: plain for index, number in enumerate(store) if (plain := self._plain[number])}

    def touched(self, call: Call) -> tuple[int, ...]:
        """Return the slots that a call names; a query names none and sees all."""
        known = self._touched.get(id(call))
        if known is None:
            known = self._touched[id(call)] = (call, tuple(self._slot(slot) for slot in self._named(call)))
        return known[1]

    def do(self, call: Call, store: Store) -> tuple[Reply, Store, tuple[Change, ...]]:
        """Return what a call answers, and the store and the changes that it leaves."""
        touched = self.touched(call)
        seen = store if call.operation == "query" else tuple(_at(store, slot) for slot in touched)
        effect = self._effects.get((id(call), seen))
        if effect is None:
            effect = self._effects[id(call), seen] = self._really_do(call, touched, store)
        reply, changes = effect
        if not changes:
            return reply, store, ()
        return (
            reply,
            _with(store, changes),
            tuple(
                Change(self._slot_list[slot], self._plain[_at(store, slot)], self._plain[number] or {})
                for slot, number in changes
            ),
        )

    def read_part(self, call: Call, part: int, store: Store) -> tuple[int, int]:
        """Return the slot of one key of a batch, and the item there."""
        slot = self.touched(call)[part]
        return slot, _at(store, slot)

    def batch(self, call: Call, parts: frozenset[tuple[int, int]], unprocessed: bool) -> Reply:  # noqa: FBT001 - internal
        """Return the answer to a batch of which `parts` were read."""
        found = dict(parts)
        ((table, wanted),) = call.request["RequestItems"].items()
        slots = self.touched(call)
        items = [item for slot in slots if slot in found and (item := self._items[found[slot]])]
        left = [key for slot, key in zip(slots, wanted["Keys"], strict=True) if slot not in found]
        assert unprocessed == bool(left)
        more = {table: {**wanted, "Keys": left}} if left else {}
        return self.reply({"Responses": {table: items}, "UnprocessedKeys": more})

    def reply(self, value: Any) -> Reply:
        """Return the reply with this value."""
        key = ("value", freeze(value))
        return self._replies.get(key) or self._register(key, value=value)

    def failure(self, name: str, call: Call) -> Reply:
        """Return the reply that a fault makes of a call."""
        key = ("fault", name, call.operation)
        return self._replies.get(key) or self._register(key, error=_FAULTS[name](call), text=name)

    def _register(self, key: Hashable, **attributes: Any) -> Reply:
        reply = self._replies[key] = Reply(len(self._replies), **attributes)
        return reply

    def _really_do(
        self, call: Call, touched: tuple[int, ...], store: Store
    ) -> tuple[Reply, tuple[tuple[int, int], ...]]:
        tables = self._engine.tables
        for table in tables.values():
            table.items = {}
        for slot in range(len(store)) if call.operation == "query" else touched:
            item = self._items[_at(store, slot)]
            if item is not None:
                name, key = self._slot_list[slot]
                tables[name].items[key] = item
        try:
            reply = self.reply(getattr(self._engine, call.operation)(**call.request))
        except ClientError as refused:
            error = refused
            response: Any = error.response
            made = ("error", freeze(response))
            reply = self._replies.get(made) or self._register(
                made, error=lambda: ClientError(response, error.operation_name), text=_refusal(response)
            )
        changes = []
        for slot in touched if call.operation in WRITES else ():
            name, item_key = self._slot_list[slot]
            item = tables[name].items.get(item_key)
            if item is not None and item is not self._items[_at(store, slot)]:
                changes.append((slot, self._item(item)))
        return reply, tuple(changes)

    def _named(self, call: Call) -> list[Slot]:
        request = call.request
        match call.operation:
            case "get_item" | "update_item":
                return [self._slot_of(request["TableName"], request["Key"])]
            case "put_item":
                return [self._slot_of(request["TableName"], request["Item"])]
            case "batch_get_item":
                ((name, wanted),) = request["RequestItems"].items()
                return [self._slot_of(name, key) for key in wanted["Keys"]]
            case "transact_write_items":
                parts = [next(iter(part.values())) for part in request["TransactItems"]]
                return [self._slot_of(part["TableName"], part.get("Item") or part["Key"]) for part in parts]
        return []

    def _slot_of(self, table: str, attributes: Mapping[str, Any]) -> Slot:
        return table, tuple(attributes[name]["S"] for name in self._engine.tables[table].key_names)

    def _slot(self, slot: Slot) -> int:
        index = self._slots.get(slot)
        if index is None:
            index = self._slots[slot] = len(self._slot_list)
            self._slot_list.append(slot)
        return index

    def _item(self, item: Wire) -> int:
        key = freeze(item)
        number = self._item_numbers.get(key)
        if number is None:
            number = self._item_numbers[key] = len(self._items)
            self._items.append(item)
            self._plain.append(from_wire(item))
        return number


def _at(store: Store, slot: int) -> int:
    return store[slot] if slot < len(store) else 0


def _with(store: Store, changes: tuple[tuple[int, int], ...]) -> Store:
    after = list(store)
    for slot, number in changes:
        after += [0] * (slot + 1 - len(after))
        after[slot] = number
    return tuple(after)


def _refusal(response: Mapping[str, Any]) -> str:
    reasons = response.get("CancellationReasons")
    if reasons:
        return f"refused [{', '.join(reason['Code'] for reason in reasons)}]"
    return f"refused: {response['Error']['Code']}"


def _error(code: str, **more: Any) -> Callable[[], Exception]:
    response: Any = {"Error": {"Code": code, "Message": "injected"}, **more}
    return lambda: ClientError(response, "Injected")


def _cancelled(*codes: str) -> Callable[[], Exception]:
    return _error("TransactionCanceledException", CancellationReasons=[{"Code": code} for code in codes])


def _conflict(call: Call) -> Callable[[], Exception]:
    if call.operation != "transact_write_items":
        return _error("TransactionConflictException")
    return _cancelled("TransactionConflict", *["None"] * (len(call.request["TransactItems"]) - 1))


def _mixed(call: Call) -> Callable[[], Exception]:
    return _cancelled("ConditionalCheckFailed", *["TransactionConflict"] * (len(call.request["TransactItems"]) - 1))


def _silence(_: Call) -> Callable[[], Exception]:
    return lambda: ReadTimeoutError(endpoint_url="injected")


_FAULTS: dict[str, Callable[[Call], Callable[[], Exception]]] = {
    "conflict": _conflict,
    "mixed": _mixed,
    "throttle": lambda _: _error("ProvisionedThroughputExceededException"),
    "silence": _silence,
}
