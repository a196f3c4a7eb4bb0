"""Transactions through pymongo's own methods: the transfers of the seed documents, conflicts, snapshots."""

import threading

import pytest
from pymongo.errors import InvalidOperation, OperationFailure


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


def test_a_transfer_of_too_much_is_rolled_back(client, accounts):
    """Seed 1: a transfer from A to B changes both accounts or none, with the state of the transfer in the same step."""
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
    assert len(attempts) > 80, "there was no conflict, so the test proves nothing"


def test_a_conflict_has_its_label_and_a_repeated_commit_succeeds(client, accounts):
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
