"""Shows a run's card at a prompt and in a notebook's cell."""

from __future__ import annotations

import html
from typing import Final

# No colour of its own: it is read on light and on dark paper.
_STYLE: Final = (
    "white-space:pre;overflow-x:auto;line-height:1.3;color:inherit;background:none;"
    "border:1px solid rgba(128,128,128,.5);border-radius:6px;padding:.8em;margin:.3em 0"
)


class Shown:
    """A card: what `print` and a prompt show is its text, what a notebook shows is the same text in a box."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text.rstrip("\n")

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """For a notebook: self-contained, escaped, no script."""
        return f'<pre style="{_STYLE}">{html.escape(self.text)}</pre>'
