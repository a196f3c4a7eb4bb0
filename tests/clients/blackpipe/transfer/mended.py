"""Moves 10 from one account to another in a transaction."""

import os

from pymongo import MongoClient

client = MongoClient(os.environ["MONGODB_URI"])
accounts = client.bank.accounts


def transfer(session):
    accounts.update_one({"_id": "ann"}, {"$inc": {"balance": -10}}, session=session)
    accounts.update_one({"_id": "bob"}, {"$inc": {"balance": 10}}, session=session)


with client.start_session() as session:
    session.with_transaction(transfer)
