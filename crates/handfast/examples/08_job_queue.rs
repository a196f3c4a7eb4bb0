//! Sends e-mails as jobs: a transaction adds them with the order, and workers send, repeat or give up.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use std::sync::Arc;
use std::time::Duration;

use handfast::patterns::job_queue::{Backoff, JobError, JobQueue, JobQueueOptions, JobState, NewJob, Worker};
use handfast::patterns::{CancellationToken, Change, ExactlyOnce, RunnerOptions, WorkerOptions};
use handfast::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Mail {
    to: String,
}

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path().join("data")).await?;
    let store = database.store();
    let (orders, outbox) = (Namespace::new("shop", "orders")?, Namespace::new("shop", "outbox")?);
    let millis = Duration::from_millis;
    let options = JobQueueOptions {
        attempts_max: 3,
        backoff: Backoff { first: millis(10), longest: millis(50), jitter: 0.2 },
        ..JobQueueOptions::default()
    };
    let queue = JobQueue::open(store.clone(), Namespace::new("shop", "jobs")?, options).await?;

    // The job exists if and only if the order exists.
    let enqueued = queue.clone();
    let place = orders.clone();
    database
        .transaction(move |tx| {
            let (queue, orders) = (enqueued.clone(), place.clone());
            async move {
                tx.insert_one(&orders, rawdoc! { "_id": 7, "item": "lamp" }).await?;
                let mail = NewJob::new("mail", &Mail { to: "ann".to_owned() })?;
                queue.within(Arc::new(tx.clone())).enqueue(mail).await?;
                Ok::<_, Error>(())
            }
        })
        .await?;
    queue.enqueue(NewJob::new("mail", &Mail { to: "nobody".to_owned() })?).await?;

    // What a handler does must be safe to repeat: the guard changes a document once for each job.
    let once = ExactlyOnce::open(store, outbox.clone(), Default::default()).await?;
    let worker = Worker::new(queue.clone(), "worker1").handle("mail", move |context, mail: Mail| {
        let once = once.clone();
        async move {
            if mail.to == "nobody" {
                return Err(JobError::Retry("no such address".to_owned()));
            }
            let sent = Change::increment("sent", 1).or_insert();
            let outcome = context.guard("sent", &once, mail.to, &sent).await?;
            Ok(outcome.is_applied())
        }
    });
    let worker = worker.with_options(WorkerOptions { poll: millis(10), ..WorkerOptions::default() });

    // Workers run in any number of processes; at least one of them returns the jobs of dead workers.
    let cancel = CancellationToken::new();
    let working = worker.spawn(&cancel)?;
    let reclaim = queue.spawn_reclaim(RunnerOptions::default(), &cancel)?;
    for _ in 0..500 {
        if queue.depth().await?.failed == 1 && queue.list(JobState::Done, 2).await?.len() == 1 {
            break;
        }
        tokio::time::sleep(millis(10)).await;
    }
    working.stop().await;
    reclaim.stop().await;

    let ann = database.find_one(&outbox, rawdoc! { "_id": "ann" }).await?.expect("sent");
    assert_eq!(ann.get_i64("sent")?, 1);
    let dead = queue.list(JobState::Failed, 10).await?;
    assert_eq!((dead.len(), dead[0].attempts, dead[0].error.as_deref()), (1, 3, Some("no such address")));
    assert!(queue.discard(&dead[0].id).await?);
    println!("one mail sent, one given up after {} attempts", dead[0].attempts);
    Ok(())
}
