"""Waits in each Python process of a run for `import torch`, and is otherwise not there: Python imports it at its start.

`traceml run` puts this folder first on PYTHONPATH. What follows hides it from the script, then runs the sitecustomize
that would have run without us. No annotations, and nothing but sys and os: a job's older Pythons read this file, too,
and one that keeps no bytecode compiles it each time.
"""

import os
import sys

_HERE = os.path.dirname(__file__)


class _Waiting:
    """A finder that finds nothing. It is gone as soon as torch has been imported."""

    def find_spec(self, name, path=None, target=None):
        """Hands on what the finders behind this one say; torch's spec tells when it has been loaded."""
        if name != "torch":
            self.look()
            return None
        at = sys.meta_path.index(self) if self in sys.meta_path else len(sys.meta_path)
        for finder in sys.meta_path[at + 1 :]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.__class__ = _watched(type(spec), self.look)
                return spec
        return None

    def look(self):
        """Prepares the recording once torch is complete."""
        torch = sys.modules.get("torch")
        if torch is None or getattr(getattr(torch, "__spec__", None), "_initializing", False):
            return
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            _prepare()


def _watched(kind, arrived):
    """A spec's class that notices the end of loading, then takes itself off.

    A wrapped loader would stand in `torch.__loader__`, and in the traceback of an import that fails.
    """

    class ModuleSpec(kind):
        def __setattr__(self, name, value):
            kind.__setattr__(self, name, value)
            if name == "_initializing" and not value:
                self.__class__ = kind
                arrived()

    ModuleSpec.__module__, ModuleSpec.__qualname__ = kind.__module__, kind.__qualname__
    return ModuleSpec


def _prepare():
    try:
        from importlib.util import module_from_spec, spec_from_file_location

        spec = spec_from_file_location("arrival", os.path.join(_HERE, "arrival.py"))
        arrival = module_from_spec(spec)
        spec.loader.exec_module(arrival)
        arrival.prepare()
    except Exception as error:  # noqa: BLE001  # guard: the training goes on, whatever is wrong with us
        if sys.stderr is not None:
            sys.stderr.write("TraceML: this process is not recorded: %s: %s\n" % (type(error).__name__, error))


def _leave_terminal(folder):
    """Below the panel there is one rank's output: that of each other goes into a file of its own.

    Only what is a terminal is turned away: whatever torchrun, or a parent that reads it, was asked to do, is done.
    """
    try:
        terminals = [fd for fd in (1, 2) if os.isatty(fd)]
        if terminals:
            name = "rank-%d.log" % int(os.environ.get("RANK", os.environ["LOCAL_RANK"]))
            log = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            for fd in terminals:
                os.dup2(log, fd)
            os.close(log)
    except (OSError, ValueError):
        pass  # then it shares the terminal, as without us


# PYTHONPATH itself stays as it is: by it the children are reached.
sys.path[:] = [entry for entry in sys.path if entry != _HERE]
sys.path_importer_cache.pop(_HERE, None)
if os.environ.get("TRACEML_RUN") and sys.version_info >= (3, 9):
    sys.meta_path.insert(0, _Waiting())
if os.environ.get("TRACEML_RUN") and os.environ.get("TRACEML_ONE_RANK") and os.environ.get("LOCAL_RANK", "0") != "0":
    _leave_terminal(os.environ["TRACEML_RUN"])
# What stands in sys.modules afterwards, what it raises, and the ImportError where there is none, are the user's own.
del sys.modules["sitecustomize"]
import sitecustomize
