"""Turns frozen records into plain JSON values and back, checking every type on the way in."""

from __future__ import annotations

import dataclasses
import math
import typing
from functools import cache
from typing import Any, Mapping, Optional, TypeVar, Union

T = TypeVar("T")
_MAX_DEPTH = 16
_MOST = 1 << 64
_SCALARS = frozenset({int, float, str, bool, type(None)})


class StructError(ValueError):
    """A value does not fit a record; the message names the place: `step_time.period_ms.p50: not a number`."""


def to_plain(value: Any) -> Any:
    """A record as dicts, lists, strings, numbers, bools and None."""
    kind = value.__class__
    if kind in _SCALARS:
        return value
    names = _names(kind)
    if names is not None:
        items = [getattr(value, name) for name in names]
        return {name: item if item.__class__ in _SCALARS else to_plain(item) for name, item in zip(names, items)}
    if isinstance(value, (list, tuple)):  # before the mappings, which are asked at ten times the cost
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    return value


def from_plain(kind: type[T], value: Any) -> T:
    """The record of class `kind` that a plain value describes; unknown keys are passed over.

    Raises:
        StructError: A key is missing without a default, a type is wrong, or a number is not finite.
    """
    made: T = _read(kind, value, "", 0)
    return made


@cache
def _names(kind: type) -> Optional[tuple[str, ...]]:
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _read(hint: Any, value: Any, at: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise StructError(f"{at}: nested too deep")
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if origin is Union:
        return _read_union(hint, value, at, depth)
    if origin is tuple:
        return _read_tuple(hint, value, at, depth)
    if origin is not None and issubclass(origin, Mapping):
        return _read_mapping(hint, value, at, depth)
    if dataclasses.is_dataclass(hint):
        return _read_record(hint, value, at, depth)
    return _read_scalar(hint, value, at)


def _read_union(hint: Any, value: Any, at: str, depth: int) -> Any:
    kinds = [k for k in typing.get_args(hint) if k is not type(None)]
    if value is None and len(kinds) < len(typing.get_args(hint)):
        return None
    return _read(kinds[0], value, at, depth)


def _read_tuple(hint: Any, value: Any, at: str, depth: int) -> Any:
    if not isinstance(value, (list, tuple)):
        raise StructError(f"{at}: not a list")
    kinds = typing.get_args(hint)
    if len(kinds) == 2 and kinds[1] is Ellipsis:  # noqa: PLR2004
        return tuple(_read(kinds[0], item, f"{at}[{i}]", depth + 1) for i, item in enumerate(value))
    if len(kinds) != len(value):
        raise StructError(f"{at}: {len(value)} entries, not {len(kinds)}")
    return tuple(_read(k, item, f"{at}[{i}]", depth + 1) for i, (k, item) in enumerate(zip(kinds, value)))


def _read_mapping(hint: Any, value: Any, at: str, depth: int) -> Any:
    if not isinstance(value, dict):
        raise StructError(f"{at}: not an object")
    key_kind, item_kind = typing.get_args(hint)
    read_key = int if key_kind is int else str
    try:
        return {read_key(k): _read(item_kind, item, f"{at}.{k}", depth + 1) for k, item in value.items()}
    except ValueError as error:
        raise error if isinstance(error, StructError) else StructError(f"{at}: {error}") from None


def _read_record(hint: Any, value: Any, at: str, depth: int) -> Any:
    if not isinstance(value, dict):
        raise StructError(f"{at or hint.__name__}: not an object")
    hints, found = _hints(hint), {}
    for f in dataclasses.fields(hint):
        place = f"{at}.{f.name}" if at else f.name
        if f.name in value:
            found[f.name] = _read(hints[f.name], value[f.name], place, depth + 1)
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise StructError(f"{place}: missing")
    return hint(**found)


def _read_scalar(hint: Any, value: Any, at: str) -> Any:
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise StructError(f"{at}: not a finite number")
        return float(value)
    if hint is int and isinstance(value, int) and abs(value) > _MOST:
        raise StructError(f"{at}: a number of more than 64 bits")
    if hint is int and isinstance(value, bool):
        raise StructError(f"{at}: not a whole number")
    if isinstance(hint, type) and not isinstance(value, hint):
        names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        raise StructError(f"{at}: not {names.get(hint, hint.__name__)}")
    return value
