"""Nothing is left behind. Counts what the suite has left on the server that MONGODB_URI names, before anything is done about it, and holds
that against what a suite may leave. Then transactions and snapshots that nobody ended end by themselves when their time is over, and
the end of all sessions closes all cursors.

    python leftovers.py GROUP
"""

import os
import sys
import time

import pymongo

# The lifetime of a transaction, which is a minute, and some seconds until somebody looks.
SECONDS_MAX = 90
SETTLED_SECONDS_MAX = 3

# What a suite may leave at most, of which kind. Its tests end what they begin, those that fail on purpose too; but some drop a client
# whose session they have, of which the server is not told: three of the last two groups did.
SESSIONS_OF_DROPPED_CLIENTS_MAX = 10
# A test that judges by short times (TIMED in run.py) may fail and is then run again: the first run leaves its session.
SESSIONS_OF_TIMED_TESTS_MAX = 2
ALLOWED = {
    "transactions": {"sessions": SESSIONS_OF_TIMED_TESTS_MAX},
    "mongos": {"sessions": SESSIONS_OF_TIMED_TESTS_MAX},
    "store": {"sessions": SESSIONS_OF_TIMED_TESTS_MAX},
    "standalone": {"sessions": SESSIONS_OF_DROPPED_CLIENTS_MAX},
    "replica-set": {"sessions": SESSIONS_OF_DROPPED_CLIENTS_MAX},
    "auth": {"sessions": SESSIONS_OF_DROPPED_CLIENTS_MAX},
}


def main(group):
    login = {"username": "boss", "password": os.environ["BOSS_PASSWORD"]} if group == "auth" else {}
    with pymongo.MongoClient(os.environ["MONGODB_URI"], **login) as client:
        admin = client.admin
        first = left(admin)
        # A command that a fail point holds back uses its session once more after its client has ended it.
        settled = time.monotonic() + SETTLED_SECONDS_MAX
        while (too_many := beyond(group, first)) and time.monotonic() < settled:
            time.sleep(0.2)
            first = left(admin)
        deadline = time.monotonic() + SECONDS_MAX
        while ((after := left(admin))["transactions"] or after["snapshots"]) and time.monotonic() < deadline:
            time.sleep(1)
        # What has no session to end with it would stay after this.
        admin.command("killAllSessions", [])
        last = left(admin)
    print(f"{group} left {first}; when their time was over {after}; when all sessions were ended {last}")
    if too_many:
        print(f"{group} may not leave {too_many}")
    stays = after["transactions"] or after["snapshots"] or any(last.values())
    return 1 if too_many or stays else 0


def beyond(group, found):
    return {kind: count for kind, count in found.items() if count > ALLOWED[group].get(kind, 0)}


def left(admin):
    status = admin.command("serverStatus")
    return {
        "transactions": status["transactions"]["currentOpen"],
        "snapshots": status["transactions"]["currentSnapshots"],
        "cursors": status["metrics"]["cursor"]["open"]["total"],
        # But for that of this client's own command.
        "sessions": status["logicalSessionRecordCache"]["activeSessionsCount"] - 1,
    }


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
