"""Lists that are appended to by transactions of many threads, through pymongo; what they saw goes into a file for
`handfast check history`.

    list_append.py SEED COMMITTED FILE [LIE]

Plans come from the seed; which thread is first does not. With LIE = lost-append some appends that are reported as done are
not sent: then the judges must find something.
"""

import itertools
import json
import os
import random
import sys
import threading

import pymongo
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

THREADS = 8
# Keys in use at a time; after so many appends to a key the window moves past it.
KEYS = 8
WRITES_PER_KEY = 16
COMMITS_MAX = 10
LEFT_OUT_ONE_IN = 40


class Recorder:
    """One event a line, in the order in which they happen."""

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
    def __init__(self, client, recorder, committed_min, lies):
        self.client = client
        self.keys = client.workload.keys
        self.recorder = recorder
        self.committed_min = committed_min
        self.lies = lies
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
        if not (self.lies and value % LEFT_OUT_ONE_IN == 0):
            self.keys.update_one({"_id": key}, {"$push": {"list": value}}, upsert=True, session=session)
        return step

    def commit(self, session):
        """Whether it has committed; None if nobody knows."""
        for _ in range(COMMITS_MAX):
            try:
                session.commit_transaction()
                return True
            except PyMongoError as error:
                if error.has_error_label("TransientTransactionError"):
                    return False
                if not error.has_error_label("UnknownTransactionCommitResult"):
                    raise
        return None

    def carry_out(self, process, steps):
        """Whether the transaction has committed for certain."""
        number = self.recorder.begin(process, steps)
        done = []
        with self.client.start_session() as session:
            try:
                session.start_transaction(read_concern=ReadConcern("snapshot"))
                for step in steps:
                    done.append(step if step[0] == "append" else None)
                    done[-1] = self.step(session, step)
                committed = self.commit(session)
            except PyMongoError as error:
                done = [step for step in done if step]
                if not error.has_error_label("TransientTransactionError"):
                    self.recorder.end("info", process, number, done, error)
                    raise
                self.recorder.end("fail", process, number, done, error)
                return False
        self.recorder.end({True: "ok", False: "fail", None: "info"}[committed], process, number, done)
        return committed is True

    def work(self, process, chance):
        try:
            while self.committed < self.committed_min and not self.errors:
                if self.carry_out(process, self.plan(chance)):
                    with self.lock:
                        self.committed += 1
        except Exception as error:  # the main thread tells it
            self.errors.append(error)


def main(seed, committed, path, lie=None):
    if lie not in (None, "lost-append"):
        sys.exit(f"no lie '{lie}'")
    recorder = Recorder(path)
    with pymongo.MongoClient(os.environ["MONGODB_URI"]) as client:
        client.drop_database("workload")
        client.workload.create_collection("keys")
        run = Run(client, recorder, int(committed), lie is not None)
        threads = [
            threading.Thread(target=run.work, args=(number, random.Random(f"{seed} {number}")))
            for number in range(1, THREADS + 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if run.errors:
            raise run.errors[0]
        # Every key once more.
        last = run.values // WRITES_PER_KEY + KEYS
        if not run.carry_out(0, [["r", key, None] for key in range(last)]):
            sys.exit("the last read failed although nobody else was there")
        client.drop_database("workload")
    recorder.file.close()
    print(f"pymongo list-append seed {seed}: {run.committed} committed")


if __name__ == "__main__":
    main(*sys.argv[1:])
