"""The one door to a run, and the contract every face shows: Run and Report.

In: a run folder, or a final_summary.json. Out: Run (report, series, output), Report, the Sink protocol.
Knows: diagnosis, analysis, store, wire, schema; of collect, who lives. Holds: every face says the same sentence, letter
for letter; what is read from outside is checked against the schema before anything believes it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """`traceml.report` is this package and, for people at a prompt, `report()` of the api: importing hides neither."""

    def __call__(self) -> Any:
        return import_module("traceml.api").report()  # by name: nothing here may know the floors above


sys.modules[__name__].__class__ = _Package
