"""Writes whose answers get lost after the server has done them: each is done once, and answered as the first time.

Drivers send a write a second time by themselves. When that answer is lost too, the program is told; it can send the write once more,
with the number that it had.
"""

from urllib.parse import urlsplit

import pymongo
import pymongo.monitoring
import pytest
from cutter import Cutter
from pymongo import DeleteOne, InsertOne, ReplaceOne, ReturnDocument, UpdateOne
from pymongo.errors import AutoReconnect, BulkWriteError, ConnectionFailure

BEFORE = {1: 0, 2: 0, 3: 0}
INCREMENT = {"$inc": {"n": 1}}


def bulk(c):
    requests = [InsertOne({"_id": 4, "n": 4}), UpdateOne({"_id": 1}, INCREMENT), DeleteOne({"n": 0}), ReplaceOne({"n": 0}, {"n": 7})]
    result = c.bulk_write(requests)
    return result.inserted_count, result.modified_count, result.deleted_count


# Each case has the command whose answers get lost, the operation of the program, its result, the answer to the same command, and the
# documents afterwards. A second application would change, add or remove another one of the three documents, which are all alike.
KINDS = {
    "insert_one": (
        "insert", lambda c: c.insert_one({"_id": 4, "n": 4}).inserted_id, 4,
        {"n": 1, "retriedStmtIds": [0]}, BEFORE | {4: 4},
    ),
    "insert_many": (
        "insert", lambda c: c.insert_many([{"_id": 4, "n": 4}, {"_id": 5, "n": 5}]).inserted_ids, [4, 5],
        {"n": 2, "retriedStmtIds": [0, 1]}, BEFORE | {4: 4, 5: 5},
    ),
    "update_one": (
        "update", lambda c: c.update_one({"n": {"$gte": 0}}, INCREMENT).modified_count, 1,
        {"n": 1, "nModified": 1, "retriedStmtIds": [0]}, BEFORE | {1: 1},
    ),
    "update_one, upsert": (
        "update", lambda c: c.update_one({"_id": 4}, INCREMENT, upsert=True).upserted_id, 4,
        {"n": 1, "nModified": 0, "upserted": [{"index": 0, "_id": 4}], "retriedStmtIds": [0]}, BEFORE | {4: 1},
    ),
    "replace_one": (
        "update", lambda c: c.replace_one({"n": 0}, {"n": 7}).modified_count, 1,
        {"n": 1, "nModified": 1, "retriedStmtIds": [0]}, BEFORE | {1: 7},
    ),
    "delete_one": (
        "delete", lambda c: c.delete_one({"n": 0}).deleted_count, 1,
        {"n": 1, "retriedStmtIds": [0]}, {2: 0, 3: 0},
    ),
    "find_one_and_update": (
        "findAndModify", lambda c: c.find_one_and_update({"_id": 1}, INCREMENT), {"_id": 1, "n": 0},
        {"value": {"_id": 1, "n": 0}, "retriedStmtId": 0}, BEFORE | {1: 1},
    ),
    "find_one_and_update, after": (
        "findAndModify", lambda c: c.find_one_and_update({"_id": 1}, INCREMENT, return_document=ReturnDocument.AFTER), {"_id": 1, "n": 1},
        {"value": {"_id": 1, "n": 1}, "retriedStmtId": 0}, BEFORE | {1: 1},
    ),
    "find_one_and_replace": (
        "findAndModify", lambda c: c.find_one_and_replace({"n": 0}, {"n": 7}), {"_id": 1, "n": 0},
        {"value": {"_id": 1, "n": 0}, "retriedStmtId": 0}, BEFORE | {1: 7},
    ),
    "find_one_and_delete": (
        "findAndModify", lambda c: c.find_one_and_delete({"n": 0}), {"_id": 1, "n": 0},
        {"value": {"_id": 1, "n": 0}, "retriedStmtId": 0}, {2: 0, 3: 0},
    ),
    "bulk_write, its insert": (
        "insert", bulk, (1, 2, 1), {"n": 1, "retriedStmtIds": [0]}, {1: 1, 4: 4, 3: 7},
    ),
    "bulk_write, its update": (
        "update", bulk, (1, 2, 1), {"n": 1, "nModified": 1, "retriedStmtIds": [0]}, {1: 1, 4: 4, 3: 7},
    ),
    "bulk_write, its delete": (
        "delete", bulk, (1, 2, 1), {"n": 1, "retriedStmtIds": [0]}, {1: 1, 4: 4, 3: 7},
    ),
}
# The documents if the program stops in the middle of its ordered writes and repeats the one that was being sent.
UNTIL = {
    "bulk_write, its insert": BEFORE | {4: 4},
    "bulk_write, its update": BEFORE | {1: 1, 4: 4},
    "bulk_write, its delete": {1: 1, 3: 0, 4: 4},
}


