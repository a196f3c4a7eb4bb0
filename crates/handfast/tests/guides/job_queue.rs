use std::time::Duration;

use handfast::patterns::job_queue::JobState;
use handfast::patterns::{CancellationToken, JobQueue, JobQueueOptions, NewJob, Worker};
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
    let jobs = Namespace::new("shop", "jobs")?;
    let queue = JobQueue::open(database.store(), jobs, JobQueueOptions::default()).await?;
    queue.enqueue(NewJob::new("mail", &Mail { to: "ann".to_owned() })?).await?;

    let worker = Worker::new(queue.clone(), "worker1").handle("mail", |_, mail: Mail| async move {
        println!("sending an e-mail to {}", mail.to);
        anyhow::Ok(())
    });
    let running = worker.spawn(&CancellationToken::new())?;
    while queue.list(JobState::Done, 1).await?.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("{} job done", queue.list(JobState::Done, 10).await?.len());
    running.stop().await;
    Ok(())
}
