"""An order whose status is new."""

import os

from pymongo import MongoClient

MongoClient(os.environ["MONGODB_URI"]).shop.orders.insert_one({"_id": 1, "status": "new", "step": 0})
