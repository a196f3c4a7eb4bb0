"""Moves 10 from one account to another, and ends with an error after a network error.

The mistake: two updates without a transaction. If the program ends between them, 10 are lost. The driver repeats each
update once by itself, so that it takes a second lost message: --times 2.
"""

import os

from pymongo import MongoClient

accounts = MongoClient(os.environ["MONGODB_URI"]).bank.accounts
accounts.update_one({"_id": "ann"}, {"$inc": {"balance": -10}})
accounts.update_one({"_id": "bob"}, {"$inc": {"balance": 10}})
