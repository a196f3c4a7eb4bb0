"""Steps of the ledger bank.tx by pymongo, beside the same steps by programs in other languages: repeated, in transactions, and aborted.

    MONGODB_URI=mongodb://127.0.0.1:27017 python ledger.py
"""

import datetime
import os

import pymongo
from pymongo.errors import OperationFailure

NAME = "python"
client = pymongo.MongoClient(os.environ["MONGODB_URI"])
bank = client.bank


class Rollback(Exception):
    """The transaction is to be aborted."""


def run(name, session=None, **arguments):
    return bank.command({name: "tx", **arguments}, session=session)


def transfer(entry, payer, payee, value, session=None):
    changes = [{"account": payer, "value": -value, "asset": "EUR"}, {"account": payee, "value": value, "asset": "EUR"}]
    return run("handfastPostEntry", session, entry={"_id": f"{NAME} {entry}", "changes": changes})


def hold(number, value, **more):
    named = {"_id": f"{NAME} hold {number}"}
    amount = {"value": value, "asset": "EUR"}
    posted = run("handfastPostHold", hold={**named, "payer": NAME, "payee": "shop", **amount, **more})
    assert posted["holdState"] == "open", posted
    return named


def balance(**as_of):
    return run("handfastBalance", account=NAME, **as_of)


def order(session, number, value, commits=True):
    bank.orders.insert_one({"by": NAME, "number": number}, session=session)
    transfer(f"order {number}", NAME, "shop", value, session)
    if not commits:
        raise Rollback


def expect(code, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except OperationFailure as error:
        assert error.code == code, error
        return error.details.get("errInfo")
    raise AssertionError(f"an error {code} was expected")


run("handfastOpenAccount", account={"_id": NAME, "asset": "EUR", "minimum": 0})
assert [transfer("deposit", "cash", NAME, 1000)["posted"] for _ in range(2)] == [True, False]

with client.start_session() as session:
    for number in range(10):
        try:
            session.with_transaction(lambda session: order(session, number, 10, commits=number % 2 == 0))
        except Rollback:
            continue
        # As after a commit without an answer.
        expect(256, session.with_transaction, lambda session: order(session, number, 10))
    info = expect(121, session.with_transaction, lambda session: order(session, 10, 951))
assert (info["account"], info["available"], info["change"], info["minimum"]) == (NAME, 950, -951, 0), info
assert bank.orders.count_documents({"by": NAME}) == 5

captured, released = hold(1, 100), hold(2, 50)
assert balance()["available"] == 800
for _ in range(2):
    assert run("handfastCaptureHold", hold=captured, value=60)["holdState"] == "captured"
    assert run("handfastReleaseHold", hold=released)["holdState"] == "released"
assert expect(20, run, "handfastReleaseHold", hold=captured)["holdState"] == "captured"

transfer("mistake", NAME, "shop", 1)
assert run("handfastCancelEntry", entry={"_id": f"{NAME} mistake"}, reason="a test")["canceled"]
assert (balance()["balance"], balance(entry=f"{NAME} deposit")["balance"]) == (890, 1000)

# This one stays.
hold(3, 5, expiresAt=datetime.datetime(2100, 1, 1))
