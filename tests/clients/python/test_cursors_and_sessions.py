"""Cursors in small batches, sessions, compression, and what a driver asks of a server beside CRUD."""

import threading

import pymongo
import pytest
from pymongo import monitoring
from pymongo.errors import CursorNotFound, OperationFailure


def fill(c, count):
    c.insert_many([{"_id": i, "mod": i % 7} for i in range(count)])


@pytest.mark.parametrize("batch_size", [1, 2, 7, 101, 1000])
def test_every_batch_size_gives_every_document_once(database, batch_size):
    fill(database.c, 250)
    assert [d["_id"] for d in database.c.find(batch_size=batch_size).sort("_id")] == list(range(250))
    assert [d["_id"] for d in database.c.aggregate([{"$sort": {"_id": 1}}], batchSize=batch_size)] == list(range(250))


def test_limit_and_skip_over_batches(database):
    fill(database.c, 50)
    assert [d["_id"] for d in database.c.find(batch_size=3, limit=10, skip=5).sort("_id")] == list(range(5, 15))
    assert len(list(database.c.find(limit=1))) == 1


def test_a_closed_cursor_is_gone_on_the_server(database):
    fill(database.c, 20)
    cursor = database.c.find(batch_size=2)
    next(cursor)
    cursor_id = cursor.cursor_id
    cursor.close()
    with pytest.raises(CursorNotFound):
        database.command("getMore", cursor_id, collection="c")


def test_many_cursors_are_open_at_once(database):
    fill(database.c, 30)
    cursors = [database.c.find({"mod": i % 7}, batch_size=1).sort("_id") for i in range(40)]
    for i, cursor in enumerate(cursors):
        assert next(cursor)["_id"] == i % 7
    for i, cursor in enumerate(cursors):
        assert [d["_id"] for d in cursor] == list(range(i % 7 + 7, 30, 7))


def test_a_session_is_accepted_and_ends(client, database):
    fill(database.c, 10)
    with client.start_session() as session:
        assert database.c.count_documents({}, session=session) == 10
        database.c.update_one({"_id": 1}, {"$set": {"a": 1}}, session=session)
        assert [d["_id"] for d in database.c.find(session=session, batch_size=3).sort("_id")] == list(range(10))
        identity = session.session_id
    assert client.admin.command("endSessions", [identity])["ok"] == 1
    assert client.admin.command("refreshSessions", [identity])["ok"] == 1


@pytest.mark.parametrize("compressor", ["zlib", "snappy", "zstd"])
def test_messages_are_compressed(uri, database, compressor):
    events = []

    class Seen(monitoring.CommandListener):
        def started(self, event):
            events.append(event.command_name)

        def succeeded(self, event):
            pass

        def failed(self, event):
            pass

    with pymongo.MongoClient(uri, compressors=compressor, event_listeners=[Seen()]) as compressed:
        c = compressed[database.name].c
        c.insert_many([{"_id": i, "text": "compress me " * 500} for i in range(100)])
        assert sum(len(d["text"]) for d in c.find(batch_size=10)) == 100 * 6000
        assert compressor in compressed.admin.command({"hello": 1, "compression": [compressor]})["compression"]
    assert "insert" in events and "getMore" in events


def test_many_clients_increment_without_loss(uri, database):
    database.c.insert_one({"_id": 1, "n": 0})

    def work():
        with pymongo.MongoClient(uri) as mine:
            for _ in range(50):
                mine[database.name].c.update_one({"_id": 1}, {"$inc": {"n": 1}})

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert database.c.find_one()["n"] == 400


def test_a_unique_index_lets_one_of_many_through(uri, database):
    database.c.create_index("name", unique=True)
    won, lost = [], []

    def work(i):
        with pymongo.MongoClient(uri) as mine:
            try:
                mine[database.name].c.insert_one({"_id": i, "name": "one"})
                won.append(i)
            except pymongo.errors.DuplicateKeyError:
                lost.append(i)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (len(won), len(lost)) == (1, 7)
    assert [d["_id"] for d in database.c.find()] == won


def test_indexes_and_explain(database):
    c = database.c
    fill(c, 200)
    assert c.create_index([("mod", 1), ("_id", -1)]) == "mod_1__id_-1"
    c.create_indexes([pymongo.IndexModel("a", sparse=True), pymongo.IndexModel("b", expireAfterSeconds=60)])
    information = c.index_information()
    assert set(information) == {"_id_", "mod_1__id_-1", "a_1", "b_1"}
    assert information["a_1"]["sparse"] is True
    assert information["b_1"]["expireAfterSeconds"] == 60
    plan = c.find({"mod": 3}).explain()["queryPlanner"]["winningPlan"]
    assert "IXSCAN" in str(plan) and "mod_1__id_-1" in str(plan)
    assert "COLLSCAN" in str(c.find({"zzz": 3}).explain()["queryPlanner"]["winningPlan"])
    assert [d["_id"] for d in c.find({"mod": 3}).sort("_id", -1)] == [i for i in range(199, -1, -1) if i % 7 == 3]
    c.drop_index("mod_1__id_-1")
    c.drop_indexes()
    assert set(c.index_information()) == {"_id_"}


def test_collections_and_databases(client, database):
    database.create_collection("made")
    database.other.insert_one({"_id": 1})
    assert sorted(database.list_collection_names()) == ["made", "other"]
    assert database.name in client.list_database_names()
    database.other.rename("renamed")
    assert sorted(database.list_collection_names()) == ["made", "renamed"]
    assert database.renamed.find_one() == {"_id": 1}
    with pytest.raises(OperationFailure):
        database.renamed.rename("made")
    database.renamed.rename("made", dropTarget=True)
    assert database.list_collection_names() == ["made"]
    assert database.command("dbStats")["collections"] == 1
    client.drop_database(database.name)
    assert database.name not in client.list_database_names()


def test_aggregation_through_the_driver(database):
    fill(database.c, 70)
    result = list(
        database.c.aggregate(
            [
                {"$match": {"mod": {"$lt": 3}}},
                {"$group": {"_id": "$mod", "n": {"$sum": 1}, "largest": {"$max": "$_id"}}},
                {"$sort": {"_id": 1}},
            ]
        )
    )
    assert result == [{"_id": 0, "n": 10, "largest": 63}, {"_id": 1, "n": 10, "largest": 64}, {"_id": 2, "n": 10, "largest": 65}]
    assert database.c.distinct("mod") == [0, 1, 2, 3, 4, 5, 6]
    assert database.c.count_documents({"mod": 0}, skip=2, limit=5) == 5
    assert database.c.estimated_document_count() == 70
