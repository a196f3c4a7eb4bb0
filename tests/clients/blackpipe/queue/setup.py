"""A queue with one task: the square of 12."""

import os

from pymongo import MongoClient

MongoClient(os.environ["MONGODB_URI"]).work.tasks.insert_one({"_id": "task-1", "number": 12})
