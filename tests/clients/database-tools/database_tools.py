"""MongoDB's Database Tools: dumps, archives, exports, GridFS files and statistics.

The argument is the folder of the programs. MONGODB_URI names a server that asks for no login, and whose databases are empty.
"""

import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.raw_bson import RawBSONDocument
from pymongo import ASCENDING, MongoClient

TOOLS = Path(sys.argv[1])
URI = os.environ["MONGODB_URI"]
# More documents than one batch of an insert, or the first batch of a cursor, holds.
MANY = 2500


def run(tool, *arguments, stdin=b""):
    """Runs a program, which must succeed, and returns what it prints."""
    command = [TOOLS / tool, *map(str, arguments)]
    if tool != "bsondump":
        command += ["--uri", URI]
    result = subprocess.run(command, input=stdin, capture_output=True, check=False)
    assert result.returncode == 0, (command, result.returncode, result.stderr.decode())
    return result.stdout


def documents(collection):
    """Returns the documents as bytes, in the order of their ids."""
    raw = collection.with_options(codec_options=collection.codec_options.with_options(document_class=RawBSONDocument))
    return [document.raw for document in raw.find().sort("_id")]


def indexes(collection):
    """Returns the indexes by name: mongorestore creates them in any order."""
    return sorted((index.to_dict() for index in collection.list_indexes()), key=lambda index: index["name"])


def same(one, other):
    assert documents(one) == documents(other) and documents(one), (one, other)
    assert indexes(one) == indexes(other), (indexes(one), indexes(other))


def fill(database):
    """Stores documents with values of all types, and indexes with all options."""
    values = [
        1.5, float("inf"), -0.0, "text", {"a": {"b": []}}, [1, [2], {"c": 3}], Binary(b"\0\1", 5), ObjectId(), True,
        datetime(2024, 2, 29, 12, 30, 15), None, Regex("^a.c$", "i"), DBRef("c", 7, "d"), Code("f()"), 7, Int64(1 << 40),
        Timestamp(0, 0), Timestamp(5, 6), Decimal128("0E-6176"), MinKey(), MaxKey(), {"$dollar": 1, "a.b": 2}, "\0", "ä😀",
    ]
    types = database.types
    types.insert_many([{"_id": n, "value": value} for n, value in enumerate(values)])
    # An insert replaces an empty timestamp, unless the tools ask otherwise.
    empty = [{"$replaceWith": {"$literal": {"_id": "empty", "value": Timestamp(0, 0)}}}]
    types.insert_one({"_id": "empty"})
    types.update_one({"_id": "empty"}, empty)
    types.insert_one({"_id": {"a": 1, "b": [Timestamp(0, 0)]}})
    many = database["many.of them"]
    many.insert_many([{"_id": n, "n": n % 10, "text": "x" * (n % 300), "at": datetime(2024, 1, 1)} for n in range(MANY)])
    many.create_index([("n", ASCENDING), ("text", -1)], background=False)
    many.create_index("text", name="sparse", sparse=True)
    many.create_index("at", expireAfterSeconds=1 << 31 - 1, partialFilterExpression={"n": {"$gt": 5}})
    types.create_index("unique", unique=True, sparse=True, hidden=True)
    database.create_collection("empty")


def dump_and_restore(client, folder):
    fill(client.dumped)
    names = sorted(client.dumped.list_collection_names())
    run("mongodump", "--db", "dumped", "--out", folder / "dump")
    printed = run("bsondump", folder / "dump/dumped/types.bson").decode()
    assert '{"_id":"empty","value":{"$timestamp":{"t":0,"i":0}}}' in printed, printed
    archive = folder / "archive.gz"
    run("mongodump", "--db", "dumped", f"--archive={archive}", "--gzip")
    rename = ("--nsFrom", "dumped.*")
    run("mongorestore", *rename, "--nsTo", "folder.*", folder / "dump")
    run("mongorestore", *rename, "--nsTo", "archive.*", f"--archive={archive}", "--gzip")
    stream = run("mongodump", "--db", "dumped", "--archive")
    run("mongorestore", *rename, "--nsTo", "stream.*", "--archive", "--stopOnError", "--maintainInsertionOrder", stdin=stream)
    for name in ["folder", "archive", "stream"]:
        database = client[name]
        assert sorted(database.list_collection_names()) == names
        for collection in ["types", "many.of them"]:
            same(client.dumped[collection], database[collection])
        assert indexes(database.empty) == indexes(client.dumped.empty)
    # Restored twice: with --drop the collections are as they were, without it all documents are there already.
    client.folder.types.insert_one({"_id": "new"})
    run("mongorestore", *rename, "--nsTo", "folder.*", "--drop", folder / "dump")
    same(client.dumped.types, client.folder.types)
    run("mongorestore", *rename, "--nsTo", "folder.*", folder / "dump")
    same(client.dumped.types, client.folder.types)
    # Some documents of one collection.
    query = json.dumps({"n": {"$lt": 3}})
    run("mongodump", "--db", "dumped", "--collection", "many.of them", "--query", query, "--out", folder / "some")
    run("mongorestore", *rename, "--nsTo", "some.*", folder / "some")
    assert client.some["many.of them"].count_documents({}) == MANY * 3 // 10


