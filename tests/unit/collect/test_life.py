"""Tests that a death is noticed, and a reused pid is not taken for a living rank."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time

import pytest

from traceml.collect import life
from traceml.collect.life import Life, is_alive


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_a_death_is_noticed_before_anybody_waits_for_it(has_pidfd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_pidfd:
        monkeypatch.setattr(life, "_pidfd", lambda _: None)
    process, watched = sleeper(), Life(time.perf_counter_ns)
    watched.watch(process.pid)
    watched.look()
    before = watched.is_gone(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    fds = select.select(watched.fds, [], [], 0)[0]
    watched.look()

    assert (before, watched.is_gone(process.pid)) == (False, True)
    assert watched.gone_ns(process.pid) is not None
    assert bool(fds) == has_pidfd
    process.wait()
    watched.close()


def test_a_process_that_started_later_is_another_one() -> None:
    process, watched = sleeper(), Life(time.perf_counter_ns)
    watched.watch(process.pid, born_before=time.time() - 60)

    assert watched.is_gone(process.pid)
    assert watched.gone_ns(process.pid) is None
    assert is_alive(process.pid)
    process.kill()
    process.wait()
    assert not is_alive(process.pid)
