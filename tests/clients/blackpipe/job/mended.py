"""Writes the invoice of a job, then marks the job as done. The invoice has the name of the job as its _id: a repetition
does not write another one.
"""

import os

from pymongo import MongoClient
from pymongo.errors import AutoReconnect

shop = MongoClient(os.environ["MONGODB_URI"]).shop
while True:
    try:
        shop.invoices.replace_one({"_id": "job-1"}, {"amount": 10}, upsert=True)
        shop.jobs.update_one({"_id": "job-1"}, {"$set": {"done": True}})
        break
    except AutoReconnect:
        pass
