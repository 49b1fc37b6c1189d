"""Ctrl-C and other signals: during a call they end what it runs, and then this process as without the package."""

import os
import signal
import subprocess
import sys
import time

import pytest

DONE = {
    "stat": 'cs.stat(["true"])',
    "run": 'cs.run(["true"])',
    "top": 'list(cs.top(["true"], events="task_clock"))',
    "count": 'cs.count("task_clock").__enter__().__exit__()',
    "threads": 'cs.threads(["sleep", "0.{n}"], trials=1, seconds=0.1)',
}

RUNNING = {
    "stat": "cs.stat(program)",
    "stat-no-more": "cs.stat(program, seconds=0.01)",
    "run": "cs.run(program)",
    "top": 'list(cs.top(program, events="task_clock", interval_ms=50))',
    "threads": "cs.threads(program)",
}


@pytest.mark.parametrize("call", DONE)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_end_the_interpreter_after_a_call(call, number):
    program = f"""
import os, signal, time
import countersteer as cs

signal.signal({number}, signal.SIG_DFL)
{DONE[call]}
os.kill(os.getpid(), {number})
time.sleep(60)
"""
    ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL, timeout=60)
    assert ended.returncode == -number


def signalled(call, number, tmp_path, last="exec sleep 600"):
    """Exit code and output of a process that gets a signal during a call, and the process that the call has started."""
    started = tmp_path / "started"
    program = f"""
import signal
import countersteer as cs

program = ["sh", "-c", "echo $$ > $0; : {{n}}; {last}", {str(started)!r}]
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
try:
    {RUNNING[call]}
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + 30
            while not (started.exists() and started.read_text().endswith("\n")):
                assert time.monotonic() < until and process.poll() is None
                time.sleep(0.02)
            process.send_signal(number)
            output, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    return process.returncode, output, int(started.read_text())


@pytest.mark.parametrize("call", RUNNING)
def test_ctrl_c_ends_a_call_with_its_program(call, tmp_path):
    code, output, pid = signalled(call, signal.SIGINT, tmp_path)
    assert (code, output) == (0, "interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("call", ["stat", "run", "top", "threads"])
def test_ctrl_c_ends_a_shell_with_the_command_that_it_waits_for(call, tmp_path):
    code, output, _ = signalled(call, signal.SIGINT, tmp_path, "sleep 600; sleep 600")
    assert (code, output) == (0, "interrupted\n")


@pytest.mark.parametrize("call", ["stat", "run", "top", "threads"])
def test_a_request_to_end_ends_a_call_with_its_program_and_then_the_interpreter(call, tmp_path):
    code, output, pid = signalled(call, signal.SIGTERM, tmp_path)
    assert (code, output) == (-signal.SIGTERM, "")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_ctrl_c_releases_a_running_process(tmp_path):
    with subprocess.Popen(["sleep", "600"]) as steered:
        program = f"""
import os, signal, threading
import countersteer as cs

signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    cs.run(pid={steered.pid})
except KeyboardInterrupt:
    print("interrupted")
"""
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
        alive = steered.poll() is None
        steered.kill()
    assert ended.stdout == "interrupted\n" and alive, ended
