"""A job that was not done yet."""

import os

from pymongo import MongoClient

MongoClient(os.environ["MONGODB_URI"]).shop.jobs.insert_one({"_id": "job-1", "done": False})
