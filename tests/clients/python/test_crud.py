"""CRUD through pymongo's own methods: results, bulk writes with their errors, large documents."""

import pymongo
import pytest
from bson import ObjectId
from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, DocumentTooLarge, DuplicateKeyError, OperationFailure, WriteError

MEGABYTE = 1024 * 1024


def test_results_of_single_writes(database):
    c = database.c
    inserted = c.insert_one({"a": 1})
    assert isinstance(inserted.inserted_id, ObjectId) and inserted.acknowledged
    assert c.insert_many([{"_id": 1}, {"_id": 2}]).inserted_ids == [1, 2]
    updated = c.update_one({"_id": 1}, {"$set": {"a": 5}})
    assert (updated.matched_count, updated.modified_count, updated.upserted_id) == (1, 1, None)
    updated = c.update_many({}, {"$set": {"a": 5}})
    assert (updated.matched_count, updated.modified_count) == (3, 2)
    updated = c.update_one({"_id": 9}, {"$set": {"a": 1}}, upsert=True)
    assert (updated.matched_count, updated.upserted_id) == (0, 9)
    replaced = c.replace_one({"_id": 9}, {"b": 2})
    assert (replaced.matched_count, replaced.modified_count) == (1, 1)
    assert c.find_one({"_id": 9}) == {"_id": 9, "b": 2}
    assert c.delete_one({"a": 5}).deleted_count == 1
    assert c.delete_many({}).deleted_count == 3
    assert c.find_one({}) is None


def test_find_one_and_change(database):
    c = database.c
    c.insert_many([{"_id": i, "n": i} for i in range(3)])
    before = c.find_one_and_update({"_id": 1}, {"$inc": {"n": 10}})
    assert before == {"_id": 1, "n": 1}
    after = c.find_one_and_update({}, {"$inc": {"n": 1}}, sort=[("n", -1)], return_document=pymongo.ReturnDocument.AFTER)
    assert after == {"_id": 1, "n": 12}
    replaced = c.find_one_and_replace({"_id": 7}, {"n": 7}, upsert=True, return_document=pymongo.ReturnDocument.AFTER)
    assert replaced == {"_id": 7, "n": 7}
    assert c.find_one_and_delete({"_id": 7}, projection={"_id": 0}) == {"n": 7}
    assert c.find_one_and_delete({"_id": 7}) is None


def test_duplicate_key_error_has_its_parts(database):
    c = database.c
    c.create_index([("a", 1), ("b", -1)], unique=True)
    c.insert_one({"_id": 1, "a": "x", "b": 2})
    with pytest.raises(DuplicateKeyError) as caught:
        c.insert_one({"_id": 2, "a": "x", "b": 2})
    details = caught.value.details
    assert caught.value.code == 11000
    assert details["keyPattern"] == {"a": 1, "b": -1}
    assert details["keyValue"] == {"a": "x", "b": 2}
    assert details["errmsg"] == (
        f'E11000 duplicate key error collection: {database.name}.c index: a_1_b_-1 dup key: {{ a: "x", b: 2 }}'
    )
    with pytest.raises(DuplicateKeyError) as caught:
        c.find_one_and_update({"_id": 3}, {"$set": {"a": "x", "b": 2}}, upsert=True)
    assert caught.value.code == 11000


def test_ordered_bulk_write_stops_at_the_error(database):
    c = database.c
    with pytest.raises(BulkWriteError) as caught:
        c.bulk_write([InsertOne({"_id": 1}), UpdateOne({"_id": 1}, {"$set": {"a": 1}}), InsertOne({"_id": 1}), InsertOne({"_id": 2})])
    details = caught.value.details
    assert (details["nInserted"], details["nMatched"], details["nModified"]) == (1, 1, 1)
    assert [(error["index"], error["code"]) for error in details["writeErrors"]] == [(2, 11000)]
    assert list(c.find()) == [{"_id": 1, "a": 1}]


def test_unordered_bulk_write_continues_after_errors(database):
    c = database.c
    c.insert_one({"_id": 1, "s": "text"})
    with pytest.raises(BulkWriteError) as caught:
        c.bulk_write(
            [
                InsertOne({"_id": 1}),
                InsertOne({"_id": 2}),
                UpdateOne({"_id": 1}, {"$inc": {"s": 1}}),
                UpdateOne({"_id": 5}, {"$set": {"a": 1}}, upsert=True),
                ReplaceOne({"_id": 6}, {"b": 1}, upsert=True),
                UpdateMany({}, {"$set": {"seen": True}}),
                DeleteOne({"_id": 2}),
                DeleteMany({"_id": {"$gt": 100}}),
            ],
            ordered=False,
        )
    details = caught.value.details
    assert details["nInserted"] == 1
    assert details["nUpserted"] == 2
    assert {entry["index"]: entry["_id"] for entry in details["upserted"]} == {3: 5, 4: 6}
    assert sorted((error["index"], error["code"]) for error in details["writeErrors"]) == [(0, 11000), (2, 14)]
    assert details["nRemoved"] == 1
    assert [document["_id"] for document in c.find().sort("_id")] == [1, 5, 6]


def test_a_bulk_write_larger_than_one_message(database):
    c = database.c
    result = c.bulk_write([InsertOne({"_id": i, "filler": "x" * 1000}) for i in range(20_000)], ordered=False)
    assert result.inserted_count == 20_000
    assert c.count_documents({}) == 20_000
    assert sum(1 for _ in c.find({}, {"_id": 1}, batch_size=997)) == 20_000


def test_unacknowledged_writes_arrive(database):
    c = database.get_collection("c", write_concern=pymongo.WriteConcern(w=0))
    result = c.insert_one({"_id": 1})
    assert not result.acknowledged
    c.update_one({"_id": 1}, {"$set": {"a": 1}})
    # The same connection answers the next command only after the writes before it.
    for _ in range(200):
        if database.c.find_one({"_id": 1, "a": 1}):
            break
    assert database.c.find_one() == {"_id": 1, "a": 1}


def test_a_document_near_16_megabytes(database):
    c = database.c
    big = "x" * (16 * MEGABYTE - 100)
    c.insert_one({"_id": 1, "big": big})
    assert c.find_one({"_id": 1})["big"] == big
    with pytest.raises((DocumentTooLarge, OperationFailure, WriteError)):
        c.insert_one({"_id": 2, "big": "x" * (16 * MEGABYTE + 1)})
    # Growing a stored document over the limit is refused by the server.
    with pytest.raises((WriteError, OperationFailure)):
        c.update_one({"_id": 1}, {"$set": {"more": "y" * 1000}})
    assert c.count_documents({}) == 1
    assert set(c.find_one({"_id": 1}, {"big": 0})) == {"_id"}


def test_errors_name_code_and_code_name(database):
    with pytest.raises(OperationFailure) as caught:
        database.command("noSuchCommand")
    assert (caught.value.code, caught.value.details["codeName"]) == (59, "CommandNotFound")
    assert caught.value.details["ok"] == 0
    with pytest.raises(OperationFailure) as caught:
        list(database.c.find({"a": {"$nope": 1}}))
    assert (caught.value.code, caught.value.details["codeName"]) == (2, "BadValue")
    assert "$nope" in caught.value.details["errmsg"]
    with pytest.raises(WriteError) as caught:
        database.c.insert_one({"_id": 1, "a": "x"})
        database.c.update_one({"_id": 1}, {"$inc": {"a": 1}})
    assert caught.value.code == 14
