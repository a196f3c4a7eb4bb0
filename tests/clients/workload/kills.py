"""Kills sessions and cursors of other clients at random moments.

    SessionKiller   killSessions of one of those that announce themselves, most often of one that commits
    Scanner         reads many documents in batches, again and again, while the cursor is killed

Both count what they met: a run in which nobody was in anybody's way shows nothing.
"""

import threading
import time

from pymongo.errors import OperationFailure

INTERRUPTED = 11601
NO_SUCH_SESSION = 206
CURSOR_NOT_FOUND = 43
CURSOR_KILLED = 237
# Between two kills, on average; and how long after a commit or a getMore was begun it is killed, at most.
PAUSE_SECONDS = 0.02
INTO_COMMIT_SECONDS_MAX = 0.003
# How long a commit takes at least, so that it can be killed and asked for again before it is settled. The server is told.
COMMIT_PAUSE_MS = 10
INTO_GET_MORE_SECONDS_MAX = 0.01
# Of so many kills, one hits any session; the others hit sessions that commit.
UNAIMED_ONE_IN = 4

# What is scanned: keys below those of the workload, of a size that makes a batch take a while.
PAGES = 120
PAGES_PER_BATCH = 40
PAGE_BYTES = 30_000


def is_killed(error):
    """Returns whether a request of a transaction failed because its session was killed, which has no effect."""
    return isinstance(error, OperationFailure) and error.code in (INTERRUPTED, NO_SUCH_SESSION)


class SessionKiller:
    """Kills sessions until it is stopped."""

    def __init__(self, client, chance):
        self.admin = client.admin
        self.chance = chance
        self.lock = threading.Lock()
        self.open = {}
        self.committing = {}
        self.changed = threading.Condition(self.lock)
        self.stopped = False
        self.killed = 0
        # The number of commits that were answered by "interrupted".
        self.commits_cut = 0
        self.errors = []

    def begins(self, session):
        with self.lock:
            self.open[id(session)] = session.session_id

    def commits(self, session):
        with self.lock:
            self.committing[id(session)] = session.session_id
            self.changed.notify()

    def committed(self, session, error):
        with self.lock:
            self.committing.pop(id(session), None)
            if is_killed(error):
                self.commits_cut += 1

    def ends(self, session):
        with self.lock:
            self.open.pop(id(session), None)

    def slow_down(self, mode):
        """Slows down the commits of the server ("alwaysOn") or stops that ("off")."""
        self.admin.command("configureFailPoint", "pauseBeforeCommit", mode=mode, data={"blockTimeMS": COMMIT_PAUSE_MS})

    def run(self):
        self.slow_down("alwaysOn")
        try:
            while not self.stopped:
                time.sleep(self.chance.random() * 2 * PAUSE_SECONDS)
                victim = self.victim()
                if victim is not None:
                    self.admin.command("killSessions", [victim])
                    self.killed += 1
        except Exception as error:  # the main thread tells it
            self.errors.append(error)
        finally:
            self.slow_down("off")

    def victim(self):
        if self.chance.randrange(UNAIMED_ONE_IN) == 0:
            with self.lock:
                return self.chance.choice(sorted(self.open.values(), key=str)) if self.open else None
        with self.lock:
            if not self.committing:
                self.changed.wait(PAUSE_SECONDS)
            victims = sorted(self.committing.values(), key=str)
        time.sleep(self.chance.random() * INTO_COMMIT_SECONDS_MAX)
        return self.chance.choice(victims) if victims else None


class Scanner:
    """Scans until it is stopped; each scan is a transaction that reads all pages, in the recorder's history."""

    def __init__(self, client, recorder, process, chance, reads_short):
        self.pages = client.workload.pages
        self.recorder = recorder
        self.process = process
        self.chance = chance
        # The lie: a killed cursor counts as one at its end.
        self.reads_short = reads_short
        self.stopped = False
        self.whole = 0
        self.cut = 0
        self.errors = []

    def fill(self, value):
        """Writes the pages, each a list with one value: one transaction."""
        steps = [["append", -1 - page, value()] for page in range(PAGES)]
        number = self.recorder.begin(self.process, steps)
        padding = "x" * PAGE_BYTES
        self.pages.insert_many({"_id": key, "list": [value], "padding": padding} for _, key, value in steps)
        self.recorder.end("ok", self.process, number, steps)

    def run(self):
        try:
            while not self.stopped:
                self.scan()
        except Exception as error:  # the main thread tells it
            self.errors.append(error)

    def scan(self):
        number = self.recorder.begin(self.process, [])
        found, error = {}, None
        try:
            with self.pages.find({}, batch_size=PAGES_PER_BATCH) as cursor:
                for page in cursor:
                    found[page["_id"]] = page["list"]
                    if len(found) % PAGES_PER_BATCH == 0 and cursor.alive:
                        self.kill_soon(cursor.cursor_id)
        except OperationFailure as failure:
            # The driver lends the id of a session that has ended to the next cursor: the killer may have chosen it just before.
            if failure.code not in (CURSOR_KILLED, CURSOR_NOT_FOUND) and not is_killed(failure):
                raise
            error = failure
        if error is not None and error.code == CURSOR_KILLED:
            self.cut += 1
            if self.reads_short:
                error = None
        if error is not None:
            self.recorder.end("fail", self.process, number, [], error)
            return
        self.whole += 1
        seen = [["r", -1 - page, found.get(-1 - page, [])] for page in range(PAGES)]
        self.recorder.end("ok", self.process, number, seen)

    def kill_soon(self, cursor):
        """Kills the cursor while its next batch is being fetched, or after it, in half of all cases."""
        if self.chance.randrange(2) == 0:
            return
        pause = self.chance.random() * INTO_GET_MORE_SECONDS_MAX

        def kill():
            time.sleep(pause)
            self.pages.database.command("killCursors", "pages", cursors=[cursor])

        threading.Thread(target=kill, daemon=True).start()
