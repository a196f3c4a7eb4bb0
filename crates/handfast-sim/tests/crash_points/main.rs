//! Injects every fault into every operation of transactions and retryable writes on the embedded store, one at a time, and then kills
//! the process. The reopened store has each action as a whole or not at all, knows the outcome of each by its name, and returns the
//! first result for a repetition.
//!
//! ```text
//! actions -> Database -> Faulty (one fault at operation n) -> EmbeddedStore -> directory ── copied while open ──> reopened
//! ```
//!
//! The copy has what a killed process leaves: the bytes that the operating system has, and nothing that is only in memory. The store's
//! own crash points test faults within an operation (a batch that is applied and not synced).

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

mod actions;
mod defect;

use std::sync::Arc;

use bson::RawDocumentBuf;
use handfast_embedded::{EmbeddedStore, Options, Repair, check};
use handfast_sim::directory::copy;
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{Applied, Sources};
use handfast_txn::{Database, Local, Outcome};
use tempfile::TempDir;

use self::actions::{Action, MONEY, dump, fill, money};
use self::defect::{Defect, DefectiveEngine};

/// The number of tasks that check crash points.
const WORKERS: u64 = 2;

/// A store in a directory of its own, behind a plan of faults.
struct FaultyStore {
    directory: TempDir,
    store: EmbeddedStore,
    faulty: Arc<Faulty<EmbeddedStore>>,
    database: Database,
    defect: Option<Defect>,
}

/// The results of a run without faults.
struct Reference {
    /// The result of each action.
    answers: Vec<String>,
    /// The documents before the first action and after each action.
    states: Vec<Vec<RawDocumentBuf>>,
    operations: u64,
}

impl FaultyStore {
    async fn open(plan: Plan, defect: Option<Defect>) -> FaultyStore {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { acknowledge_after_sync: defect != Some(Defect::Unsynced), ..Options::small() };
        let path = directory.path().join("data");
        let store = EmbeddedStore::open(path, Sources::seeded(1), options).await.unwrap();
        fill(&store).await;
        let faulty = Arc::new(Faulty::new(Arc::new(store.clone()), plan));
        let database = database(Arc::clone(&faulty), defect);
        FaultyStore { directory, store, faulty, database, defect }
    }

    /// Copies the directory as a kill leaves it, and opens the copy.
    async fn kill(self) -> (TempDir, EmbeddedStore) {
        let left = self.directory.path().join("left");
        copy(&self.directory.path().join("data"), &left).unwrap();
        drop((self.database, self.faulty));
        self.store.close().await.unwrap();
        let store = EmbeddedStore::open(left, Sources::seeded(1), Options::small()).await.unwrap();
        (self.directory, store)
    }
}

fn database<S: handfast_store::AtomicStore>(store: Arc<S>, defect: Option<Defect>) -> Database {
    let sources = Sources::seeded(2);
    let inner = Local::new(store, sources.clone());
    Database::new(Arc::new(DefectiveEngine { inner, defect }), sources)
}

async fn run_without_faults(defect: Option<Defect>) -> Reference {
    let faulty_store = FaultyStore::open(Plan::none(), defect).await;
    let (mut answers, mut states) = (Vec::new(), vec![dump(&faulty_store.store).await]);
    for action in Action::ALL {
        answers.push(action.execute(&faulty_store.database, defect).await.unwrap());
        states.push(dump(&faulty_store.store).await);
    }
    let operations = faulty_store.faulty.operations();
    Reference { answers, states, operations }
}

/// Checks one crash point. Returns whether an action was applied without an acknowledgement.
async fn check_point(number: u64, kind: Fault, defect: Option<Defect>, reference: &Reference) -> Result<bool, String> {
    let faulty_store = FaultyStore::open(Plan::at(number, kind), defect).await;
    let mut done = 0;
    let error = loop {
        let Some(action) = Action::ALL.get(done) else { break None };
        match action.execute(&faulty_store.database, defect).await {
            Ok(answer) if answer == reference.answers[done] => done += 1,
            Ok(answer) => return Err(format!("{action:?} answered {answer}, not {}", reference.answers[done])),
            Err(error) => break Some(error),
        }
    };
    if faulty_store.database.counts().open() != 0 {
        return Err(format!("a transaction is left open: {:?}", faulty_store.database.counts()));
    }
    if matches!(kind, Fault::DeliverLate | Fault::Duplicate) {
        // The request arrives after the client has repeated all actions.
        repeat_all(&faulty_store.database, faulty_store.defect, reference).await?;
        for _late in faulty_store.faulty.deliver_late().await {}
        let last = reference.states.len() - 1;
        expect_state(&dump(&faulty_store.store).await, reference, last..=last, "after a late request")?;
    }
    let late = matches!(kind, Fault::DeliverLate | Fault::Duplicate);
    let (directory, store) = faulty_store.kill().await;
    let maybe = usize::from(error.is_some_and(|error| error.applied() == Applied::Maybe));
    let expected = if late { Action::ALL.len()..=Action::ALL.len() } else { done..=done + maybe };
    let reached = expect_state(&dump(&store).await, reference, expected, "after the crash")?;
    let database = database(Arc::new(store.clone()), defect);
    for (index, action) in Action::ALL.into_iter().enumerate().filter(|(_, action)| action.is_transaction()) {
        let outcome = database.outcome(action.id()).await.map_err(|error| error.to_string())?;
        if matches!(outcome, Outcome::Committed(_)) != (index < reached) {
            return Err(format!("{action:?}: the outcome is {outcome:?}, and {reached} actions are applied"));
        }
    }
    repeat_all(&database, defect, reference).await?;
    let last = reference.states.len() - 1;
    expect_state(&dump(&store).await, reference, last..=last, "after all was repeated")?;
    if money(&store).await != MONEY || database.counts().open() != 0 {
        return Err("the sum of balances has changed, or a transaction is open".to_owned());
    }
    drop(database);
    store.close().await.map_err(|error| error.to_string())?;
    let checked = check(directory.path().join("left"), Sources::seeded(1), Options::small(), Repair::No, |_| {}).await;
    let report = checked.map_err(|error| error.to_string())?;
    if report.is_clean() { Ok(reached > done) } else { Err(format!("the directory is not clean: {report:?}")) }
}

