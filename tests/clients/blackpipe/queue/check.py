"""The task has its result, and the queue is empty."""

import os
import sys

from pymongo import MongoClient

work = MongoClient(os.environ["MONGODB_URI"]).work
tasks = list(work.tasks.find())
results = list(work.results.find())
if tasks or results != [{"_id": "task-1", "square": 144}]:
    sys.exit(f"the task must be done: the tasks are {tasks}, the results {results}")