class Sent(pymongo.monitoring.CommandListener):
    """The commands of one kind that the driver sent."""

    def __init__(self, name):
        self.name = name
        self.commands = []

    def started(self, event):
        if event.command_name == self.name:
            self.commands.append(dict(event.command))

    def succeeded(self, event):
        pass

    def failed(self, event):
        pass


@pytest.fixture
def c(database):
    database.c.insert_many({"_id": key, "n": n} for key, n in BEFORE.items())
    return database.c


@pytest.fixture
def losing(uri, c):
    """Returns a client behind a proxy that loses a number of answers to a command, the proxy, and the sent commands of this kind."""
    open_ones = []

    def start(command, lost):
        address, sent = urlsplit(uri), Sent(command)
        # The first element of the command's document.
        word = command.encode() + b"\0"
        cutter = Cutter((address.hostname, address.port), lambda request: "reply" if word in request and cutter.cut < lost else None)
        client = pymongo.MongoClient(cutter.uri, heartbeatFrequencyMS=100000, event_listeners=[sent])
        open_ones.extend([client, cutter])
        return client, cutter, sent

    yield start
    for one in open_ones:
        one.close()


def contents(collection):
    return {document["_id"]: document["n"] for document in collection.find()}


def numbers(sent):
    return {command["txnNumber"] for command in sent.commands}


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_whose_answer_is_lost_is_done_once(c, losing, kind):
    command, write, result, _, after = KINDS[kind]
    client, cutter, sent = losing(command, 1)
    assert write(client[c.database.name].c) == result
    assert cutter.cut == 1
    # An ordered bulk write sends another command of this kind later.
    assert sent.commands[0]["txnNumber"] == sent.commands[1]["txnNumber"]
    assert contents(c) == after


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_whose_answers_are_lost_twice_is_done_once(c, losing, kind):
    command, write, _, reply, after = KINDS[kind]
    client, cutter, sent = losing(command, 2)
    with client.start_session() as session:
        # The program calls the same method again, in the same session.
        with pytest.raises((AutoReconnect, BulkWriteError)):
            write(InSession(client[c.database.name].c, session))
        again = {name: value for name, value in sent.commands[0].items() if name not in ("lsid", "$db", "$clusterTime")}
        answer = client[c.database.name].command(again, session=session)
    assert cutter.cut == 2
    assert len(numbers(sent)) == 1
    assert {name: answer.get(name) for name in reply} == reply
    assert contents(c) == UNTIL.get(kind, after)


class InSession:
    """A collection whose methods run in a session."""

    def __init__(self, collection, session):
        self.collection = collection
        self.session = session

    def __getattr__(self, name):
        method = getattr(self.collection, name)
        return lambda *arguments, **options: method(*arguments, session=self.session, **options)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_commit_whose_answers_are_lost_is_done_once(c, losing, lost):
    """The driver repeats a commit once by itself; then the program gets an unknown outcome, and commits again."""
    client, cutter, sent = losing("commitTransaction", lost)
    through = client[c.database.name].c
    with client.start_session() as session:
        session.start_transaction()
        through.insert_one({"_id": 4, "n": 4}, session=session)
        through.update_one({"_id": 1}, INCREMENT, session=session)
        if lost == 2:
            with pytest.raises(ConnectionFailure) as error:
                session.commit_transaction()
            assert error.value.has_error_label("UnknownTransactionCommitResult")
        session.commit_transaction()
        session.commit_transaction()
    assert (cutter.cut, len(numbers(sent))) == (lost, 1)
    assert contents(c) == BEFORE | {1: 1, 4: 4}
