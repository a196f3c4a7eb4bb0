"""Logins and roles through pymongo. MONGODB_URI names a server that asks for logins, where "boss" is root with the password in
BOSS_PASSWORD; with TLS_CA the server speaks TLS."""

import os

import pymongo
from pymongo.errors import AutoReconnect, OperationFailure, ServerSelectionTimeoutError

URI = os.environ["MONGODB_URI"]
TLS = {"tls": True, "tlsCAFile": os.environ["TLS_CA"]} if "TLS_CA" in os.environ else {}
BOSS = {"username": "boss", "password": os.environ["BOSS_PASSWORD"]}


def client(**options):
    return pymongo.MongoClient(URI, serverSelectionTimeoutMS=10000, **TLS, **options)


def refused(code, action):
    try:
        action()
    except OperationFailure as error:
        assert error.code == code, error
        return error.details["errmsg"]
    raise AssertionError("not refused")


with client(**BOSS) as boss:
    assert boss.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"] == [{"user": "boss", "db": "admin"}]
    boss.py_login.c.insert_many([{"_id": n} for n in range(300)])
    boss.py_login.command("createUser", "ann", pwd="ann's pässword", roles=["read"])
    refused(51003, lambda: boss.py_login.command("createUser", "ann", pwd="x", roles=[]))
    refused(31, lambda: boss.py_login.command("createUser", "bob", pwd="x", roles=["king"]))
    assert "py_login" in boss.list_database_names()

    with client(username="ann", password="ann's pässword", authSource="py_login") as ann:
        assert ann.py_login.c.count_documents({}) == 300
        assert len(list(ann.py_login.c.find(batch_size=10))) == 300
        assert ann.list_database_names() == ["py_login"]
        refused(13, lambda: ann.py_login.c.insert_one({}))
        refused(13, lambda: ann.other.c.find_one())
        refused(13, lambda: list(ann.py_login.c.aggregate([{"$out": "d"}])))
        refused(13, lambda: ann.admin.system.users.find_one())
        boss.py_login.command("grantRolesToUser", "ann", roles=["readWrite"])
        ann.py_login.c.insert_one({})
        boss.py_login.command("dropUser", "ann")
        refused(13, lambda: ann.py_login.c.find_one())

    assert boss.admin.command("usersInfo", {"forAllDBs": True})["users"][0]["user"] == "boss"
    assert boss.admin["system.users"].find_one()["user"] == "boss"
    refused(13, lambda: boss.admin["system.users"].insert_one({"_id": "admin.eve"}))
    boss.drop_database("py_login")

for wrong in (
    {"username": "boss", "password": "wrong"},
    {"username": "nobody", "password": "wrong"},
    {"username": "boss", "password": os.environ["BOSS_PASSWORD"], "authSource": "other"},
):
    with client(**wrong) as stranger:
        assert refused(18, lambda: stranger.admin.command("ping")) == "Authentication failed."

with client() as stranger:
    assert stranger.admin.command("ping")["ok"] == 1
    assert refused(13, lambda: stranger.d.c.find_one()) == "Command find requires authentication"

if TLS:
    for options in ({}, {"tls": True}):
        with pymongo.MongoClient(URI, serverSelectionTimeoutMS=1000, **options) as stranger:
            try:
                stranger.admin.command("ping")
            except (ServerSelectionTimeoutError, AutoReconnect):
                continue
            raise AssertionError(f"connected with {options}")
print("ok")
