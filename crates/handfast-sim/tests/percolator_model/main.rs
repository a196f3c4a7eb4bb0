//! A model checker for the engine Percolator: explores all interleavings of a few transactions, with the functions from row to row
//! that the engine itself runs.
//!
//! ```text
//! 3 clients x 2 documents: each interleaving, with requests in time, late, repeated or lost
//!
//! begin ── read A ── prewrite A ── prewrite B ─┬─ commit timestamp ── commit A ── ..
//!                        └─ lost ── again ..   └─ a process finds the lock abandoned, reads A, rolls back ..
//! ```
//!
//! The [`properties`] hold in each reachable state: the values of reads, conflicts between commits, and the rows that remain if all
//! processes stop there. Each rule is broken once ([`rules::Mutant`]), and a property finds it.
//!
//! | module | contents |
//! | --- | --- |
//! | [`protocol`] | the possible actions |
//! | [`client`], [`others`], [`network`] | the actions of clients, of other processes and of the network |
//! | [`properties`] | the properties of states |
//! | [`rules`] | the rules and their mutants |
//! | [`table`], [`state`] | the compact form of a state |
//!
//! # Parts of the system that a state omits
//!
//! A state has no time: a lock expires at once, so it may be found abandoned at any moment, which allows more than the real engine.
//! It has no numbers of revisions: a change of a row checks that they grow, and a request knows whether its row has changed. With
//! [`Network::Late`] it has no requests that their sender would send again: [`late_requests_are_enough`] compares the reachable
//! states with and without them.
//!
//! `HANDFAST_MODEL=4x2` explores 4 clients and 2 documents, `3x2+collector` adds a collector.
//!
//! Source: spec: quality; Lamport, Specifying Systems; the model checker is `stateright`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests are tests")]

mod client;
mod network;
mod others;
mod properties;
mod protocol;
mod rules;
mod state;
mod table;

use std::collections::{BTreeSet, HashSet};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::properties as promise;
use crate::protocol::{Bounds, Event, Network, Protocol};
use crate::rules::{Mutant, Rules};
use crate::state::programs;

/// The number of threads.
const THREADS: usize = 2;

const SMALL: Bounds = Bounds {
    clients: 2,
    documents: 2,
    programs: &[programs::AB, programs::BA, programs::A, programs::LOOK, programs::A_NOT_B],
    collects: false,
    network: Network::Late,
};

/// Explores all states and prints their number.
fn check_all_states(bounds: Bounds, events: &[Event]) {
    let checker = Protocol::new(bounds, Rules(None)).checker().threads(THREADS).spawn_bfs().join();
    let Bounds { clients, documents, collects, network, .. } = bounds;
    println!(
        "{clients} x {documents}, {network:?} requests, collector {collects}: {} states, {} ways into them, {} steps deep",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
    );
    checker.assert_properties();
    let happened = checker.model().happened();
    println!("{happened:?}");
    for event in events {
        assert!(happened.iter().any(|(what, count)| what == event && *count > 0), "{event:?} never happened");
    }
}

/// The events that happen in each model.
const EVENTS: [Event; 6] = [
    Event::ReaderWaits,
    Event::PrewriteLocked,
    Event::PrewriteRolledBack,
    Event::PrewriteConflict,
    Event::PrewriteLate,
    Event::CommitRolledBack,
];

/// Each request arrives at once, later, repeatedly, or never.
#[test]
fn properties_hold_for_three_clients_and_two_documents() {
    let bounds = Bounds { clients: 3, programs: &[programs::AB], network: Network::All, ..SMALL };
    check_all_states(bounds, &[&EVENTS[..], &[Event::OthersLearn]].concat());
}

#[test]
fn properties_hold_for_three_clients_and_three_documents() {
    let programs = &[programs::AB, programs::CB, programs::LOOK_AT_ALL];
    check_all_states(Bounds { clients: 3, documents: 3, programs, ..SMALL }, &EVENTS);
}

/// Old versions are deleted, and rows are removed and created again, during open transactions.
#[test]
fn properties_hold_for_two_clients_and_a_collector() {
    check_all_states(
        Bounds { collects: true, ..SMALL },
        &[&EVENTS[..], &[Event::OthersLearn, Event::HistoryCut]].concat(),
    );
}

#[test]
fn properties_hold_for_the_model_of_the_environment_variable() {
    let Ok(model) = std::env::var("HANDFAST_MODEL") else { return };
    let (size, collects) = match model.strip_suffix("+collector") {
        Some(size) => (size, true),
        None => (model.as_str(), false),
    };
    let (clients, documents) = size.split_once('x').expect("HANDFAST_MODEL must be like 4x2 or 3x2+collector");
    let (clients, documents) = (clients.parse().unwrap(), documents.parse().unwrap());
    let three: &[u8] = &[programs::ABC, programs::CB, programs::A, programs::LOOK_AT_ALL];
    let programs = if documents == 3 { three } else { SMALL.programs };
    check_all_states(Bounds { clients, documents, programs, collects, ..SMALL }, &EVENTS);
}

