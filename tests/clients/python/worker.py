"""A worker of the queue shop.jobs in plain driver calls. It works until it is killed.

    MONGODB_URI=mongodb://127.0.0.1:27017 python worker.py NAME

A job "mail" has its effect, a document in shop.sent, in the transaction that completes the job and enqueues a job "count". A job "count" counts the
mail in a document of shop.boxes, which workers without transactions change as well: its change is guarded as JobContext::guard of the Rust library does it.
"""

import os
import sys
import time

import pymongo

NAME = sys.argv[1]
# The jobs of a claim.
COUNT = 5
# The pause between two looks at an empty queue, and before a job is repeated after an error.
PAUSE_SECONDS = 0.02

# In a transaction a job that another worker has, or that is done, is an error, which aborts the transaction.
LOST_CODES = (117, 256)

client = pymongo.MongoClient(os.environ["MONGODB_URI"])
shop = client.shop


class Lost(Exception):
    """Another worker has the job, or had it: nothing of this one may be left."""


class Rollback(Exception):
    """The transaction is to be aborted."""


def complete(job, session=None):
    reply = shop.command({"handfastCompleteJob": "jobs", "job": job, "result": {"by": NAME}}, session=session)
    if reply["claimState"] != "held":
        raise Lost


def enqueue_count(job, job_id, session):
    count = {"_id": job_id, "type": "count", "details": job["details"]}
    shop.command({"handfastEnqueueJob": "jobs", "job": count}, session=session)


def mail(job):
    def effect(session):
        shop.sent.insert_one({"mail": job["_id"], "by": NAME}, session=session)
        enqueue_count(job, f"count of {job['_id']}", session)
        complete(job, session)

    def aborted(session):
        enqueue_count(job, f"aborted of {job['_id']}", session)
        raise Rollback

    with client.start_session() as session:
        try:
            session.with_transaction(aborted)
        except Rollback:
            pass
        session.with_transaction(effect)


def count(job):
    mark = {"work": job["_id"], "step": "count", "number": job["claims"]}
    made = {"$elemMatch": {"work": mark["work"], "step": mark["step"]}}
    fenced = {"$elemMatch": {"work": mark["work"], "number": {"$gt": mark["number"]}}}
    unmarked = {"_id": job["details"]["box"], "$nor": [{"applied": made}, {"applied": fenced}]}
    shop.boxes.update_one(unmarked, {"$inc": {"mails": 1}, "$push": {"applied": mark}, "$currentDate": {"appliedAt": True}})
    complete(job)


def work(job):
    """Does the job until an answer says that it is done or lost."""
    while True:
        try:
            return {"mail": mail, "count": count}[job["type"]](job)
        except Lost:
            return None
        except pymongo.errors.PyMongoError as error:
            if getattr(error, "code", None) in LOST_CODES:
                return None
            after(error)


def after(error):
    """Waits a moment after an error. A server that is gone ends the worker."""
    if isinstance(error, pymongo.errors.ServerSelectionTimeoutError):
        raise error
    print(f"{NAME}: {error}", file=sys.stderr, flush=True)
    time.sleep(PAUSE_SECONDS)


while True:
    jobs = []
    try:
        claim = {"handfastClaimJobs": "jobs", "worker": NAME, "types": ["mail", "count"], "count": COUNT}
        jobs = shop.command(claim)["jobs"]
    except pymongo.errors.PyMongoError as error:
        after(error)
    for claimed in jobs:
        work(claimed)
    if not jobs:
        time.sleep(PAUSE_SECONDS)
