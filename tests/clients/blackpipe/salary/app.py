"""Raises a salary by a tenth: reads it, computes the new one and writes it. After a network error it begins again.

The mistake: if the write was applied, the repetition reads the raised salary and raises it again. The version makes no
difference, because the repetition reads the new one. The driver repeats update_one once by itself, so that it takes a
second lost reply: --times 2.
"""

import os

from pymongo import MongoClient
from pymongo.errors import AutoReconnect

employees = MongoClient(os.environ["MONGODB_URI"]).company.employees
while True:
    try:
        ann = employees.find_one({"_id": "ann"})
        raised = {"$set": {"salary": ann["salary"] * 11 // 10}, "$inc": {"version": 1}}
        if employees.update_one({"_id": "ann", "version": ann["version"]}, raised).matched_count == 1:
            break
    except AutoReconnect:
        pass
