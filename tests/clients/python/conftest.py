"""The server under test is named by MONGODB_URI; every test gets an empty database of its own."""

import os
import pathlib
import re
import sys

import pymongo
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "harness"))


@pytest.fixture(scope="session")
def uri():
    return os.environ["MONGODB_URI"]


@pytest.fixture(scope="session")
def client(uri):
    with pymongo.MongoClient(uri, serverSelectionTimeoutMS=5000, socketTimeoutMS=60000) as client:
        yield client


@pytest.fixture
def database(client, request):
    name = "py_" + re.sub(r"\W", "_", request.node.name)[:40]
    client.drop_database(name)
    yield client[name]
    client.drop_database(name)
