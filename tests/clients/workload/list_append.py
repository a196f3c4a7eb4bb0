"""Lists that are appended to by transactions of many threads, through pymongo; what they saw goes into a file for
`handfast check history`.

    list_append.py SEED COMMITTED FILE [WORD]

Plans come from the seed; which thread is first does not. Some WORDs make this client do what it does not say, and the judges must
find something:

    lost-append       some appends that are reported as done are not sent
    kills             no lie: sessions and cursors are killed meanwhile, and so many kills must have hit
    forgotten-commit  with kills; a commit that was cut is taken for one that never was, as by a server that forgets the session
    short-scan        with kills; a cursor that was killed is taken for one that is at its end, as by a server that does not tell
"""

import itertools
import json
import os
import random
import sys
import threading

import pymongo
from kills import Scanner, SessionKiller, is_killed
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

THREADS = 8
# Keys in use at a time; after so many appends to a key the window moves past it.
KEYS = 8
WRITES_PER_KEY = 16
COMMITS_MAX = 10
LEFT_OUT_ONE_IN = 40
WORDS = (None, "lost-append", "kills", "forgotten-commit", "short-scan")
# With kills: it goes on until so many commits were cut, and so many scans cut and not; but not for ever.
KILLS_MIN = {"commits cut": 20, "scans cut": 10, "scans whole": 10}
COMMITTED_MAX_PER_MIN = 4
# The time for an answer, even on a busy machine.
ANSWER_MILLISECONDS_MAX = 180_000


