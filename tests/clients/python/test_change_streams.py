"""Change streams with pymongo: scopes, documents, resumption, invalidation, labels."""

import threading

import pytest
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure, PyMongoError


def take(stream, count):
    return [stream.next() for _ in range(count)]


def kinds(events):
    return [event["operationType"] for event in events]


def test_changes_of_a_collection(database):
    # The collection does not exist yet.
    with database.c.watch() as stream:
        database.c.insert_one({"_id": 1, "a": 1, "b": [1, 2, 3]})
        database.c.update_one({"_id": 1}, {"$set": {"a": 2}, "$unset": {"x": 1}, "$pop": {"b": 1}})
        database.c.replace_one({"_id": 1}, {"z": 1})
        database.c.delete_one({"_id": 1})
        database.other.insert_one({"_id": 1})
        events = take(stream, 4)
        assert stream.try_next() is None
    assert kinds(events) == ["insert", "update", "replace", "delete"]
    insert, update, replace, delete = events
    assert insert["fullDocument"] == {"_id": 1, "a": 1, "b": [1, 2, 3]}
    assert insert["ns"] == {"db": database.name, "coll": "c"}
    assert update["updateDescription"] == {
        "updatedFields": {"a": 2}, "removedFields": [], "truncatedArrays": [{"field": "b", "newSize": 2}],
    }
    assert "fullDocument" not in update and delete["documentKey"] == {"_id": 1}
    assert replace["fullDocument"] == {"_id": 1, "z": 1}
    times = [(event["clusterTime"].time, event["clusterTime"].inc) for event in events]
    assert times == sorted(times)


def test_scopes_and_pipelines(database):
    only = [{"$match": {"operationType": "insert", "fullDocument.a": {"$gt": 1}}}, {"$project": {"fullDocument.a": 1}}]
    with database.client.watch() as all_changes, database.watch() as of_database, database.c.watch(only) as filtered:
        database.c.insert_many([{"_id": 1, "a": 1}, {"_id": 2, "a": 2}])
        database.d.insert_one({"_id": 3})
        assert [event["documentKey"]["_id"] for event in take(all_changes, 3)] == [1, 2, 3]
        assert [event["documentKey"]["_id"] for event in take(of_database, 3)] == [1, 2, 3]
        event = filtered.next()
        assert set(event) == {"_id", "fullDocument"} and event["fullDocument"] == {"a": 2}
    with pytest.raises(OperationFailure) as refused:
        database.c.watch([{"$group": {"_id": 1}}])
    assert refused.value.code == 20
    with database.c.watch([{"$project": {"_id": 0}}]) as stream, pytest.raises(PyMongoError):
        database.c.insert_one({})
        stream.next()


def test_update_lookup_and_missing_images(database):
    database.c.insert_one({"_id": 1, "a": 1})
    with database.c.watch(full_document="updateLookup") as stream, database.c.watch(
        full_document="whenAvailable", full_document_before_change="whenAvailable"
    ) as images:
        database.c.update_one({"_id": 1}, {"$set": {"a": 2}})
        database.c.delete_one({"_id": 1})
        assert stream.next()["fullDocument"] is None, "it is gone when the event is read"
        event = images.next()
        assert event["fullDocument"] is None and event["fullDocumentBeforeChange"] is None
    database.c.insert_one({"_id": 2, "a": 1})
    with database.c.watch(full_document="updateLookup") as stream:
        database.c.update_one({"_id": 2}, {"$set": {"a": 2}})
        assert stream.next()["fullDocument"] == {"_id": 2, "a": 2}


def test_resuming_at_each_event(database):
    with database.c.watch() as stream:
        database.c.insert_many([{"_id": number} for number in range(10)])
        events = take(stream, 10)
    for number, event in enumerate(events):
        for option in ["resume_after", "start_after"]:
            with database.c.watch(max_await_time_ms=10, **{option: event["_id"]}) as stream:
                assert [later["_id"] for later in take(stream, 9 - number)] == [later["_id"] for later in events[number + 1 :]]
                assert stream.try_next() is None
    with database.c.watch(start_at_operation_time=events[4]["clusterTime"]) as stream:
        assert stream.next()["clusterTime"] == events[4]["clusterTime"]


def test_an_operation_time_of_a_reply(database):
    with database.c.watch():
        pass
    before = database.command("ping")["operationTime"]
    reply = database.command("insert", "c", documents=[{"_id": 1}])
    database.c.insert_one({"_id": 2})
    # The moment of the reply of an insert is that of its event, and every moment is inclusive.
    for moment, first in [(reply["operationTime"], 1), (Timestamp(before.time, before.inc + 1), 1)]:
        with database.c.watch(start_at_operation_time=moment) as stream:
            assert stream.next()["documentKey"]["_id"] == first
    with pytest.raises(OperationFailure) as lost:
        database.c.watch(start_at_operation_time=Timestamp(1, 1))
    assert lost.value.code == 286 and lost.value.has_error_label("NonResumableChangeStreamError")


def test_invalidation(database):
    database.c.insert_one({"_id": 1})
    with database.c.watch() as stream:
        database.c.drop()
        drop, invalidate = take(stream, 2)
        assert kinds([drop, invalidate]) == ["drop", "invalidate"] and not stream.alive
    with pytest.raises(OperationFailure) as refused:
        database.c.watch(resume_after=invalidate["_id"])
    assert refused.value.code == 260
    database.c.insert_one({"_id": 2})
    with database.c.watch(start_after=invalidate["_id"]) as stream:
        assert stream.next()["documentKey"] == {"_id": 2}
    with database.watch() as stream:
        database.c.rename("e")
        database.client.drop_database(database.name)
        assert kinds(take(stream, 4)) == ["rename", "drop", "dropDatabase", "invalidate"]


def test_transactions(database):
    with database.watch() as stream, database.client.start_session() as session:
        with session.start_transaction():
            database.c.insert_one({"_id": 9}, session=session)
            session.abort_transaction()
        with session.start_transaction():
            database.c.insert_one({"_id": 1}, session=session)
            database.d.insert_one({"_id": 2}, session=session)
            database.c.insert_one({"_id": 3}, session=session)
            with pytest.raises(OperationFailure) as refused:
                database.c.aggregate([{"$changeStream": {}}], session=session)
            assert refused.value.code == 263
            session.abort_transaction()
        with session.start_transaction():
            database.c.insert_one({"_id": 4}, session=session)
            database.b.insert_one({"_id": 5}, session=session)
        first, second = take(stream, 2)
        assert [event["documentKey"]["_id"] for event in (first, second)] == [4, 5]
        assert first["lsid"]["id"] == second["lsid"]["id"] == session.session_id["id"]
        assert first["txnNumber"] == second["txnNumber"] and first["clusterTime"] == second["clusterTime"]


def test_a_waiting_stream_is_woken(database):
    with database.c.watch(max_await_time_ms=600_000) as stream:
        writer = threading.Timer(0.2, lambda: database.c.insert_one({"_id": 1}))
        writer.start()
        assert stream.next()["documentKey"] == {"_id": 1}
        writer.join()


def test_expanded_events(database):
    with database.watch(show_expanded_events=True) as stream:
        database.c.create_index("a")
        database.c.insert_one({"_id": 1})
        database.command("collMod", "c", index={"name": "a_1", "hidden": True})
        database.c.drop_index("a_1")
        events = take(stream, 5)
    assert kinds(events) == ["create", "createIndexes", "insert", "modify", "dropIndexes"]
    assert events[1]["operationDescription"]["indexes"][0]["name"] == "a_1"
    assert len({bytes(event["collectionUUID"]) for event in events}) == 1