def whole_server(client, folder):
    """A dump of all databases and users, restored after they were dropped."""
    client.dumped.command("createUser", "ann", pwd="secret", roles=["readWrite", {"role": "read", "db": "folder"}])
    ann = client.dumped.command("usersInfo", "ann")["users"]
    before = {name: {c: documents(client[name][c]) for c in client[name].list_collection_names()} for name in ["dumped", "folder"]}
    run("mongodump", "--out", folder / "whole")
    for name in before:
        client.drop_database(name)
    client.dumped.command("dropUser", "ann")
    client.dumped.command("createUser", "bob", pwd="secret", roles=[])
    run("mongorestore", "--numInsertionWorkersPerCollection", 4, folder / "whole")
    for name, collections in before.items():
        for collection, stored in collections.items():
            assert documents(client[name][collection]) == stored, (name, collection)
    assert client.dumped.command("usersInfo", "ann")["users"] == ann != []
    assert [user["user"] for user in client.dumped.command("usersInfo", 1)["users"]] == ["ann", "bob"]
    with MongoClient(URI, username="ann", password="secret", authSource="dumped") as of_ann:
        assert of_ann.dumped.types.find_one({"_id": 0})


def export_and_import(client, folder):
    source = client.exported.c
    source.insert_many([{"_id": n, "name": f"name, {n}", "size": n * 1.5, "at": datetime(2024, 1, 1)} for n in range(MANY)])
    run("mongoexport", "--db", "exported", "--collection", "c", "--jsonFormat", "canonical", "--out", folder / "c.json")
    run("mongoimport", "--db", "json", "--collection", "c", "--file", folder / "c.json")
    same(source, client.json.c)
    array = run("mongoexport", "--db", "exported", "--collection", "c", "--jsonArray", "--sort", '{"_id": -1}', "--limit", 5)
    assert [document["_id"] for document in json.loads(array)] == list(range(MANY - 1, MANY - 6, -1))
    run("mongoexport", "--db", "exported", "--collection", "c", "--type", "csv", "--fields", "_id,name,size", "--out", folder / "c.csv")
    run("mongoimport", "--db", "csv", "--collection", "c", "--type", "csv", "--headerline", "--file", folder / "c.csv")
    assert client.csv.c.count_documents({}) == MANY
    assert client.csv.c.find_one({"_id": 2}) == {"_id": 2, "name": "name, 2", "size": 3}
    # Each mode of an import over documents that exist.
    changed = b'{"_id": 1, "name": "new", "size": {"$numberDouble": "1.5"}}\n{"_id": -1, "name": "inserted"}\n'
    into = ("--db", "json", "--collection", "c")
    run("mongoimport", *into, "--mode", "upsert", stdin=changed)
    assert client.json.c.find_one({"_id": 1}) == {"_id": 1, "name": "new", "size": 1.5}
    assert client.json.c.find_one({"_id": -1}) == {"_id": -1, "name": "inserted"}
    run("mongoimport", *into, "--mode", "merge", "--upsertFields", "name", stdin=b'{"name": "new", "more": true}\n')
    assert client.json.c.find_one({"_id": 1}) == {"_id": 1, "name": "new", "size": 1.5, "more": True}
    run("mongoimport", *into, "--mode", "delete", stdin=changed)
    assert client.json.c.count_documents({"_id": {"$in": [1, -1]}}) == 0
    run("mongoimport", *into, "--drop", stdin=changed)
    assert client.json.c.count_documents({}) == 2


def files(client, folder):
    content = bytes(n * 7 % 251 for n in range(700_000))
    (folder / "file").write_bytes(content)
    run("mongofiles", "--db", "files", "--local", folder / "file", "put", "a file")
    assert b"a file\t700000" in run("mongofiles", "--db", "files", "list")
    assert b"a file\t700000" in run("mongofiles", "--db", "files", "search", "file")
    run("mongofiles", "--db", "files", "--local", folder / "copy", "get", "a file")
    assert (folder / "copy").read_bytes() == content
    run("mongofiles", "--db", "files", "delete", "a file")
    assert client.files["fs.files"].count_documents({}) == client.files["fs.chunks"].count_documents({}) == 0


def statistics(folder):
    [line] = json.loads(run("mongostat", "--rowcount", 1, "--json")).values()
    assert {"insert", "query", "conn", "res", "vsize", "net_in"} <= line.keys(), line
    assert line["res"] not in ("", "0B"), line
    totals = json.loads(run("mongotop", "--rowcount", 1, "--json", 1))["totals"]
    assert "dumped.types" in totals, totals


def main():
    with MongoClient(URI) as client, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dump_and_restore(client, folder)
        whole_server(client, folder)
        export_and_import(client, folder)
        files(client, folder)
        statistics(folder)


main()
