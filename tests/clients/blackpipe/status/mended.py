"""Sets the status of an order with the number of the step, which a late request finds to be over."""

import os

from pymongo import MongoClient
from pymongo.errors import AutoReconnect

orders = MongoClient(os.environ["MONGODB_URI"], retryWrites=False, socketTimeoutMS=5000).shop.orders
for step, status in enumerate(["packed", "sent"], start=1):
    try:
        orders.update_one({"_id": 1, "step": {"$lt": step}}, {"$set": {"status": status, "step": step}})
    except AutoReconnect:
        print(f"nobody knows whether the order is {status}")
