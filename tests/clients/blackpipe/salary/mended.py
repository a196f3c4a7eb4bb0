"""Raises a salary by a tenth, and records the name of the change in the same update. A repetition finds the name and
ends.
"""

import os

from pymongo import MongoClient
from pymongo.errors import AutoReconnect

CHANGE = "raise of 2016"

employees = MongoClient(os.environ["MONGODB_URI"]).company.employees
while True:
    try:
        ann = employees.find_one({"_id": "ann"})
        if CHANGE in ann["changes"]:
            break
        raised = {"$set": {"salary": ann["salary"] * 11 // 10}, "$inc": {"version": 1}, "$push": {"changes": CHANGE}}
        if employees.update_one({"_id": "ann", "version": ann["version"]}, raised).matched_count == 1:
            break
    except AutoReconnect:
        pass
