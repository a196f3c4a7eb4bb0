"""Pays 10 to each account, one by one, and waits for a reply for a few seconds only. The driver repeats what fails."""

import os

from pymongo import MongoClient

# More than a server on a busy machine takes, and less than the test waits for.
accounts = MongoClient(os.environ["MONGODB_URI"], socketTimeoutMS=5000).bank.accounts
for name in ["ann", "bob"]:
    accounts.update_one({"_id": name}, {"$inc": {"balance": 10}})
