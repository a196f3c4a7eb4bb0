"""Either the 10 were moved once, or nothing was."""

import os
import sys

from pymongo import MongoClient

accounts = MongoClient(os.environ["MONGODB_URI"]).bank.accounts
balances = {account["_id"]: account["balance"] for account in accounts.find()}
if balances not in ({"ann": 100, "bob": 0}, {"ann": 90, "bob": 10}):
    sys.exit(f"the transfer must be whole: {balances}")
