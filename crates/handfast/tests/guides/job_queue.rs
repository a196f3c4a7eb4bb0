use std::sync::Arc;
use std::time::Duration;

use handfast::Sources;
use handfast::patterns::job_queue::JobState;
use handfast::patterns::{CancellationToken, JobError, JobQueue, JobQueueOptions, NewJob, Worker};
use handfast::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Mail {
    to: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path()).await?;
    let store = Arc::new((*database).clone());
    let jobs = Namespace::new("shop", "jobs")?;
    let queue = JobQueue::open(store, jobs, Sources::system()?, JobQueueOptions::default()).await?;
    queue.enqueue(NewJob::new("mail", &Mail { to: "ann".to_owned() })?).await?;

    let worker = Worker::new(queue.clone(), "worker1").handle("mail", |_, mail: Mail| async move {
        println!("sending an e-mail to {}", mail.to);
        Ok::<_, JobError>(())
    });
    let running = worker.spawn(&CancellationToken::new())?;
    while queue.list(JobState::Done, 1).await?.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("{} job done", queue.list(JobState::Done, 10).await?.len());
    running.stop().await;
    Ok(())
}
