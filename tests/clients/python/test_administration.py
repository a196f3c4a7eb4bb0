"""Commands of administration as tools send them: the replica set, parameters, maintenance, and statistics of collections and indexes."""

import hashlib

import bson
import pytest
from pymongo.errors import OperationFailure


def refused(code, run):
    with pytest.raises(OperationFailure) as refusal:
        run()
    assert refusal.value.code == code, refusal.value


def test_the_replica_set_has_one_member_which_is_the_primary(client):
    status = client.admin.command("replSetGetStatus")
    configuration = client.admin.command("replSetGetConfig")["config"]
    (member,) = status["members"]
    assert (status["set"], status["myState"], member["stateStr"], member["self"]) == (configuration["_id"], 1, "PRIMARY", True)
    assert [member["host"] for member in configuration["members"]] == [member["name"]]
    assert "%s:%d" % client.primary == member["name"]
    assert client.admin.command("hello")["setVersion"] == configuration["version"]


def test_the_default_concerns_are_those_of_the_server(client):
    defaults = client.admin.command("getDefaultRWConcern")
    assert defaults["defaultReadConcern"] == {"level": "local"}
    assert defaults["defaultWriteConcern"] == {"w": "majority", "wtimeout": 0}
    client.admin.command("setDefaultRWConcern", defaultWriteConcern={"w": "majority"})
    refused(115, lambda: client.admin.command("setDefaultRWConcern", defaultWriteConcern={"w": 1}))


def test_a_parameter_is_changed_and_shown(client):
    before = client.admin.command("getParameter", cursorTimeoutMillis=1)["cursorTimeoutMillis"]
    try:
        assert client.admin.command("setParameter", cursorTimeoutMillis=before + 1)["was"] == before
        details = client.admin.command("getParameter", {"showDetails": True}, cursorTimeoutMillis=1)
        assert details["cursorTimeoutMillis"] == {"value": before + 1, "settableAtRuntime": True, "settableAtStartup": True}
    finally:
        client.admin.command("setParameter", cursorTimeoutMillis=before)
    refused(72, lambda: client.admin.command("setParameter", noSuchParameter=1))
    refused(20, lambda: client.admin.command("setParameter", enableTestCommands=True))


def test_maintenance_syncs_measures_and_hashes(client, database):
    documents = [{"_id": i, "n": i} for i in range(10)]
    database.c.insert_many(documents)
    database.c.create_index("n")
    assert client.admin.command("fsync")["numFiles"] == 1
    refused(115, lambda: client.admin.command("fsync", lock=True))
    refused(20, lambda: client.admin.command("fsyncUnlock"))
    assert database.command("compact", "c")["bytesFreed"] == 0
    each = len(bson.encode(documents[0]))
    size = database.command("dataSize", f"{database.name}.c")
    assert (size["numObjects"], size["size"]) == (10, 10 * each)
    part = database.command("dataSize", f"{database.name}.c", keyPattern={"n": 1}, min={"n": 2}, max={"n": 5})
    assert (part["numObjects"], part["size"]) == (3, 3 * each)
    expected = hashlib.md5(b"".join(map(bson.encode, documents))).hexdigest()
    reply = database.command("dbHash")
    assert reply["collections"] == {"c": expected}
    assert reply["md5"] == hashlib.md5(expected.encode()).hexdigest()


def test_the_uses_of_indexes_are_counted(database):
    database.c.insert_many([{"_id": i, "n": i % 3, "m": i} for i in range(9)])
    database.c.create_index([("n", 1), ("m", -1)], name="n_and_m")

    def uses():
        return {index["name"]: index["accesses"]["ops"] for index in database.c.aggregate([{"$indexStats": {}}])}

    def scans():
        (stats,) = database.c.aggregate([{"$collStats": {"queryExecStats": {}}}])
        return stats["queryExecStats"]["collectionScans"]["total"]

    assert uses() == {"_id_": 0, "n_and_m": 0}
    assert len(list(database.c.find({"n": 1}))) == 3
    assert len(list(database.c.aggregate([{"$match": {"n": 2}}]))) == 3
    database.c.update_one({"n": 1}, {"$set": {"x": 1}})
    assert database.c.find_one({"_id": 4})["n"] == 1
    assert uses() == {"_id_": 1, "n_and_m": 3}
    before = scans()
    assert len(list(database.c.find({"x": 1}))) == 1
    assert scans() == before + 1
    database.c.drop_index("n_and_m")
    assert uses() == {"_id_": 0}


def test_there_is_no_cache_of_plans(database):
    database.c.insert_one({"_id": 1})
    database.command("planCacheClear", "c", query={"n": 1}, sort={"n": 1})
    assert list(database.c.aggregate([{"$planCacheStats": {}}])) == []
    assert database.command("planCacheListFilters", "c")["filters"] == []
    refused(115, lambda: database.command("planCacheSetFilter", "c", query={"n": 1}, indexes=[{"n": 1}]))


def test_idle_cursors_and_sessions_are_listed(client, database):
    database.c.insert_many([{"_id": i} for i in range(5)])
    with client.start_session() as session:
        cursor = database.c.find(batch_size=2, session=session)
        next(cursor)
        listed = client.admin.aggregate([{"$currentOp": {"idleCursors": True, "allUsers": True}}])
        (found,) = [operation for operation in listed if operation.get("cursor", {}).get("cursorId") == cursor.cursor_id]
        assert (found["type"], found["ns"]) == ("idleCursor", f"{database.name}.c")
        listed = client.config["system.sessions"].aggregate([{"$listSessions": {}}])
        assert session.session_id["id"] in [document["_id"]["id"] for document in listed]
        cursor.close()
