//! Tests of the judges: the reference engine passes every workload without a fault, and each fault is caught by name.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::sync::Arc;

use handfast_history::Expectation;
use handfast_sim::model::{Fault, ModelStore};
use handfast_sim::{Isolation, MinimumCounts, Order, RunOptions, RunReport, Workload, WorkloadKind, run};
use handfast_store::{SeededRandom, Sources};

const COMMITTED: u64 = 1_000;

const ALL_KINDS: [WorkloadKind; 5] = [
    WorkloadKind::ListAppend,
    WorkloadKind::Register,
    WorkloadKind::Bank,
    WorkloadKind::WriteSkew,
    WorkloadKind::LongScan,
];

/// The workload, isolation and anomaly that catch each fault.
const CATCHES: &[(Fault, WorkloadKind, Isolation, &str)] = &[
    (Fault::NoWriteCheck, WorkloadKind::ListAppend, Isolation::Snapshot, "lost-update"),
    (Fault::NoWriteCheck, WorkloadKind::ListAppend, Isolation::Snapshot, "lost-append"),
    (Fault::NoWriteCheck, WorkloadKind::Register, Isolation::Snapshot, "lost-update"),
    (Fault::NoWriteCheck, WorkloadKind::Bank, Isolation::Snapshot, "wrong-total"),
    (Fault::ReadsLatest, WorkloadKind::ListAppend, Isolation::Snapshot, "G-single"),
    (Fault::ReadsLatest, WorkloadKind::LongScan, Isolation::Snapshot, "G-single"),
    (Fault::ReadsLatest, WorkloadKind::Register, Isolation::Snapshot, "internal"),
    (Fault::ReadsUncommitted, WorkloadKind::ListAppend, Isolation::Snapshot, "G1a"),
    (Fault::ReadsUncommitted, WorkloadKind::Register, Isolation::Snapshot, "G1a"),
    (Fault::ReadsUncommitted, WorkloadKind::LongScan, Isolation::Snapshot, "G1a"),
    (Fault::ReadsUncommitted, WorkloadKind::Bank, Isolation::Snapshot, "wrong-total"),
    (Fault::StaleSnapshot, WorkloadKind::ListAppend, Isolation::Snapshot, "G-single-real-time"),
    (Fault::StaleSnapshot, WorkloadKind::Register, Isolation::Snapshot, "G-single-real-time"),
    (Fault::HalfCommit, WorkloadKind::ListAppend, Isolation::Snapshot, "lost-append"),
    (Fault::HalfCommit, WorkloadKind::LongScan, Isolation::Snapshot, "lost-append"),
    (Fault::HalfCommit, WorkloadKind::Bank, Isolation::Snapshot, "wrong-total"),
    (Fault::TornCommit, WorkloadKind::ListAppend, Isolation::Snapshot, "G-single"),
    (Fault::TornCommit, WorkloadKind::Bank, Isolation::Snapshot, "wrong-total"),
    (Fault::ForgottenCommit, WorkloadKind::ListAppend, Isolation::Snapshot, "lost-append"),
    (Fault::ForgottenCommit, WorkloadKind::Bank, Isolation::Snapshot, "lost-update"),
    (Fault::AppliedTwice, WorkloadKind::ListAppend, Isolation::Snapshot, "duplicate-append"),
    (Fault::RefusedAndApplied, WorkloadKind::ListAppend, Isolation::Snapshot, "G1a"),
    (Fault::RefusedAndApplied, WorkloadKind::Register, Isolation::Snapshot, "G1a"),
    (Fault::NoRollback, WorkloadKind::ListAppend, Isolation::Snapshot, "G1a"),
    (Fault::NoRollback, WorkloadKind::Register, Isolation::Snapshot, "G1a"),
    (Fault::NoReadCheck, WorkloadKind::WriteSkew, Isolation::Serializable, "G2"),
    (Fault::NoReadCheck, WorkloadKind::ListAppend, Isolation::Serializable, "G2"),
    (Fault::NoRangeCheck, WorkloadKind::WriteSkew, Isolation::Serializable, "G2"),
    (Fault::OwnWritesUnseen, WorkloadKind::ListAppend, Isolation::Snapshot, "internal"),
    (Fault::OwnWritesUnseen, WorkloadKind::Bank, Isolation::Snapshot, "internal"),
    (Fault::InventedValue, WorkloadKind::ListAppend, Isolation::Snapshot, "unwritten-read"),
];

fn options(isolation: Isolation, seed: u64) -> RunOptions {
    RunOptions {
        seed,
        processes: 8,
        committed: COMMITTED,
        expectation: Expectation { isolation, order: Order::RealTime },
        minimum: MinimumCounts { committed: COMMITTED, failed: COMMITTED / 50, old_version_reads: COMMITTED / 50 },
    }
}

