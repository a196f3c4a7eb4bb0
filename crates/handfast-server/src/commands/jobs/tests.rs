use std::time::Duration;

use bson::oid::ObjectId;
use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf, rawdoc};

use crate::testing::{
    ReplyFields, TestClient, TestServer, check, check_refused, end, error_of, in_transaction, labels,
};

const CLAIM: ObjectId = ObjectId::from_bytes([1; 12]);

fn enqueue(job: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "handfastEnqueueJob": "jobs", "job": job }
}

fn claim() -> RawDocumentBuf {
    rawdoc! { "handfastClaimJobs": "jobs", "worker": "w", "types": ["mail"], "count": 10 }
}

/// A worker's command about a claimed job.
fn of_claim(name: &str, job: &RawDocument) -> RawDocumentBuf {
    let mut command = RawDocumentBuf::new();
    command.append(bson::raw::CString::try_from(name).unwrap(), "jobs");
    command.append(cstr!("job"), job.to_owned());
    command
}

async fn claimed(client: &mut TestClient) -> Vec<RawDocumentBuf> {
    let reply = client.run("d", claim()).await;
    assert_eq!(reply.double("ok"), 1.0, "{reply:?}");
    let jobs = reply.get_array("jobs").unwrap().into_iter();
    jobs.map(|job| job.unwrap().as_document().unwrap().to_owned()).collect()
}

async fn count(client: &mut TestClient, state: &str) -> i32 {
    client.run("d", rawdoc! { "count": "jobs", "query": { "state": state } }).await.int("n")
}

#[tokio::test]
async fn details_that_look_like_extended_json_are_kept() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        let details = rawdoc! {
            "a": { "$oid": "507f1f77bcf86cd799439011" }, "b": { "$date": "2026-01-01T00:00:00Z" }, "c": [{ "$numberInt": "5" }],
            "d": { "$numberLong": "9" }, "e": { "$undefined": true }, "f": { "$minKey": 1 }, "g": { "$oid": "nothex" }, "h": CLAIM,
        };
        check(
            &mut client,
            enqueue(rawdoc! { "_id": 1, "type": "mail", "details": details.clone() }),
            rawdoc! { "_id": 1, "inserted": true },
        )
        .await;
        let jobs = claimed(&mut client).await;
        assert_eq!(jobs[0].get_document("details").unwrap(), details.as_ref());
    }
}

#[tokio::test]
async fn a_job_is_enqueued_claimed_renewed_and_completed() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        let job =
            rawdoc! { "_id": 1, "type": "mail", "details": { "to": "ann" }, "priority": 5, "timeoutMillis": 9000 };
        for inserted in [true, false] {
            check(&mut client, enqueue(job.clone()), rawdoc! { "_id": 1, "inserted": inserted }).await;
        }
        let reply = client.run("d", claim()).await;
        assert_eq!(reply.long("leaseMillis"), 60_000);
        let job = reply.get_array("jobs").unwrap().get_document(0).unwrap().to_owned();
        assert_eq!((job.int("_id"), job.text("type"), job.long("claims")), (1, "mail", 1));
        assert_eq!(job.get_document("details").unwrap().to_owned(), rawdoc! { "to": "ann" });
        assert_eq!((job.int("priority"), job.long("timeoutMillis")), (5, 9000));
        assert!(claimed(&mut client).await.is_empty());
        let mut renew = of_claim("handfastRenewJob", &job);
        renew.append(cstr!("progress"), 0.5);
        check(&mut client, renew, rawdoc! { "claimState": "held" }).await;
        let mut complete = of_claim("handfastCompleteJob", &job);
        complete.append(cstr!("result"), rawdoc! { "sent": true });
        // The reply may be lost, and the command is sent again.
        for _ in 0..2 {
            check(&mut client, complete.clone(), rawdoc! { "claimState": "held" }).await;
        }
        let found = client.run("d", rawdoc! { "find": "jobs", "filter": { "_id": 1, "state": "DONE" } }).await;
        let found = &crate::testing::batch(&found)[0];
        assert_eq!(found.double("progress"), 0.5);
        assert_eq!(found.get_document("result").unwrap().to_owned(), rawdoc! { "sent": true });
    }
}