class Recorder:
    """Writes events to a file, one a line, in the order in which they happen."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8")
        self.lock = threading.Lock()
        self.transactions = itertools.count()
        self.write({
            "type": "info", "f": "history", "process": "recorder",
            "model": "list-append", "isolation": "snapshot", "order": "real-time",
        })

    def write(self, event):
        with self.lock:
            self.file.write(json.dumps(event) + "\n")

    def begin(self, process, planned):
        with self.lock:
            number = next(self.transactions)
        self.write({"type": "invoke", "f": "txn", "process": process, "txn": number, "value": planned})
        return number

    def end(self, kind, process, number, done, error=None):
        event = {"type": kind, "f": "txn", "process": process, "txn": number, "value": done}
        self.write(event | ({"error": str(error)} if error else {}))


class Run:
    def __init__(self, client, recorder, committed_min, word, killer, scanner):
        self.client = client
        self.keys = client.workload.keys
        self.recorder = recorder
        self.committed_min = committed_min
        self.leaves_out = word == "lost-append"
        self.forgets = word == "forgotten-commit"
        self.killer = killer
        self.scanner = scanner
        self.lock = threading.Lock()
        self.values = 0
        self.committed = 0
        self.errors = []

    def value(self):
        with self.lock:
            self.values += 1
            return self.values

    def plan(self, chance):
        first = self.values // WRITES_PER_KEY
        steps = []
        for _ in range(chance.randint(1, 4)):
            key = first + chance.randrange(KEYS)
            steps.append(["r", key, None] if chance.random() < 0.5 else ["append", key, self.value()])
        return steps

    def step(self, session, step):
        kind, key, value = step
        if kind == "r":
            found = self.keys.find_one({"_id": key}, session=session)
            return ["r", key, found["list"] if found else []]
        if not (self.leaves_out and value % LEFT_OUT_ONE_IN == 0):
            self.keys.update_one({"_id": key}, {"$push": {"list": value}}, upsert=True, session=session)
        return step

    def commit(self, session):
        """Commits and returns the outcome (ok, fail, or info if it is unknown) and the error, if it did not commit."""
        unknown = None
        for _ in range(COMMITS_MAX):
            try:
                self.commit_once(session)
                return "ok", None
            except PyMongoError as error:
                if error.has_error_label("TransientTransactionError") or (self.forgets and is_killed(error)):
                    return "fail", error
                if not error.has_error_label("UnknownTransactionCommitResult"):
                    raise
                unknown = error
        return "info", unknown

    def commit_once(self, session):
        error = None
        if self.killer:
            self.killer.commits(session)
        try:
            session.commit_transaction()
        except PyMongoError as failure:
            error = failure
            raise
        finally:
            if self.killer:
                self.killer.committed(session, error)

    def carry_out(self, process, steps):
        """Runs a transaction, and returns whether it has certainly committed."""
        number = self.recorder.begin(process, steps)
        done = []
        with self.client.start_session() as session:
            if self.killer:
                self.killer.begins(session)
            try:
                session.start_transaction(read_concern=ReadConcern("snapshot"))
                for step in steps:
                    done.append(step if step[0] == "append" else None)
                    done[-1] = self.step(session, step)
                ending, error = self.commit(session)
            except PyMongoError as refusal:
                done = [step for step in done if step]
                is_cut = self.killer and is_killed(refusal)
                if not (refusal.has_error_label("TransientTransactionError") or is_cut):
                    self.recorder.end("info", process, number, done, refusal)
                    raise
                ending, error = "fail", refusal
            finally:
                if self.killer:
                    self.killer.ends(session)
        self.recorder.end(ending, process, number, done, error)
        return ending == "ok"

    def too_few(self):
        """Returns the counts that are too small for the run to prove anything."""
        if not self.killer:
            return {}
        met = {"commits cut": self.killer.commits_cut, "scans cut": self.scanner.cut, "scans whole": self.scanner.whole}
        return {name: count for name, count in met.items() if count < KILLS_MIN[name]}

    def goes_on(self):
        if self.errors or self.committed >= self.committed_min * COMMITTED_MAX_PER_MIN:
            return False
        return self.committed < self.committed_min or bool(self.too_few())

    def work(self, process, chance):
        try:
            while self.goes_on():
                if self.carry_out(process, self.plan(chance)):
                    with self.lock:
                        self.committed += 1
        except Exception as error:  # the main thread tells it
            self.errors.append(error)


def main(seed, committed, path, word=None):
    if word not in WORDS:
        sys.exit(f"'{word}' is none of {WORDS}")
    recorder = Recorder(path)
    kills = word in WORDS[2:]
    with pymongo.MongoClient(os.environ["MONGODB_URI"], socketTimeoutMS=ANSWER_MILLISECONDS_MAX) as client:
        client.drop_database("workload")
        client.workload.create_collection("keys")
        killer = SessionKiller(client, random.Random(f"{seed} killer")) if kills else None
        scanner = Scanner(client, recorder, THREADS + 1, random.Random(f"{seed} scanner"), word == "short-scan") if kills else None
        run = Run(client, recorder, int(committed), word, killer, scanner)
        threads = [
            threading.Thread(target=run.work, args=(number, random.Random(f"{seed} {number}")))
            for number in range(1, THREADS + 1)
        ]
        others = [other for other in (killer, scanner) if other]
        if scanner:
            scanner.fill(run.value)
        beside = [threading.Thread(target=other.run) for other in others]
        for thread in threads + beside:
            thread.start()
        for thread in threads:
            thread.join()
        for other in others:
            other.stopped = True
        for thread in beside:
            thread.join()
        for errors in [run.errors, *(other.errors for other in others)]:
            if errors:
                raise errors[0]
        # All keys are read once more.
        last = run.values // WRITES_PER_KEY + KEYS
        if not run.carry_out(0, [["r", key, None] for key in range(last)]):
            sys.exit("the last read failed although nobody else was there")
        client.drop_database("workload")
    recorder.file.close()
    print(f"pymongo list-append seed {seed}: {run.committed} committed")
    if kills:
        print(f"{killer.killed} sessions killed, {killer.commits_cut} commits cut; {scanner.cut} scans cut, {scanner.whole} whole")
    if too_few := run.too_few():
        sys.exit(f"too few kills hit for this run to show anything: {too_few}")


if __name__ == "__main__":
    main(*sys.argv[1:])
