"""Takes a task from a queue and stores its result. After a network error it begins again, with the task that it owns
already.
"""

import os

from pymongo import MongoClient
from pymongo.errors import AutoReconnect

work = MongoClient(os.environ["MONGODB_URI"]).work
while True:
    try:
        task = work.tasks.find_one_and_update({"owner": {"$in": [None, "worker-1"]}}, {"$set": {"owner": "worker-1"}})
        if task is not None:
            work.results.update_one({"_id": task["_id"]}, {"$set": {"square": task["number"] ** 2}}, upsert=True)
            work.tasks.delete_one({"_id": task["_id"]})
        break
    except AutoReconnect:
        pass