#[tokio::test]
async fn a_job_exists_if_and_only_if_its_transaction_commits() {
    for mut server in TestServer::over_each_engine() {
        let (mut client, mut other) = (server.connect(), server.connect());
        check(&mut client, enqueue(rawdoc! { "_id": 0, "type": "x" }), rawdoc! { "_id": 0, "inserted": true }).await;
        for (number, end_command, expected) in [(1, "abortTransaction", 0), (2, "commitTransaction", 1)] {
            let order = rawdoc! { "insert": "orders", "documents": [{ "_id": number }] };
            client.run("d", in_transaction(order, number, true)).await;
            let job = enqueue(rawdoc! { "_id": number, "type": "mail" });
            let reply = client.run("d", in_transaction(job, number, false)).await;
            assert!(reply.flag("inserted"), "{reply:?}");
            assert!(claimed(&mut other).await.is_empty(), "the transaction is open");
            assert_eq!(end(&mut client, end_command, number).await.double("ok"), 1.0);
            let orders = other.run("d", rawdoc! { "count": "orders" }).await.int("n");
            assert_eq!((orders, claimed(&mut other).await.len()), (expected, expected as usize));
        }
    }
}

#[tokio::test]
async fn the_first_job_of_a_queue_can_be_enqueued_in_a_transaction() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        let mut number = 0;
        // The queue's indexes are created beside the transaction, which may then have to be begun again, as drivers do.
        loop {
            number += 1;
            assert!(number < 10, "never enqueued");
            client.run("d", in_transaction(rawdoc! { "insert": "orders", "documents": [{}] }, number, true)).await;
            let reply =
                client.run("d", in_transaction(enqueue(rawdoc! { "_id": 1, "type": "mail" }), number, false)).await;
            if reply.double("ok") != 1.0 {
                assert_eq!(labels(&reply), ["TransientTransactionError"], "{reply:?}");
                continue;
            }
            let reply = end(&mut client, "commitTransaction", number).await;
            if reply.double("ok") == 1.0 {
                break;
            }
            assert_eq!(labels(&reply), ["TransientTransactionError"], "{reply:?}");
        }
        assert_eq!(claimed(&mut client).await.len(), 1);
    }
}

#[tokio::test]
async fn a_job_is_done_if_and_only_if_the_transaction_of_its_effect_commits() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        client.run("d", enqueue(rawdoc! { "_id": 1, "type": "mail" })).await;
        let job = claimed(&mut client).await.remove(0);
        for (number, end_command, done) in [(1, "abortTransaction", 0), (2, "commitTransaction", 1)] {
            let sent = rawdoc! { "insert": "sent", "documents": [{ "_id": number }] };
            client.run("d", in_transaction(sent, number, true)).await;
            let complete = in_transaction(of_claim("handfastCompleteJob", &job), number, false);
            assert_eq!(client.run("d", complete).await.text("claimState"), "held");
            assert_eq!(end(&mut client, end_command, number).await.double("ok"), 1.0);
            assert_eq!(count(&mut client, "DONE").await, done);
            assert_eq!(client.run("d", rawdoc! { "count": "sent" }).await.int("n"), done);
        }
    }
}

/// Runs a transaction that inserts a document into `sent` and completes a job; returns the reply to the completion.
async fn complete_in_transaction(client: &mut TestClient, job: &RawDocument, number: i64) -> RawDocumentBuf {
    client.run("d", in_transaction(rawdoc! { "insert": "sent", "documents": [{}] }, number, true)).await;
    client.run("d", in_transaction(of_claim("handfastCompleteJob", job), number, false)).await
}

