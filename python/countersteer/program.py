"""``steer`` from Python: the command itself, and a policy on real threads.

The extension has all of ``steer`` inside. A program of one's own becomes a ``steer`` that knows its policies as well::

    if __name__ == "__main__":
        sys.exit(cs.steer())          # python mine.py run -P quiet-first -- ./program
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path

from . import _countersteer
from ._countersteer import CountersteerError, Record

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_OWN = [sys.executable, "-m", "countersteer"]


def steer(words: Sequence[str] | None = None) -> int:
    """Runs ``steer`` with these arguments, those of this process by default; its exit code. Ctrl-C is the command's from then on."""
    script: str | None = getattr(sys.modules["__main__"], "__file__", None)
    own = _OWN
    if script is not None and Path(script).name not in ("__main__.py", "steer"):
        own = [sys.executable, os.path.abspath(script)]
    _countersteer.give_own(own, _FOLDER)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _countersteer.main(["steer", *(sys.argv[1:] if words is None else words)])


def ask(*words: str | PathLike[str]) -> str:
    """What a command of ``steer`` prints, run as a process of its own, so that Ctrl-C ends it; an error says what it said."""
    done = subprocess.run([*_OWN, *(fspath(word) for word in words)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise CountersteerError(done.stderr.strip() or f"steer {words[0]} ended with {done.returncode}")
    return done.stdout


class Run:
    """What came of programs that ran under a policy."""

    def __init__(self, summary: dict, record: Record | None):
        self.summary = summary
        self.record = record

    @property
    def dropped(self) -> str | None:
        """Why the policy was dropped, if it was; Linux's own scheduler went on."""
        return self.summary["dropped"]

    def __repr__(self) -> str:
        programs = ", ".join(f"{one['name']}: {one['elapsed_s'] or 0:.2f} s" for one in self.summary["programs"])
        return f"Run({programs}; {self.summary['decisions']} decisions)"


def run(
    command: Sequence[str] | PathLike[str] | str,
    policy: str | type = "linux",
    *,
    period_ms: float = 100,
    seconds: float | None = None,
    engine: str = "affinity",
    seed: int = 1,
    dry_run: bool = False,
    record: str | PathLike[str] | None = None,
) -> Run:
    """Runs a program of this machine under a policy until it ends, or for so many seconds.

    ``command``: the program with its arguments, or the path of a workload's file. ``record``: the folder of a record, which
    ``read_record`` reads. A policy that raises, hangs or answers nonsense is dropped, and the program runs on: ``run.dropped`` has
    the traceback.
    """
    from . import _name

    _countersteer.give_own(_OWN, _FOLDER)
    whom = ["-w", fspath(command)] if isinstance(command, (str, PathLike)) else ["--", *command]
    with tempfile.TemporaryDirectory() as scratch:
        summary = Path(scratch, "summary.json")
        words = ["steer", "run", "-P", _name(policy), "--engine", engine, "-i", f"{period_ms}ms", "--seed", str(seed)]
        words += ["--summary", str(summary)]
        words += ["--duration", f"{seconds}s"] if seconds else []
        words += ["--dry-run"] if dry_run else []
        words += ["-o", fspath(record)] if record else []
        _countersteer.call([*words, *whom])
        found = json.loads(summary.read_text())
    return Run(found, _countersteer.read_record(record) if record else None)
