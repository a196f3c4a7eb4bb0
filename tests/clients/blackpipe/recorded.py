"""Writes and reads orders, and prints what it sees. The argument is the status of the orders that it looks for."""

import os
import sys

from pymongo import CursorType, MongoClient
from pymongo.errors import DuplicateKeyError, OperationFailure

client = MongoClient(os.environ["MONGODB_URI"], serverSelectionTimeoutMS=60000)
orders, events = client.shop.orders, client.shop.events


def send_first(session):
    """Sends the first order, and notes it, in one transaction."""
    orders.update_one({"_id": 1}, {"$set": {"status": "sent"}}, session=session)
    events.update_one({"_id": "sent"}, {"$inc": {"count": 1}}, upsert=True, session=session)


try:
    orders.insert_many([{"_id": number, "status": ["open", "sent"][number % 2]} for number in range(10)])
    # The driver makes another _id in each run.
    events.insert_one({"kind": "import"})
    with client.start_session() as session:
        session.with_transaction(send_first)
    print([order["_id"] for order in orders.find({"status": sys.argv[1]}, batch_size=2)])
    print([order["_id"] for order in orders.find(batch_size=3, cursor_type=CursorType.EXHAUST)])
    print(orders.count_documents({}), events.count_documents({}))
except OperationFailure as error:
    sys.exit(str(error))
try:
    orders.insert_one({"_id": 1})
except DuplicateKeyError as error:
    print(error.details["keyValue"])