#[tokio::test]
async fn the_effect_of_a_job_that_is_done_or_lost_is_not_committed() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        client.run("d", enqueue(rawdoc! { "_id": 1, "type": "mail" })).await;
        let first = claimed(&mut client).await.remove(0);
        check(&mut client, of_claim("handfastReleaseJob", &first), rawdoc! { "claimState": "held" }).await;
        let second = claimed(&mut client).await.remove(0);
        // The worker of the first claim, and that of the second one twice: it does not know that its transaction was committed.
        for (number, job, code) in [(1, &first, 117), (2, &second, 0), (3, &second, 256)] {
            let reply = complete_in_transaction(&mut client, job, number).await;
            assert_eq!(reply.get_i32("code").unwrap_or(0), code, "{reply:?}");
            let reply = end(&mut client, "commitTransaction", number).await;
            assert_eq!(reply.double("ok"), f64::from(u8::from(code == 0)), "{reply:?}");
        }
        assert_eq!(client.run("d", rawdoc! { "count": "sent" }).await.int("n"), 1);
    }
}

#[tokio::test]
async fn a_transaction_that_began_before_the_claim_begins_again() {
    for mut server in TestServer::over_each_engine() {
        let (mut client, mut other) = (server.connect(), server.connect());
        client.run("d", enqueue(rawdoc! { "_id": 1, "type": "mail" })).await;
        client.run("d", in_transaction(rawdoc! { "insert": "sent", "documents": [{}] }, 1, true)).await;
        let job = claimed(&mut other).await.remove(0);
        let reply = client.run("d", in_transaction(of_claim("handfastCompleteJob", &job), 1, false)).await;
        assert_eq!(
            (reply.int("code"), labels(&reply)),
            (112, vec!["TransientTransactionError".to_owned()]),
            "{reply:?}"
        );
        assert_eq!(complete_in_transaction(&mut client, &job, 2).await.text("claimState"), "held");
    }
}

#[tokio::test]
async fn null_is_the_id_of_one_job() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    for inserted in [true, false] {
        let job = rawdoc! { "_id": null, "type": "mail" };
        check(&mut client, enqueue(job), rawdoc! { "_id": null, "inserted": inserted }).await;
    }
    let job = claimed(&mut client).await.remove(0);
    check(&mut client, of_claim("handfastCompleteJob", &job), rawdoc! { "claimState": "held" }).await;
}

#[tokio::test]
async fn a_job_of_a_silent_worker_is_given_to_another_and_the_first_has_lost_it() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        client.run("d", enqueue(rawdoc! { "_id": 1, "type": "mail" })).await;
        let first = claimed(&mut client).await.remove(0);
        server.clock.advance(Duration::from_secs(59));
        assert!(claimed(&mut client).await.is_empty());
        server.clock.advance(Duration::from_secs(2));
        let second = claimed(&mut client).await.remove(0);
        assert_eq!((second.long("claims"), second.long("attempts")), (2, 0));
        for name in ["handfastRenewJob", "handfastCompleteJob", "handfastReleaseJob"] {
            check(&mut client, of_claim(name, &first), rawdoc! { "claimState": "lost" }).await;
        }
        check(&mut client, of_claim("handfastReleaseJob", &second), rawdoc! { "claimState": "held" }).await;
        assert_eq!(count(&mut client, "TODO").await, 1);
    }
}

