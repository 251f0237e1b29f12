"""Derives the JSON Schema of `final_summary.json` from the contract's records: `python -m traceml.report.schema`."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any, Final, Mapping, Union

from traceml.report.contract import SCHEMA_VERSION, Report

FILE: Final = "final_summary.schema.json"  # beside this file, in the package
_SCALARS: Final[dict[type, str]] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def json_schema() -> dict[str, Any]:
    """The schema, draft 2020-12. Keys that it does not know are allowed: new keys keep the version."""
    return schema_of(Report, title="TraceML final_summary.json", version=SCHEMA_VERSION)


def schema_of(kind: type, *, title: str, version: int) -> dict[str, Any]:
    """The schema of a contract's record.

    Args:
        kind: A frozen dataclass with a `schema_version`.
        title: The schema's.
        version: The one `schema_version` it describes.
    """
    definitions: dict[str, Any] = {}
    _define(kind, definitions)
    root = definitions.pop(kind.__name__)
    root["properties"]["schema_version"] = {"const": version}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def schema_text() -> str:
    """The schema as the file in the package holds it."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


def _define(kind: type, definitions: dict[str, Any]) -> None:
    hints, needed, properties = typing.get_type_hints(kind), [], {}
    definitions[kind.__name__] = made = {"type": "object", "description": (kind.__doc__ or "").strip().splitlines()[0]}
    for field in dataclasses.fields(kind):
        properties[field.name] = _of(hints[field.name], definitions)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            needed.append(field.name)
    definitions[kind.__name__] = {**made, "properties": properties, "required": needed}


def _of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, kinds = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint in _SCALARS:
        return {} if hint is Any else {"type": _SCALARS[hint]}
    if origin is Union:
        return _nullable(_of(next(k for k in kinds if k is not type(None)), definitions))
    if origin is tuple and kinds[-1] is Ellipsis:
        return {"type": "array", "items": _of(kinds[0], definitions)}
    if origin is tuple:
        entries = [_of(kind, definitions) for kind in kinds]
        return {"type": "array", "prefixItems": entries, "minItems": len(kinds), "maxItems": len(kinds)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(kinds[1], definitions) or True}
    assert isinstance(hint, type), f"the contract holds a {hint!r}, which has no place in JSON"
    assert dataclasses.is_dataclass(hint), f"the contract holds a {hint!r}, which has no place in JSON"
    if hint.__name__ not in definitions:
        _define(hint, definitions)
    return {"$ref": f"#/$defs/{hint.__name__}"}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


if __name__ == "__main__":
    print(schema_text(), end="")  # noqa: T201  # this module is a command too
