//! `handfast jobs`.

mod bulk;

use anyhow::{Context as _, Result, ensure};
use bson::oid::ObjectId;
use handfast_patterns::job_queue::{Job, JobQueue, Missed, NewJob, Schedule, Schedules};
use handfast_store::DocumentStore;
use serde_json::{Value, json};

use super::{Ground, Store, json, namespace, output, report, text};
use crate::support::{assert_one_line, handfast};

async fn queue(store: &Store) -> Result<JobQueue> {
    Ok(JobQueue::open_with(store.shared(), namespace("jobs")?, store.sources.clone(), Default::default()).await?)
}

/// Claims the next job of the queue.
async fn claim(queue: &JobQueue) -> Result<Job> {
    queue.claim("worker1", &["mail".to_owned(), "print".to_owned()]).await?.context("a job")
}

/// Adds two failed jobs, one that a worker has claimed, one that is done, and one that waits;
/// returns their ids.
async fn filled(ground: &Ground) -> Result<Vec<ObjectId>> {
    let store = Store::open(ground).await?;
    let queue = queue(&store).await?;
    let mut ids = Vec::new();
    for kind in ["mail", "print", "mail", "mail", "mail"] {
        let id = store.sources.ids.object_id();
        queue.enqueue(NewJob::new(kind, &bson::doc! { "to": "ann" })?.with_id(id)).await?;
        ids.push(id);
    }
    for error in ["no such mailbox", "out of paper"] {
        let _ = queue.give_up(&claim(&queue).await?, error).await?;
    }
    let _ = queue.complete(&claim(&queue).await?, None).await?;
    claim(&queue).await?;
    drop(queue);
    store.close().await?;
    Ok(ids)
}

