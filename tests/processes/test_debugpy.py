"""Shows with a real editor's debugger that the steps of its time are left out, those before it are not."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from tests.processes import running

pytest.importorskip("debugpy")
pytestmark = [pytest.mark.process, pytest.mark.torch]


class Editor:
    """Speaks the debug adapter protocol, as far as a person needs it to look and go on."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=running.PATIENCE_S)
        self._file = self._socket.makefile("rb")
        self._number = 0

    def ask(self, command: str, **arguments: Any) -> None:
        self._number += 1
        said = {"seq": self._number, "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(said).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def hear(self, key: str, value: str) -> dict[str, Any]:
        """The next message of which this is said."""
        for message in self._messages():
            if message.get(key) == value:
                return message
        raise AssertionError(f"the debugger has gone before its {value}")

    def _messages(self) -> Iterator[dict[str, Any]]:
        while line := self._file.readline():
            length = int(line.split(b":")[1])
            while self._file.readline() != b"\r\n":
                pass
            yield json.loads(self._file.read(length))

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def test_steps_before_a_debugger_comes_are_judged_and_those_with_it_are_left_out(tmp_path: Path) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, str(running.SCRIPTS / "debugpy_training.py"), str(port)]
    environ = running.environment(PYDEVD_DISABLE_FILE_VALIDATION="1")
    process = subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"listening\n"
    with contextlib.closing(Editor(port)) as editor:
        editor.ask("initialize", adapterID="traceml")
        editor.hear("command", "initialize")
        editor.ask("attach", justMyCode=False)
        editor.hear("event", "initialized")
        editor.ask("configurationDone")
        thread = editor.hear("event", "stopped")["body"]["threadId"]
        time.sleep(1.5)
        editor.ask("continue", threadId=thread)
        out = process.stdout.readline()  # not to its end: debugpy's own helper holds it, too
        code = process.wait(timeout=running.PATIENCE_S)
        process.stdout.close()

    assert (code, out) == (0, b"trained\n")
    (folder,) = (tmp_path / "logs").iterdir()
    assert running.until((folder / "final_summary.json").exists)
    summary = running.Result(0, b"", "", folder).summary
    assert summary["run"]["steps"] == 120
    assert 120 - 50 < summary["run"]["halted_steps"] <= 120 - 28  # which step sees it first is a matter of some
    assert summary["step_time"]["period_ms"]["max"] < 1400
