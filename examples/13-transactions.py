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


database.accounts.insert_many([{"_id": "Bob", "balance": 10}, {"_id": "Joe", "balance": 2}])

with client.start_session() as session, session.start_transaction():
    database.accounts.update_one({"_id": "Bob"}, {"$inc": {"balance": -7}}, session=session)
    database.accounts.update_one({"_id": "Joe"}, {"$inc": {"balance": 7}}, session=session)
    # Nobody else sees half of it.
    assert balances() == {"Bob": 10, "Joe": 2}

assert balances() == {"Bob": 3, "Joe": 9}

database.accounts.drop()
database.accounts.insert_many([{"_id": "A", "balance": 1000}, {"_id": "B", "balance": 1000}])


def transfer(session, value):
    database.transactions.insert_one({"source": "A", "destination": "B", "value": value, "state": "done"}, session=session)
    database.accounts.update_one({"_id": "B"}, {"$inc": {"balance": value}}, session=session)
    taken = database.accounts.update_one({"_id": "A", "balance": {"$gte": value}}, {"$inc": {"balance": -value}}, session=session)
    if taken.matched_count == 0:
        raise ValueError("A has too little")


with client.start_session() as session:
    # Run again after a conflict; what raises is rolled back.
    session.with_transaction(lambda session: transfer(session, 100))
    try:
        session.with_transaction(lambda session: transfer(session, 1000))
    except ValueError:
        pass
    else:
        raise AssertionError("A had 900")

assert balances() == {"A": 900, "B": 1100}
assert [found["value"] for found in database.transactions.find()] == [100]

client.drop_database(database)
print("ok 13-transactions")