#[tokio::test]
async fn schedules_are_listed_with_the_times_at_which_they_are_due() -> Result<()> {
    Ground::each("jobs-schedules", async |ground| {
        filled(&ground).await?;
        let missing = output(&ground, &["jobs", "schedules"])?;
        assert_one_line(&missing, 1, "--schedules");
        let store = Store::open(&ground).await?;
        let schedules = Schedules::open(queue(&store).await?, namespace("schedules")?).await?;
        for (name, cron) in [("yearly", "0 9 1 1 *"), ("minutely", "* * * * *")] {
            let job = NewJob::new("report", &bson::doc! { "of": name })?;
            let (name, cron, zone) = (name.to_owned(), cron.to_owned(), "Europe/Berlin".to_owned());
            schedules.set(&Schedule { name, cron, zone, missed: Missed::Last, job }).await?;
        }
        drop(schedules);
        store.close().await?;
        let (lines, code) = json(&ground, &["jobs", "schedules"])?;
        let names: Vec<_> = lines.iter().map(|line| (&line["name"], &line["cron"])).collect();
        // On the first of January both may be due at the same time, in the order of their names.
        let expected = [(&json!("minutely"), &json!("* * * * *")), (&json!("yearly"), &json!("0 9 1 1 *"))];
        assert_eq!((names, code), (expected.to_vec(), Some(0)));
        ensure!(
            lines.iter().all(|line| line["next"]["$date"].is_string() && line["zone"] == "Europe/Berlin"),
            "{lines:?}"
        );
        let (lines, _) = json(&ground, &["jobs", "schedules", "--limit", "1"])?;
        assert_eq!(lines.len(), 1);
        let shown = text(&ground, &["jobs", "schedules"])?;
        ensure!(shown.contains("0 9 1 1 *") && shown.contains("in "), "{shown}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_job_is_enqueued_from_the_command_line_once() -> Result<()> {
    Ground::each_and_front("jobs-enqueue", async |ground| {
        let ids = filled(&ground).await?;
        let first =
            report(&ground, &["jobs", "enqueue", "mail", r#"{"to": "bob", "at": {"$date": "2026-01-01T00:00:00Z"}}"#])?;
        ensure!(first["enqueued"] == true && first["_id"]["$oid"].is_string(), "{first}");
        let named =
            ["jobs", "enqueue", "print", "--id", "page-1", "--priority", "-7", "--attempts", "2", "--timeout", "3s"];
        for is_new in [true, false] {
            assert_eq!(report(&ground, &named)?, json!({ "enqueued": is_new, "_id": "page-1" }));
        }
        let unique = |more: &[&str]| {
            report(&ground, &[&["jobs", "enqueue", "digest", "--unique", "d", "--delay", "1h"], more].concat())
        };
        let enqueued = [
            unique(&[])?,
            unique(&[])?,
            unique(&["--window", "1000d"])?,
            unique(&["--for-ever"])?,
            unique(&["--for-ever"])?,
        ];
        assert_eq!(enqueued.each_ref().map(|report| report["enqueued"] == true), [true, false, true, true, false]);
        assert_eq!(enqueued[1], json!({ "enqueued": false, "duplicateOf": enqueued[0]["_id"] }));
        let at = ["jobs", "enqueue", "late", "--at", "2099-01-01T09:00:00+02:00"];
        report(&ground, &at)?;

        let (lines, _) = json(&ground, &["jobs", "list", "--state", "todo"])?;
        let of = |kind: &str| lines.iter().rev().find(|line| line["type"] == kind).context("a line");
        let page = of("print")?;
        assert_eq!((&page["_id"], &page["priority"]), (&json!("page-1"), &json!(-7)));
        let bob = of("mail")?;
        assert_eq!(bob["details"], json!({ "to": "bob", "at": { "$date": "2026-01-01T00:00:00Z" } }));
        assert_eq!(of("late")?["runAt"], json!({ "$date": "2099-01-01T07:00:00Z" }));
        let status = report(&ground, &["jobs", "status"])?;
        assert_eq!((&status["due"], &status["scheduled"]), (&json!(3), &json!(4)), "{status}");

        let store = Store::open(&ground).await?;
        let queue = queue(&store).await?;
        let claimed = claim(&queue).await?;
        assert_eq!(
            claimed.id,
            ids[4].into(),
            "the one that waited before, with a greater priority than that of page-1"
        );
        drop(queue);
        store.close().await?;

        let refused = |arguments: &[&str], expected: &str| -> Result<()> {
            let output = output(&ground, &[&["jobs", "enqueue"], arguments].concat())?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(!output.status.success() && said.contains(expected), "{said}");
            Ok(())
        };
        refused(&["print", r#"{"page": 2}"#, "--id", "page-1"], "not enqueued: another job has the id page-1")?;
        refused(&["mail", "--id", "page-1"], "not enqueued: another job has the id page-1")?;
        refused(&["mail", "ann"], "it is no JSON")?;
        refused(&["mail", "[1]"], "it is no document")?;
        refused(&["mail", "--at", "tomorrow"], "a date looks like")?;
        refused(&["mail", "--window", "1h"], "--unique")?;
        refused(&["mail", "--order", "ann"], "needs a queue that is ordered")
    })
    .await
}

#[tokio::test]
async fn an_operator_sees_what_failed_and_lets_it_be_done_after_all() -> Result<()> {
    Ground::each_and_front("jobs", async |ground| {
        let ids = filled(&ground).await?;
        let failed = [ids[0].to_hex(), ids[1].to_hex()];
        let status = report(&ground, &["jobs", "status"])?;
        let counts = ["due", "scheduled", "processing", "silent", "done", "failed"].map(|state| status[state].as_u64());
        assert_eq!(counts, [1, 0, 1, 0, 1, 2].map(Some), "{status}");
        let shown = text(&ground, &["jobs", "status"])?;
        assert!(shown.contains("next: `jobs list --state failed`"), "{shown}");

        let shown = text(&ground, &["jobs", "list", "--state", "failed"])?;
        assert!(shown.contains("no such mailbox") && shown.contains("out of paper"), "{shown}");
        let (lines, _) = json(&ground, &["jobs", "list"])?;
        let states: Vec<_> = lines.iter().map(|line| line["state"].as_str().unwrap_or_default()).collect();
        assert_eq!(states, ["FAILED", "FAILED", "PROCESSING", "TODO"]);
        assert_eq!(lines[0]["_id"], json!({ "$oid": failed[0] }));
        let bounded = output(&ground, &["jobs", "list", "--limit", "3", "--json"])?;
        assert_eq!(String::from_utf8(bounded.stdout)?.lines().count(), 3);
        assert!(String::from_utf8(bounded.stderr)?.contains("there are more: --limit shows them"));

        let shown = text(&ground, &["jobs", "show", &failed[0]])?;
        assert!(shown.contains("\"to\": \"ann\"") && shown.contains("failed: no such mailbox"), "{shown}");

        // A job that has not failed is reported, with exit code 1; the other is retried.
        let (lines, code) = json(&ground, &["jobs", "retry", &ids[4].to_hex(), &failed[0]])?;
        assert_eq!((lines[0]["done"].as_bool(), lines[1]["done"].as_bool(), code), (Some(false), Some(true), Some(1)));
        for command in ["retry", "discard", "cancel"] {
            let (lines, code) = json(&ground, &["jobs", command, "65a1b2c3d4e5f60718293a4b"])?;
            assert_eq!((lines[0]["outcome"].as_str(), code), (Some("is not there"), Some(1)));
        }
        let (lines, code) = json(&ground, &["jobs", "retry", "--all", "--type", "mail"])?;
        assert_eq!((lines.len(), code), (1, Some(0)), "the one that is left is no mail: {lines:?}");
        let (lines, code) = json(&ground, &["jobs", "discard", "--all"])?;
        assert_eq!((lines.len(), lines[0]["outcome"].as_str(), code), (2, Some("removed"), Some(0)));
        let (lines, _) = json(&ground, &["jobs", "cancel", &ids[3].to_hex()])?;
        assert_eq!(lines[0]["outcome"], "canceled; its worker stops at its next sign of life");
        let status = report(&ground, &["jobs", "status"])?;
        assert_eq!((&status["due"], &status["failed"]), (&json!(2), &json!(0)));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn silent_workers_are_seen_and_their_jobs_returned() -> Result<()> {
    Ground::each_and_front("jobs-silent", async |ground| {
        filled(&ground).await?;
        // At least a millisecond has gone by on each machine.
        let status = report(&ground, &["jobs", "status", "--lease", "1ms"])?;
        assert_eq!(status["silent"], 1);
        let refused = output(&ground, &["jobs", "recover"])?;
        assert_one_line(&refused, 2, "recover needs --lease");
        let paused = report(&ground, &["jobs", "pause", "--why", "the mail server is moved"])?;
        assert_eq!(paused["paused"], true);
        assert!(
            text(&ground, &["jobs", "status"])?.contains(": the mail server is moved; workers claim no jobs until")
        );
        assert_eq!(report(&ground, &["jobs", "resume"])?["was_paused"], true);
        assert_eq!(report(&ground, &["jobs", "resume"])?["was_paused"], false);
        assert_eq!(report(&ground, &["jobs", "recover", "--lease", "1h"])?["done"], 0);
        let refused = output(&ground, &["jobs", "recover", "--lease", "1h", "--crashes-max", "7"])?;
        assert_one_line(&refused, 2, "crashesMax is recorded as 5, given as 7");
        assert_eq!(report(&ground, &["jobs", "recover", "--lease", "1ms"])?["done"], 1);
        let purged = report(&ground, &["jobs", "purge", "--done", "0s", "--failed", "1h"])?;
        assert_eq!(purged["done"], 1);
        let status = report(&ground, &["jobs", "status"])?;
        assert_eq!((&status["due"], &status["processing"], &status["done"]), (&json!(2), &json!(0), &json!(0)));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_job_whose_worker_left_a_date_far_ahead_or_none_is_seen_and_ended() -> Result<()> {
    let ahead = bson::DateTime::from_millis(4_000_000_000_000);
    let odd = [
        bson::rawdoc! { "$set": { "worker.ts": ahead } },
        bson::rawdoc! { "$unset": { "worker": "" } },
        bson::rawdoc! { "$set": { "worker": 5 } },
    ];
    for (number, odd) in odd.into_iter().enumerate() {
        Ground::each(&format!("jobs-undated-{number}"), async |ground| {
            let id = filled(&ground).await?[3];
            let store = Store::open(&ground).await?;
            let filter = bson::rawdoc! { "_id": id };
            handfast_store::StoreExt::update_one(&*store.shared, &namespace("jobs")?, filter, odd.clone()).await?;
            store.close().await?;
            assert_eq!(report(&ground, &["jobs", "status"])?["silent"], 1);
            if number < 2 {
                let (lines, _) = json(&ground, &["jobs", "list", "--state", "processing"])?;
                assert_eq!(lines[0]["silent"], true, "{lines:?}");
                let shown = text(&ground, &["jobs", "show", &id.to_hex()])?;
                assert!(shown.contains("`jobs recover` returns it"), "{shown}");
            }
            let (lines, code) = json(&ground, &["jobs", "cancel", &id.to_hex()])?;
            let outcome = lines[0]["outcome"].as_str().unwrap_or_default();
            assert!(outcome.starts_with("to be canceled: its worker is silent"), "{outcome}");
            assert_eq!(code, Some(0));
            let recovered = report(&ground, &["jobs", "recover", "--lease", "1m"])?;
            assert_eq!((&recovered["returned"], &recovered["canceled"]), (&json!(0), &json!(1)), "{recovered}");
            assert_eq!(report(&ground, &["jobs", "status"])?["canceled"], 1);
            assert_eq!(text(&ground, &["jobs", "recover", "--lease", "1m"])?, "returned 0 jobs\n");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_is_no_queue_is_refused_and_left_alone() -> Result<()> {
    Ground::each("jobs-refused", async |ground| {
        filled(&ground).await?;
        let store = Store::open(&ground).await?;
        let raw = bson::RawDocumentBuf::try_from(&bson::doc! { "_id": 1, "customer": "ann" })?;
        handfast_store::StoreExt::insert_one(&*store.shared, &namespace("orders")?, raw).await?;
        store.close().await?;
        let refused = |arguments: &[&str]| output(&ground, arguments);
        assert_one_line(
            &refused(&["jobs", "status", "--collection", "job"])?,
            1,
            "there are jobs, jobs.settings, orders",
        );
        assert_one_line(&refused(&["jobs", "retry", "--all", "--collection", "orders"])?, 1, "db.orders holds no jobs");
        assert_one_line(&refused(&["jobs", "status", "--field", "stat=x"])?, 2, "--field: there is no field 'stat'");
        assert_one_line(
            &refused(&["jobs", "show", "65a1b2c3d4e5f60718293a4b"])?,
            1,
            "db.jobs has no document with the _id",
        );
        let none =
            handfast(&ground.scratch, &["jobs", "status", "--database", "nosuch"]).args(ground.flag()?).output()?;
        assert_one_line(&none, 1, "--database: there is no database 'nosuch'; there is db");
        let none =
            handfast(&ground.scratch, &["jobs", "status", "--data", "elsewhere", "--database", "db"]).output()?;
        assert_one_line(&none, 1, "choose another directory with --data");
        assert!(!ground.scratch.path("elsewhere").exists(), "nothing was made");

        let store = Store::open(&ground).await?;
        let indexes = handfast_store::DocumentStore::list_indexes(&*store.shared, &namespace("orders")?).await?;
        assert_eq!(indexes.len(), 1, "who only looks, and who is refused, makes no index");
        store.close().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_foreign_document_does_not_hide_the_jobs_beside_it() -> Result<()> {
    Ground::each("jobs-foreign", async |ground| {
        filled(&ground).await?;
        let (before, code) = json(&ground, &["jobs", "list", "--limit", "100"])?;
        assert_eq!(code, Some(0));
        let store = Store::open(&ground).await?;
        let raw = bson::RawDocumentBuf::try_from(&bson::doc! { "_id": "x", "state": "TODO" })?;
        handfast_store::StoreExt::insert_one(&*store.shared, &namespace("jobs")?, raw).await?;
        store.close().await?;
        let listed = output(&ground, &["jobs", "list", "--limit", "100"])?;
        let odd = "document \"x\" of db.jobs is not what this pattern writes: its ts is missing; it must be a date";
        assert_one_line(&listed, 1, odd);
        assert_eq!(json(&ground, &["jobs", "list", "--limit", "100"])?, (before, Some(1)));
        let status = report(&ground, &["jobs", "status"])?;
        assert_eq!((&status["foreign"], &status["done"]), (&json!(1), &json!(1)), "what waits is not done: {status}");
        let store = Store::open(&ground).await?;
        let filter = bson::rawdoc! { "_id": "x" };
        let gone = bson::rawdoc! { "$set": { "state": "FAILED" } };
        handfast_store::StoreExt::update_one(&*store.shared, &namespace("jobs")?, filter, gone).await?;
        store.close().await?;
        let (fates, code) = json(&ground, &["jobs", "retry", "--all"])?;
        let summary = json!({ "summary": { "done": 2, "skipped": 0, "failed": 1 } });
        assert_eq!((fates.last(), code), (Some(&summary), Some(1)), "the others are done again: {fates:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_job_that_cannot_be_read_keeps_no_other_from_what_is_asked_for() -> Result<()> {
    Ground::each("jobs-unreadable", async |ground| {
        let ids = filled(&ground).await?;
        let store = Store::open(&ground).await?;
        let odd = store.sources.ids.object_id();
        let raw = bson::RawDocumentBuf::try_from(&bson::doc! { "_id": odd, "state": "FAILED", "who": "they" })?;
        handfast_store::StoreExt::insert_one(&*store.shared, &namespace("jobs")?, raw).await?;
        store.close().await?;
        let (failed, odd) = ([ids[0].to_hex(), ids[1].to_hex()], odd.to_hex());

        let shown = output(&ground, &["jobs", "show", &odd])?;
        assert!(String::from_utf8(shown.stdout.clone())?.contains("\"who\": \"they\""), "{shown:?}");
        assert_one_line(&shown, 1, "is not what this pattern writes");

        let done = |lines: &[Value]| lines.iter().take(3).map(|line| line["done"].as_bool()).collect::<Vec<_>>();
        let (lines, code) = json(&ground, &["jobs", "retry", &failed[0], &odd, &failed[1]])?;
        assert_eq!((done(&lines), code), (vec![Some(true), Some(false), Some(true)], Some(1)), "{lines:?}");
        assert!(lines[1]["outcome"].to_string().contains("is not what this pattern writes"), "{lines:?}");
        let (lines, code) = json(&ground, &["jobs", "cancel", &failed[0], &odd, &failed[1]])?;
        assert_eq!((done(&lines), code), (vec![Some(true), Some(false), Some(true)], Some(1)), "{lines:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn fields_have_other_names() -> Result<()> {
    Ground::each("jobs-fields", async |ground| {
        let store = Store::open(&ground).await?;
        let mut options = handfast_patterns::JobQueueOptions::default();
        options.fields.state = "status".to_owned();
        let queue = JobQueue::open_with(store.shared(), namespace("work")?, store.sources.clone(), options).await?;
        queue.enqueue(NewJob::new("mail", &bson::doc! {})?).await?;
        drop(queue);
        store.close().await?;
        let arguments = ["jobs", "status", "--collection", "work"];
        let with = |flags: &[&'static str]| [&arguments[..], flags].concat();
        // The names of the fields are recorded, and a flag may repeat them.
        for flags in [&[][..], &["--field", "state=status"]] {
            assert_eq!(report(&ground, &with(flags))?["due"], 1);
        }
        let refused = "fields.state is recorded as \"status\", given as \"where\"";
        assert_one_line(&output(&ground, &with(&["--field", "state=where"]))?, 2, refused);
        // Where no names are recorded, as by an earlier version, a flag gives them.
        let store = Store::open(&ground).await?;
        store.shared.drop_collection(&namespace("work.settings")?).await?;
        store.close().await?;
        assert_one_line(&output(&ground, &arguments)?, 1, "db.work holds no jobs");
        assert_eq!(report(&ground, &with(&["--field", "state=status"]))?["due"], 1);
        Ok(())
    })
    .await
}
