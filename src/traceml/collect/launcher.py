"""Listens to the launcher: which process the script is, how it ended, whether the launcher itself is gone."""

from __future__ import annotations

import json
import os
import select
from typing import TYPE_CHECKING, Any, Optional

from traceml.collect.end import ScriptExit
from traceml.wire import panel

if TYPE_CHECKING:
    from traceml.schema.panel import PanelRequest


class Launcher:
    """The reading end of the launcher's pipe: a JSON object a line, and an end of file when it dies.

    Args:
        fd: The pipe; None: nobody launched us (plain python).
    """

    def __init__(self, fd: Optional[int]) -> None:
        self.fd = fd
        self.is_there = fd is not None
        self.was_there = fd is not None
        self.script_pid: Optional[int] = None
        self.terminal: Optional[int] = None  # the master of the script's pty, which we hold, too
        self.exit: Optional[ScriptExit] = None
        self.wants_line = False  # whoever gives it sets this back
        self.wants_panel: Optional[PanelRequest] = None  # likewise; the newest question, an older one needs no answer
        self._rest = b""

    def hear_what_is_there(self) -> None:
        """Takes in what has come by now, without waiting."""
        while self.fd is not None and select.select([self.fd], [], [], 0)[0]:
            self.hear()

    def hear(self) -> None:
        """Takes in what has come; call it when the descriptor is readable."""
        if self.fd is None:
            return
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:
            data = b""
        if not data:
            self.fd, self.is_there = None, False
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            found: Any = json.loads(line)
        except ValueError:
            return  # not our launcher's: whoever else writes there is not believed
        if not isinstance(found, dict):
            return
        if isinstance(found.get("script"), int):
            self.script_pid = found["script"]
        if isinstance(found.get("terminal"), int):
            self.terminal = found["terminal"]
        self.wants_line = self.wants_line or found.get("line") is True
        self.wants_panel = panel.heard(found) or self.wants_panel
        told = found.get("exit")
        if isinstance(told, dict) and isinstance(told.get("code"), int):
            name = told.get("signal")
            self.exit = ScriptExit(told["code"], name if isinstance(name, str) else None)
