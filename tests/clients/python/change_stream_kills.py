"""Writers with transactions beside a consumer of their change stream, on a server that is killed meanwhile.

The test says a line for each kill on the standard input, and the end of it ends the writers. The consumer opens its stream anew after every
few events, with the token of the last one that it has taken, as a program does that starts again. At the end it must have seen each committed
change exactly once, in order, and nothing of the transactions that were aborted.

Prints "committed N" for every ten transactions, so that the test knows when to kill.
"""

import os
import sys
import threading
import time

import pymongo
from pymongo.errors import PyMongoError

WRITERS = 3
# Events after which the consumer begins anew.
EVENTS_OF_A_RUN = 7
PATIENCE_SECONDS = 120

client = pymongo.MongoClient(os.environ["MONGODB_URI"], serverSelectionTimeoutMS=60_000)
database = client.kills
stop = threading.Event()
committed = [0]
failures = []
said = threading.Lock()


def again(step):
    """Repeats a step while the server is away."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return step()
        except PyMongoError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def write(writer):
    number = 0
    with client.start_session() as session:
        while not stop.is_set():
            number += 1
            name = f"{writer}-{number}"

            def change(session):
                database.rows.insert_one({"_id": name + "-a", "writer": writer, "number": number}, session=session)
                database.counters.update_one({"_id": writer}, {"$inc": {"n": 1}}, session=session)
                database.rows.insert_one({"_id": name + "-b", "writer": writer, "number": number}, session=session)

            # with_transaction does not know whether a commit happened whose answer got lost after its own patience: ask the data.
            def commit():
                if database.rows.find_one({"_id": name + "-b"}) is None:
                    session.with_transaction(change)

            again(commit)
            if number % 3 == 0:
                try:
                    with session.start_transaction():
                        database.rows.insert_one({"_id": name + "-aborted"}, session=session)
                        session.abort_transaction()
                except PyMongoError:
                    pass
            again(lambda: database.plain.update_one({"_id": name}, {"$set": {"x": number}}, upsert=True))
            with said:
                committed[0] += 1
                if committed[0] % 10 == 0:
                    print("committed", committed[0], flush=True)


def run_writer(writer):
    try:
        write(writer)
    except BaseException as error:
        failures.append(error)
        stop.set()
        raise


def consume(token, events):
    """Takes some events, and returns the token of the last one. The end is an insert into `ends`."""
    end = time.monotonic() + PATIENCE_SECONDS
    taken = 0
    with database.watch(resume_after=token, max_await_time_ms=200) as stream:
        while taken < EVENTS_OF_A_RUN:
            event = stream.try_next()
            if event is None:
                token = stream.resume_token
                if time.monotonic() > end:
                    raise TimeoutError("no event")
                continue
            events.append(event)
            token = event["_id"]
            taken += 1
            if event["ns"]["coll"] == "ends":
                return token, True
    return token, False


def consumer(token, events):
    is_end = False
    while not is_end:
        try:
            token, is_end = consume(token, events)
        except PyMongoError:
            # The token of the last event that was taken; those of a run that broke off are taken, too.
            token = events[-1]["_id"] if events else token
            time.sleep(0.01)


def check(events):
    inserted = [event["documentKey"]["_id"] for event in events if event["ns"]["coll"] == "rows"]
    there = {row["_id"] for row in database.rows.find()}
    assert len(inserted) == len(set(inserted)), "an event came twice"
    assert set(inserted) == there, set(inserted) ^ there
    assert all(event["operationType"] == "insert" for event in events if event["ns"]["coll"] == "rows")
    assert not any("aborted" in row for row in inserted)
    for writer in range(WRITERS):
        changes = [event for event in events if event["ns"]["coll"] == "counters" and event["documentKey"]["_id"] == writer]
        counts = [0] + [change["updateDescription"]["updatedFields"]["n"] for change in changes if change["operationType"] == "update"]
        assert counts == list(range(len(counts))), (writer, counts)
        assert counts[-1] == database.counters.find_one({"_id": writer})["n"]
        of_writer = [event["fullDocument"]["number"] for event in events if event["ns"]["coll"] == "rows" and event["fullDocument"]["writer"] == writer]
        assert of_writer == sorted(of_writer), "out of order"
    plain = [event["documentKey"]["_id"] for event in events if event["ns"]["coll"] == "plain" and event["operationType"] == "insert"]
    assert sorted(plain) == sorted(row["_id"] for row in database.plain.find()), "plain writes"
    # The three events of a transaction come together.
    of_transactions = [event for event in events if "txnNumber" in event]
    assert len(of_transactions) % 3 == 0
    for start in range(0, len(of_transactions), 3):
        three = of_transactions[start : start + 3]
        assert len({(bytes(event["lsid"]["id"]), event["txnNumber"]) for event in three}) == 1, three
        assert [event["operationType"] for event in three] == ["insert", "update", "insert"]
    tokens = [event["_id"]["_data"] for event in events]
    assert tokens == sorted(set(tokens)), "tokens do not ascend"


def main():
    database.counters.insert_many({"_id": writer, "n": 0} for writer in range(WRITERS))
    with database.watch() as stream:
        token = stream.resume_token
    events = []
    consuming = threading.Thread(target=consumer, args=(token, events), daemon=True)
    writers = [threading.Thread(target=run_writer, args=(writer,)) for writer in range(WRITERS)]
    for thread in [consuming, *writers]:
        thread.start()
    sys.stdin.read()
    stop.set()
    for thread in writers:
        thread.join()
    assert not failures, failures
    again(lambda: database.ends.update_one({"_id": 1}, {"$set": {"x": 1}}, upsert=True))
    consuming.join(PATIENCE_SECONDS)
    assert not consuming.is_alive(), "the consumer did not come to the end"
    check(events)
    print("events", len(events), "transactions", committed[0], flush=True)


main()
