"""Kills the server between two attempts of a retryable write and of a commit: the second attempt, answered by a new process on the
same data, says what the first one would have said, and nothing happens twice.

    python tests/crash/retries.py --handfast target/debug/handfast

The driver repeats by itself: a proxy loses a request or its answer, and kills the server before the driver can connect again.
"""

import argparse
import pathlib
import sys

import pymongo
from bson import Int64

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
from cutter import Cutter  # noqa: E402
from servers import Handfast  # noqa: E402

# The time for an answer, even on a busy machine.
ANSWER_MILLISECONDS_MAX = 180_000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--handfast", required=True)
    binary = parser.parse_args().handfast
    for lost, runs in [("reply", 1), ("request", 2)]:
        with Handfast(binary) as server:
            writes(server, lost)
            commit(server, lost, runs)
    with Handfast(binary) as server:
        by_hand(server)


def killing(server, word, lost):
    """Returns a proxy that loses the first request with this word, or its answer, and then kills the server."""

    def lose(request):
        return lost if word in request and cutter.cut == 0 else None

    cutter = Cutter(("127.0.0.1", server.port), lose, server.kill_and_start_again)
    return cutter


def client_of(place, **options):
    """Returns a client of a server or a proxy."""
    return pymongo.MongoClient(place.uri, socketTimeoutMS=ANSWER_MILLISECONDS_MAX, **options)


def client_without_heartbeats(cutter):
    return client_of(cutter, heartbeatFrequencyMS=100000)


def writes(server, lost):
    """Checks each kind of retryable write, which the driver repeats."""
    with client_of(server) as direct:
        direct.d.c.insert_many([{"_id": number, "n": 0} for number in range(4)])
    kinds = {
        b"updates": lambda c: c.update_one({"_id": 0}, {"$inc": {"n": 1}}).modified_count,
        b"documents": lambda c: len(c.insert_many([{"_id": 10}, {"_id": 11}]).inserted_ids),
        b"deletes": lambda c: c.delete_one({"_id": {"$lt": 4}, "n": 0}).deleted_count,
        b"findAndModify": lambda c: c.find_one_and_update({"_id": 3}, {"$inc": {"n": 1}})["n"],
    }
    for word, write in kinds.items():
        with killing(server, word, lost) as cutter, client_without_heartbeats(cutter) as client:
            said = write(client.d.c)
        expected = {b"documents": 2, b"findAndModify": 0}.get(word, 1)
        check(cutter.cut == 1 and said == expected, f"{word} with its {lost} lost said {said}")
    with client_of(server) as direct:
        found = {document["_id"]: document.get("n") for document in direct.d.c.find()}
    check(found == {0: 1, 2: 0, 3: 1, 10: None, 11: None}, f"after writes with their {lost} lost: {found}")


def commit(server, lost, runs):
    """Bob pays Joe 7. A commit whose answer is lost has been applied; one that never arrives is unknown to the new server, and the
    driver runs the transaction again."""
    with client_of(server) as direct:
        direct.d.accounts.insert_many([{"_id": "Bob", "balance": 10}, {"_id": "Joe", "balance": 2}])
    ran = []

    def pay(session):
        ran.append(1)
        accounts = session.client.d.accounts
        accounts.update_one({"_id": "Bob"}, {"$inc": {"balance": -7}}, session=session)
        accounts.update_one({"_id": "Joe"}, {"$inc": {"balance": 7}}, session=session)

    with killing(server, b"commitTransaction", lost) as cutter, client_without_heartbeats(cutter) as client:
        with client.start_session() as session:
            session.with_transaction(pay)
            session.commit_transaction()
    with client_of(server) as direct:
        found = {account["_id"]: account["balance"] for account in direct.d.accounts.find()}
    check(cutter.cut == 1 and found == {"Bob": 3, "Joe": 9}, f"after a commit with its {lost} lost: {found}")
    check(len(ran) == runs, f"the transaction ran {len(ran)} times, not {runs}")


def by_hand(server):
    """Compares the replies before and after the kill, and sends a number that has ended after it."""
    with client_of(server) as client:
        session = client.start_session()

        def update(number):
            change = {"q": {"_id": 1}, "u": {"$inc": {"n": 1}}, "upsert": True}
            return client.d.command({"update": "c", "updates": [change], "txnNumber": number}, session=session)

        def end(number):
            return client.admin.command({"commitTransaction": 1, "txnNumber": number, "autocommit": False}, session=session)

        first = update(Int64(5))
        server.kill_and_start_again()
        again = update(Int64(5))
        check(again.pop("retriedStmtIds") == [0] and said(again) == said(first), f"{first} and then {again}")
        check(code_of(lambda: update(Int64(4))) == 225, "a number that is over was taken after the kill")
        within = {"txnNumber": Int64(6), "autocommit": False}
        client.d.command({"insert": "c", "documents": [{"_id": 2}], "startTransaction": True, **within}, session=session)
        first = end(Int64(6))
        for _ in range(2):
            server.kill_and_start_again()
            check(said(end(Int64(6))) == said(first), "a commit was answered differently after the kill")
        check(code_of(lambda: update(Int64(5))) == 225, "a number that is over was taken after the kill")
        check(list(client.d.c.find(sort=[("_id", 1)])) == [{"_id": 1, "n": 1}, {"_id": 2}], "something happened twice")


def said(reply):
    """Returns a reply without its times."""
    return {name: value for name, value in reply.items() if name not in ("operationTime", "$clusterTime")}


def code_of(command):
    try:
        command()
    except pymongo.errors.OperationFailure as error:
        return error.code
    return None


def check(holds, text):
    if not holds:
        sys.exit(text)


if __name__ == "__main__":
    main()
