"""Tests how a rank waits for the collector's word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceml.launch.collector import await_verdict

if TYPE_CHECKING:
    from pathlib import Path


def test_a_verdict_that_does_not_come_in_time_is_none(tmp_path: Path) -> None:
    assert await_verdict(tmp_path, tmp_path, patience_s=0.02) is None
