"""The commands of job queues: alone, in transactions, and by workers whose connections break."""

import bson
import pymongo
import pytest
import schemas


def enqueue(database, session=None, **job):
    return database.command({"handfastEnqueueJob": "jobs", "job": {"type": "mail", **job}}, session=session)


def claim(database, worker="w", count=1):
    return database.command({"handfastClaimJobs": "jobs", "worker": worker, "types": ["mail"], "count": count})["jobs"]


def of_claim(name, job, **more):
    return {name: "jobs", "job": job, **more}


def test_a_job_is_done(database):
    assert enqueue(database, _id="welcome-ann", details={"to": "ann"})["inserted"]
    [job] = claim(database)
    assert job["details"] == {"to": "ann"} and isinstance(job["claim"], bson.ObjectId)
    assert claim(database) == []
    done = database.command(of_claim("handfastCompleteJob", job, result={"sent": True}))
    assert done["claimState"] == "held"
    stored = database.jobs.find_one({"_id": "welcome-ann"})
    assert (stored["state"], stored["result"]) == ("DONE", {"sent": True})


def test_a_job_that_is_enqueued_twice_is_one_job(database):
    assert [enqueue(database, _id=1)["inserted"] for _ in range(2)] == [True, False]
    assert len(claim(database, count=10)) == 1


@pytest.mark.parametrize("commits", [True, False])
def test_a_job_exists_if_and_only_if_the_order_commits(client, database, commits):
    class Rollback(Exception):
        pass

    def order(session):
        database.orders.insert_one({"_id": 1}, session=session)
        enqueue(database, session, _id=1)
        if not commits:
            raise Rollback

    with client.start_session() as session:
        try:
            session.with_transaction(order)
        except Rollback:
            pass
    assert database.orders.count_documents({}) == len(claim(database)) == int(commits)


def test_a_job_is_done_if_and_only_if_its_effect_commits(client, database):
    enqueue(database, _id=1)
    [job] = claim(database)

    def effect(session):
        database.sent.insert_one({"_id": job["_id"]}, session=session)
        return database.command(of_claim("handfastCompleteJob", job), session=session)["claimState"]

    with client.start_session() as session:
        session.start_transaction()
        assert effect(session) == "held"
        session.abort_transaction()
        assert database.jobs.find_one()["state"] == "PROCESSING"
        assert session.with_transaction(effect) == "held"
    assert (database.jobs.find_one()["state"], database.sent.count_documents({})) == ("DONE", 1)


def test_a_worker_renews_fails_and_is_told_of_a_cancellation(database):
    enqueue(database, _id=1)
    [job] = claim(database)
    renewed = database.command(of_claim("handfastRenewJob", job, progress=0.5))
    assert renewed["claimState"] == "held"
    assert database.command({"handfastCancelJob": "jobs", "job": {"_id": 1}})["canceled"]
    assert database.command(of_claim("handfastRenewJob", job))["claimState"] == "cancelRequested"
    failed = database.command(of_claim("handfastFailJob", job, error="no such address"))
    assert failed["claimState"] == "cancelRequested"
    assert database.jobs.find_one()["state"] == "CANCELED"
    assert database.command(of_claim("handfastRenewJob", job))["claimState"] != "held"


def test_jobs_in_all_states_have_the_schema_of_the_page(database):
    for number, more in enumerate([{}, {"unique": "ann"}, {"uniqueWindowMillis": 1000, "unique": "bob"}, {"attemptsMax": 1}, {}, {}]):
        enqueue(database, _id=number, timeoutMillis=1000, **more)
    jobs = claim(database, count=5)
    database.command(of_claim("handfastRenewJob", jobs[0], progress=0.5))
    database.command({"handfastCancelJob": "jobs", "job": {"_id": 0}})
    database.command(of_claim("handfastCompleteJob", jobs[1], result="sent"))
    for job in jobs[2:4]:
        database.command(of_claim("handfastFailJob", job, error="no such address"))
    database.command({"handfastCancelJob": "jobs", "job": {"_id": 4}})
    database.command(of_claim("handfastReleaseJob", jobs[4]))
    [validator] = schemas.schemas("job-queue.md")
    stored = {job["_id"]: job for job in database.jobs.find()}
    states = [job["state"] for job in stored.values()]
    assert sorted(states) == ["CANCELED", "DONE", "FAILED", "PROCESSING", "TODO", "TODO"]
    for job in stored.values():
        assert not schemas.violations(validator, job), job
    for wrong in [{"state": "NEW"}, {"ts": 1}, {"details": []}, {"undone": 2}, {"typ": "mail"}, {"finishedAt": stored[1]["ts"]}]:
        assert schemas.violations(validator, {**stored[5], **wrong}), wrong
    assert schemas.violations(validator, {**stored[1], "undone": 1})


def test_wrong_arguments(database):
    with pytest.raises(pymongo.errors.OperationFailure, match="handfastEnqueueJob.job.kind") as refused:
        enqueue(database, kind="x")
    assert refused.value.code == 40415
