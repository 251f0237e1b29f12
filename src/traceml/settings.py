"""Resolves the settings once: command line over init() over TRACEML_<OPTION> over pyproject.toml over default."""

from __future__ import annotations

import difflib
import os
import sys
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Callable, Final, Mapping, Optional

from traceml.errors import SettingsError
from traceml.schema.bill import OVERHEAD_BUDGET_PCT
from traceml.schema.names import MAX_BYTES, safe_name

#: Set by `traceml run` for the script's processes: the run folder. Not a setting.
RUN_VARIABLE: Final = "TRACEML_RUN"
#: Likewise, with the inline view: below the panel there is the output of one rank, each other one writes into a file.
ONE_RANK_VARIABLE: Final = "TRACEML_ONE_RANK"
_INTERNAL: Final = frozenset({RUN_VARIABLE, ONE_RANK_VARIABLE, "TRACEML_CHILD"})
_PREFIX: Final = "TRACEML_"
_COUNTED_BY_TORCHRUN: Final = ("auto", "cpu", "gpu")
_MAX_SHOWN: Final = 60  # characters of a value that is refused
FACES: Final = ("auto", "cli", "summary", "dashboard")
VIEWS: Final = ("auto", "inline", "full", "plain")


@dataclass(frozen=True)
class Settings:
    """What the user may choose, each with its source in `sources`."""

    mode: str = "auto"  # how a run is shown: auto, cli, summary, dashboard
    view: str = "auto"  # how `traceml run` shows it in the terminal: auto, inline, full, plain
    logs_dir: str = "logs"
    run_name: Optional[str] = None
    interval: float = 1.0  # seconds between reports
    trace_max_steps: Optional[int] = None
    save_output: bool = False
    nproc_per_node: Optional[str] = None  # ranks that `traceml run` starts: a number, or torchrun's auto, cpu, gpu
    total_steps: Optional[int] = None
    disabled: bool = False
    in_pytest: bool = False  # start a collector under pytest too
    store_max_mb: int = 64
    overhead_budget_pct: float = OVERHEAD_BUDGET_PCT  # above it optional signals are given up
    sources: Mapping[str, str] = field(default_factory=dict)
    complaints: tuple[str, ...] = ()  # a line for each unknown key

    def chosen(self) -> dict[str, str]:
        """What is not the default: `{"interval": "5.0 (command line)"}`."""
        return {name: f"{getattr(self, name)} ({source})" for name, source in self.sources.items()}


OPTIONS: Final = tuple(f.name for f in fields(Settings) if f.name not in ("sources", "complaints"))


def resolve(
    *,
    command_line: Optional[Mapping[str, Any]] = None,
    init: Optional[Mapping[str, Any]] = None,
    environ: Mapping[str, str] = os.environ,
    cwd: Optional[Path] = None,
) -> Settings:
    """Every setting from its highest source; None in a mapping means not given.

    Raises:
        SettingsError: `bad-setting`, `bad-run-name` name the setting, its value and its source.
    """
    found: dict[str, Any] = {}
    sources: dict[str, str] = {}
    complaints: list[str] = []
    table, path = _pyproject(cwd or Path.cwd())
    layers = (
        (_known(table, str(path), complaints), str(path)),
        (_from_environment(environ, complaints), "environment"),
        (init or {}, "init()"),
        (command_line or {}, "command line"),
    )
    for layer, source in layers:
        for name, value in layer.items():
            if value is not None:
                found[name] = _READERS[name](name, value, source)
                sources[name] = source
    return replace(Settings(), **found, sources=sources, complaints=tuple(complaints))


def _from_environment(environ: Mapping[str, str], complaints: list[str]) -> dict[str, Any]:
    table = {
        name[len(_PREFIX) :].lower(): value
        for name, value in environ.items()
        if name.startswith(_PREFIX) and name not in _INTERNAL and value != ""
    }
    return _known(table, "environment", complaints, show=lambda key: _PREFIX + key.upper())


