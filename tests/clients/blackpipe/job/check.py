"""A job that is done has one invoice, and no job has two."""

import os
import sys

from pymongo import MongoClient

shop = MongoClient(os.environ["MONGODB_URI"]).shop
is_done = shop.jobs.find_one({"_id": "job-1"})["done"]
invoices = shop.invoices.count_documents({})
if invoices > 1 or (is_done and invoices == 0):
    sys.exit(f"a job that is done must have one invoice: done is {is_done}, and there are {invoices} invoices")
