"""The unit for systemd: systemd.py --handfast PROGRAM --strace PROGRAM."""

import os
import re
import shutil
import signal
import socket
from pathlib import Path

from common import PATIENCE_SECONDS, ROOT, environment, flag, port_of, run, running, scratch, wait_until_ready

UNIT = ROOT / "packaging/systemd/handfast.service"
SETTINGS = ROOT / "packaging/systemd/handfast.env"
USERS = ROOT / "packaging/systemd/handfast.sysusers"
# Ten times the figure that `systemd-analyze security` prints: 0 is a service that can do nothing, 100 one without any limit.
EXPOSURE_MAX = 15
PROGRAM = "/usr/local/bin/handfast"
# The user `nobody`, which every Debian has.
NOBODY = 65534


def values(key):
    """Returns the values of a key of the unit."""
    return re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE)


def check_unit(directory, program):
    """systemd accepts the unit, and a service of it can do little."""
    unit = directory / UNIT.name
    # Where the test runs, the program is elsewhere.
    unit.write_text(UNIT.read_text().replace(PROGRAM, str(program)))
    printed = run("systemd-analyze", "verify", "--man=no", unit)
    assert printed == "", printed
    run("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", unit)

    # Both checks see mistakes.
    unit.write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSystem=often"))
    assert "often" in run("systemd-analyze", "verify", "--man=no", unit)
    unit.write_text(re.sub(r"^(NoNew|Protect|Private|Restrict|Capability|SystemCall).*\n", "", unit.read_text(), flags=re.MULTILINE))
    run("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", unit, status=1)


def check_user(directory):
    """The file for systemd-sysusers makes the user of the unit."""
    root = directory / "root"
    (root / "etc").mkdir(parents=True)
    run("systemd-sysusers", f"--root={root}", USERS)
    [user] = values("User")
    assert any(line.startswith(f"{user}:") for line in (root / "etc/passwd").read_text().splitlines())


def settings(chosen):
    """Returns the settings of the file for the environment. `chosen` tells which of those that are comments count."""
    found = {}
    for line in SETTINGS.read_text().splitlines():
        match = re.fullmatch(r"(#?)(HANDFAST_[A-Z_]+)=(.*)", line)
        if match and (not match[1] or chosen(match[2])):
            found[match[2]] = match[3]
    return found


def check_settings(program, directory):
    """Each variable of the file is a setting with a valid value."""
    alternatives = "HANDFAST_STORE", "HANDFAST_BACKUP_DIRECTORY"
    for left_out in alternatives:
        chosen = settings(lambda name: name != left_out)
        shown = run(program, "config", env=environment(**chosen), cwd=directory)
        for name in chosen:
            assert f"from environment {name}" in shown or f"environment {name}" in shown, f"{name} has no effect:\n{shown}"


def allowed_calls():
    """Returns the system calls that the unit's filter allows."""
    allowed = set()
    for text in values("SystemCallFilter"):
        for group in text.lstrip("~").split():
            calls = calls_of(group)
            allowed = allowed - calls if text.startswith("~") else allowed | calls
    # What systemd always allows.
    return allowed | calls_of("@default")


def calls_of(group):
    listed = run("systemd-analyze", "syscall-filter", "--no-pager", group)
    found = set()
    for line in listed.splitlines()[1:]:
        name = line.strip()
        if name.startswith("@"):
            found |= calls_of(name)
        elif name and not name.startswith("#"):
            found.add(name)
    return found


def limits():
    """Takes the limits of the unit for the process that starts next: its files, and, for root, a user without rights."""
    import resource

    [files] = values("LimitNOFILE")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = int(files) if hard == resource.RLIM_INFINITY else min(int(files), hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
    os.umask(0o077)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def check_service(program, strace, directory):
    """The server runs as a service of the unit does, reports its states, and makes no system call that the filter refuses."""
    import pymongo

    state = directory / "state"
    state.mkdir()
    state.chmod(0o777)
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(state / "notify"))
    os.chmod(state / "notify", 0o777)
    manager.settimeout(PATIENCE_SECONDS)
    [command] = values("ExecStart")
    assert command.startswith(f"{PROGRAM} ")
    calls, log = state / "calls", directory / "log"
    traced = [strace, "-f", "-qq", "-e", "signal=none", "-e", "trace=all", "-o", calls, program, *command.split()[1:]]
    chosen = settings(lambda name: name in ("HANDFAST_HTTP", "HANDFAST_BACKUP_DIRECTORY"))
    chosen |= {"HANDFAST_LISTEN": "127.0.0.1:0", "HANDFAST_HTTP": "127.0.0.1:0", "HANDFAST_BACKUP_DIRECTORY": state / "backups"}
    options = {"cwd": state, "env": environment(NOTIFY_SOCKET=state / "notify", **chosen), "preexec_fn": limits, "start_new_session": True}
    with running(traced, log, stop_status=None, **options) as process:
        assert manager.recv(64) == b"READY=1"
        start = wait_until_ready(process, log)
        uri = f"mongodb://127.0.0.1:{port_of(start)}"
        with pymongo.MongoClient(uri) as client, client.start_session() as session:
            client.shop.orders.create_index("customer")
            for number in range(20):
                session.with_transaction(lambda s: client.shop.orders.insert_one({"_id": number, "customer": "ann"}, session=s))
            client.admin.command("handfastBackup", "monday")
            client.drop_database("shop")
            run(program, "ping", "--uri", uri, "--timeout", "1m")
        # strace passes no signal on.
        [server] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(server), signal.SIGTERM)
        assert manager.recv(64) == b"STOPPING=1"
        status = process.wait(timeout=PATIENCE_SECONDS)
        assert status == 0, f"exit code {status}:\n{log.read_text()}"
        # The caller expects a process that it can stop.
        process.poll = lambda: None
    made = set(re.findall(r"^\d+ +([a-z0-9_]+)\(", calls.read_text(), re.MULTILINE))
    assert {"fdatasync", "epoll_wait", "sendto", "rename"} & made and len(made) > 30, made
    # strace starts the program; the filter applies from then on.
    refused = made - allowed_calls() - {"execve"}
    assert not refused, f"the filter refuses {refused}"
    modes = {path.name: oct(path.stat().st_mode & 0o077) for path in state.glob("handfast-data*")}
    assert set(modes.values()) == {"0o0"}, modes
    return allowed_calls()


with scratch() as directory:
    directory.chmod(0o755)
    program = directory / "handfast"
    shutil.copy(flag("handfast"), program)
    check_unit(directory, program)
    check_user(directory)
    check_settings(program, directory)
    allowed = check_service(program, flag("strace"), directory)
    assert "mount" not in allowed and "reboot" not in allowed and "setpriority" not in allowed
    # More than the time that commands get to finish, or systemd would kill the server first.
    shown = run(program, "config", cwd=directory)
    [grace], [stop] = re.findall(r'^shutdown-timeout = "(\d+)s"', shown, re.MULTILINE), values("TimeoutStopSec")
    assert int(stop.rstrip("s")) > 2 * int(grace), (grace, stop)
