"""Builds the packages for Python and npm and the archive, installs them into fresh environments, and uses them: packages.py --handfast PROGRAM --node NODE."""

import os
import shutil
import signal
import site
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 120

PYTEST = '''
import handfast
import pytest
from pymongo import MongoClient


def test_transaction(handfast_uri):
    with MongoClient(handfast_uri) as client, client.start_session() as session:
        with session.start_transaction():
            client.shop.orders.insert_one({"_id": 1}, session=session)
            client.shop.stock.update_one({"_id": "tea"}, {"$inc": {"left": -1}}, upsert=True, session=session)
        assert client.shop.orders.count_documents({}) == 1


def test_own_server(handfast_uri):
    with handfast.Server("--http", "127.0.0.1:0") as server:
        assert server.uri != handfast_uri and server.http_url.startswith("http://127.0.0.1:")
        with MongoClient(server.uri) as client:
            assert client.shop.orders.count_documents({}) == 0
    server.stop()


def test_wrong_argument():
    with pytest.raises(handfast.ServerError, match="--nonsense"):
        handfast.Server("--nonsense")
'''

# Ends as a program does that the system kills.
KILLED = "import handfast, os, signal; server = handfast.Server(); print(server.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"

NODE = '''
const assert = require("node:assert/strict");
const { MongoMemoryReplSet } = require("handfast");
const mongoose = require("mongoose");

(async () => {
  const server = await MongoMemoryReplSet.create({ replSet: { count: 1 } });
  await mongoose.connect(server.getUri("shop"));
  const Order = mongoose.model("Order", { amount: Number });
  await mongoose.connection.transaction(async (session) => { await Order.create([{ amount: 5 }], { session }); });
  assert.equal(await Order.countDocuments(), 1);
  await assert.rejects(mongoose.connection.transaction(async (session) => {
    await Order.create([{ amount: 6 }], { session });
    throw new Error("no");
  }));
  assert.equal(await Order.countDocuments(), 1);
  await mongoose.disconnect();
  await server.stop();
  await server.stop();
  await assert.rejects(MongoMemoryReplSet.create({ args: ["--nonsense"] }), /--nonsense/);
  await assert.rejects(MongoMemoryReplSet.create({ port: 1 }), /there is no option port/);
  await assert.rejects(MongoMemoryReplSet.create({ replSet: { auth: true } }), /auth cannot be enabled/);
  assert.throws(() => new MongoMemoryReplSet(), /create\(\)/);
  const other = await MongoMemoryReplSet.create();
  console.log(other.pid);
  if (process.argv[2] === "killed") process.kill(process.pid, "SIGKILL");
  // The server does not keep the process, and ends with it.
})();
'''


def flag(name):
    return sys.argv[sys.argv.index(f"--{name}") + 1]


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=PATIENCE_SECONDS, **options)
    assert done.returncode in (0, -signal.SIGKILL), f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def until(what, condition):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"it does not come about that {what}"
        time.sleep(0.02)


def check_share(prefix, what, man="share/man/man1", completions="share"):
    """Checks the manual pages and the completions below the prefix of an installation."""
    pages = {page.name: page.read_text() for page in (prefix / man).iterdir()}
    assert {"handfast.1", "handfast-serve.1", "handfast-counters-serve.1"} <= set(pages), f"{what}: {sorted(pages)}"
    assert all(page.startswith('.ie \\n(.g') and ".TH handfast" in page for page in pages.values()), f"{what}: {pages['handfast.1'][:200]}"
    bash = prefix / completions / "bash-completion/completions/handfast"
    line = "COMP_WORDS=(handfast serv); COMP_CWORD=1; _handfast handfast serv handfast; echo ${COMPREPLY[*]}"
    assert run("bash", "-c", f"source '{bash}'; {line}") == "serve\n", what
    assert (prefix / completions / "zsh/site-functions/_handfast").read_text().startswith("#compdef handfast\n"), what
    assert "complete -c handfast" in (prefix / completions / "fish/vendor_completions.d/handfast.fish").read_text(), what


def check_archive(archive, directory):
    """Checks what the archive has below /usr/local."""
    with tarfile.open(archive) as opened:
        assert all(member.uid == member.gid == 0 for member in opened)
        opened.extractall(directory, filter="data")
    check_share(directory, archive.name)
    assert run(directory / "bin/handfast", "--version") == "handfast 0.1.0\n"
    unit = (directory / "lib/systemd/system/handfast.service").read_text()
    assert unit == (ROOT / "packaging/systemd/handfast.service").read_text()
    assert (directory / "lib/sysusers.d/handfast.conf").is_file() and (directory / "share/doc/handfast/handfast.env").is_file()


def is_alive(process):
    """Whether a process runs; one that has ended may wait for its parent."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except FileNotFoundError:
        return False


with tempfile.TemporaryDirectory(prefix="handfast-packages-") as name:
    directory = Path(name)
    program = directory / "handfast"
    # Names of functions are a part of the program that a package of a test does not need.
    run("strip", "-o", program, flag("handfast"))
    # The one of the same environment, or that of the machine.
    npm = Path(sys.executable).parent / "npm"
    npm = npm if npm.exists() else shutil.which("npm")
    environment = {**os.environ, "PYTHON": sys.executable, "NPM": str(npm), "PATH": f"{Path(flag('node')).parent}:{os.environ['PATH']}"}
    environment.pop("HANDFAST_PROGRAM", None)
    run(ROOT / "scripts/build-packages", program, directory / "built", env=environment)
    [wheel], [archive], [tree] = ((directory / "built").glob(f"*{suffix}") for suffix in (".whl", ".tgz", ".tar.gz"))
    check_archive(tree, directory / "local")
    assert wheel.name.startswith("handfast-0.1.0-py3-none-linux_"), wheel

    # What the servers leave would be here.
    temporary = directory / "temporary"
    temporary.mkdir()
    watched = {**environment, "TMPDIR": str(temporary)}

    venv.create(directory / "python", with_pip=True)
    python = directory / "python/bin/python"
    run(python, "-m", "pip", "install", "--quiet", "--no-index", wheel, env=environment)
    check_share(directory / "python", "the wheel")
    # pymongo and pytest, of the environment that runs this.
    [packages] = (directory / "python").glob("lib/python*/site-packages")
    (packages / "tools.pth").write_text("\n".join(site.getsitepackages()))
    (directory / "test_orders.py").write_text(PYTEST)
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", directory / "test_orders.py", env=watched, cwd=directory)
    killed = [run(python, "-c", KILLED, env=watched)]

    project = directory / "node"
    project.mkdir()
    (project / "package.json").write_text('{"name": "orders", "private": true}')
    run(npm, "install", "--offline", "--no-audit", "--no-fund", archive, env=environment, cwd=project)
    # npm links manual pages of programs for all users only.
    run(npm, "install", "--offline", "--no-audit", "--no-fund", "--global", "--prefix", directory / "global", archive, env=environment)
    installed = directory / "global/lib/node_modules/handfast"
    assert (directory / "global/share/man/man1/handfast-serve.1").resolve() == (installed / "man/handfast-serve.1").resolve()
    check_share(installed, "the npm package", man="man")
    (project / "orders.js").write_text(NODE)
    watched["NODE_PATH"] = str(ROOT / "tests/clients/node/node_modules")
    killed += [run(flag("node"), "orders.js", *more, env=watched, cwd=project) for more in ((), ("killed",))]

    for process in killed:
        until(f"the server {process.strip()} has ended", lambda: not is_alive(int(process)))
    left = list(temporary.iterdir())
    assert left == [], f"the servers have left {left}"
