"""Nothing is left behind: after a suite, transactions and snapshots that nobody ended end by themselves when their time is over, and the
end of all sessions closes all cursors. Asks the server that MONGODB_URI names for what it counts.
"""

import os
import sys
import time

import pymongo

# The lifetime of a transaction, which is a minute, and some seconds until somebody looks.
SECONDS_MAX = 90


def main():
    with pymongo.MongoClient(os.environ["MONGODB_URI"]) as client:
        admin = client.admin
        deadline = time.monotonic() + SECONDS_MAX
        while any(left := open_transactions(admin)) and time.monotonic() < deadline:
            time.sleep(1)
        admin.command("killAllSessions", [])
        status = admin.command("serverStatus")
    cursors = status["metrics"]["cursor"]["open"]["total"]
    # That of this client's own command.
    sessions = status["logicalSessionRecordCache"]["activeSessionsCount"] - 1
    print(f"left: {left[0]} transactions, {left[1]} snapshots, {cursors} cursors, {sessions} sessions")
    return 1 if any(left) or cursors or sessions else 0


def open_transactions(admin):
    counts = admin.command("serverStatus")["transactions"]
    return counts["currentOpen"], counts["currentSnapshots"]


if __name__ == "__main__":
    sys.exit(main())
