"""Damage to any field of a model, found by walking its messages: what a broken exporter may write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from mutants.extremes import FLOATS, INTEGERS, NAMES

_INTEGERS = (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64)
_FLOATS = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)

Place = tuple[Any, FieldDescriptor]
"""A message, and one of its fields that is set."""


def damage_field(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    """Drop, repeat, reorder or replace one field, wherever it is; returns what was done."""
    places = list(_places(model))
    # by kind of message first: else nearly all are those of nodes
    kinds = sorted({message.DESCRIPTOR.name for message, _ in places})
    kind = str(rng.choice(kinds))
    among = [place for place in places if place[0].DESCRIPTOR.name == kind]
    message, field = among[int(rng.integers(len(among)))]
    name = f"{kind}.{field.name}"
    value = getattr(message, field.name)
    if _is_repeated(field):
        return f"{name}: {_damage_repeated(message, field, value, rng)}"
    if field.type == FieldDescriptor.TYPE_MESSAGE or rng.random() < 0.4:
        message.ClearField(field.name)
        return f"{name}: dropped"
    new = _extreme(field, rng)
    return f"{name}: {str(value)[:40]!r} becomes {str(new)[:40]!r}" if _set(message, field, new) else name


def _places(message: Message) -> Iterator[Place]:
    for field, value in message.ListFields():
        yield message, field
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            continue
        for inner in value if _is_repeated(field) else (value,):
            yield from _places(inner)


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _damage_repeated(
    message: Message, field: FieldDescriptor, values: Any, rng: np.random.Generator
) -> str:
    items = [_copied(value) for value in values]
    at = int(rng.integers(len(items)))
    what = str(rng.choice(("dropped", "repeated", "swapped", "reversed", "emptied", "replaced")))
    if what == "dropped":
        del items[at]
    elif what == "repeated":
        items.insert(int(rng.integers(len(items) + 1)), _copied(items[at]))
    elif what == "swapped":
        other = int(rng.integers(len(items)))
        items[at], items[other] = items[other], items[at]
    elif what == "reversed":
        items.reverse()
    elif what == "replaced" and field.type != FieldDescriptor.TYPE_MESSAGE:
        items[at] = _extreme(field, rng)
    elif what == "replaced":
        items[at].Clear()
    else:
        items.clear()
    message.ClearField(field.name)
    getattr(message, field.name).extend(items)
    return f"item {at} {what}" if what not in ("reversed", "emptied") else what


def _copied(value: Any) -> Any:
    if not isinstance(value, Message):
        return value
    copy = type(value)()
    copy.CopyFrom(value)
    return copy


def _extreme(field: FieldDescriptor, rng: np.random.Generator) -> Any:
    """Something the type of a field allows, and its reader may not expect."""
    if field.type in _INTEGERS:
        found = int(rng.choice(INTEGERS))
        if field.type == FieldDescriptor.TYPE_INT32:
            return max(-(1 << 31), min(found, (1 << 31) - 1))
        return abs(found) if field.type == FieldDescriptor.TYPE_UINT64 else found
    if field.type in _FLOATS:
        return float(rng.choice(FLOATS))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.bytes(int(rng.integers(40)))
    if field.type == FieldDescriptor.TYPE_ENUM:
        return int(rng.choice([number.number for number in field.enum_type.values]))
    return NAMES[int(rng.integers(len(NAMES)))]


def _set(message: Message, field: FieldDescriptor, value: Any) -> bool:
    setattr(message, field.name, value)
    return True
