//! `handfast jobs`.

use bson::oid::ObjectId;
use handfast_patterns::job_queue::{Job, JobQueue, NewJob};
use serde_json::json;

use super::*;

async fn queue(store: &Store) -> Result<JobQueue> {
    Ok(JobQueue::open(store.shared(), place("jobs")?, store.sources.clone(), Default::default()).await?)
}

/// The job at the head of the queue.
async fn claim(queue: &JobQueue) -> Result<Job> {
    queue.claim("worker1", &["mail".to_owned(), "print".to_owned()]).await?.context("a job")
}

/// Two failed jobs, one that a worker has, one that is done, and one that waits.
async fn filled(scratch: &Scratch) -> Result<Vec<ObjectId>> {
    let store = Store::open(scratch).await?;
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
async fn an_operator_sees_what_failed_and_lets_it_be_done_after_all() -> Result<()> {
    let scratch = Scratch::new("jobs")?;
    let ids = filled(&scratch).await?;
    let failed = [ids[0].to_hex(), ids[1].to_hex()];
    let status = report(&scratch, &["jobs", "status"])?;
    let counts = ["due", "scheduled", "processing", "silent", "done", "failed"].map(|state| status[state].as_u64());
    assert_eq!(counts, [1, 0, 1, 0, 1, 2].map(Some), "{status}");
    let shown = text(&scratch, &["jobs", "status"])?;
    assert!(shown.contains("next: `jobs list --state failed`"), "{shown}");

    let shown = text(&scratch, &["jobs", "list", "--state", "failed"])?;
    assert!(shown.contains("no such mailbox") && shown.contains("out of paper"), "{shown}");
    let (lines, _) = json(&scratch, &["jobs", "list"])?;
    let states: Vec<_> = lines.iter().map(|line| line["state"].as_str().unwrap_or_default()).collect();
    assert_eq!(states, ["FAILED", "FAILED", "PROCESSING", "TODO"]);
    assert_eq!(lines[0]["_id"], json!({ "$oid": failed[0] }));
    let bounded = output(&scratch, &["jobs", "list", "--limit", "3", "--json"])?;
    assert_eq!(String::from_utf8(bounded.stdout)?.lines().count(), 3);
    assert!(String::from_utf8(bounded.stderr)?.contains("there are more: --limit shows them"));

    let shown = text(&scratch, &["jobs", "show", &failed[0]])?;
    assert!(shown.contains("\"to\": \"ann\"") && shown.contains("given up: no such mailbox"), "{shown}");

    // One that has not failed is told, and is exit code 1; the other is retried all the same.
    let (lines, code) = json(&scratch, &["jobs", "retry", &ids[4].to_hex(), &failed[0]])?;
    assert_eq!((lines[0]["done"].as_bool(), lines[1]["done"].as_bool(), code), (Some(false), Some(true), Some(1)));
    let (lines, code) = json(&scratch, &["jobs", "retry", "--all", "--type", "mail"])?;
    assert_eq!((lines.len(), code), (0, Some(0)), "the one that is left is no mail");
    let (lines, code) = json(&scratch, &["jobs", "discard", "--all"])?;
    assert_eq!((lines.len(), lines[0]["outcome"].as_str(), code), (1, Some("removed"), Some(0)));
    let (lines, _) = json(&scratch, &["jobs", "cancel", &ids[3].to_hex()])?;
    assert_eq!(lines[0]["outcome"], "canceled; its worker stops at its next sign of life");
    let status = report(&scratch, &["jobs", "status"])?;
    assert_eq!((&status["due"], &status["failed"]), (&json!(2), &json!(0)));
    Ok(())
}

#[tokio::test]
async fn silent_workers_are_seen_and_their_jobs_returned() -> Result<()> {
    let scratch = Scratch::new("jobs-silent")?;
    filled(&scratch).await?;
    // Whatever the machine does, a millisecond has gone by.
    let status = report(&scratch, &["jobs", "status", "--lease", "1ms"])?;
    assert_eq!(status["silent"], 1);
    let refused = output(&scratch, &["jobs", "recover"])?;
    assert_one_line(&refused, 2, "recover needs --lease");
    assert_eq!(report(&scratch, &["jobs", "recover", "--lease", "1h"])?["done"], 0);
    assert_eq!(report(&scratch, &["jobs", "recover", "--lease", "1ms"])?["done"], 1);
    let purged = report(&scratch, &["jobs", "purge", "--done", "0s", "--failed", "1h"])?;
    assert_eq!(purged["done"], 1);
    let status = report(&scratch, &["jobs", "status"])?;
    assert_eq!((&status["due"], &status["processing"], &status["done"]), (&json!(2), &json!(0), &json!(0)));
    Ok(())
}

#[tokio::test]
async fn the_same_through_a_server() -> Result<()> {
    let scratch = Scratch::new("jobs-server")?;
    filled(&scratch).await?;
    let serve = Serve::start(&mut handfast(&scratch, &["serve", "--listen", "127.0.0.1:0", "--data", "data"]))?;
    let store = format!("mongodb://{}", serve.address()?);
    let on_server = |arguments: &[&str]| {
        handfast(&scratch, arguments).args(["--store", &store, "--database", "db", "--json"]).output()
    };
    let output = on_server(&["jobs", "status"])?;
    let status: Value = serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    assert_eq!((&status["failed"], &status["processing"]), (&json!(2), &json!(1)));
    let output = on_server(&["jobs", "retry", "--all"])?;
    assert_eq!((output.status.code(), String::from_utf8(output.stdout)?.lines().count()), (Some(0), 2));
    Ok(())
}

#[tokio::test]
async fn what_is_no_queue_is_refused_and_left_alone() -> Result<()> {
    let scratch = Scratch::new("jobs-refused")?;
    filled(&scratch).await?;
    let store = Store::open(&scratch).await?;
    let raw = bson::RawDocumentBuf::try_from(&bson::doc! { "_id": 1, "customer": "ann" })?;
    handfast_store::StoreExt::insert_one(&store.embedded, &place("orders")?, raw).await?;
    store.close().await?;
    let refused = |arguments: &[&str]| output(&scratch, arguments);
    assert_one_line(&refused(&["jobs", "status", "--collection", "job"])?, 1, "there are jobs, orders");
    assert_one_line(&refused(&["jobs", "retry", "--all", "--collection", "orders"])?, 1, "db.orders holds no jobs");
    assert_one_line(&refused(&["jobs", "status", "--field", "stat=x"])?, 2, "--field: there is no field 'stat'");
    assert_one_line(&refused(&["jobs", "show", "65a1b2c3d4e5f60718293a4b"])?, 1, "db.jobs has nothing with the id");
    let none = handfast(&scratch, &["jobs", "status", "--data", "data", "--database", "nosuch"]).output()?;
    assert_one_line(&none, 1, "--database: there is no database 'nosuch'; there is db");
    let none = handfast(&scratch, &["jobs", "status", "--data", "elsewhere", "--database", "db"]).output()?;
    assert_one_line(&none, 1, "choose another directory with --data");
    assert!(!scratch.path("elsewhere").exists(), "nothing was made");

    let store = Store::open(&scratch).await?;
    let indexes = handfast_store::DocumentStore::list_indexes(&store.embedded, &place("orders")?).await?;
    assert_eq!(indexes.len(), 1, "who only looks, and who is refused, makes no index");
    store.close().await?;
    Ok(())
}

#[tokio::test]
async fn fields_have_other_names() -> Result<()> {
    let scratch = Scratch::new("jobs-fields")?;
    let store = Store::open(&scratch).await?;
    let mut options = handfast_patterns::JobQueueOptions::default();
    options.fields.state = "status".to_owned();
    let queue = JobQueue::open(store.shared(), place("work")?, store.sources.clone(), options).await?;
    queue.enqueue(NewJob::new("mail", &bson::doc! {})?).await?;
    drop(queue);
    store.close().await?;
    let arguments = ["jobs", "status", "--collection", "work"];
    assert_one_line(&output(&scratch, &arguments)?, 1, "db.work holds no jobs");
    let status = report(&scratch, &[&arguments[..], &["--field", "state=status"]].concat())?;
    assert_eq!(status["due"], 1);
    Ok(())
}
