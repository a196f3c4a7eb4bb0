"""Sets the status of an order, gives up after a while, and sets the next status.

The mistake: a request that was given up may still arrive, after the next one. It is found with --only reorder, which
holds a request back until the next one was answered. The program repeats nothing, and neither does the driver.
"""

import os

from pymongo import MongoClient
from pymongo.errors import AutoReconnect

# More than a server on a busy machine takes.
orders = MongoClient(os.environ["MONGODB_URI"], retryWrites=False, socketTimeoutMS=5000).shop.orders
for status in ["packed", "sent"]:
    try:
        orders.update_one({"_id": 1}, {"$set": {"status": status}})
    except AutoReconnect:
        print(f"nobody knows whether the order is {status}")
