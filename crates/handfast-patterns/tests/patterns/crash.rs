//! Makes a scenario fail at every operation on its store, in every way that a network and a process can fail, and
//! checks the state after the recovery.
//!
//! ```text
//! without faults:    process 1 ── 0 ── 1 ── 2 ── .. ── n-1          counts the operations
//! each point:        process 1 ── 0 ── 1 ── fault ..               [a copy arrives]
//!                    two hours later, process 2: recovery          [a copy arrives, process 3: recovery]
//!                    check
//! ```
//!
//! Each result that process 1 received must hold for ever after, however the process ended. It reports its results as it runs
//! ([`World::acknowledge`]), and each point is checked for them, too.
//!
//! Both processes have their own pattern objects and share nothing but the store. Operations are those of the contract, including pages of
//! cursors and the creation of indexes. The tests assert that each fault occurred, and that there is a minimal number of points. No point
//! is skipped, except on a server: see [`Stage::share`].

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc, rawdoc};
use handfast_patterns::Result;
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, ManualClock, Namespace, Sources, StoreExt};

pub(crate) use crate::stage::Stage;

/// The fault at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The operation is not applied, and its outcome is unknown to the caller.
    FailBefore,
    /// The operation is applied, and its outcome is unknown to the caller.
    LoseReply,
    /// The operation is not applied, and the process dies.
    CrashBefore,
    /// The operation is applied, and the process dies.
    CrashAfter,
    /// The operation is applied, and a copy of the request arrives before the recovery.
    DuplicateBeforeRecovery,
    /// The operation is applied, and a copy of the request arrives after the recovery, which runs again.
    DuplicateAfterRecovery,
    /// The operation seems not to be applied; the request arrives after the recovery, which runs again.
    DelayedPastRecovery,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::FailBefore,
        Kind::LoseReply,
        Kind::CrashBefore,
        Kind::CrashAfter,
        Kind::DuplicateBeforeRecovery,
        Kind::DuplicateAfterRecovery,
        Kind::DelayedPastRecovery,
    ];

    fn fault(self) -> Fault {
        match self {
            Kind::FailBefore => Fault::LoseRequest,
            Kind::LoseReply => Fault::LoseReply,
            Kind::CrashBefore => Fault::CrashBefore,
            Kind::CrashAfter => Fault::CrashAfter,
            Kind::DuplicateBeforeRecovery | Kind::DuplicateAfterRecovery => Fault::Duplicate,
            Kind::DelayedPastRecovery => Fault::DeliverLate,
        }
    }

    fn arrives_after_recovery(self) -> bool {
        matches!(self, Kind::DuplicateAfterRecovery | Kind::DelayedPastRecovery)
    }
}

/// The environment of a process of a scenario.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) store: Arc<dyn DocumentStore>,
    pub(crate) sources: Sources,
    pub(crate) clock: Arc<ManualClock>,
    database: String,
    acknowledged: Arc<Mutex<Vec<Acknowledged>>>,
}

/// An acknowledged result, as a condition on the documents of a collection from then on.
#[derive(Debug)]
pub(crate) struct Acknowledged {
    what: String,
    collection: String,
    filter: Document,
    /// Whether a document must match the filter, or none may.
    there: bool,
}

impl World {
    pub(crate) fn namespace(&self, collection: &str) -> Namespace {
        Namespace::new(self.database.clone(), collection).unwrap()
    }

    /// Creates a world with a store in memory, without faults.
    pub(crate) fn in_memory() -> Self {
        World::new(&Stage::Memory, "test")
    }

    pub(crate) fn new(stage: &Stage, database: &str) -> Self {
        let (store, clock) = stage.open();
        World::on_store(store, clock, database)
    }

    /// Creates a world on a store with its clock.
    pub(crate) fn on_store(store: Arc<dyn DocumentStore>, clock: Arc<ManualClock>, database: &str) -> Self {
        let sources = Sources { clock: clock.clone(), ..Sources::seeded(1) };
        World { store, sources, clock, database: database.to_owned(), acknowledged: Arc::default() }
    }

