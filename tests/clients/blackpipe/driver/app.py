"""Sends one operation after the other, and tells which failed: those that the driver does not repeat by itself."""

import os
import sys

from pymongo import DeleteOne, InsertOne, MongoClient, UpdateMany
from pymongo.errors import AutoReconnect

client = MongoClient(os.environ["MONGODB_URI"])
items = client.shop.items
failed = []


def call(name, operation):
    try:
        operation()
        return True
    except AutoReconnect:
        failed.append(name)
        return False


def transaction():
    with client.start_session() as session:
        session.start_transaction()
        if call("insert_one in a transaction", lambda: items.insert_one({}, session=session)):
            call("commit_transaction", session.commit_transaction)


def read_all(cursor):
    for _ in cursor:
        pass


call("create_index", lambda: items.create_index("number"))
call("insert_one", lambda: items.insert_one({"number": 1}))
call("insert_many", lambda: items.insert_many([{"number": 2}, {"number": 3}]))
call("bulk_write", lambda: items.bulk_write([InsertOne({"number": 4})]))
call("update_one", lambda: items.update_one({"number": 1}, {"$inc": {"price": 1}}))
call("replace_one", lambda: items.replace_one({"number": 2}, {"number": 2}))
call("update_many", lambda: items.update_many({}, {"$inc": {"price": 1}}))
call("bulk_write with update_many", lambda: items.bulk_write([UpdateMany({}, {"$inc": {"price": 1}})]))
call("find_one_and_update", lambda: items.find_one_and_update({"number": 1}, {"$inc": {"price": 1}}))
call("delete_one", lambda: items.delete_one({"number": 1}))
call("delete_many", lambda: items.delete_many({"number": 2}))
call("find_one", lambda: items.find_one())
call("find, next batch", lambda: read_all(items.find({}, batch_size=1)))
call("count_documents", lambda: items.count_documents({}))
call("distinct", lambda: items.distinct("number"))
call("aggregate with $out", lambda: read_all(items.aggregate([{"$out": "copy"}])))
call("list_collection_names", client.shop.list_collection_names)
call("command", lambda: client.shop.command({"count": "items"}))
transaction()
if failed:
    sys.exit(f"failed: {', '.join(failed)}")
