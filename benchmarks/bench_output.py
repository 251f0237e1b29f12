"""Measures what a line of a script's output costs the full screen: coloured lines, and the frames of a progress bar."""

from __future__ import annotations

import time

from rows import figure

from traceml.views.terminal.lines import Transcript

NUM = 10_000
ROUNDS = 5
CHUNK = 1 << 16


def main() -> None:
    """Prints microseconds a line and a frame, over five rounds."""
    line = "\x1b[32mINFO\x1b[0m step {0} loss=\x1b[1m{1:.4f}\x1b[0m lr=1e-3\r\n"
    lines = "".join(line.format(n, 1 / (n + 1)) for n in range(NUM)).encode()
    bar = "\repoch 0: {0:3d}%|{1:<40}| {2}/400 [00:03<00:04, 49.41it/s]"
    frames = [bar.format(n % 100, "█" * (n % 40), n).encode() for n in range(NUM)]
    print("a coloured line ", figure([_us(_cut(lines)) for _ in range(ROUNDS)]).text("us", signed=False))
    print("a frame of a bar", figure([_us(frames) for _ in range(ROUNDS)]).text("us", signed=False))


def _cut(data: bytes) -> list[bytes]:
    return [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]


def _us(pieces: list[bytes]) -> float:
    transcript, start = Transcript(), time.process_time()
    for piece in pieces:
        transcript.feed(piece)
    return (time.process_time() - start) / NUM * 1e6


if __name__ == "__main__":
    main()
