"""Holds torch.compile to what it does without us: the same graphs, frames, breaks and losses in every combination."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.processes import running

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.torch]
SCRIPT = str(running.SCRIPTS / "compiled_training.py")


def counted(*arguments: str) -> dict[str, Any]:
    """What the compiler counted, by combination."""
    done = subprocess.run(
        [sys.executable, SCRIPT, *arguments], env=running.environment(), stdout=subprocess.PIPE, check=True, timeout=300
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.long)])
def test_the_compiler_makes_the_same_graphs_with_and_without_us(tmp_path: Path, backend: str) -> None:
    bare = counted("bare", backend)

    traced = counted("traced", backend, str(tmp_path))

    assert len(bare) == 42
    assert traced == bare
