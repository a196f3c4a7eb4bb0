"""The salary was raised once."""

import os
import sys

from pymongo import MongoClient

ann = MongoClient(os.environ["MONGODB_URI"]).company.employees.find_one({"_id": "ann"})
if ann["salary"] != 1100:
    sys.exit(f"the salary must be 1100: {ann}")
