"""Counts an event of a day, and repeats the increment after a network error.

The mistake: an increment that was applied before the error is applied again. The driver repeats update_one once by
itself, and the server applies it once; the program sees an error only if the repetition is lost, too: --times 2.
"""

import os

from pymongo import MongoClient
from pymongo.errors import AutoReconnect

DAY = "2016-06-28"

days = MongoClient(os.environ["MONGODB_URI"]).events.days
while True:
    try:
        days.update_one({"_id": DAY}, {"$inc": {"counter": 1}}, upsert=True)
        break
    except AutoReconnect:
        pass
