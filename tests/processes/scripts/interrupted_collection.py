"""Gets a signal while the garbage collector works, and says what became of it: how = interrupt | handler | exit."""

import gc
import os
import signal
import sys
import threading
import time

import traceml


class HandlerError(Exception):
    """What the handler raises."""


def raises(*_: object) -> None:
    raise HandlerError("from the handler")


def exits(*_: object) -> None:
    sys.exit(9)


def send() -> None:
    time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)


how = sys.argv[1]
traceml.init()
if how != "interrupt":
    signal.signal(signal.SIGINT, raises if how == "handler" else exits)
junk = [[number] for number in range(1_500_000)]
try:
    with traceml.trace_step():
        for _ in range(20):
            thread = threading.Thread(target=send)
            thread.start()
            gc.collect()
            thread.join()
    print("never")
except KeyboardInterrupt:
    print("interrupted")
except HandlerError as error:
    print(f"handled: {error}")
