"""Real data: Debian's iso-codes (package iso-codes), imported, indexed, explained, aggregated, with pymongo.

    MONGODB_URI=mongodb://127.0.0.1:27017/ python examples/11-iso-codes.py

Every answer is compared with one computed from the files in Python.
"""

import collections
import json
import os
import pathlib
import time

import pymongo

FOLDER = pathlib.Path("/usr/share/iso-codes/json")
BATCH = 1000


def main():
    client = pymongo.MongoClient(os.environ.get("MONGODB_URI", "mongodb://127.0.0.1:27017/"))
    client.drop_database("example_iso_codes")
    database = client.example_iso_codes
    data = load()
    started = time.monotonic()
    for name, entries in data.items():
        for at in range(0, len(entries), BATCH):
            database[name].insert_many([dict(entry) for entry in entries[at : at + BATCH]])
        assert database[name].count_documents({}) == len(entries), name
    total = sum(map(len, data.values()))
    print(f"{total} entries of {len(data)} standards in {time.monotonic() - started:.2f} s")
    indexes_answer_as_scans_do(database, data)
    unique_indexes_hold(database, data)
    aggregations_agree(database, data)
    updates_reach_what_they_match(database, data)
    client.drop_database("example_iso_codes")
    print("ok 11-iso-codes")


def load():
    """The entries of every file, by the standard's name with `_` for what a collection's name does not take."""
    data = {}
    for path in sorted(FOLDER.glob("iso_*.json")):
        for standard, entries in json.loads(path.read_text()).items():
            data[f"iso_{standard.replace('-', '_')}"] = entries
    assert len(data) >= 6 and len(data["iso_3166_1"]) > 200, f"iso-codes is not installed in {FOLDER}?"
    return data


def stages(plan):
    """The stages of a plan, outermost first."""
    out = []
    while plan:
        out.append(plan["stage"])
        plan = plan.get("inputStage")
    return out


def indexes_answer_as_scans_do(database, data):
    languages = database.iso_639_3
    queries = [
        {"scope": "I", "type": "L"},
        {"type": {"$in": ["E", "H"]}},
        {"name": {"$gte": "Z"}},
        {"name": {"$regex": "^Ger"}},
        {"alpha_2": {"$exists": True}},
        {"alpha_2": None},
    ]
    before = [sorted(entry["alpha_3"] for entry in languages.find(query)) for query in queries]
    assert "COLLSCAN" in stages(languages.find(queries[0]).explain()["queryPlanner"]["winningPlan"])
    languages.create_index([("type", 1), ("scope", 1)])
    languages.create_index("name")
    languages.create_index("alpha_2", sparse=True)
    after = [sorted(entry["alpha_3"] for entry in languages.find(query)) for query in queries]
    assert before == after
    assert "IXSCAN" in stages(languages.find(queries[0]).explain()["queryPlanner"]["winningPlan"])
    by_hand = sorted(entry["alpha_3"] for entry in data["iso_639_3"] if entry["scope"] == "I" and entry["type"] == "L")
    assert before[0] == by_hand
    names = [entry["name"] for entry in languages.find({}, {"name": 1}, batch_size=333).sort("name")]
    assert names == sorted((entry["name"] for entry in data["iso_639_3"]), key=lambda name: name.encode())
    plan = languages.find({}).sort("name").explain()["queryPlanner"]["winningPlan"]
    assert "IXSCAN" in stages(plan) and "SORT" not in stages(plan)


def unique_indexes_hold(database, data):
    countries = database.iso_3166_1
    countries.create_index("alpha_2", unique=True)
    try:
        countries.insert_one({"alpha_2": "DE", "name": "another one"})
        raise AssertionError("two countries with one code")
    except pymongo.errors.DuplicateKeyError as error:
        assert error.details["keyValue"] == {"alpha_2": "DE"}
    assert countries.find_one({"alpha_2": "DE"})["alpha_3"] == "DEU"
    assert countries.count_documents({}) == len(data["iso_3166_1"])


def aggregations_agree(database, data):
    types = {entry["_id"]: entry["n"] for entry in database.iso_639_3.aggregate([{"$group": {"_id": "$type", "n": {"$sum": 1}}}])}
    assert types == collections.Counter(entry["type"] for entry in data["iso_639_3"])

    subdivisions = list(
        database.iso_3166_2.aggregate(
            [
                {"$project": {"country": {"$substrBytes": ["$code", 0, 2]}}},
                {"$group": {"_id": "$country", "n": {"$sum": 1}}},
                {"$sort": {"n": -1, "_id": 1}},
                {"$limit": 5},
                {"$lookup": {"from": "iso_3166_1", "localField": "_id", "foreignField": "alpha_2", "as": "country"}},
                {"$unwind": "$country"},
                {"$project": {"_id": 1, "n": 1, "name": "$country.name"}},
            ]
        )
    )
    names = {entry["alpha_2"]: entry["name"] for entry in data["iso_3166_1"]}
    counts = collections.Counter(entry["code"][:2] for entry in data["iso_3166_2"])
    expected = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]
    assert subdivisions == [{"_id": code, "n": n, "name": names[code]} for code, n in expected], subdivisions

    numeric = list(
        database.iso_3166_1.aggregate(
            [{"$set": {"number": {"$toInt": "$numeric"}}}, {"$group": {"_id": None, "least": {"$min": "$number"}, "greatest": {"$max": "$number"}}}]
        )
    )
    numbers = [int(entry["numeric"]) for entry in data["iso_3166_1"]]
    assert numeric == [{"_id": None, "least": min(numbers), "greatest": max(numbers)}]
    types = database.iso_3166_2.distinct("type")
    assert sorted(types) == sorted({entry["type"] for entry in data["iso_3166_2"]})


def updates_reach_what_they_match(database, data):
    result = database.iso_3166_2.update_many({"code": {"$regex": "^DE-"}}, {"$set": {"country": "DE"}, "$unset": {"type": 1}})
    german = sum(1 for entry in data["iso_3166_2"] if entry["code"].startswith("DE-"))
    assert (result.matched_count, result.modified_count) == (german, german) and german == 16
    assert database.iso_3166_2.delete_many({"country": "DE"}).deleted_count == german
    assert database.iso_3166_2.count_documents({}) == len(data["iso_3166_2"]) - german


if __name__ == "__main__":
    main()
