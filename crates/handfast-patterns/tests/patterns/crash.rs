//! Kills a scenario at every operation on its store, in every way that a network and a process have, and looks at what
//! the recovery makes of it.
//!
//! ```text
//! without faults:    process 1 ── 0 ── 1 ── 2 ── .. ── n-1          counts the operations
//! each point:        process 1 ── 0 ── 1 ── fault ..               [a copy arrives]
//!                    two hours later, process 2: recovery          [a copy arrives, process 3: recovery]
//!                    check
//! ```
//!
//! Both processes have their own pattern objects and share nothing but the store. Operations are those of the contract,
//! pages of cursors and the creation of indexes included. No point is skipped: that each fault was met is asserted.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use handfast_embedded::{EmbeddedStore, Options};
use handfast_patterns::Result;
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, ManualClock, MemoryStore, Namespace, Sources};

/// What happens at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Not applied; the caller cannot know.
    FailBefore,
    /// Applied; the caller cannot know.
    LoseReply,
    /// Not applied, and the process is dead.
    CrashBefore,
    /// Applied, and the process is dead.
    CrashAfter,
    /// Applied; a copy of the request arrives before the recovery.
    DuplicateBeforeRecovery,
    /// Applied; a copy of the request arrives after the recovery, which runs again.
    DuplicateAfterRecovery,
    /// Not applied as far as anybody can see; the request arrives after the recovery, which runs again.
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
            Kind::DuplicateBeforeRecovery | Kind::DuplicateAfterRecovery => Fault::RepeatLater,
            Kind::DelayedPastRecovery => Fault::DeliverLate,
        }
    }

    fn arrives_after_recovery(self) -> bool {
        matches!(self, Kind::DuplicateAfterRecovery | Kind::DelayedPastRecovery)
    }
}

/// What a process of a scenario has.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) store: Arc<dyn DocumentStore>,
    pub(crate) sources: Sources,
    pub(crate) clock: Arc<ManualClock>,
    database: String,
}

impl World {
    pub(crate) fn place(&self, collection: &str) -> Namespace {
        Namespace::new(self.database.clone(), collection).unwrap()
    }

    /// In a store in memory, without faults.
    pub(crate) fn in_memory() -> Self {
        World::new(&Stage::Memory, "test")
    }

    fn new(stage: &Stage, database: &str) -> Self {
        let (sources, clock) = Sources::manual(1);
        let store: Arc<dyn DocumentStore> = match stage {
            Stage::Memory => Arc::new(MemoryStore::new(sources.clone())),
            Stage::Embedded { store, .. } => Arc::clone(store),
        };
        if let Stage::Embedded { clock: its_clock, .. } = stage {
            its_clock.set(ManualClock::START);
            return World {
                sources: Sources { clock: its_clock.clone(), ..sources },
                clock: its_clock.clone(),
                store,
                database: database.to_owned(),
            };
        }
        World { store, sources, clock, database: database.to_owned() }
    }

    /// Another process: other ids, other chance.
    pub(crate) fn process(&self, number: u32) -> Self {
        let own = Sources::seeded(u64::from(number));
        let sources = Sources { clock: self.sources.clock.clone(), ..own };
        World { sources, ..self.clone() }
    }

    pub(crate) fn on(&self, store: Arc<dyn DocumentStore>) -> Self {
        World { store, ..self.clone() }
    }
}

/// Where scenarios are played.
pub(crate) enum Stage {
    /// A store in memory for each point.
    Memory,
    /// One embedded store, a database for each point.
    Embedded { store: Arc<dyn DocumentStore>, clock: Arc<ManualClock> },
}

impl Stage {
    pub(crate) async fn embedded(directory: &Path) -> Self {
        let (sources, clock) = Sources::manual(1);
        let options = Options { expiry_interval: None, ..Options::small() };
        let store = EmbeddedStore::open(directory, sources, options).await.unwrap();
        Stage::Embedded { store: Arc::new(store), clock }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Stage::Memory => "memory",
            Stage::Embedded { .. } => "embedded",
        }
    }
}

/// What came of all points.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) operations: u64,
    pub(crate) points: u64,
    pub(crate) failures: Vec<(Kind, String)>,
}

impl Report {
    pub(crate) fn assert_clean(&self, name: &str, stage: &Stage) {
        println!("{name} on {}: {self}", stage.name());
        assert!(self.operations > 0 && self.failures.is_empty(), "{name}: {self}\n{:#?}", self.failures);
    }

    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<_> = self.failures.iter().map(|(kind, _)| *kind).collect();
        kinds.dedup();
        kinds
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { operations, points, failures } = self;
        write!(f, "{operations} operations x {} kinds = {points} points, {} failed", Kind::ALL.len(), failures.len())
    }
}

/// Plays a scenario once without faults, and then once for each operation and kind.
///
/// `prepare` makes what is there before, without faults. `run` is process 1. `recover` is process 2 and later ones; it
/// gets what process 1 was answered. `check` looks, without faults, and says what is wrong.
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
    let operations = counting.operations();

    let mut report = Report { operations, points: 0, failures: Vec::new() };
    for kind in Kind::ALL {
        for number in 0..operations {
            report.points += 1;
            let world = World::new(stage, &format!("{kind:?}{number}"));
            if let Err(what) = point(&world, (kind, number), &prepare, &run, &recover, &check).await {
                report.failures.push((kind, format!("{kind:?} at operation {number}: {what}")));
            }
        }
    }
    report
}

async fn point<T>(
    world: &World,
    (kind, number): (Kind, u64),
    prepare: &impl AsyncFn(&World),
    run: &impl AsyncFn(&World) -> Result<T>,
    recover: &impl AsyncFn(&World, &Result<T>) -> Result<()>,
    check: &impl AsyncFn(&World, &Result<T>) -> Result<(), String>,
) -> Result<(), String> {
    prepare(world).await;
    let faulty = Arc::new(Faulty::new(Arc::clone(&world.store), Plan::at(number, kind.fault())));
    let answer = run(&world.on(faulty.clone())).await;
    assert_eq!(faulty.injected().len(), 1, "point {number} was not reached");
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
    check(&world.process(4), &answer).await
}
