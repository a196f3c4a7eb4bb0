"""A throw-away MongoDB-compatible server with transactions, for tests."""

import os
import re
import subprocess
import threading
from importlib import resources

__all__ = ["Server", "ServerError", "program"]

_TIME_MAX_SECONDS = 60


class ServerError(Exception):
    """The server did not start; the message says why."""


def program() -> str:
    """Returns the path of the program: that of the variable HANDFAST_PROGRAM, or the one of this package."""
    return os.environ.get("HANDFAST_PROGRAM") or str(resources.files(__package__) / "bin" / "handfast")


class Server:
    """A server in a process of its own. It has started when it is constructed.

    Its data is in a temporary directory, which is removed when it stops: by `stop`, at the end of a `with` block, or when this program ends, also by a signal.

    `arguments` are further arguments of `handfast serve`, such as `"--http", "127.0.0.1:0"`.
    """

    def __init__(self, *arguments: str) -> None:
        command = [program(), "serve", "--temporary", "--listen", "127.0.0.1:0", *arguments]
        # Each line of the output is flushed. Its input ends with this process, and the server with its input.
        # In a session of its own, a Ctrl-C for this process does not stop it before the tests have ended.
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._process = subprocess.Popen(command, **pipes, text=True, start_new_session=True)
        timer = threading.Timer(_TIME_MAX_SECONDS, self._process.kill)
        timer.start()
        try:
            first, second = self._process.stdout.readline(), self._process.stdout.readline()
        finally:
            timer.cancel()
        if second.strip() != "ready":
            _, errors = self._process.communicate()
            raise ServerError(errors.strip() or f"the server has not become ready: {first.strip()}")
        # What it says later must not fill the pipes.
        for pipe in (self._process.stdout, self._process.stderr):
            threading.Thread(target=_drop, args=(pipe,), daemon=True).start()
        #: The first line that the server has printed, with all of its addresses.
        self.start_line = first.strip()
        self._address = first.split("listens on ", 1)[1].split()[0].rstrip(",")

    @property
    def address(self) -> str:
        """The address, `HOST:PORT`."""
        return self._address

    @property
    def uri(self) -> str:
        """The connection string for drivers."""
        return f"mongodb://{self._address}/?directConnection=true"

    @property
    def http_url(self) -> str | None:
        """The URL of its HTTP API, if it was started with `"--http", "127.0.0.1:0"`."""
        found = re.search(r"http://[^ ,]+", self.start_line)
        return found.group() if found else None

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    def stop(self) -> None:
        """Stops the server, and removes its data. Once it has stopped, nothing happens."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        # A child of this process may have the other end of the pipe, too.
        self._process.terminate()
        try:
            self._process.wait(_TIME_MAX_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()


def _drop(pipe) -> None:
    for _line in pipe:
        pass
