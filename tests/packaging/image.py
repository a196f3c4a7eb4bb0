"""The image of the Dockerfile, which is built without a registry: image.py --handfast PROGRAM.

In the place of the stage that compiles is an image with the program that the test has, and in the place of the base image one with the libraries that
this program names. So the stage itself does not run here; its context is checked by what cargo says about it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from common import ROOT, environment, flag, free_port, run, running, scratch, until, wait_until_ready

DOCKERFILE = ROOT / "Dockerfile"
USER = "65532"


class Buildah:
    """buildah with images of its own in a directory. It changes root instead of starting containers, which a sandbox may not allow."""

    def __init__(self, directory):
        self.command = ["buildah", "--root", directory / "images", "--runroot", directory / "run", "--storage-driver", "vfs"]

    def __call__(self, *arguments, **options):
        return run(*self.command, *arguments, **options)

    def started(self, image, command, **variables):
        """Returns the command that runs a command in a new container of an image."""
        container = self("from", "--pull-never", image).strip()
        given = [argument for name, value in variables.items() for argument in ("--env", f"{name}={value}")]
        return [*self.command, "run", "--isolation", "chroot", *given, container, "--", *command]

    def image_of(self, name, files):
        """Makes an image of files, by their paths in it."""
        container = self("from", "scratch").strip()
        mounted = Path(self("mount", container).strip())
        for path, source in files.items():
            target = mounted / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if source is None:
                target.mkdir()
            else:
                shutil.copy(source, target)
        self("umount", container)
        self("commit", "--quiet", container, name)


def libraries(program):
    """Returns the libraries of a program, with the loader."""
    return {path: path for path in re.findall(r"(/\S+) \(0x", run("ldd", program))}


def check_versions():
    """The toolchain is that of the repository, and both images are of one version of Debian."""
    text = DOCKERFILE.read_text()
    [channel] = re.findall(r'^channel = "(\d+\.\d+)\.\d+"$', (ROOT / "rust-toolchain.toml").read_text(), re.MULTILINE)
    assert f"/rust:{channel}-bookworm\n" in text and "/cc-debian12:nonroot\n" in text, text


def check_context(buildah, directory):
    """The context has what cargo needs, and no more."""
    dockerfile = directory / "Dockerfile"
    dockerfile.write_text("FROM scratch\nCOPY . /source\n")
    buildah("bud", "--quiet", "--ignorefile", ROOT / ".dockerignore", "--file", dockerfile, "--tag", "context", ROOT)
    container = buildah("from", "--pull-never", "localhost/context").strip()
    source = Path(buildah("mount", container).strip()) / "source"
    names = {entry.name for entry in source.iterdir()}
    assert names == {"Cargo.toml", "Cargo.lock", "README.md", "crates", "fuzz"}, names
    tracked = run("git", "-C", ROOT, "ls-files", "crates").split("\n")
    missing = [path for path in tracked if path and (ROOT / path).exists() and not (source / path).exists()]
    assert not missing, f"the context lacks {missing}"
    run("cargo", "metadata", "--locked", "--offline", "--no-deps", "--format-version", "1", cwd=source)
    buildah("umount", container)


def check_image(buildah, directory):
    """The image runs as no root and keeps its data in its volume; its health check sees a server that is ready and one that is gone."""
    settings = json.loads(buildah("inspect", "--type", "image", "localhost/handfast"))["Docker"]["config"]
    assert settings["User"] == f"{USER}:{USER}" and settings["WorkingDir"] == "/data" and "/data" in settings["Volumes"], settings
    assert settings["ExposedPorts"] == {"27017/tcp": {}}, settings
    kind, *health = settings["Healthcheck"]["Test"]
    assert kind == "CMD", "there is no shell for it"
    command = [*settings["Entrypoint"], *settings["Cmd"]]

    refused = run(*buildah.started("localhost/handfast", command), status=2)
    assert "0.0.0.0:27017 is not a loopback address" in refused and "--auth" in refused, refused

    port, log = free_port(), directory / "log"
    serve = buildah.started("localhost/handfast", command, HANDFAST_LISTEN=f"127.0.0.1:{port}")
    inside = [*serve[: serve.index("--")], "--"]
    address = {"HANDFAST_URI": f"mongodb://127.0.0.1:{port}"}
    ask = [*inside[:-2], *(f"--env={name}={value}" for name, value in address.items()), *inside[-2:], *health]
    run(*ask, "--timeout", "200ms", status=1)
    with running(serve, log, stop_status=None) as process:
        assert "data in /data/handfast-data" in wait_until_ready(process, log)
        run(*ask, "--timeout", "1m")
        # The program is the first process of a container; here it is a child of the changed root.
        found = subprocess.run(["pgrep", "--full", f"^{' '.join(command)}$"], capture_output=True, text=True, check=False).stdout.split()
        owned = [number for number in found if f"HANDFAST_LISTEN=127.0.0.1:{port}".encode() in Path(f"/proc/{number}/environ").read_bytes()]
        [server] = owned
        assert re.search(rf"^Uid:\t{USER}\t{USER}", Path(f"/proc/{server}/status").read_text(), re.MULTILINE)
        os.kill(int(server), 15)
        until("the server has stopped", lambda: process.poll() is not None)
        assert process.returncode == 0 and log.read_text().endswith("stopped\n"), log.read_text()
        process.poll = lambda: None
    run(*ask, "--timeout", "200ms", status=1)


if os.geteuid() != 0:
    why = "changing the root of a process needs the user root"
    sys.exit(why) if os.environ.get("CI") == "true" else print(f"skipped: {why}", file=sys.stderr)
    sys.exit()

with scratch() as directory:
    program = directory / "handfast"
    # Names of functions are a part of the program that the image does not need.
    run("strip", "-o", program, flag("handfast"))
    buildah = Buildah(directory)
    check_versions()
    check_context(buildah, directory)
    buildah.image_of("base", libraries(program))
    buildah.image_of("program", {"/out/handfast": program, "/out/data": None})
    images = ["--build-arg", "BASE_IMAGE=localhost/base", "--build-arg", "PROGRAM=localhost/program"]
    buildah("bud", "--quiet", "--pull-never", "--format", "docker", "--isolation", "chroot", *images, "--tag", "handfast", ROOT)
    check_image(buildah, directory)
