"""Steps of four patterns by pymongo, beside the same steps by a program in another language: repeated, in transactions, and aborted.

    MONGODB_URI=mongodb://127.0.0.1:27017 python patterns.py
"""

import os

import pymongo
from bson import ObjectId
from pymongo.errors import OperationFailure

NAME = "python"
client = pymongo.MongoClient(os.environ["MONGODB_URI"])
site = client.site


class Rollback(Exception):
    """The transaction is to be aborted."""


def expect(code, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except OperationFailure as error:
        assert error.code == code, error
        return error.details.get("errInfo")
    raise AssertionError(f"an error {code} was expected")


def transaction(steps, commits=True):
    def run(session):
        site.log.insert_one({"by": NAME}, session=session)
        steps(session)
        if not commits:
            raise Rollback

    with client.start_session() as session:
        try:
            session.with_transaction(run)
        except Rollback:
            pass


# Exactly once: each view is sent twice.
def view(token, page, session=None, **more):
    change = {"document": {"_id": page}, "token": token, "update": {"$inc": {"views": 1}}, **more}
    return site.command({"handfastApplyOnce": "pages", **change}, session=session)["applied"]


for _ in range(10):
    token = ObjectId()
    assert [view(token, "shared", upsert=True) for _ in range(2)] == [True, False]
expect(4, view, ObjectId(), NAME)
view(ObjectId(), NAME, upsert=True)
token = ObjectId()
transaction(lambda session: view(token, NAME, session), commits=False)
transaction(lambda session: view(token, NAME, session))
# As after a commit without an answer.
expect(256, transaction, lambda session: view(token, NAME, session))
expect(121, view, ObjectId(), NAME, guard={"views": 0})
assert site.pages.find_one({"_id": NAME})["views"] == 2


# Two-phase commit: ten transfers to an account that both programs use, and one of too much.
def run(command, **values):
    return site.command({f"handfast{command}TwoPhase": "transfers", "application": NAME, **values})


def begin(number, value, session=None):
    plan = {"_id": f"{NAME} {number}", "source": NAME, "destination": "shop", "value": value}
    begin = {"handfastBeginTwoPhase": "transfers", "transaction": plan}
    assert site.command(begin, session=session)["_id"] == plan["_id"]
    return {"_id": plan["_id"]}


site.accounts.update_one({"_id": "shop"}, {"$setOnInsert": {"balance": 0}}, upsert=True)
site.accounts.insert_one({"_id": NAME, "balance": 100})
for number in range(10):
    named = begin(number, 5)
    assert [run("Advance", transaction=named)["state"] for _ in range(2)] == ["done", "done"]
info = expect(121, run, "Advance", transaction=begin(10, 51))
assert info["state"] == "canceled", info
assert run("Cancel", transaction=begin(11, 1), reason="a test")["state"] == "canceled"
transaction(lambda session: begin(12, 10, session), commits=False)
expect(4, run, "Advance", transaction={"_id": f"{NAME} 12"})
transaction(lambda session: begin(12, 10, session))
expect(256, transaction, lambda session: begin(12, 10, session))
assert run("Advance", transaction={"_id": f"{NAME} 12"})["state"] == "done"
assert site.accounts.find_one({"_id": NAME})["balance"] == 40


# Sync flag: a user is renamed, and the comments follow.
def rename(token, name, session=None):
    change = {"document": {"_id": NAME}, "token": token, "update": {"$set": {"name": name}}}
    return site.command({"handfastSetSynced": "users", **change}, session=session)["synced"]


link = {
    "collection": "comments",
    "key": "user",
    "fields": {"name": "userName"},
    "computed": {"userInitial": {"$substrCP": ["$name", 0, 1]}},
}
site.command({"handfastOpenSyncFlag": "users", "links": [link]})
site.users.insert_one({"_id": NAME, "name": "John"})
for number in range(3):
    comment = {"_id": f"{NAME} {number}", "user": NAME}
    site.command({"handfastInsertSynced": "users", "collection": "comments", "document": comment})
token = ObjectId()
transaction(lambda session: rename(token, "Mary", session), commits=False)
assert site.users.find_one({"_id": NAME})["name"] == "John"
transaction(lambda session: rename(token, "Mary", session))
expect(256, transaction, lambda session: rename(token, "Mary", session))
assert rename(token, "Mary")
comments = list(site.comments.find({"user": NAME}))
assert [(comment["userName"], comment["userInitial"]) for comment in comments] == [("Mary", "M")] * 3, comments


# Versioned tree: five versions of a tree that both programs write, each sent twice.
def write(token, number):
    node = {"item": NAME, "content": {"number": number}}
    return site.command({"handfastWriteTree": "items", "tree": "catalogue", "token": token, "nodes": [node]})


def read(session=None, **more):
    return site.command({"handfastReadTree": "items", "tree": "catalogue", **more}, session=session)


for number in range(5):
    token = ObjectId()
    first, second = write(token, number), write(token, number)
    assert (first["written"], second["written"], second["version"]) == (True, False, first["version"])
    read_again = read(version=first["version"], items=[NAME])
    assert read_again["nodes"] == [{"item": NAME, "version": first["version"], "content": {"number": number}}]
with client.start_session() as session, session.start_transaction():
    before = read(session)["version"]
    write(ObjectId(), 5)
    assert read(session)["version"] == before

assert site.log.count_documents({"by": NAME}) == 3
