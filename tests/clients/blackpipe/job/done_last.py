"""Writes the invoice of a job, then marks the job as done. After a network error it begins again.

The mistake: an invoice that was written before the error is written again. The driver repeats each write once by
itself, so that it takes a second lost message: --times 2.
"""

import os

from pymongo import MongoClient
from pymongo.errors import AutoReconnect

shop = MongoClient(os.environ["MONGODB_URI"]).shop
while True:
    try:
        shop.invoices.insert_one({"job": "job-1", "amount": 10})
        shop.jobs.update_one({"_id": "job-1"}, {"$set": {"done": True}})
        break
    except AutoReconnect:
        pass
