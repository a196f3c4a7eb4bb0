"""The accounts have 100 together."""

import os
import sys

from pymongo import MongoClient

accounts = MongoClient(os.environ["MONGODB_URI"]).bank.accounts
balances = {account["_id"]: account["balance"] for account in accounts.find()}
if sum(balances.values()) != 100:
    sys.exit(f"the sum must be 100: {balances}")
