"""Takes a task from a queue and stores its result. After a network error it begins again.

The mistake: a task that was taken before the error has an owner, and nobody takes it again. The driver repeats
find_one_and_update once by itself, so that it takes a second lost reply: --times 2.
"""

import os

from pymongo import MongoClient
from pymongo.errors import AutoReconnect

work = MongoClient(os.environ["MONGODB_URI"]).work
while True:
    try:
        task = work.tasks.find_one_and_update({"owner": None}, {"$set": {"owner": "worker-1"}})
        if task is not None:
            work.results.update_one({"_id": task["_id"]}, {"$set": {"square": task["number"] ** 2}}, upsert=True)
            work.tasks.delete_one({"_id": task["_id"]})
        break
    except AutoReconnect:
        pass
