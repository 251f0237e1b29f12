"""Prepares the recording in a process of a run that has just imported torch."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[2]
_OURS: Final = "part.py"  # by which a package called traceml is told from another of that name


def prepare() -> None:
    """Arms the signs by which a training is noticed; says in one line why it cannot."""
    if os.environ.get("TRACEML_DISABLED", "").lower() in ("1", "true", "yes", "on"):
        return
    other = _find_traceml()
    if other is not None:
        sys.stderr.write(f"TraceML: this process is not recorded: 'traceml' is another package here ({other}).\n")
        return
    from traceml import part  # noqa: PLC0415  # which traceml that is, was not known before

    part.arm()


def _find_traceml() -> str | None:
    """Sees to it that `import traceml` means us, where this Python has no traceml; tells of another one."""
    loaded = sys.modules.get("traceml")
    spec = importlib.util.find_spec("traceml") if loaded is None else loaded.__spec__
    if spec is not None and spec.origin is not None:
        return None if (Path(spec.origin).parent / _OURS).exists() else spec.origin
    # Not installed here (or a mere folder of that name): a job's other Python has torch, and we need nothing else.
    init = _PACKAGE / "__init__.py"
    spec = importlib.util.spec_from_file_location("traceml", init, submodule_search_locations=[str(_PACKAGE)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["traceml"] = module
    spec.loader.exec_module(module)
    return None
