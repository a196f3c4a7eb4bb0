"""An employee, whose salary was not changed yet."""

import os

from pymongo import MongoClient

employees = MongoClient(os.environ["MONGODB_URI"]).company.employees
employees.insert_one({"_id": "ann", "salary": 1000, "version": 1, "changes": []})
