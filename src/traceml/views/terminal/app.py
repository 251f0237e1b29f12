"""Is the full screen: shows a run from another terminal, live or after its end, and never touches the training."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Callable, ClassVar, Final, Optional, Union

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget
from textual.worker import get_current_worker

from traceml.views.terminal import head
from traceml.views.terminal import sight as sights
from traceml.views.terminal.follow import Follower
from traceml.views.terminal.head import Moment
from traceml.views.terminal.palette import Palette, Style
from traceml.views.terminal.scene import LAST_STEPS, Asked, Scene, Watch
from traceml.views.terminal.sight import Sight, screen

if TYPE_CHECKING:
    from textual import events

    from traceml.report.run import Run, Window
    from traceml.views.terminal.sgr import Look
    from traceml.views.terminal.sight import AnyRow

TICK_S: Final = 1.0
_NUM_STRETCHES: Final = 10  # of the run, that history goes back by
_LEAST_STRETCH: Final = 20  # steps: a verdict needs eight steady ones
_CELLS_A_POINT: Final = 2


class Canvas(Widget):
    """All of the screen, as rows that are drawn when they have changed."""

    DEFAULT_CSS = "Canvas { width: 1fr; height: 1fr; }"

    def __init__(self, palette: Palette, resized: Callable[[], None]) -> None:
        super().__init__()
        self._palette, self._resized = palette, resized
        self._rows: list[AnyRow] = []
        self.strips: list[Strip] = []

    def put(self, rows: list[AnyRow]) -> None:
        """Shows other rows; only those that differ are drawn."""
        width, before = self.size.width, self._rows
        if len(before) != len(rows) or len(self.strips) != len(rows) or self.strips[0].cell_length != width:
            self._rows, self.strips = rows, [self._strip(row, width) for row in rows]
            self.refresh()
            return
        changed = [y for y, (old, new) in enumerate(zip(before, rows)) if old != new]
        self._rows = rows
        for y in changed:
            self.strips[y] = self._strip(rows[y], width)
            self.refresh(Region(0, y, width, 1))

    def on_resize(self, _event: events.Resize) -> None:
        """Another size: all rows are composed anew."""
        self._resized()

    def render_line(self, y: int) -> Strip:
        """A row, as Textual asks for it."""
        return self.strips[y] if y < len(self.strips) else Strip.blank(self.size.width)

    def _strip(self, row: AnyRow, width: int) -> Strip:
        segments = [Segment(text, rich_style(style, self._palette)) for text, style in row]
        return Strip(segments).adjust_cell_length(width)


@lru_cache(maxsize=2048)
def rich_style(style: Union[Style, Look], palette: Palette) -> RichStyle:
    """A style of ours, or a look of the script's output, in rich's words; colours only where there are to be some."""
    if isinstance(style, Style):
        return RichStyle.parse(palette.spelled(style))
    has_colours = palette.colours != "none"
    return RichStyle(
        color=_colour(style.fore) if has_colours else None,
        bgcolor=_colour(style.back) if has_colours else None,
        bold=style.bold or None,
        dim=style.dim or None,
        italic=style.italic or None,
        underline=style.underline or None,
        reverse=style.reverse or None,
        strike=style.strike or None,
    )


def _colour(name: str) -> Optional[str]:
    return None if not name else name if name.startswith("#") else f"color({name})"


class RunApp(App[None]):
    """The full screen of one run.

    Args:
        run: The run.
        palette: What the terminal can show.
        is_ascii: Whether it can show blocks and braille.
        bring_home: Recovers what a crash left of a run, once, when it is over without a summary.
    """

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(keys, action, priority=True)  # else Textual's own screen takes tab and others first
        for keys, action in (
            ("q,ctrl+c,ctrl+q", "quit"),
            ("space", "pause"),
            ("left", "earlier"),
            ("right", "later"),
            ("r", "page('ranks')"),
            ("l", "page('layers')"),
            ("s", "page('system')"),
            ("o", "page('output')"),
            ("question_mark,h,f1", "page('help')"),
            ("w", "whole"),
            ("escape", "first_page"),
            ("up,k", "scroll(1)"),
            ("down,j", "scroll(-1)"),
            ("pageup", "scroll_page(1)"),
            ("pagedown", "scroll_page(-1)"),
            ("home", "scroll_end(True)"),
            ("end", "scroll_end(False)"),
            ("tab", "other_rank"),
        )
    ]

    def __init__(
        self,
        run: Run,
        *,
        palette: Palette = Palette(),  # noqa: B008  # frozen
        is_ascii: bool = False,
        bring_home: Callable[[Run], object] = lambda _run: None,
    ) -> None:
        super().__init__(ansi_color=True)
        self._run, self._palette = run, palette
        self._watch_of_run = Watch(run, bring_home=bring_home)
        self._asked = Asked()
        self._is_looking = self._is_paused = False
        self._gap_s = TICK_S
        self._steps: Optional[Window] = None
        self._latest: Optional[Scene] = None
        self._sight = Sight(
            Scene(self._asked, trouble="Reading the run ...", taken_s=time.monotonic()),
            run.name,
            Moment(),
            Follower(run),
            is_ascii=is_ascii,
        )

    @property
    def scene(self) -> Scene:
        """What is shown."""
        return self._sight.scene

    def compose(self) -> ComposeResult:
        """One widget draws everything."""
        yield Canvas(self._palette, self._draw)

    def on_mount(self) -> None:
        """Begins to look, once a second."""
        theme = "ansi-light" if self._palette.background == "light" else "ansi-dark"
        if theme in self.available_themes:
            self.theme = theme
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGHUP):  # leaves the terminal as it was
            with suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
                loop.add_signal_handler(signum, self.exit)
        self.set_interval(TICK_S, self._tick)
        self.call_after_refresh(self._tick)

    def action_page(self, page: str) -> None:
        """Another page; the same key again: back to the first one."""
        if page in sights.NEEDS and sights.NEEDS[page] not in self._sight.has:
            return
        self._sight = replace(self._sight, page=sights.MAIN if self._sight.page == page else page)
        self._draw()

    def action_first_page(self) -> None:
        """The first page, as it is now."""
        self._is_paused = False
        self._sight = replace(self._sight, page=sights.MAIN, back=0)
        self._ask(replace(self._asked, window=None, is_whole=False))

    def action_pause(self) -> None:
        """Holds everything, or goes on."""
        self._is_paused = not self._is_paused
        self._tick()
        self._draw()

    def action_whole(self) -> None:
        """Curves of the whole run, or of its last steps."""
        self._ask(replace(self._asked, is_whole=not self._asked.is_whole))

    def action_earlier(self) -> None:
        """A stretch further back."""
        found = self._stretches()
        if not found:
            return
        now = self._asked.window
        earlier = [window for window in found if now is None or window[0] < now[0]]
        if earlier:
            self._ask(replace(self._asked, window=earlier[-1]))

    def action_later(self) -> None:
        """A stretch further on; behind the last one is the present."""
        now = self._asked.window
        if now is None:
            return
        later = [window for window in self._stretches() if window[0] > now[0]]
        self._ask(replace(self._asked, window=later[0] if later else None))

    def action_scroll(self, num_lines: int) -> None:
        """Scrolls the output back by lines."""
        output, height = self._sight.output, self._output_height()
        if output is None or not height:
            return
        self._sight = replace(self._sight, back=min(max(0, self._sight.back + num_lines), output.most_back(height)))
        self._draw()

    def action_scroll_page(self, num_pages: int) -> None:
        """Scrolls the output back by pages."""
        self.action_scroll(num_pages * max(1, self._output_height() - 1))

    def action_scroll_end(self, is_oldest: bool) -> None:  # Textual's actions take positions
        """To the oldest line of the output that is kept, or to the newest."""
        output = self._sight.output
        self.action_scroll((1 if is_oldest else -1) * (output.num_lines if output is not None else 0))

    def action_other_rank(self) -> None:
        """The output of the next rank that has one."""
        ranks, output = self._run.ranks_with_output, self._sight.output
        if output is None or len(ranks) < 2:  # noqa: PLR2004  # another one
            return
        later = [rank for rank in ranks if rank > output.rank]
        other = Follower(self._run, later[0] if later else ranks[0])
        other.poll()
        self._sight = replace(self._sight, output=other, back=0, num_outputs=len(ranks))
        self._draw()

    def _ask(self, asked: Asked) -> None:
        self._asked = asked
        self._is_paused = False
        self._tick()
        self._draw()

    def _stretches(self) -> list[Window]:
        """The run in tenths, from its first step to its last one."""
        run = self._sight.scene.report.run if self._sight.scene.report is not None else None
        if self._sight.scene.window is None and run is not None and run.first_step and run.last_step:
            self._steps = (run.first_step, run.last_step)  # a stretch's report knows only its own
        if self._steps is None:
            return []
        first, last = self._steps
        size = max(_LEAST_STRETCH, -(-(last - first + 1) // _NUM_STRETCHES))
        starts = range(first, last + 1, size)
        return [(start, min(last, start + size - 1)) for start in starts]

    def _tick(self) -> None:
        is_new = False
        if not self._is_paused:
            is_new = any([self._count_outputs(), self._follow(), self._take()])
            self._look()
        # What stands still costs nothing, but its age goes on.
        if is_new or head.age_s(self._sight.scene, self._moment()) is not None:
            self._draw()

    def _follow(self) -> bool:
        """Takes in what the script has printed; whether it was anything."""
        output = self._sight.output
        num_before = output.num_lines if output is not None else 0
        if output is None or not output.poll():
            return False
        if self._sight.back:  # who has scrolled back keeps the same lines before the eyes
            self._sight = replace(self._sight, back=self._sight.back + output.num_lines - num_before)
        return True

    def _count_outputs(self) -> bool:
        """Ranks begin to print one after the other; whether there are more now."""
        report, before = self._sight.scene.report, self._sight.num_outputs
        if report is None or before >= report.run.world_size:
            return False
        self._sight = replace(self._sight, num_outputs=len(self._run.ranks_with_output))
        return self._sight.num_outputs != before

    def _take(self) -> bool:
        """Takes the newest scene, unless the person holds the one before; whether there was one."""
        latest, before = self._latest, self._sight.scene
        if latest is None or latest is before or self._is_paused:
            return False
        self._gap_s = max(TICK_S, latest.taken_s - before.taken_s) if latest.asked == before.asked else TICK_S
        self._sight = replace(self._sight, scene=latest)
        return True

    def _look(self) -> None:
        num_points = max(LAST_STEPS, _CELLS_A_POINT * self.size.width)
        asked = replace(self._asked, num_points=num_points)
        watch = self._watch_of_run
        if self._is_looking:
            return
        if watch.is_due(asked):
            self._work(lambda: watch.look(asked))
        elif watch.may_glance(asked):
            self._work(watch.glance)

    def _work(self, look: Callable[[], Scene]) -> None:
        self._is_looking = True
        self.run_worker(lambda: self._see(look), thread=True, exit_on_error=True)

    def _see(self, look: Callable[[], Scene]) -> None:
        """In a thread: a long run's report takes a moment."""
        scene = look()
        if self.is_running and not get_current_worker().is_cancelled:
            self.call_from_thread(self._seen, scene)

    def _seen(self, scene: Scene) -> None:
        self._is_looking, self._latest = False, scene
        self._take()
        self._look()  # something else may have been asked for meanwhile
        self._draw()

    def _draw(self) -> None:
        canvas = self.query_one(Canvas)
        width, height = canvas.size
        if not width or not height:
            return
        self._sight = replace(self._sight, moment=self._moment())
        canvas.put(screen(self._sight, width, height))

    def _moment(self) -> Moment:
        return Moment(time.monotonic(), self._gap_s, self._is_paused)

    def _output_height(self) -> int:
        canvas = self.query_one(Canvas)
        return sights.output_height(self._sight, *canvas.size)


def show(
    run: Run, *, palette: Palette, is_ascii: bool = False, bring_home: Callable[[Run], object] = lambda _run: None
) -> None:
    """Shows a run until the person closes it; the training does not notice.

    Args:
        run: The run, finished or going on.
        palette: What the terminal can show.
        is_ascii: Whether it cannot show blocks and braille.
        bring_home: Recovers a run that is over without a summary.
    """
    errors = sys.__stderr__
    vars(sys)["__stderr__"] = sys.__stdout__  # Textual draws there, and `2>file` is no reason not to
    try:
        RunApp(run, palette=palette, is_ascii=is_ascii, bring_home=bring_home).run(mouse=False)
    finally:
        vars(sys)["__stderr__"] = errors
