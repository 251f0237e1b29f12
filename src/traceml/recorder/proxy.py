"""Stands for an object of the user's: attributes, items, comparisons and the class are that object's own."""

from __future__ import annotations

import copy
import weakref
from typing import Any, Callable, Final, TypeVar

_INNER: Final = "_traceml_inner"
_SPECIAL: Final = (
    *("__len__", "__getitem__", "__setitem__", "__delitem__", "__contains__", "__reversed__", "__bool__"),
    *("__call__", "__enter__", "__exit__", "__float__", "__int__", "__format__", "__length_hint__"),
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__"),
    *("__neg__", "__abs__", "__pow__", "__lt__", "__le__", "__gt__", "__ge__"),
)
P = TypeVar("P", bound="Proxy")
_classes: weakref.WeakKeyDictionary[type[Any], dict[type[Any], type[Any]]] = weakref.WeakKeyDictionary()


class Proxy:
    """What is asked of it is asked of the object inside. A copy or a pickle is one of that object.

    Made by `wrapped`, which gives it those special methods that the object's class has, and no others.
    """

    __slots__ = ("__weakref__", _INNER)

    def __init__(self, inner: Any) -> None:
        object.__setattr__(self, _INNER, inner)

    @classmethod
    def __torch_function__(cls, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What torch asks of anything that it is given in a tensor's place."""
        return function(*_bare(args), **{name: _bare(value) for name, value in (kwargs or {}).items()})

    def __getattr__(self, name: str) -> Any:
        return getattr(inner_of(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(inner_of(self), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(inner_of(self), name)

    def __dir__(self) -> Any:
        return dir(inner_of(self))

    def __repr__(self) -> str:
        return repr(inner_of(self))

    def __str__(self) -> str:
        return str(inner_of(self))

    def __eq__(self, other: object) -> Any:
        return inner_of(self) == (inner_of(other) if type(other) is type(self) else other)

    def __hash__(self) -> int:
        return hash(inner_of(self))

    def __copy__(self) -> Any:
        return copy.copy(inner_of(self))

    def __deepcopy__(self, memo: Any) -> Any:
        return copy.deepcopy(inner_of(self), memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return inner_of(self).__reduce_ex__(protocol)


def inner_of(proxy: Any) -> Any:
    """The object that a proxy stands for."""
    return object.__getattribute__(proxy, _INNER)


def is_proxy(value: Any) -> bool:
    """Whether something is a proxy of ours, whatever class it says it has."""
    return issubclass(type(value), Proxy)


def _bare(value: Any) -> Any:
    if type(value) in (list, tuple):
        return type(value)(_bare(one) for one in value)
    return inner_of(value) if is_proxy(value) else value


def wrapped(kind: type[P], inner: Any) -> P:
    """A proxy of `kind` for an object, with the special methods that the object has."""
    made = _classes.setdefault(type(inner), {})
    if kind not in made:
        made[kind] = _make_class(kind, type(inner))
    proxy: P = made[kind](inner)
    return proxy


def _make_class(kind: type[Any], inner_class: type[Any]) -> type[Any]:
    names: dict[str, Any] = {
        name: _hand_on(name) for name in _SPECIAL if hasattr(inner_class, name) and name not in vars(kind)
    }
    names["__slots__"] = ()
    names["__doc__"] = inner_class.__doc__
    names["__class__"] = property(lambda proxy: inner_of(proxy).__class__)  # isinstance() is what it is without us
    return type(kind.__name__, (kind,), names)


def _hand_on(name: str) -> Callable[..., Any]:
    def special(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(inner_of(self), name)(*args, **kwargs)

    special.__name__ = name
    return special
