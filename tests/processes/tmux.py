"""Is a real terminal with a shell in it: tmux on a socket of its own, for what no drawn terminal shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import uuid
from pathlib import Path
from typing import Callable

from tests.processes import terminal

PATIENCE_S = 20.0
IS_THERE = shutil.which("tmux") is not None
MAY_TYPE_BACK = os.geteuid() == 0  # Linux since 6.2 keeps TIOCSTI for it
_PROMPT = "sh-prompt>"


class Tmux:
    """A shell with job control in a window of some size."""

    def __init__(self, cwd: Path, *, rows: int = 24, columns: int = 80) -> None:
        self._socket = f"traceml-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._environ = {**terminal.environment(), "HISTFILE": "", "TMUX": ""}
        # A keeper, so that the server outlives a window that is killed; the history's limit counts for later windows.
        self._run("-f", "/dev/null", "new-session", "-d", "-s", "keeper", "-x", "80", "-y", "24", "sleep 600")
        self._run("set-option", "-g", "history-limit", "100000")
        (cwd / ".shell").write_text(f"PS1='{_PROMPT} '\n")
        shell = "bash --rcfile .shell -i"
        self._run("new-session", "-d", "-s", "w", "-x", str(columns), "-y", str(rows), "-c", str(cwd), shell)
        self.wait_for(lambda text: _PROMPT in text)

    def type(self, *keys: str) -> None:
        """Keys by tmux's names, or texts."""
        self._run("send-keys", "-t", "w", *keys)

    def command(self, words: str) -> None:
        """A line for the shell."""
        self.type(words, "Enter")

    def screen(self) -> str:
        """What stands there."""
        return self._run("capture-pane", "-p", "-t", "w")

    def history(self) -> str:
        """Scroll-back and screen, lines that were wrapped in one."""
        return self._run("capture-pane", "-p", "-J", "-S", "-", "-t", "w")

    def resize(self, rows: int, columns: int) -> None:
        """Another size."""
        self._run("resize-window", "-t", "w", "-x", str(columns), "-y", str(rows))

    def flag(self, name: str) -> str:
        """A flag of the pane's: `cursor_flag`, `mouse_any_flag`, `scroll_region_lower`, ..."""
        return self._run("display-message", "-p", "-t", "w", f"#{{{name}}}").strip()

    def hang_up(self) -> None:
        """Closes the window."""
        self._run("kill-session", "-t", "w")

    def wait_for(self, condition: Callable[[str], object], *, patience_s: float = PATIENCE_S) -> str:
        """The screen on which a condition holds.

        Raises:
            AssertionError: It never did.
        """
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            text = self.screen()
            if condition(text):
                return text
            time.sleep(0.05)
        raise AssertionError(self.history())

    def wait_for_line(self, start: str, *, patience_s: float = PATIENCE_S) -> str:
        """The screen on which a line begins so: what the shell echoes of a command begins with its prompt."""
        return self.wait_for(
            lambda text: any(line.startswith(start) for line in text.splitlines()), patience_s=patience_s
        )

    def close(self) -> None:
        """Ends the server, and everything in it."""
        self._run("kill-server")

    def _run(self, *words: str) -> str:
        command = ["tmux", "-u", "-L", self._socket, *words]
        return subprocess.run(command, env=self._environ, capture_output=True, text=True, check=False).stdout
