//! A model of the engine Percolator: every way in which a few transactions can go, through the very functions from row to
//! row that the engine carries out.
//!
//! ```text
//! 3 clients x 2 documents: who is next, and is its request in time, late, twice, or lost?
//!
//! begin ── read A ── prewrite A ── prewrite B ─┬─ commit timestamp ── commit A ── ..
//!                        └─ lost ── again ..   └─ somebody takes the lock for abandoned, asks A, rolls back ..
//! ```
//!
//! In each state that can be reached, [`properties`] hold: what each read saw, who may have committed beside whom, what is
//! left if everybody stops right there. Each of the rules is broken once ([`rules::Mutant`]), and a property finds it.
//!
//! | for | look at |
//! | --- | --- |
//! | what can happen | [`protocol`] |
//! | who does what | [`client`], [`others`], [`network`] |
//! | what holds | [`properties`] |
//! | the rules, and how each is broken | [`rules`] |
//! | how a state is kept small | [`table`], [`state`] |
//!
//! # What is left out of a state
//!
//! Time: a lock lives for none, so that it can be taken for abandoned at any moment; that is more than can happen. Numbers
//! of revisions: that each is larger than the one before is looked at when a row changes; a request knows whether its row
//! has changed. With [`Network::Late`], requests whose sender would send the same again: [`late_requests_are_enough`]
//! compares what can be reached with and without them.
//!
//! `HANDFAST_MODEL=4x2` explores so many clients and documents, `3x3` likewise, `3x2+collector` with a collector.
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

/// As many as there are processors where it matters.
const THREADS: usize = 2;

const SMALL: Bounds = Bounds {
    clients: 2,
    documents: 2,
    programs: &[programs::AB, programs::BA, programs::A, programs::LOOK, programs::A_NOT_B],
    collects: false,
    network: Network::Late,
};

/// Explores all states; says how many there are.
fn all_hold(bounds: Bounds, events: &[Event]) {
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

/// What happens in each of the models.
const EVENTS: [Event; 6] = [
    Event::ReaderWaits,
    Event::PrewriteLocked,
    Event::PrewriteRolledBack,
    Event::PrewriteConflict,
    Event::PrewriteLate,
    Event::CommitRolledBack,
];

/// Every request goes through the network: it arrives at once, or after whatever else can happen, again, or never.
#[test]
fn three_clients_and_two_documents() {
    let bounds = Bounds { clients: 3, programs: &[programs::AB], network: Network::All, ..SMALL };
    all_hold(bounds, &[&EVENTS[..], &[Event::OthersLearn]].concat());
}

#[test]
fn three_clients_and_three_documents() {
    let programs = &[programs::AB, programs::CB, programs::LOOK_AT_ALL];
    all_hold(Bounds { clients: 3, documents: 3, programs, ..SMALL }, &EVENTS);
}

/// History is cut, and rows are removed and made again, beside transactions that are open.
#[test]
fn two_clients_and_a_collector() {
    all_hold(Bounds { collects: true, ..SMALL }, &[&EVENTS[..], &[Event::OthersLearn, Event::HistoryCut]].concat());
}

#[test]
fn as_large_as_told() {
    let Ok(told) = std::env::var("HANDFAST_MODEL") else { return };
    let (size, collects) = match told.strip_suffix("+collector") {
        Some(size) => (size, true),
        None => (told.as_str(), false),
    };
    let (clients, documents) = size.split_once('x').expect("HANDFAST_MODEL is as 4x2, or 3x2+collector");
    let (clients, documents) = (clients.parse().unwrap(), documents.parse().unwrap());
    let three: &[u8] = &[programs::ABC, programs::CB, programs::A, programs::LOOK_AT_ALL];
    let programs = if documents == 3 { three } else { SMALL.programs };
    all_hold(Bounds { clients, documents, programs, collects, ..SMALL }, &EVENTS);
}

/// A request that is under way is conditional on the revision that its sender read. If the sender would send the same
/// again when it arrives, it might as well be sent then; so only those matter whose sender has moved on. Rows and what
/// clients know of them can be the same with both.
#[test]
fn late_requests_are_enough() {
    let late = reachable(SMALL);
    let all = reachable(Bounds { network: Network::All, ..SMALL });
    println!("{} and {} combinations of rows and clients", late.len(), all.len());
    assert!(late == all);
}

type Seen = (Vec<table::Stored>, Vec<state::Client>);

fn reachable(bounds: Bounds) -> HashSet<Seen> {
    let model = Protocol::new(bounds, Rules(None));
    let (mut known, mut seen, mut next) = (HashSet::new(), HashSet::new(), model.init_states());
    while let Some(state) = next.pop() {
        let rows = state.rows.iter().map(|row| model.table.stored(*row)).collect();
        // Who has asked already is the only other difference.
        let clients = state.clients.iter().map(|of| state::Client { learned: None, ..*of }).collect();
        seen.insert((rows, clients));
        next.extend(model.next_states(&state).into_iter().filter(|state| known.insert(state.clone())));
    }
    seen
}

/// Which promise each broken rule breaks.
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

/// States in which a broken promise has to be found.
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

/// The promises that are broken, and in how many steps.
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
fn no_mutant_is_left_out() {
    for mutant in Mutant::ALL {
        assert!(CATCHES.iter().any(|(caught, _)| *caught == mutant), "{mutant:?}");
    }
}
