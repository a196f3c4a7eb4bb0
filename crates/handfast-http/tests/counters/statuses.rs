//! Each route with each error that its parts can give: the client compares each answer with the document, by status and by type.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use handfast_counters::jiff::civil::Date;
use handfast_counters::{
    Batch, Buffer, Counters, CountersOptions, Error, Fence, IdempotencyKey, IncrementOutcome, Instance, InstanceReport,
    Item, ItemId, Kind, Owner, QueueDepth, Reading, Result, Salt, Stored, Total, UpsertOutcome, View,
};
use handfast_http::ProblemKind;
use handfast_http::counters::ServiceOptions;
use handfast_store::Applied;
use handfast_store::decorator::{Address, Fault, Operation, Plan};

use crate::world::{Client, World};

/// A buffer each of whose requests fails.
struct FailingBuffer {
    /// The error of requests that count and delete.
    of_writes: Error,
    /// That of other requests; `None` if they succeed, without an entry.
    of_reads: Option<Error>,
    /// The time that each request waits before it fails.
    time: Duration,
}

impl FailingBuffer {
    async fn read<T>(&self, answer: T) -> Result<T> {
        tokio::time::sleep(self.time).await;
        self.of_reads.clone().map_or(Ok(answer), Err)
    }
}

#[async_trait]
impl Buffer for FailingBuffer {
    fn name(&self) -> &'static str {
        "failing"
    }

    async fn check(&self) -> Result<()> {
        tokio::time::sleep(self.time).await;
        Err(self.of_writes.clone())
    }

    async fn increment_if_exists(&self, _: &View) -> Result<IncrementOutcome> {
        Err(self.of_writes.clone())
    }

    async fn upsert(&self, _: &View, _: Option<Stored>) -> Result<UpsertOutcome> {
        Err(self.of_writes.clone())
    }

    async fn read(&self, _: &Kind, ids: &[ItemId]) -> Result<Reading> {
        self.read(Reading { totals: vec![None; ids.len()], fence: Fence::NONE }).await
    }

    async fn fill(&self, _: &Item, _: Stored) -> Result<Option<Total>> {
        self.read(None).await
    }

    async fn refresh(&self, _: &Kind, _: &[(ItemId, u64)], _: Fence) -> Result<bool> {
        Err(self.of_writes.clone())
    }

    async fn renew(&self, _: &Kind, _: &[ItemId]) -> Result<()> {
        Err(self.of_writes.clone())
    }

    async fn delete(&self, _: &Item, _: Option<&IdempotencyKey>) -> Result<()> {
        match &self.of_writes {
            // A deletion has no key, and adds nothing.
            Error::KeysFull { .. } | Error::TotalTooLarge { .. } => Ok(()),
            error => Err(error.clone()),
        }
    }

    async fn kinds(&self) -> Result<Vec<Kind>> {
        self.read(vec![Kind::new("ads")?]).await
    }

    async fn claim(&self, _: &Kind, _: &Owner, _: usize) -> Result<Option<Batch>> {
        self.read(None).await
    }

    async fn take_over(&self, _: &Kind, _: &Owner, _: Duration) -> Result<bool> {
        self.read(false).await
    }

    async fn acknowledge(&self, _: &Batch) -> Result<bool> {
        self.read(true).await
    }

    async fn make_partial(&self, _: &Kind, _: &[ItemId]) -> Result<()> {
        Err(self.of_writes.clone())
    }

    async fn visitor_salt(&self, _: Date) -> Result<Salt> {
        Err(self.of_writes.clone())
    }

    async fn depth(&self, _: &Kind) -> Result<QueueDepth> {
        self.read(QueueDepth::default()).await
    }

    async fn announce(&self, _: InstanceReport, _: Duration) -> Result<()> {
        self.read(()).await
    }

    async fn withdraw(&self, _: &Owner) -> Result<()> {
        self.read(()).await
    }

    async fn instances(&self) -> Result<Vec<Instance>> {
        self.read(Vec::new()).await
    }
}

