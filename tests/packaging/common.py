"""What the tests of this folder share: flags, programs, servers that are gone at the end."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
# For machines under load; nothing takes nearly as long.
PATIENCE_SECONDS = 120


def flag(name):
    """Returns the value of a flag of the command line."""
    return sys.argv[sys.argv.index(f"--{name}") + 1]


def free_port():
    """Returns a free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(**more):
    """Returns the environment without settings of handfast, and with others."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HANDFAST_")}
    return {**kept, **{name: str(value) for name, value in more.items()}}


def run(*command, status=0, **options):
    """Runs a program to its end, and returns what it has printed."""
    options.setdefault("env", environment())
    command = [str(part) for part in command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL, **options)
    assert done.returncode == status, f"{' '.join(command)}: exit code {done.returncode}, not {status}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def succeeds(*command):
    """Returns whether a program ends with the exit code 0."""
    command = [str(part) for part in command]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL, env=environment())
    return done.returncode == 0


def until(what, condition):
    """Waits for a condition, and returns its value."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"it does not come about that {what}"
        time.sleep(0.05)


def get(url):
    """Returns the body of a page."""
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        return answer.read().decode()


@contextlib.contextmanager
def scratch():
    """A directory that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="handfast-packaging-") as name:
        yield pathlib.Path(name)


@contextlib.contextmanager
def running(command, log, stop_status=0, stop_signal=signal.SIGTERM, **options):
    """A server, with its output in the file `log`. At the end it is stopped, and must exit with `stop_status` unless that is None."""
    options.setdefault("env", environment())
    with open(log, "wb") as output:
        command = [str(part) for part in command]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **options)
    try:
        yield process
        assert process.poll() is None, f"{command} has ended:\n{log.read_text()}"
        process.send_signal(stop_signal)
        status = process.wait(timeout=PATIENCE_SECONDS)
        assert stop_status is None or status == stop_status, f"{command}: exit code {status}\n{log.read_text()}"
    finally:
        process.kill()
        process.wait()


def wait_until_ready(process, log):
    """Waits for the line `ready`, and returns the line before it, which has the addresses."""
    def lines():
        assert process.poll() is None, f"the server has ended:\n{log.read_text()}"
        printed = log.read_text().splitlines()
        return printed if "ready" in printed else None

    return next(line for line in until("the server is ready", lines) if "listens on" in line)


def port_of(line):
    """Returns the first port of a line with addresses."""
    return int(re.search(r"127\.0\.0\.1:(\d+)", line)[1])
