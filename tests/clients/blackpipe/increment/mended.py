"""Counts an event of a day in two steps, each of which changes nothing when it is repeated.

The first step adds a token to a set. The second one removes the token and increments the counter in one update, which
finds no document without the token.
"""

import os

from bson import ObjectId
from pymongo import MongoClient
from pymongo.errors import AutoReconnect

DAY = "2016-06-28"

days = MongoClient(os.environ["MONGODB_URI"]).events.days
token = ObjectId()
while True:
    try:
        days.update_one({"_id": DAY}, {"$addToSet": {"pending": token}}, upsert=True)
        break
    except AutoReconnect:
        pass
while True:
    try:
        days.update_one({"_id": DAY, "pending": token}, {"$pull": {"pending": token}, "$inc": {"counter": 1}})
        break
    except AutoReconnect:
        pass
