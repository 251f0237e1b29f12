"""Checks on a real GPU that times are true: periods, exposed input, run-ahead, copies."""

from __future__ import annotations

from tests.gpu.training import Training, calibrated, recorded, rest_and_phases, steps_wall_ms, untraced


def phases_add_up() -> str:
    """The device's periods are divided whole, and are the host's over many steps."""
    training = Training()
    training.every = 1
    training.run(5, untraced)
    with recorded() as found:
        training.run(60)
    steps = list(found[0].times.steps())[5:]
    device_ms, host_ms = sum(sum(step.values()) for step in steps), steps_wall_ms(found[0])
    assert len(steps) >= 50, f"only {len(steps)} of 60 steps have device times"
    assert abs(device_ms / host_ms - 1) < 0.02, f"device {device_ms:.2f} ms, host {host_ms:.2f} ms"
    names = rest_and_phases(found[0])
    assert {"input", "h2d", "forward", "backward", "optimizer"} <= set(names), names
    return f"{len(steps)} steps: device {device_ms:.1f} ms, host {host_ms:.1f} ms"


def input_is_0_while_work_is_queued() -> str:
    """A loader of 2 ms behind a device that is busy longer is not exposed; behind one that is idle it is."""
    busy = calibrated(20, sleep_s=0.002)
    busy.run(3, untraced)
    with recorded() as found:
        busy.run(30)
    hidden = found[0].share("input")
    idle = Training(depth=2, width=256, rows=64, sleep_s=0.02)
    with recorded() as found:
        idle.run(40)
    exposed_ms = found[0].mean_ms("input")
    assert hidden < 0.02, f"input is {100 * hidden:.1f} % of a device that never waits"
    assert 15 < exposed_ms < 40, f"{exposed_ms:.1f} ms exposed of a sleep of 20 ms"
    return f"{100 * hidden:.2f} % hidden; {exposed_ms:.1f} ms of 20 ms exposed"


def run_ahead_is_bounded() -> str:
    """Polls bound the offset of the two clocks where the device is idle; where it is behind they say so."""
    idle = Training(depth=8, width=64, rows=16)
    idle.copies = False
    idle.run(5, untraced)
    with recorded() as found:
        idle.run(200)
    lowest, highest = found[0].offset_ms()
    busy = calibrated(20)
    with recorded() as behind:
        busy.run(30)
    pending = [is_done for _, _, is_done in behind[0].times.polls].count(False)
    assert -0.01 < highest - lowest < 0.2, f"the offset lies between {lowest:.3f} and {highest:.3f} ms"
    assert pending > len(behind[0].times.polls) / 2, f"{pending} of {len(behind[0].times.polls)} polls pending"
    return f"offset known within {1e3 * (highest - lowest):.0f} us; {pending} of {len(behind[0].times.polls)} pending"


def copies_are_h2d() -> str:
    """64 MB from pageable and from pinned memory."""
    told = []
    for pin in (False, True):
        training = Training(depth=1, width=4096, rows=4096, pin=pin)
        training.run(3, untraced)
        with recorded() as found:
            training.run(20)
        h2d_ms = found[0].mean_ms("h2d")
        assert h2d_ms > 0.3, f"{h2d_ms:.3f} ms for 64 MB"
        told.append(f"{'pinned' if pin else 'pageable'} {h2d_ms:.2f} ms")
    return ", ".join(told)
