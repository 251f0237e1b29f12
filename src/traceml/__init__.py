"""TraceML: an always-on, step-level flight recorder for PyTorch training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from traceml.api import (
        count,
        final_summary,
        init,
        region,
        report,
        shutdown,
        summary,
        trace_step,
        wrap_backward,
        wrap_dataloader,
        wrap_forward,
        wrap_h2d,
        wrap_optimizer,
    )

__all__ = [
    "__version__",
    "count",
    "final_summary",
    "init",
    "region",
    "report",
    "shutdown",
    "summary",
    "trace_step",
    "wrap_backward",
    "wrap_dataloader",
    "wrap_forward",
    "wrap_h2d",
    "wrap_optimizer",
]


def __getattr__(name: str) -> Any:
    """Hands on api's names on first use, so that `import traceml` costs nothing."""
    if name in __all__:
        from traceml import api  # noqa: PLC0415  # lazily, on purpose

        value = getattr(api, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'traceml' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