    /// Records an acknowledged result: from now on a document must match.
    pub(crate) fn acknowledge(&self, what: impl fmt::Debug, collection: &str, filter: Document) {
        self.acknowledged.lock().unwrap().push(Acknowledged {
            what: format!("{what:?}"),
            collection: collection.to_owned(),
            filter,
            there: true,
        });
    }

    /// Records an acknowledged result: from now on no document may match.
    pub(crate) fn acknowledge_none(&self, what: impl fmt::Debug, collection: &str, filter: Document) {
        self.acknowledge(what, collection, filter);
        if let Some(last) = self.acknowledged.lock().unwrap().last_mut() {
            last.there = false;
        }
    }

    pub(crate) fn take_acknowledged(&self) -> Vec<Acknowledged> {
        std::mem::take(&mut *self.acknowledged.lock().unwrap())
    }

    pub(crate) async fn holds(&self, acknowledged: &[Acknowledged]) -> Result<(), String> {
        for answer in acknowledged {
            let Acknowledged { what, collection, filter, there } = answer;
            let filter = RawDocumentBuf::try_from(filter).unwrap();
            let found = self.store.find_one(&self.namespace(collection), filter).await.unwrap();
            if found.is_some() != *there {
                return Err(format!("{what} was answered, and does not hold: {answer:?}"));
            }
        }
        Ok(())
    }

    /// Returns another process with other ids and other random numbers.
    pub(crate) fn process(&self, number: u32) -> Self {
        let own = Sources::seeded(u64::from(number));
        let sources = Sources { clock: self.sources.clock.clone(), ..own };
        World { sources, ..self.clone() }
    }

    pub(crate) fn on(&self, store: Arc<dyn DocumentStore>) -> Self {
        World { store, ..self.clone() }
    }

    /// Counts the operations of a process, to place faults at later ones.
    pub(crate) async fn operations(&self, run: impl AsyncFnOnce(World)) -> u64 {
        let counting = Arc::new(Faulty::new(Arc::clone(&self.store), Plan::none()));
        run(self.on(counting.clone())).await;
        counting.operations()
    }
}

/// The results of all points.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) operations: u64,
    pub(crate) points: u64,
    /// The number of results that were acknowledged before the faults, over all points.
    pub(crate) acknowledged: u64,
    pub(crate) failures: Vec<(Kind, String)>,
}

impl Report {
    /// Asserts that nothing was wrong, at `points_min` points at least: a scenario that makes fewer operations than it
    /// did tests less.
    pub(crate) fn assert_clean(&self, name: &str, stage: &Stage, points_min: u64) {
        println!("{name} on {}: {self}", stage.name());
        assert!(self.failures.is_empty(), "{name}: {self}\n{:#?}", self.failures);
        let points_min = points_min / stage.share();
        assert!(self.points >= points_min, "{name}: {self}, and there were {points_min} points");
        assert!(self.acknowledged > 0, "{name}: nobody was ever answered anything");
    }

    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<_> = self.failures.iter().map(|(kind, _)| *kind).collect();
        kinds.dedup();
        kinds
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { operations, points, acknowledged, failures } = self;
        let (kinds, failed) = (Kind::ALL.len() as u64, failures.len());
        let all = operations * kinds;
        write!(
            f,
            "{operations} operations x {kinds} kinds, {points} of {all} points, {acknowledged} answers looked after, {failed} failed"
        )
    }
}