#[tokio::test]
async fn a_job_fails_is_delayed_given_up_and_canceled() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    for id in 1..=4 {
        client.run("d", enqueue(rawdoc! { "_id": id, "type": "mail", "attemptsMax": 2 })).await;
    }
    let jobs = claimed(&mut client).await;
    let held = || rawdoc! { "claimState": "held" };
    let failing = |job: &RawDocument, gives_up: bool| {
        let mut fail = of_claim("handfastFailJob", job);
        fail.append(cstr!("error"), "no such address");
        fail.append(cstr!("giveUp"), gives_up);
        fail
    };
    check(&mut client, failing(&jobs[0], false), held()).await;
    check(&mut client, failing(&jobs[1], true), held()).await;
    let mut snooze = of_claim("handfastReleaseJob", &jobs[2]);
    snooze.append(cstr!("delayMillis"), 5000);
    check(&mut client, snooze, held()).await;
    let cancel = |id: i32| rawdoc! { "handfastCancelJob": "jobs", "job": { "_id": id } };
    check(&mut client, cancel(4), rawdoc! { "canceled": true }).await;
    check(&mut client, of_claim("handfastRenewJob", &jobs[3]), rawdoc! { "claimState": "cancelRequested" }).await;
    check(&mut client, of_claim("handfastReleaseJob", &jobs[3]), rawdoc! { "claimState": "cancelRequested" }).await;
    check(&mut client, cancel(5), rawdoc! { "canceled": false }).await;
    for (state, expected) in [("TODO", 2), ("FAILED", 1), ("CANCELED", 1)] {
        assert_eq!(count(&mut client, state).await, expected, "{state}");
    }
    assert!(claimed(&mut client).await.is_empty(), "both wait");
    server.clock.advance(Duration::from_secs(3600));
    let again = claimed(&mut client).await;
    let attempts: Vec<_> = again.iter().map(|job| (job.int("_id"), job.long("attempts"))).collect();
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    assert!(attempts.contains(&(1, 1)) && attempts.contains(&(3, 0)), "{attempts:?}");
}

#[tokio::test]
async fn a_job_that_was_given_up_is_retried_and_a_paused_queue_gives_no_jobs() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        let depth = || rawdoc! { "handfastQueueDepth": "jobs" };
        let reply = client.run("d", depth()).await;
        assert_eq!((reply.int("due"), reply.flag("paused")), (0, false), "of no queue");
        for id in 1..=3 {
            client.run("d", enqueue(rawdoc! { "_id": id, "type": "mail" })).await;
        }
        let jobs = claimed(&mut client).await;
        let mut fail = of_claim("handfastFailJob", &jobs[0]);
        fail.append(cstr!("error"), "no such address");
        fail.append(cstr!("giveUp"), true);
        check(&mut client, fail, rawdoc! { "claimState": "held" }).await;
        check(&mut client, of_claim("handfastCompleteJob", &jobs[1]), rawdoc! { "claimState": "held" }).await;
        let reply = client.run("d", depth()).await;
        let counts = ["due", "processing", "failed", "done"].map(|name| reply.int(name));
        assert_eq!(counts, [0, 1, 1, 1]);
        let retry = |id: i32| rawdoc! { "handfastRetryJob": "jobs", "job": { "_id": id } };
        let failed = jobs[0].int("_id");
        // The reply may be lost, and the command is sent again.
        for (id, retried) in [(failed, true), (failed, false), (9, false)] {
            check(&mut client, retry(id), rawdoc! { "retried": retried }).await;
        }
        let pause = rawdoc! { "handfastPauseQueue": "jobs", "reason": "the mail server is moved" };
        for _ in 0..2 {
            check(&mut client, pause.clone(), rawdoc! {}).await;
        }
        let reply = client.run("d", depth()).await;
        assert_eq!((reply.int("due"), reply.text("reason")), (1, "the mail server is moved"));
        assert!(claimed(&mut client).await.is_empty(), "paused");
        for was_paused in [true, false] {
            check(&mut client, rawdoc! { "handfastResumeQueue": "jobs" }, rawdoc! { "wasPaused": was_paused }).await;
        }
        assert_eq!(claimed(&mut client).await.len(), 1);
        let long = rawdoc! { "handfastPauseQueue": "jobs", "reason": "x".repeat(2_001) };
        assert_eq!(error_of(&client.run("d", long).await).0, 2);
    }
}

#[tokio::test]
async fn jobs_have_unique_keys_also_after_their_collection_was_dropped() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        for _ in 0..2 {
            let unique = |id: i32| enqueue(rawdoc! { "_id": id, "type": "mail", "unique": "ann" });
            check(&mut client, unique(1), rawdoc! { "_id": 1, "inserted": true }).await;
            check(&mut client, unique(2), rawdoc! { "inserted": false, "duplicateOf": 1 }).await;
            assert_eq!(client.run("d", rawdoc! { "drop": "jobs" }).await.double("ok"), 1.0);
        }
    }
}

