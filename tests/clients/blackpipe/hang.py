"""Pays 10 to each account, and waits for ever after a network error."""

import os
import time

from pymongo import MongoClient
from pymongo.errors import AutoReconnect

accounts = MongoClient(os.environ["MONGODB_URI"]).bank.accounts
try:
    accounts.update_many({}, {"$set": {"balance": 10}})
except AutoReconnect:
    time.sleep(3600)
