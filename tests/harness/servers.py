"""Servers as the tests start them: a process each, on a free loopback port, in a directory of its own, gone afterwards.

The programs that nobody here wrote are put in place by `scripts/install-test-tools`; `Missing` says which one is not there.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pymongo

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = pathlib.Path(os.environ.get("HANDFAST_TEST_TOOLS", ROOT / "target" / "test-tools"))
START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 10


class Missing(Exception):
    """A program that a test needs is not installed."""


def free_port():
    """Returns a free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """One server program; `start`, use `uri`, `stop`. `restart` keeps the port and begins with an empty directory."""

    name = "?"

    def __init__(self):
        self.process = None
        self.directory = None
        self.port = None

    def command(self):
        raise NotImplementedError

    @property
    def uri(self):
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true"

    def start(self):
        self.port = free_port()
        self.directory = tempfile.mkdtemp(prefix=f"handfast-{self.name}-")
        return self._start()

    def _start(self):
        self.log = open(pathlib.Path(self.directory) / "log.txt", "a+b")
        self.process = subprocess.Popen(
            self.command(), stdout=self.log, stderr=subprocess.STDOUT, cwd=self.directory, start_new_session=True
        )
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(pymongo.errors.PyMongoError):
                with pymongo.MongoClient(self.uri, serverSelectionTimeoutMS=500, socketTimeoutMS=2000) as client:
                    client.admin.command("ping")
                return self
            time.sleep(0.05)
        text = self.log_tail()
        self.stop()
        raise RuntimeError(f"{self.name} did not start: {text}")

    def log_tail(self):
        self.log.flush()
        return (pathlib.Path(self.directory) / "log.txt").read_text(errors="replace")[-2000:]

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def stop(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
            self.log.close()
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = None

    def kill_and_start_again(self):
        """Kills the server and starts a new process on the same port and directory."""
        self.process.kill()
        self.process.wait()
        self.log.close()
        return self._start()

    def restart(self):
        self.stop()
        return self.start()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


class Handfast(Server):
    """Handfast; HANDFAST_BINARY names the program, which is otherwise the one that cargo built."""

    name = "handfast"

    def __init__(self, binary=None, arguments=()):
        super().__init__()
        self.binary = pathlib.Path(binary or os.environ.get("HANDFAST_BINARY", ROOT / "target" / "debug" / "handfast")).resolve()
        self.arguments = list(arguments)

    def command(self):
        if not self.binary.exists():
            raise Missing(f"{self.binary}: build it with `cargo build -p handfast-cli`")
        data = str(pathlib.Path(self.directory) / "data")
        return [str(self.binary), "serve", "--listen", f"127.0.0.1:{self.port}", "--data", data, *self.arguments]


class FerretDB(Server):
    """FerretDB v1 with SQLite."""

    name = "ferretdb"

    def command(self):
        program = TOOLS / "ferretdb"
        if not program.exists():
            raise Missing(f"{program}: run scripts/install-test-tools")
        return [str(program), f"127.0.0.1:{self.port}", self.directory]


class SecantusDB(Server):
    """SecantusDB."""

    name = "secantusdb"

    def command(self):
        program = TOOLS / "venv" / "bin" / "secantusd-py"
        if not program.exists():
            raise Missing(f"{program}: run scripts/install-test-tools")
        return [str(program), "--host", "127.0.0.1", "--port", str(self.port), "--storage-path", "data", "--log-level", "ERROR"]


class MongoDB(Server):
    """A running MongoDB, which HANDFAST_TEST_MONGODB_URI names."""

    name = "mongodb"

    def __init__(self):
        super().__init__()
        if not os.environ.get("HANDFAST_TEST_MONGODB_URI"):
            raise Missing("HANDFAST_TEST_MONGODB_URI is not set")

    @property
    def uri(self):
        return os.environ["HANDFAST_TEST_MONGODB_URI"]

    def start(self):
        return self

    def alive(self):
        return True

    def stop(self):
        pass


ALL = {server.name: server for server in (Handfast, FerretDB, SecantusDB, MongoDB)}


def main():
    """`python servers.py NAME PROGRAM ARGUMENTS`: runs a program with the address of a fresh server in MONGODB_URI."""
    with ALL[sys.argv[1]]() as server:
        environment = dict(os.environ, MONGODB_URI=server.uri)
        result = subprocess.run(sys.argv[2:], env=environment).returncode
        if result and not server.alive():
            print(f"{server.name} died:", server.log_tail(), file=sys.stderr)
    return result


if __name__ == "__main__":
    sys.exit(main())
