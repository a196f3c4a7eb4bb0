"""The event is counted once, and no token is left."""

import os
import sys

from pymongo import MongoClient

day = MongoClient(os.environ["MONGODB_URI"]).events.days.find_one({"_id": "2016-06-28"})
if day["counter"] != 1 or day.get("pending"):
    sys.exit(f"the counter must be 1, without a token: {day}")
