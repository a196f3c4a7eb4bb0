"""Transactions and retryable writes through pymongo's own methods: the transfers of the seed documents, conflicts, a lost answer."""

import threading
from urllib.parse import urlsplit

import pymongo
import pymongo.monitoring
import pytest
from cutter import Cutter
from pymongo.errors import AutoReconnect, InvalidOperation, OperationFailure


@pytest.fixture
def accounts(database):
    return database.accounts


def balances(accounts):
    return {account["_id"]: account["balance"] for account in accounts.find(sort=[("_id", 1)])}


def test_bob_pays_joe_7(client, accounts):
    accounts.insert_many([{"_id": "Bob", "balance": 10}, {"_id": "Joe", "balance": 2}])

    def pay(session):
        accounts.update_one({"_id": "Bob"}, {"$inc": {"balance": -7}}, session=session)
        accounts.update_one({"_id": "Joe"}, {"$inc": {"balance": 7}}, session=session)
        assert balances(accounts) == {"Bob": 10, "Joe": 2}

    with client.start_session() as session:
        session.with_transaction(pay)
    assert balances(accounts) == {"Bob": 3, "Joe": 9}


def test_a_transfer_that_cannot_be_is_not(client, accounts):
    """Seed 1: from A to B, both or none, with the state of the transfer in the same step."""
    transfers = accounts.database.transfers
    accounts.insert_many([{"_id": "A", "balance": 1000}, {"_id": "B", "balance": 1000}])

    def transfer(session, amount):
        number = transfers.insert_one({"from": "A", "to": "B", "value": amount, "state": "done"}, session=session).inserted_id
        taken = accounts.update_one({"_id": "A", "balance": {"$gte": amount}}, {"$inc": {"balance": -amount}}, session=session)
        accounts.update_one({"_id": "B"}, {"$inc": {"balance": amount}}, session=session)
        if taken.matched_count == 0:
            raise ValueError("A has too little")
        return number

    with client.start_session() as session:
        number = session.with_transaction(lambda session: transfer(session, 100))
        with pytest.raises(ValueError, match="too little"):
            session.with_transaction(lambda session: transfer(session, 1000))
    assert balances(accounts) == {"A": 900, "B": 1100}
    assert [found["_id"] for found in transfers.find()] == [number]


def test_with_transaction_runs_again_after_a_conflict(client, accounts):
    accounts.insert_one({"_id": "hot", "balance": 0})
    attempts = []

    def deposit(session):
        attempts.append(1)
        before = accounts.find_one({"_id": "hot"}, session=session)["balance"]
        accounts.update_one({"_id": "hot"}, {"$set": {"balance": before + 1}}, session=session)

    def many():
        with client.start_session() as session:
            for _ in range(20):
                session.with_transaction(deposit)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert balances(accounts) == {"hot": 80}
    assert len(attempts) > 80, "nobody met anybody: the test shows nothing"


def test_what_the_driver_is_told(client, accounts):
    accounts.insert_one({"_id": 1, "balance": 0})
    with client.start_session() as first, client.start_session() as second:
        first.start_transaction()
        second.start_transaction()
        accounts.update_one({"_id": 1}, {"$inc": {"balance": 1}}, session=first)
        with pytest.raises(OperationFailure) as conflict:
            accounts.update_one({"_id": 1}, {"$inc": {"balance": 1}}, session=second)
        assert conflict.value.code == 112
        assert conflict.value.has_error_label("TransientTransactionError")
        second.abort_transaction()
        first.commit_transaction()
        first.commit_transaction()
        with pytest.raises(InvalidOperation):
            first.abort_transaction()
    assert balances(accounts) == {1: 1}


def test_a_cursor_reads_one_snapshot(client, accounts):
    accounts.insert_many([{"_id": number, "balance": 1} for number in range(500)])
    with client.start_session() as session, session.start_transaction():
        cursor = accounts.find({}, batch_size=10, session=session)
        next(cursor)
        accounts.update_many({}, {"$set": {"balance": 5}})
        assert sum(account["balance"] for account in cursor) == 499


class Sent(pymongo.monitoring.CommandListener):
    """The updates that the driver sent."""

    def __init__(self):
        self.updates = []

    def started(self, event):
        if event.command_name == "update":
            self.updates.append(event.command)

    def succeeded(self, event):
        pass

    def failed(self, event):
        pass


@pytest.mark.parametrize("lost", [1, 2])
def test_a_write_whose_answers_get_lost_is_done_once(uri, accounts, lost):
    """Drivers send a write a second time by themselves. When that answer is lost too, the program can send it once more, with
    the number that it had, and gets the answer of the first."""
    accounts.insert_one({"_id": 1, "balance": 0})
    address, sent = urlsplit(uri), Sent()
    with Cutter((address.hostname, address.port), lambda request: "reply" if b"updates" in request and cutter.cut < lost else None) as cutter:
        with pymongo.MongoClient(cutter.uri, heartbeatFrequencyMS=100000, event_listeners=[sent]) as through:
            database = through[accounts.database.name]
            if lost == 1:
                assert database.accounts.update_one({"_id": 1}, {"$inc": {"balance": 1}}).modified_count == 1
            else:
                with through.start_session() as session:
                    with pytest.raises(AutoReconnect):
                        database.accounts.update_one({"_id": 1}, {"$inc": {"balance": 1}}, session=session)
                    again = {name: sent.updates[0][name] for name in ("update", "updates", "txnNumber")}
                    reply = database.command(again, session=session)
                assert (reply["nModified"], reply["retriedStmtIds"]) == (1, [0])
    assert cutter.cut == lost
    assert sent.updates[0]["txnNumber"] == sent.updates[1]["txnNumber"]
    assert balances(accounts) == {1: 1}
