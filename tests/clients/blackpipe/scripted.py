"""Sends operations to scripted servers, and prints their outcomes, a line each.

Each argument is a list of operations and their collections: insert:a,find:b. The operations of an argument have a client of
their own, and run one after the other; the arguments run at the same time.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from pymongo import MongoClient, ReadPreference
from pymongo.errors import AutoReconnect, NotPrimaryError, OperationFailure, PyMongoError


def found(collection):
    return f"{len(list(collection.find(batch_size=2)))} found"


OPERATIONS = {
    "find": found,
    "find_secondary": lambda items: found(items.with_options(read_preference=ReadPreference.SECONDARY)),
    "insert": lambda items: f"{items.insert_one({'_id': 1}).inserted_id} inserted",
    "update": lambda items: f"{items.update_one({}, {'$set': {'a': 1}}).modified_count} updated",
    "update_many": lambda items: f"{items.update_many({}, {'$set': {'a': 1}}).modified_count} updated",
    "delete": lambda items: f"{items.delete_one({}).deleted_count} deleted",
}


def outcome(operation, collection):
    try:
        return OPERATIONS[operation](collection)
    except (OperationFailure, NotPrimaryError) as error:
        return f"error {error.details['code']}"
    except AutoReconnect:
        return "network error"
    except PyMongoError as error:
        return type(error).__name__


def run(argument):
    with MongoClient(os.environ["MONGODB_URI"]) as client:
        calls = [call.split(":") for call in argument.split(",")]
        return [f"{operation}:{name} {outcome(operation, client.shop[name])}" for operation, name in calls]


arguments = sys.argv[1:]
with ThreadPoolExecutor(len(arguments)) as executor:
    for lines in executor.map(run, arguments):
        print("\n".join(lines))
