"""The status is the last one."""

import os
import sys

from pymongo import MongoClient

order = MongoClient(os.environ["MONGODB_URI"]).shop.orders.find_one({"_id": 1})
if order["status"] != "sent":
    sys.exit(f"the order must be sent: {order}")