def _known(
    table: Mapping[str, Any], source: str, complaints: list[str], show: Callable[[str], str] = str
) -> dict[str, Any]:
    known = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name in OPTIONS:
            known[name] = value
            continue
        near = difflib.get_close_matches(name, OPTIONS, n=1)
        hint = f"; did you mean {show(near[0])}?" if near else "."
        complaints.append(f"TraceML: unknown setting {show(key)} ({source}){hint}")
    return known


def _pyproject(start: Path) -> tuple[Mapping[str, Any], Path]:
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if "[tool.traceml" not in text:
            return {}, path
        return _parse(text, path), path
    return {}, Path("pyproject.toml")


def _parse(text: str, path: Path) -> Mapping[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415  # only where a [tool.traceml] is
    else:
        import tomli as tomllib  # noqa: PLC0415
    try:
        table = tomllib.loads(text).get("tool", {}).get("traceml", {})
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"Cannot read '{path}': {error}.", slug="bad-setting") from None
    return table if isinstance(table, dict) else {}


def _bad(name: str, value: Any, source: str, want: str) -> SettingsError:
    return SettingsError(f"Setting {name}={value!r} ({source}) is not {want}.", slug="bad-setting")


def _text(name: str, value: Any, source: str) -> str:
    if not isinstance(value, str) or not value:
        raise _bad(name, value, source, "a text")
    return value


def _name(name: str, value: Any, source: str) -> str:
    text = _text(name, value, source)
    good = safe_name(text)
    if text != good:
        shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
        message = (
            f"Run name {shown!r} ({source}) is no folder name: letters, digits, '.', '_' and '-' inside, "
            f"at most {MAX_BYTES} bytes. Use '{good}'."
        )
        raise SettingsError(message, slug="bad-run-name")
    return text


def _face(name: str, value: Any, source: str) -> str:
    if value not in FACES:
        raise _bad(name, value, source, f"one of {', '.join(FACES)}")
    return str(value)


def _view(name: str, value: Any, source: str) -> str:
    if value not in VIEWS:
        raise _bad(name, value, source, f"one of {', '.join(VIEWS)}")
    return str(value)


def _flag(name: str, value: Any, source: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if isinstance(value, bool):
        return value
    if str(value).lower() not in known:
        raise _bad(name, value, source, "1 or 0")
    return known[str(value).lower()]


def _whole(name: str, value: Any, source: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1 or isinstance(value, bool) or (isinstance(value, float) and value != number):
        raise _bad(name, value, source, "a whole number of at least 1")
    return number


def _ranks(name: str, value: Any, source: str) -> str:
    if str(value) in _COUNTED_BY_TORCHRUN:
        return str(value)
    try:
        return str(_whole(name, value, source))
    except SettingsError:
        want = f"a whole number of at least 1, or {', '.join(_COUNTED_BY_TORCHRUN)}"
        raise _bad(name, value, source, want) from None


def _seconds(name: str, value: Any, source: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0.05 <= number <= 86_400:  # noqa: PLR2004  # also refuses nan
        raise _bad(name, value, source, "a number of seconds from 0.05 to 86400")
    return number


def _percent(name: str, value: Any, source: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0.01 <= number <= 100 or isinstance(value, bool):  # noqa: PLR2004  # also refuses nan
        raise _bad(name, value, source, "a percentage from 0.01 to 100")
    return number


_READERS: Final[dict[str, Callable[[str, Any, str], Any]]] = {
    "mode": _face,
    "view": _view,
    "logs_dir": _text,
    "run_name": _name,
    "interval": _seconds,
    "trace_max_steps": _whole,
    "save_output": _flag,
    "nproc_per_node": _ranks,
    "total_steps": _whole,
    "disabled": _flag,
    "in_pytest": _flag,
    "store_max_mb": _whole,
    "overhead_budget_pct": _percent,
}
