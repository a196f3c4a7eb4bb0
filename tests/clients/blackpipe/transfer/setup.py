"""Two accounts, with 100 together."""

import os

from pymongo import MongoClient

accounts = MongoClient(os.environ["MONGODB_URI"]).bank.accounts
accounts.insert_many([{"_id": "ann", "balance": 100}, {"_id": "bob", "balance": 0}])