/// A request in flight is conditional on the revision that its sender read. If the sender would send the same request at the time
/// of its arrival, it can be modelled as sent then. So a state needs only requests that their sender would not send again.
/// Both models reach the same rows and the same states of clients.
#[test]
fn late_requests_are_enough() {
    let late = reachable(SMALL);
    let all = reachable(Bounds { network: Network::All, ..SMALL });
    println!("{} and {} combinations of rows and clients", late.len(), all.len());
    assert!(late == all);
}

type ReachedState = (Vec<table::Stored>, Vec<state::Client>);

fn reachable(bounds: Bounds) -> HashSet<ReachedState> {
    let model = Protocol::new(bounds, Rules(None));
    let (mut known, mut seen, mut next) = (HashSet::new(), HashSet::new(), model.init_states());
    while let Some(state) = next.pop() {
        let rows = state.rows.iter().map(|row| model.table.stored(*row)).collect();
        // The models differ otherwise only in the outcomes that processes have read.
        let clients = state.clients.iter().map(|of| state::Client { learned: None, ..*of }).collect();
        seen.insert((rows, clients));
        next.extend(model.next_states(&state).into_iter().filter(|state| known.insert(state.clone())));
    }
    seen
}

/// The property that each mutant violates.
const CATCHES: &[(Mutant, &str)] = &[
    (Mutant::NoWriteCheck, promise::FIRST_WINS),
    (Mutant::LockOverwritten, promise::NOTHING_LEFT),
    (Mutant::DecisionNotLookedFor, promise::NOTHING_LEFT),
    (Mutant::CommitWithoutLock, promise::ONE_DECISION),
    (Mutant::AnyLockCommitted, promise::NEWEST),
    (Mutant::ReadIgnoresLocks, promise::ONE_SNAPSHOT),
    (Mutant::NoRollbackRecord, promise::NOTHING_LEFT),
    (Mutant::CollapsedRollbackRecord, promise::ONE_DECISION),
    (Mutant::RecordDroppedEarly, promise::ONE_DECISION),
    (Mutant::HistoryCutBeforeLocks, promise::NOTHING_LEFT),
    (Mutant::SafePointTooNew, promise::READABLE),
    (Mutant::LockTrustedFirst, promise::NEWEST),
    (Mutant::RollbackNotDurable, promise::NEWEST),
    (Mutant::SecondaryBeforePrimary, promise::ALL_OR_NOTHING),
    (Mutant::TimestampBeforeLocks, promise::ONE_SNAPSHOT),
    (Mutant::AppliedAgain, promise::ONCE),
    (Mutant::OracleRepeats, promise::ONE_SNAPSHOT),
    (Mutant::UnconditionalWrites, promise::NOTHING_LEFT),
];

/// The number of states within which a violation has to be found.
const STATES_MAX: usize = 2_000_000;

#[test]
fn every_mutant_is_caught_by_name() {
    let mut escaped = Vec::new();
    println!("| mutant | breaks | steps | also seen broken by then |\n| --- | --- | --- | --- |");
    for &(mutant, promise) in CATCHES {
        let found = caught(mutant, promise);
        let Some((_, steps)) = found.iter().find(|(name, _)| *name == promise) else {
            escaped.push(format!("{mutant:?}: not {promise:?}, but {found:?}"));
            continue;
        };
        let others: Vec<_> = found.iter().map(|(name, _)| *name).filter(|name| *name != promise).collect();
        println!("| {mutant:?} | {promise} | {steps} | {} |", others.join("; "));
    }
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
}

/// Returns the violated properties with the number of steps.
fn caught(mutant: Mutant, promise: &'static str) -> Vec<(&'static str, usize)> {
    let needs_collector = matches!(
        mutant,
        Mutant::AnyLockCommitted | Mutant::RecordDroppedEarly | Mutant::HistoryCutBeforeLocks | Mutant::SafePointTooNew
    );
    let checker = Protocol::new(Bounds { collects: needs_collector, ..SMALL }, Rules(Some(mutant)))
        .checker()
        .finish_when(HasDiscoveries::AllOf(BTreeSet::from([promise])))
        .target_state_count(STATES_MAX)
        .spawn_bfs()
        .join();
    let mut broken: Vec<_> = checker
        .discoveries()
        .into_iter()
        .filter(|(name, _)| checker.model().property(name).expectation == Expectation::Always)
        .map(|(name, path)| (name, path.into_actions().len()))
        .collect();
    broken.sort_unstable();
    broken
}

#[test]
fn every_mutant_has_a_test() {
    for mutant in Mutant::ALL {
        assert!(CATCHES.iter().any(|(caught, _)| *caught == mutant), "{mutant:?}");
    }
}
