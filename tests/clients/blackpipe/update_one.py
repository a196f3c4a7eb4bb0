"""Pays 10 to each account, one by one, and repeats an update that fails after the driver's own retry."""

import os

from pymongo import MongoClient
from pymongo.errors import AutoReconnect

accounts = MongoClient(os.environ["MONGODB_URI"]).bank.accounts
for name in ["ann", "bob"]:
    while True:
        try:
            accounts.update_one({"_id": name}, {"$inc": {"balance": 10}})
            break
        except AutoReconnect:
            pass  # the mistake: both tries of the driver may have been applied
