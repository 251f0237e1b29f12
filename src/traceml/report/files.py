"""Writes and reads `final_summary.json`: written whole or not at all, believed only after it was checked."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, Mapping, Optional

from traceml.errors import RunError
from traceml.report.contract import SCHEMA_VERSION, Report
from traceml.schema.struct import StructError, from_plain, to_plain
from traceml.wire.manifest import write_private
from traceml.wire.regular import open_regular

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "final_summary.json"
CARD_FILE: Final = "final_summary.txt"
MAX_READ_BYTES: Final = 4 << 20  # a summary has under 32 KB; 4 MB of empty lists are 90 MB in memory
_MAX_DEPTH: Final = 32
_MAX_DIGITS: Final = 20
_MAX_TEXT: Final = 32_768  # characters of a text or a key: a whole summary of ours has fewer
_LINE: Final = 140  # a container that fits is written on one line
_OURS: Final = frozenset({"run", "verdict", "step_time"})


def write_summary(folder: Path, report: Report) -> Path:
    """Puts the report into the run folder as `final_summary.json`, 0600, whole or not at all.

    Raises:
        OSError: No room, or no right to write.
    """
    path = folder / FILE
    write_private(path, summary_text(report))
    return path


def summary_text(report: Report) -> str:
    """The report as JSON for people and machines: short rows on one line each, no NaN, a newline at the end."""
    return plain_text(to_plain(report))


def plain_text(value: Any) -> str:
    """Plain values (dicts, lists, numbers, texts) as JSON, laid out as `summary_text` says.

    What could take over a terminal, or cannot be encoded, is escaped as JSON does it.
    """
    text = _render(value, 0) + "\n"
    if text.replace("\n", "").isprintable():
        return text
    return "".join(ch if ch == "\n" or ch.isprintable() else _escaped(ch) for ch in text)


def read_summary(path: Path) -> Report:
    """The report in a `final_summary.json`; reads at most 4 MB and believes nothing that the contract does not allow.

    Raises:
        RunError: `no-summary`, `foreign-summary`, `summary-too-new` or `damaged-summary`.
    """
    found = _load(path)
    version = _version(found)
    if version is None:
        raise _foreign(path)
    if version > SCHEMA_VERSION:
        message = f"'{path}' has schema_version {version}, this TraceML reads up to {SCHEMA_VERSION}. Update TraceML."
        raise RunError(message, slug="summary-too-new")
    if version < 1:
        message = f"'{path}' has schema_version {version}, which no TraceML wrote. Give another summary."
        raise RunError(message, slug="foreign-summary")
    try:
        return from_plain(Report, found)
    except (StructError, RecursionError) as error:
        raise _damaged(path, str(error)) from None


def _load(path: Path) -> Any:
    try:
        with open_regular(path) as file:
            raw = file.read(MAX_READ_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        message = f"No summary at '{path}' ({reason}). Give the final_summary.json or the folder of a run."
        raise RunError(message, slug="no-summary") from None
    if len(raw) > MAX_READ_BYTES:
        raise _damaged(path, f"more than {MAX_READ_BYTES >> 20} MB")
    try:
        found = json.loads(raw, parse_constant=_refuse, parse_int=_whole, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        if path.name != FILE and not raw.lstrip().startswith(b"{"):
            raise _foreign(path) from None  # any other file: there is nothing to build again
        raise _damaged(path, "nested too deep" if isinstance(error, RecursionError) else str(error)) from None
    if _is_deep(found):
        raise _damaged(path, "nested too deep")
    longest = _longest_text(found)
    if longest > _MAX_TEXT:
        raise _damaged(path, f"a text of {longest:,} characters")
    return found


def _foreign(path: Path) -> RunError:
    message = f"'{path}' is not a summary of TraceML. Give the final_summary.json or the folder of a run."
    return RunError(message, slug="foreign-summary")


def _damaged(path: Path, reason: str) -> RunError:
    message = f"'{path}' is damaged: {reason[:200]}. Run `traceml view` on the run's folder to build it again."
    return RunError(message, slug="damaged-summary")


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _whole(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:20]} is not finite")
    return number


def _version(found: Any) -> Optional[int]:
    """The version of what may be ours; None is somebody else's. A newer one may hold what we do not know."""
    version = found.get("schema_version") if isinstance(found, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        return None
    return version if version > SCHEMA_VERSION or _OURS & found.keys() else None


def _is_deep(value: Any) -> bool:
    level, depth = [value], 0
    while level and depth <= _MAX_DEPTH:
        nested: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                nested.extend(item.values())
            elif isinstance(item, list):
                nested.extend(item)
        level, depth = nested, depth + 1
    return bool(level)


def _longest_text(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    items = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(_longest_text, items), default=0)


def _escaped(ch: str) -> str:
    units = ch.encode("utf-16-be", "surrogatepass").hex()  # of a sign beyond 16 bits two, as JSON has it
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _render(value: Any, indent: int) -> str:
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not isinstance(value, (Mapping, list)) or len(flat) + indent <= _LINE or not value:
        return flat
    pad = " " * (indent + 1)
    if isinstance(value, Mapping):
        rows = [
            f"{pad}{json.dumps(key, ensure_ascii=False)}: {_render(item, indent + 1)}" for key, item in value.items()
        ]
        return "{\n" + ",\n".join(rows) + "\n" + " " * indent + "}"
    rows = [pad + _render(item, indent + 1) for item in value]
    return "[\n" + ",\n".join(rows) + "\n" + " " * indent + "]"