#[tokio::test]
async fn wrong_arguments_are_refused_by_name() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    for (command, code, text) in [
        (rawdoc! { "handfastEnqueueJob": "jobs" }, 40414, "handfastEnqueueJob.job"),
        (enqueue(rawdoc! {}), 40414, "handfastEnqueueJob.job.type"),
        (enqueue(rawdoc! { "type": 1 }), 14, "handfastEnqueueJob.job.type"),
        (enqueue(rawdoc! { "type": "x", "details": [] }), 14, "handfastEnqueueJob.job.details"),
        (enqueue(rawdoc! { "type": "x", "kind": "y" }), 40415, "handfastEnqueueJob.job.kind"),
        (enqueue(rawdoc! { "type": "x", "priority": i64::MAX }), 2, "priority is 9223372036854775807"),
        (enqueue(rawdoc! { "type": "x", "attemptsMax": 0 }), 2, "at least one attempt"),
        (enqueue(rawdoc! { "type": "x", "runAt": 1 }), 14, "runAt' is the wrong type"),
        (enqueue(rawdoc! { "type": "x", "uniqueForEver": true }), 2, "need the key: unique"),
        (enqueue(rawdoc! { "type": "x", "order": "ann" }), 2, "order"),
        (
            enqueue(rawdoc! { "type": "x", "details": { "text": "x".repeat(7 << 20) } }),
            2,
            "at most 6291456 are allowed",
        ),
        (rawdoc! { "handfastEnqueueJob": "system.views", "job": { "type": "x" } }, 73, "Invalid system namespace"),
        (
            rawdoc! { "handfastClaimJobs": "jobs", "worker": "w".repeat(2000), "types": ["x"] },
            2,
            "the name of the worker",
        ),
        (rawdoc! { "handfastClaimJobs": "jobs", "worker": "w", "types": [] }, 2, "types must name"),
        (rawdoc! { "handfastClaimJobs": "jobs", "worker": "w", "types": [1] }, 14, "array of strings"),
        (
            rawdoc! { "handfastClaimJobs": "jobs", "worker": "w", "types": ["x"], "count": 101 },
            2,
            "count must be from 1 to 100",
        ),
        (rawdoc! { "handfastClaimJobs": "jobs", "types": ["x"] }, 40414, "handfastClaimJobs.worker"),
        (rawdoc! { "handfastCompleteJob": "jobs", "job": { "_id": 1, "claim": 1 } }, 14, "claim must be the ObjectId"),
        (rawdoc! { "handfastCompleteJob": "jobs", "job": { "claim": CLAIM } }, 40414, "job._id"),
        (rawdoc! { "handfastFailJob": "jobs", "job": { "_id": 1, "claim": CLAIM } }, 40414, "handfastFailJob.error"),
    ] {
        check_refused(&mut client, command, code, text).await;
    }
    let unknown = rawdoc! { "handfastCompleteJob": "jobs", "job": { "_id": 1, "claim": CLAIM } };
    check(&mut client, unknown, rawdoc! { "claimState": "lost" }).await;
    let (code, ..) = error_of(&client.run("d", in_transaction(claim(), 1, true)).await);
    assert_eq!(code, 263, "a claim must be seen at once by other workers");
}

#[tokio::test]
async fn a_queue_is_used_with_the_roles_of_its_database() {
    let mut server = TestServer::guarded();
    server.add_user("admin", "root", &["root@admin"]).await;
    server.add_user("d", "reader", &["read@d"]).await;
    server.add_user("d", "writer", &["readWrite@d"]).await;
    for (user, expected) in [("reader", 13), ("writer", 0)] {
        let mut client = server.connect();
        client.log_in("d", user, user).await;
        let reply = client.run("d", enqueue(rawdoc! { "type": "mail" })).await;
        assert_eq!(reply.get_i32("code").unwrap_or(0), expected, "{user}: {reply:?}");
    }
}

