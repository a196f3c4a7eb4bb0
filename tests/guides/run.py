"""Runs the task guides of docs/guides as a reader does who pastes their blocks one after the other: run.py --handfast PROGRAM [PAGE..].

- A block whose first line is a comment with the name of a file (`# app.py`, `// app.mjs`) is saved as that file, in the directory of the page.
- A block of `sh` is run. If its last command is a server, it runs in the background until the end, or until `<!-- stop the server -->`.
- A block of `text` or `json` is what the block of `sh` before it prints; `..` stands for anything.
- A block whose first line in the page has the word `ignore` (```sh ignore) is left out, and the page must be in NOT_RUN, or run other blocks.

Each page has a network of its own, so that it can use the ports that it names.
"""

import concurrent.futures
import fcntl
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("HANDFAST_TEST_TOOLS", ROOT / "target/test-tools"))
GUIDES = ROOT / "docs/guides"
PATIENCE_SECONDS = 120
# Pages at a time.
PAGES_MAX = 3
# Pages without a block that can be run here, and where their commands are tested.
NOT_RUN = {
    "behind-systemd.md": "there is no systemd; tests/packaging/systemd.py",
    "containers.md": "there is no registry; tests/packaging/image.py and compose.py",
}
SERVERS = re.compile(r"^(HANDFAST_\w+=\S+ )*handfast (serve|counters serve|blackpipe proxy|blackpipe play)\b")
STOP = "<!-- stop the server -->"
# What the pages assume is installed.
PROGRAMS = ("bash", "curl")


def blocks(text):
    """Returns the blocks of a page: its language, whether it is ignored, its lines; and the comments that stop servers."""
    found, block = [], None
    for line in text.splitlines():
        if block is not None:
            if line == "```":
                found.append(block)
                block = None
            else:
                block[2].append(line)
        elif line.startswith("```"):
            words = line[3:].split()
            block = (words[0], "ignore" in words[1:], [])
        elif line == STOP:
            found.append(("stop", False, []))
    assert block is None, "a block without an end"
    return found


def file_of(lines):
    """Returns the name of the file that a block is to be saved as."""
    match = re.fullmatch(r"(?:#|//) ([\w.-]+\.\w+)", lines[0]) if lines else None
    return match and match[1]


class Page:
    """A page that is run in a directory."""

    def __init__(self, path, program, directory):
        self.path, self.directory, self.servers, self.count = path, directory, [], 0
        programs = directory / "programs"
        programs.mkdir()
        (programs / "handfast").symlink_to(program)
        self.work = directory / "work"
        self.work.mkdir()
        (self.work / "node_modules").symlink_to(ROOT / "tests/clients/node/node_modules")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HANDFAST_") and name != "MONGODB_URI"}
        self.environment = {**kept, "PATH": f"{programs}:{TOOLS / 'venv/bin'}:{os.environ['PATH']}", "HOME": str(self.work)}

    def run(self):
        printed = None
        for language, ignored, lines in blocks(self.path.read_text()):
            if language == "stop":
                self.stop()
            elif ignored:
                printed = None
            elif file_of(lines):
                (self.work / file_of(lines)).write_text("\n".join(lines) + "\n")
            elif language == "sh":
                self.count += 1
                printed = self.start(lines) if SERVERS.match(lines[-1]) else self.shell(lines)
            elif language in ("text", "json"):
                assert printed is not None, f"nothing prints {lines}"
                self.compare(lines, printed)
                printed = None
            else:
                raise AssertionError(f"a block of {language} without the name of a file")
        self.stop()
        assert self.count > 0, "no block was run: name the page in NOT_RUN"

    def shell(self, lines):
        """Runs commands, and returns what they print. A command may fail, as the exit code of `handfast` is often 3 on purpose; a program in Python may not."""
        done = subprocess.run(
            ["bash", "-c", "\n".join(lines)], cwd=self.work, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=PATIENCE_SECONDS,
        )
        assert "Traceback" not in done.stdout and done.returncode in (0, 3), f"{lines}: exit code {done.returncode}\n{done.stdout}"
        return done.stdout

    def start(self, lines):
        """Starts a server, waits until it is ready, and returns what it has printed."""
        log = self.directory / f"log-{len(self.servers)}-{self.count}"
        with open(log, "wb") as output:
            command = "\n".join([*lines[:-1], f"exec {lines[-1]}" if not lines[-1].startswith("HANDFAST_") else f"exec env {lines[-1]}"])
            server = subprocess.Popen(
                ["bash", "-c", command], cwd=self.work, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        self.servers.append((server, log))
        end = time.monotonic() + PATIENCE_SECONDS
        while "ready\n" not in log.read_text():
            assert server.poll() is None and time.monotonic() < end, f"{lines} did not start:\n{log.read_text()}"
            time.sleep(0.02)
        return log.read_text()

    def stop(self):
        """Stops the servers, as Ctrl-C does."""
        while self.servers:
            server, log = self.servers.pop()
            assert server.poll() is None, f"the server has ended:\n{log.read_text()}"
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=PATIENCE_SECONDS) == 0, f"the server ended with {server.returncode}:\n{log.read_text()}"

    def close(self):
        for server, _ in self.servers:
            server.kill()
            server.wait()

    @staticmethod
    def compare(lines, printed):
        expected = "\n".join(lines)
        pattern = r".*?".join(re.escape(part) for part in expected.split(".."))
        assert re.fullmatch(pattern, printed.strip(), re.DOTALL), f"the page says\n{expected}\nand it prints\n{printed}"


def run_page(path, program):
    """Runs a page in this process, whose network is its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        # SIOCSIFFLAGS, IFF_UP | IFF_RUNNING: the loopback interface of a new network is down.
        fcntl.ioctl(control, 0x8914, struct.pack("16sH14s", b"lo", 0x41, b""))
    with tempfile.TemporaryDirectory(prefix="handfast-guide-") as name:
        page = Page(path, program, Path(name))
        try:
            page.run()
        finally:
            page.close()
    print(f"{path.name}: {page.count} blocks of commands")


def check(path, program):
    """Runs a page in a new process with a network of its own, and returns its output, and whether it succeeded."""
    command = ["unshare", "-rn", sys.executable, __file__, "--handfast", program, "--here", path.name]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode == 0, done.stdout


def main():
    program = str(Path(sys.argv[sys.argv.index("--handfast") + 1]).resolve())
    names = sys.argv[sys.argv.index("--handfast") + 2 :]
    if names[:1] == ["--here"]:
        return run_page(GUIDES / names[1], program)
    for needed in PROGRAMS:
        assert shutil.which(needed), f"{needed} is not installed"
    # The page that takes longest begins first.
    pages = [GUIDES / name for name in names] or sorted(GUIDES.glob("*.md"), key=lambda page: (page.name != "test-a-bad-network.md", page.name))
    unknown = set(NOT_RUN) - {page.name for page in GUIDES.glob("*.md")}
    assert not unknown, f"NOT_RUN names {unknown}"
    pages = [page for page in pages if page.name not in NOT_RUN]
    with concurrent.futures.ThreadPoolExecutor(PAGES_MAX) as pool:
        results = list(pool.map(lambda page: check(page, program), pages))
    for page, (good, printed) in zip(pages, results):
        print(printed if good else f"== {page.name} ==\n{printed}", end="")
    sys.exit(0 if all(good for good, _ in results) else 1)


if __name__ == "__main__":
    main()