#[tokio::test]
async fn the_document_has_each_error_of_each_route() {
    let buffer = |applied| Error::Buffer { what: "it does not answer".into(), applied };
    let damaged = || Error::Damaged { what: "it is not what was written".into() };
    let rows = [
        (buffer(Applied::No), Some(buffer(Applied::No))),
        (buffer(Applied::Maybe), Some(buffer(Applied::No))),
        (damaged(), Some(damaged())),
        (Error::Full { events: 7 }, None),
        (Error::KeysFull { keys: 7, wait: Duration::from_secs(100) }, None),
        (Error::TotalTooLarge { views: 7 }, None),
        (Error::invalid("the clock shows no date"), Some(Error::invalid("the clock shows no date"))),
    ];
    let mut seen = BTreeSet::new();
    for (of_writes, of_reads) in rows {
        for store_answers in [true, false] {
            let world = World::new();
            let healthy = world.healthy(1).await;
            let storage = match store_answers {
                true => healthy.storage().clone(),
                false => {
                    let away = Plan::at_request(Address::first(Operation::Find).of("totals"), Fault::CrashBefore);
                    let counters = world.start(2, world.store.clone(), world.faulty(away)).await;
                    counters.storage().clone()
                }
            };
            let buffer = Arc::new(FailingBuffer {
                of_writes: of_writes.clone(),
                of_reads: of_reads.clone(),
                time: Duration::ZERO,
            });
            let counters = Counters::new(buffer, storage, healthy.sources().clone(), CountersOptions::default());
            let kind = Kind::new("ads").expect("a kind");
            for visitor_windows in [[].into(), [(kind.clone(), Duration::from_secs(60))].into()] {
                let pixels = [kind.clone()].into();
                let options = ServiceOptions { pixels, visitor_windows, ..ServiceOptions::default() };
                let client = Client::with(&counters, options).await;
                for operation in client.operations() {
                    let status = client.ask(&operation).await.status.as_u16();
                    seen.insert((operation, status));
                }
            }
        }
    }
    let statuses = |operation: &str| -> Vec<u16> {
        seen.iter().filter(|(found, _)| found == operation).map(|(_, status)| *status).collect()
    };
    assert_eq!(statuses("POST /v1/ads/7/views"), [400, 409, 500, 503]);
    assert_eq!(statuses("GET /v1/ads/7/pixel.gif"), [400, 409, 500, 503]);
    assert_eq!(statuses("DELETE /v1/ads/7"), [204, 400, 500, 503]);
    assert_eq!(statuses("GET /v1/ads/7"), [200, 400, 500, 503]);
    assert_eq!(statuses("GET /readyz"), [503]);
}

#[tokio::test]
async fn a_client_is_told_when_the_oldest_key_is_over() {
    let world = World::new();
    let healthy = world.healthy(1).await;
    let of_writes = Error::KeysFull { keys: 7, wait: Duration::from_millis(99_001) };
    let buffer = Arc::new(FailingBuffer { of_writes, of_reads: None, time: Duration::ZERO });
    let (storage, sources) = (healthy.storage().clone(), healthy.sources().clone());
    let client = Client::new(&Counters::new(buffer, storage, sources, CountersOptions::default())).await;
    let answer = client.send("POST /v1/ads/7/views", &["idempotency-key: a"], "").await;
    answer.problem(ProblemKind::KeysFull);
    assert_eq!(answer.header("retry-after"), Some("100"), "no second too early");
}

#[tokio::test(start_paused = true)]
async fn a_buffer_that_does_not_answer_is_waited_for_once() {
    let world = World::new();
    let healthy = world.healthy(1).await;
    let away = || Error::Buffer { what: "it does not answer".into(), applied: Applied::No };
    let time = Duration::from_secs(3_600);
    let buffer = Arc::new(FailingBuffer { of_writes: away(), of_reads: Some(away()), time });
    let (storage, sources) = (healthy.storage().clone(), healthy.sources().clone());
    let client = Client::new(&Counters::new(buffer, storage, sources, CountersOptions::default())).await;
    for (line, status) in [("GET /readyz", 503), ("GET /status", 200), ("GET /metrics", 200)] {
        let answer = tokio::time::timeout(Duration::from_secs(3), client.ask(line)).await;
        assert_eq!(answer.unwrap_or_else(|_| panic!("{line} is late")).status, status);
    }
}