/// Runs a workload on one thread, so that a seed determines the history.
async fn run_model(store: ModelStore, kind: WorkloadKind, options: RunOptions) -> RunReport {
    run(Workload::new(kind), Arc::new(store), Sources::seeded(options.seed), options).await.unwrap()
}

fn random(seed: u64) -> Arc<SeededRandom> {
    Arc::new(SeededRandom::new(!seed))
}

#[tokio::test]
async fn histories_of_an_engine_without_faults_are_clean() {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        for (seed, kind) in (1u64..).zip(ALL_KINDS) {
            for store in
                [ModelStore::new(isolation, random(seed)), ModelStore::with_lost_answers(isolation, random(seed), 10)]
            {
                let outcome = run_model(store, kind, options(isolation, seed)).await;
                assert_eq!(outcome.problems(), [""; 0], "{outcome}");
            }
        }
    }
}

#[tokio::test]
async fn lost_answers_are_counted_by_their_outcome() {
    let store = ModelStore::with_lost_answers(Isolation::Snapshot, random(1), 4);
    let outcome = run_model(store, WorkloadKind::ListAppend, options(Isolation::Snapshot, 1)).await;
    let counts = outcome.verdict.report.counts;
    assert!(counts.unknown_seen > 50 && counts.unknown_unseen > 50, "{outcome}");
}

#[tokio::test]
async fn every_fault_is_caught_by_name() {
    let mut escaped = Vec::new();
    for &(fault, kind, isolation, name) in CATCHES {
        let seed = 7;
        let outcome =
            run_model(ModelStore::broken(isolation, random(seed), fault), kind, options(isolation, seed)).await;
        let kinds = outcome.verdict.report.kinds();
        if !kinds.contains(&name) {
            escaped.push(format!("{fault:?} by {outcome}: no {name} among {kinds:?}"));
        }
        escaped.extend(outcome.verdict.disagreement().map(|text| format!("{fault:?} by {outcome}: {text}")));
    }
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
}

#[test]
fn every_fault_has_a_test() {
    for fault in Fault::ALL {
        assert!(CATCHES.iter().any(|(caught, ..)| *caught == fault), "{fault:?}");
    }
}

/// The model at snapshot isolation allows write skew, which serializability forbids.
#[tokio::test]
async fn the_judges_find_write_skew_at_serializable_isolation_only() {
    let seed = 3;
    let serializable = options(Isolation::Serializable, seed);
    let store = ModelStore::new(Isolation::Snapshot, random(seed));
    let outcome = run_model(store, WorkloadKind::WriteSkew, serializable).await;
    assert_eq!(outcome.verdict.report.kinds(), ["G2"], "{outcome}");
    assert_eq!(outcome.verdict.disagreement(), None);
}

#[tokio::test]
async fn a_seed_determines_the_history() {
    let once = |seed| {
        run_model(
            ModelStore::new(Isolation::Snapshot, random(seed)),
            WorkloadKind::Bank,
            options(Isolation::Snapshot, seed),
        )
    };
    let (one, same, other) = (once(5).await, once(5).await, once(6).await);
    assert!(one.events == same.events);
    assert!(one.events != other.events);
}

#[tokio::test]
async fn a_run_with_few_conflicts_fails() {
    let alone = RunOptions { processes: 1, ..options(Isolation::Snapshot, 1) };
    let outcome = run_model(ModelStore::new(Isolation::Snapshot, random(1)), WorkloadKind::ListAppend, alone).await;
    let problems = outcome.problems().join("\n");
    assert!(outcome.verdict.is_clean());
    assert!(problems.contains("0 reads of old versions, where at least 20 were due"), "{problems}");
    // A rollback on purpose does not count as a conflict.
    assert!(outcome.verdict.report.counts.given_up >= 20, "{outcome}");
    assert!(problems.contains("0 failed transactions, where at least 20 were due"), "{problems}");
}

#[tokio::test]
async fn a_saved_history_is_judged_in_the_same_way() {
    let store = ModelStore::broken(Isolation::Snapshot, random(2), Fault::HalfCommit);
    let outcome = run_model(store, WorkloadKind::Bank, options(Isolation::Snapshot, 2)).await;
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("saved.jsonl");
    outcome.save(&path).unwrap();
    let file = std::io::BufReader::new(std::fs::File::open(&path).unwrap());
    let verdict = handfast_history::judge(file, None, None).unwrap();
    assert_eq!(verdict.report, outcome.verdict.report);
    assert_eq!(verdict.expectation, outcome.options.expectation);
}