/// Runs a scenario once without faults, and then once for each operation and kind of fault.
///
/// `prepare` makes the initial state, without faults. `run` is process 1. `recover` is process 2 and later ones, and
/// gets the results that process 1 received. `check` reads the store, without faults, and describes what is wrong.
pub(crate) async fn every_point<T>(
    stage: &Stage,
    prepare: impl AsyncFn(&World),
    run: impl AsyncFn(&World) -> Result<T>,
    recover: impl AsyncFn(&World, &Result<T>) -> Result<()>,
    check: impl AsyncFn(&World, &Result<T>) -> Result<(), String>,
) -> Report {
    let world = World::new(stage, "counted");
    prepare(&world).await;
    let counting = Arc::new(Faulty::new(Arc::clone(&world.store), Plan::none()));
    let answer = run(&world.on(counting.clone())).await;
    assert!(answer.is_ok(), "the scenario fails without any fault: {:?}", answer.err());
    check(&world.process(2), &answer).await.expect("right without any fault");
    world.holds(&world.take_acknowledged()).await.expect("true without any fault");
    let operations = counting.operations();

    let mut report = Report { operations, points: 0, acknowledged: 0, failures: Vec::new() };
    for (first, kind) in (0..).zip(Kind::ALL) {
        for number in 0..operations {
            if !(first + number).is_multiple_of(stage.share()) {
                continue;
            }
            report.points += 1;
            let world = World::new(stage, &format!("{kind:?}{number}"));
            match point(&world, FaultPoint { kind, number }, &prepare, &run, &recover, &check).await {
                Ok(acknowledged) => report.acknowledged += acknowledged,
                Err(what) => report.failures.push((kind, format!("{kind:?} at operation {number}: {what}"))),
            }
        }
    }
    report
}

/// A kind of fault at an operation.
#[derive(Clone, Copy)]
struct FaultPoint {
    kind: Kind,
    /// The number of the operation, from 0.
    number: u64,
}

/// Runs one point; returns the number of results that were acknowledged before the fault and held.
async fn point<T>(
    world: &World,
    FaultPoint { kind, number }: FaultPoint,
    prepare: &impl AsyncFn(&World),
    run: &impl AsyncFn(&World) -> Result<T>,
    recover: &impl AsyncFn(&World, &Result<T>) -> Result<()>,
    check: &impl AsyncFn(&World, &Result<T>) -> Result<(), String>,
) -> Result<u64, String> {
    prepare(world).await;
    let faulty = Arc::new(Faulty::new(Arc::clone(&world.store), Plan::at(number, kind.fault())));
    let answer = run(&world.on(faulty.clone())).await;
    assert_eq!(faulty.injected().len(), 1, "point {number} was not reached");
    let acknowledged = world.take_acknowledged();
    if !kind.arrives_after_recovery() {
        faulty.deliver_late().await;
    }
    world.clock.advance(Duration::from_secs(2 * 3600));
    let recovery = recover(&world.process(2), &answer).await;
    recovery.map_err(|error| format!("the recovery failed: {error}"))?;
    if kind.arrives_after_recovery() {
        faulty.deliver_late().await;
        world.clock.advance(Duration::from_secs(2 * 3600));
        let recovery = recover(&world.process(3), &answer).await;
        recovery.map_err(|error| format!("the second recovery failed: {error}"))?;
    }
    world.holds(&acknowledged).await?;
    check(&world.process(4), &answer).await?;
    Ok(acknowledged.len() as u64)
}

/// Shows that the check of acknowledged results can fail: one is acknowledged too early, and a recovery loses one.
#[tokio::test]
async fn answers_that_do_not_hold_are_caught() {
    let entry = || rawdoc! { "_id": 1 };
    let right = async |_: &World, _: &Result<()>| Ok(());
    let too_early = async |world: &World| {
        world.acknowledge("it is in", "entries", doc! { "_id": 1 });
        Ok(world.store.insert_one(&world.namespace("entries"), entry()).await?)
    };
    let report = every_point(&Stage::Memory, async |_| {}, too_early, async |_, _| Ok(()), right).await;
    assert_eq!(report.kinds(), [Kind::FailBefore, Kind::CrashBefore], "{report}");

    let in_time = async |world: &World| {
        world.store.insert_one(&world.namespace("entries"), entry()).await?;
        world.acknowledge("it is in", "entries", doc! { "_id": 1 });
        Ok(world.store.find_one(&world.namespace("entries"), rawdoc! { "_id": 2 }).await.map(|_| ())?)
    };
    let report = every_point(&Stage::Memory, async |_| {}, in_time, async |_, _| Ok(()), right).await;
    report.assert_clean("in time", &Stage::Memory, 21);
    let losing = async |world: &World, _: &Result<()>| {
        Ok(world.store.delete_one(&world.namespace("entries"), entry()).await.map(|_| ())?)
    };
    let report = every_point(&Stage::Memory, async |_| {}, in_time, losing, right).await;
    assert_eq!(report.kinds(), Kind::ALL, "{report}");
}
