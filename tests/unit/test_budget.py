"""Tests the setting of tracing's budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from traceml.errors import SettingsError
from traceml.settings import resolve

if TYPE_CHECKING:
    from pathlib import Path


def test_the_budget_is_one_percent_unless_it_is_set(tmp_path: Path) -> None:
    assert resolve(environ={}, cwd=tmp_path).overhead_budget_pct == 1.0
    assert resolve(environ={"TRACEML_OVERHEAD_BUDGET_PCT": "2.5"}, cwd=tmp_path).overhead_budget_pct == 2.5


@pytest.mark.parametrize("value", ["0", "-1", "nan", "101", "much"])
def test_what_is_no_percentage_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(SettingsError, match="overhead_budget_pct"):
        resolve(environ={"TRACEML_OVERHEAD_BUDGET_PCT": value}, cwd=tmp_path)
