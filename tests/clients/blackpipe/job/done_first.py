"""Writes the invoice of a job, and ends with an error after a network error.

The mistake: the job is marked as done before its invoice is written. If the program ends between them, nobody writes
the invoice. The driver repeats each write once by itself, so that it takes a second lost message: --times 2.
"""

import os

from pymongo import MongoClient

shop = MongoClient(os.environ["MONGODB_URI"]).shop
shop.jobs.update_one({"_id": "job-1"}, {"$set": {"done": True}})
shop.invoices.insert_one({"job": "job-1", "amount": 10})
