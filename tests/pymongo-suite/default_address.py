"""A plugin of pytest: a MongoClient without an address goes to the server under test, as some tests of the suite expect.

They say `MongoClient()` where the others use DB_IP and DB_PORT.
"""

import os

from pymongo import AsyncMongoClient, MongoClient

for client in (MongoClient, AsyncMongoClient):
    client.HOST = os.environ["DB_IP"]
    client.PORT = int(os.environ["DB_PORT"])