/// A program that did not get the reply may send the command again within its transaction.
#[tokio::test]
async fn a_job_is_completed_twice_in_one_transaction() {
    for mut server in TestServer::over_each_engine() {
        let mut client = server.connect();
        client.run("d", enqueue(rawdoc! { "_id": 1, "type": "mail" })).await;
        let job = claimed(&mut client).await.remove(0);
        assert_eq!(complete_in_transaction(&mut client, &job, 1).await.text("claimState"), "held");
        let again = client.run("d", in_transaction(of_claim("handfastCompleteJob", &job), 1, false)).await;
        assert_eq!(again.get_str("claimState").ok(), Some("held"), "{again:?}");
        assert_eq!(end(&mut client, "commitTransaction", 1).await.double("ok"), 1.0);
        assert_eq!(count(&mut client, "DONE").await, 1);
        assert_eq!(complete_in_transaction(&mut client, &job, 2).await.int("code"), 256);
    }
}

/// Ids that a filter would take for operators or patterns are compared with like others.
#[tokio::test]
async fn ids_are_no_conditions() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    for id in ["first", "second"] {
        client.run("d", enqueue(rawdoc! { "_id": id, "type": "mail" })).await;
    }
    let job = claimed(&mut client).await.remove(0);
    let claim = job.get_object_id("claim").unwrap();
    let regex = bson::Regex { pattern: cstr!("").into(), options: cstr!("").into() };
    for id in [
        bson::RawBson::Document(rawdoc! { "$gt": "" }),
        bson::RawBson::Document(rawdoc! { "$ne": null }),
        bson::RawBson::RegularExpression(regex),
    ] {
        let cancel = rawdoc! { "handfastCancelJob": "jobs", "job": { "_id": id.clone() } };
        check(&mut client, cancel, rawdoc! { "canceled": false }).await;
        let job = rawdoc! { "_id": id, "claim": claim };
        let mut fail = of_claim("handfastFailJob", &job);
        fail.append(cstr!("error"), "no such address");
        check(&mut client, fail, rawdoc! { "claimState": "lost" }).await;
        for name in ["handfastRenewJob", "handfastReleaseJob", "handfastCompleteJob"] {
            check(&mut client, of_claim(name, &job), rawdoc! { "claimState": "lost" }).await;
        }
    }
    assert_eq!(count(&mut client, "PROCESSING").await, 2);
}

/// No fraction of a number is cut off.
#[tokio::test]
async fn fractions_are_refused() {
    let mut server = TestServer::transactional();
    let mut client = server.connect();
    client.run("d", enqueue(rawdoc! { "_id": 1, "type": "mail" })).await;
    let job = claimed(&mut client).await.remove(0);
    for number in [1.5, f64::NAN, 1e30] {
        let mut release = of_claim("handfastReleaseJob", &job);
        release.append(cstr!("delayMillis"), number);
        let mut commands = vec![
            release,
            rawdoc! { "handfastClaimJobs": "jobs", "worker": "w", "types": ["mail"], "count": number },
            rawdoc! { "handfastReconcileLedger": "tx", "count": number },
        ];
        for name in ["priority", "delayMillis", "attemptsMax", "timeoutMillis", "uniqueWindowMillis"] {
            let mut job = rawdoc! { "type": "mail", "unique": "u" };
            job.append(bson::raw::CString::try_from(name).unwrap(), number);
            commands.push(enqueue(job));
        }
        for command in commands {
            check_refused(&mut client, command, 2, "must be an integer").await;
        }
    }
    for (command, text) in [
        (enqueue(rawdoc! { "type": "mail", "delayMillis": -1 }), "delayMillis"),
        (rawdoc! { "handfastReconcileLedger": "tx", "count": -1 }, "count"),
    ] {
        check_refused(&mut client, command, 51024, text).await;
    }
    assert_eq!(client.run("d", rawdoc! { "count": "jobs" }).await.int("n"), 1);
}