async fn repeat_all(database: &Database, defect: Option<Defect>, reference: &Reference) -> Result<(), String> {
    for (action, first) in Action::ALL.into_iter().zip(&reference.answers) {
        let answer = action.repeat(database, defect).await.map_err(|error| format!("{action:?}, repeated: {error}"))?;
        if answer != *first {
            return Err(format!("{action:?}, repeated, answered {answer}, and at first {first}"));
        }
    }
    Ok(())
}

/// Returns the number of applied actions by the stored documents. Fails if an action is applied in part, or for an unexpected number.
fn expect_state(
    state: &[RawDocumentBuf],
    reference: &Reference,
    expected: std::ops::RangeInclusive<usize>,
    when: &str,
) -> Result<usize, String> {
    match reference.states.iter().position(|other| other == state) {
        None => {
            let documents: Vec<_> = state.iter().map(|stored| bson::Document::try_from(&**stored)).collect();
            Err(format!("{when} an action is applied in part: {documents:?}"))
        }
        Some(reached) if expected.contains(&reached) => Ok(reached),
        Some(reached) => Err(format!("{when} {reached} actions are applied, expected {expected:?}")),
    }
}

/// Checks every crash point; returns their number, the number of actions that were applied without an acknowledgement, and the
/// failures.
async fn check_every_point() -> (usize, usize, Vec<String>) {
    let reference = Arc::new(run_without_faults(None).await);
    let workers = (0..WORKERS).map(|worker| {
        let reference = Arc::clone(&reference);
        tokio::spawn(async move {
            let mut results = Vec::new();
            for number in (worker..reference.operations).step_by(WORKERS as usize) {
                for kind in Fault::ALL_OUTCOMES {
                    let result = check_point(number, kind, None, &reference).await;
                    results.push(result.map_err(|why| format!("operation {number}, {kind:?}: {why}")));
                }
            }
            results
        })
    });
    let mut results = Vec::new();
    for worker in workers.collect::<Vec<_>>() {
        results.extend(worker.await.unwrap());
    }
    assert_eq!(
        results.len() as u64,
        reference.operations * Fault::ALL_OUTCOMES.len() as u64,
        "a crash point was left out"
    );
    let unacknowledged = results.iter().filter(|result| matches!(result, Ok(true))).count();
    (results.len(), unacknowledged, results.into_iter().filter_map(Result::err).collect())
}

/// Returns the failure at the first crash point that shows the defect.
async fn first_failure(defect: Defect) -> Option<String> {
    let reference = run_without_faults(Some(defect)).await;
    for number in 0..reference.operations {
        for kind in Fault::ALL_OUTCOMES {
            if let Err(why) = check_point(number, kind, Some(defect), &reference).await {
                return Some(format!("operation {number}, {kind:?}: {why}"));
            }
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_action_is_applied_exactly_once_despite_faults() {
    let (points, unacknowledged, failures) = check_every_point().await;
    println!(
        "{points} crash points of {} actions; {unacknowledged} were applied without an acknowledgement",
        Action::ALL.len()
    );
    assert!(failures.is_empty(), "{} of {points} points:\n{}", failures.len(), failures.join("\n"));
    assert!(points > 0 && unacknowledged > 0, "nothing was tested");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_planted_defect_is_found() {
    for (defect, message) in Defect::ALL {
        let found = first_failure(defect).await.unwrap_or_else(|| panic!("{defect:?} was not found"));
        println!("{defect:?}: {found}");
        assert!(found.contains(message), "{defect:?} was found for another reason: {found}");
    }
}
