"""Transactions, in Python: Bob pays Joe 7, and 100 go from A to B, each in one step.

The server is named by MONGODB_URI.
"""

import os

import pymongo

client = pymongo.MongoClient(os.environ.get("MONGODB_URI", "mongodb://127.0.0.1:27017/"))
database = client.example_transactions_py
client.drop_database(database)


def balances():
    return {account["_id"]: account["balance"] for account in database.accounts.find()}


def pay(session, source, destination, amount):
    """Changes both accounts of a transaction. An update that matches nothing raises nothing by itself; what is raised here rolls all back."""
    if not amount > 0:
        raise ValueError("an amount must be greater than 0")
    accounts = database.accounts
    taken = accounts.update_one({"_id": source, "balance": {"$gte": amount}}, {"$inc": {"balance": -amount}}, session=session)
    if taken.matched_count == 0:
        raise ValueError(f"{source} has no account, or less than {amount}")
    given = accounts.update_one({"_id": destination}, {"$inc": {"balance": amount}}, session=session)
    if given.matched_count == 0:
        raise ValueError(f"{destination} has no account")


def refused(run):
    try:
        run()
    except ValueError:
        return True
    return False


database.accounts.insert_many([{"_id": "Bob", "balance": 10}, {"_id": "Joe", "balance": 2}])

with client.start_session() as session:
    with session.start_transaction():
        pay(session, "Bob", "Joe", 7)
        # Nobody else sees half of it.
        assert balances() == {"Bob": 10, "Joe": 2}
    assert balances() == {"Bob": 3, "Joe": 9}
    # Run again after a conflict.
    assert refused(lambda: session.with_transaction(lambda session: pay(session, "Bob", "Joe", 7)))
    assert refused(lambda: session.with_transaction(lambda session: pay(session, "Bob", "Jo", 1)))

assert balances() == {"Bob": 3, "Joe": 9}

database.accounts.drop()
database.accounts.insert_many([{"_id": "A", "balance": 1000}, {"_id": "B", "balance": 1000}])


def transfer(session, destination, value):
    database.transactions.insert_one({"source": "A", "destination": destination, "value": value, "state": "done"}, session=session)
    pay(session, "A", destination, value)


with client.start_session() as session:
    session.with_transaction(lambda session: transfer(session, "B", 100))
    assert refused(lambda: session.with_transaction(lambda session: transfer(session, "B", 1000)))
    assert refused(lambda: session.with_transaction(lambda session: transfer(session, "C", 100)))

assert balances() == {"A": 900, "B": 1100}
assert [found["value"] for found in database.transactions.find()] == [100]

client.drop_database(database)
print("ok 13-transactions")
