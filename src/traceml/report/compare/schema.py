"""Writes a comparison as JSON, and derives its JSON Schema: `python -m traceml.report.compare.schema`."""

from __future__ import annotations

import json
from typing import Any, Final

from traceml.report.compare.contract import SCHEMA_VERSION, Comparison
from traceml.report.files import plain_text
from traceml.report.schema import schema_of
from traceml.schema.struct import to_plain

FILE: Final = "comparison.schema.json"  # beside this file, in the package


def comparison_text(found: Comparison) -> str:
    """The comparison as JSON, no NaN, a newline at the end."""
    return plain_text(to_plain(found))


def json_schema() -> dict[str, Any]:
    """The schema, draft 2020-12. Keys that it does not know are allowed: new keys keep the version."""
    return schema_of(Comparison, title="TraceML comparison", version=SCHEMA_VERSION)


def schema_text() -> str:
    """The schema as the file in the package holds it."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")  # noqa: T201  # this module is a command too
