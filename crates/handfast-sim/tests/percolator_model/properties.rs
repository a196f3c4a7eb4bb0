//! The properties of all states, and the events that have to happen in some.

use stateright::Property;

use crate::others::{PrimaryAnswer, resolution};
use crate::protocol::Protocol;
use crate::rules::{ObservedVersion, Reading};
use crate::state::{Broken, Client, DOCUMENTS_MAX, Decision, Locked, Phase, State, Write};
use crate::table::{Operation, Outcome, RowId};

pub(crate) const ONE_SNAPSHOT: &str = "all reads of a transaction are from its snapshot";
pub(crate) const FIRST_WINS: &str = "of two transactions that write the same document, the first to commit wins";
pub(crate) const ALL_OR_NOTHING: &str = "a version is seen only if its transaction has committed";
pub(crate) const NEWEST: &str = "a new transaction sees all committed versions";
pub(crate) const ANSWERS: &str = "the answer to a client is the outcome";
pub(crate) const ONE_DECISION: &str = "a transaction is decided once";
pub(crate) const ONCE: &str = "a transaction is applied once";
pub(crate) const REVISIONS: &str = "no revision is repeated";
pub(crate) const READABLE: &str = "versions that an open transaction reads are kept";
pub(crate) const NOTHING_LEFT: &str = "if all processes stop, a cleaner leaves each transaction in full or not at all";

type Properties = Vec<Property<Protocol>>;

pub(crate) fn all() -> Properties {
    let mut properties = always();
    properties.extend(sometimes());
    properties
}

fn always() -> Properties {
    vec![
        Property::always(ONE_SNAPSHOT, one_snapshot),
        Property::always(FIRST_WINS, the_first_wins),
        Property::always(ALL_OR_NOTHING, all_or_nothing),
        Property::always(NEWEST, newest),
        Property::always(ANSWERS, answers),
        Property::always(ONE_DECISION, |_, state: &State| {
            let agree = |of: &Client| match (of.learned, of.decided) {
                (Some(learned), Some(decided)) => learned == decided,
                _ => true,
            };
            state.broken != Some(Broken::TwoDecisions) && state.clients.iter().all(agree)
        }),
        Property::always(ONCE, |_, state: &State| state.broken != Some(Broken::AppliedTwice)),
        Property::always(REVISIONS, |_, state: &State| state.broken != Some(Broken::RevisionRepeated)),
        Property::always(READABLE, |_, state: &State| state.broken != Some(Broken::TooOld)),
        Property::always(NOTHING_LEFT, nothing_is_left),
    ]
}

fn sometimes() -> Properties {
    vec![
        Property::sometimes("all clients commit", |model: &Protocol, state: &State| {
            model.clients(state).all(|(_, of)| matches!(of.decided, Some(Decision::Committed(_))))
        }),
        Property::sometimes("a client learns that others have rolled it back", |_, state: &State| {
            let is_rolled_back = |of: &Client| {
                matches!(of.phase, Phase::GivenUp { .. })
                    && of.decided == Some(Decision::RolledBack)
                    && of.all_locks_are(Locked::Yes)
            };
            state.clients.iter().any(is_rolled_back)
        }),
        Property::sometimes("a client commits, and others finish it", |model: &Protocol, state: &State| {
            model.clients(state).any(|(_, of)| {
                let is_seen = |document: u8| {
                    let entry = model.table.entry(state.row(document));
                    entry.lock.is_none() && entry.versions[0].start == of.start
                };
                of.phase == Phase::Committing && of.program().writes.iter().all(|write| is_seen(write.document))
            })
        }),
        Property::sometimes("a request of a transaction that has been rolled back is in flight", |_, state: &State| {
            let is_decided = |client: u8| state.clients[usize::from(client)].decided == Some(Decision::RolledBack);
            state.network.iter().any(|request| is_decided(request.client))
        }),
        Property::sometimes(
            "a document is locked by a transaction that has been rolled back",
            |model: &Protocol, state: &State| {
                let is_late = |of: &Client, document: u8| {
                    of.has_begun()
                        && of.decided == Some(Decision::RolledBack)
                        && model.table.entry(state.row(document)).lock == Some(of.start)
                };
                model.clients(state).any(|(_, of)| model.documents().any(|document| is_late(of, document)))
            },
        ),
    ]
}

/// Returns the version of a document at a tick, by the transactions that have committed.
fn expected(model: &Protocol, state: &State, document: u8, at: u8) -> ObservedVersion {
    let mut newest = (0, if document == 0 { ObservedVersion::By(0) } else { ObservedVersion::Nothing });
    for (client, of) in model.clients(state) {
        let (Some(Decision::Committed(commit)), Some(write)) = (of.decided, write(of, document)) else { continue };
        if commit <= at && commit > newest.0 {
            let saw = match write {
                Write::Put => ObservedVersion::By(i32::from(client) + 1),
                Write::Delete => ObservedVersion::Nothing,
            };
            newest = (commit, saw);
        }
    }
    newest.1
}

fn write(of: &Client, document: u8) -> Option<Write> {
    of.program().writes.iter().find(|write| write.document == document).map(|write| write.write)
}

/// Returns whether each transaction has read one snapshot, including transactions that commit later with an earlier timestamp.
fn one_snapshot(model: &Protocol, state: &State) -> bool {
    model.clients(state).filter(|(_, of)| of.has_begun()).all(|(_, of)| {
        // A transaction that is sent again has the reads of its first snapshot.
        of.is_retried
            || of.program().reads.iter().all(|document| {
                let saw = of.reads[usize::from(*document)];
                saw.is_none_or(|saw| saw == expected(model, state, *document, of.start))
            })
    })
}

fn the_first_wins(model: &Protocol, state: &State) -> bool {
    let committed: Vec<_> = model
        .clients(state)
        .filter_map(|(_, of)| match of.decided {
            Some(Decision::Committed(at)) => Some((of, at)),
            _ => None,
        })
        .collect();
    committed.iter().enumerate().all(|(index, (one, one_at))| {
        committed[index + 1..].iter().all(|(other, other_at)| {
            let is_shared = one.program().writes.iter().any(|written| write(other, written.document).is_some());
            !is_shared || *one_at < other.start || *other_at < one.start
        })
    })
}

fn all_or_nothing(model: &Protocol, state: &State) -> bool {
    model.documents().all(|document| {
        let entry = model.table.entry(state.row(document));
        entry.versions.iter().all(|version| {
            let is_its = |of: &Client| of.has_begun() && of.start == version.start;
            let of = model.clients(state).find(|(_, of)| is_its(of));
            of.is_none_or(|(_, of)| of.decided == Some(Decision::Committed(version.commit)))
        })
    })
}

fn newest(model: &Protocol, state: &State) -> bool {
    model.documents().all(|document| match model.table.read(state.row(document), state.clock) {
        Reading::ObservedVersion(saw) => saw == expected(model, state, document, state.clock),
        Reading::TooOld => false,
        Reading::Locked => true,
    })
}

fn answers(model: &Protocol, state: &State) -> bool {
    model.clients(state).all(|(_, of)| match of.phase {
        Phase::Committed => of.decided == Some(Decision::Committed(of.at)),
        Phase::GivenUp { .. } => !matches!(of.decided, Some(Decision::Committed(_))),
        Phase::Idle | Phase::Open | Phase::Committing => true,
    })
}

/// Returns whether a pass of the cleaner, without other processes, leaves only the newest version of each document.
fn nothing_is_left(model: &Protocol, state: &State) -> bool {
    if state.broken.is_some() {
        return true;
    }
    let Some(rows) = swept(model, state) else { return false };
    model.documents().all(|document| {
        let entry = model.table.entry(rows[usize::from(document)]);
        let expected = expected(model, state, document, u8::MAX);
        let is_clean = entry.lock.is_none() && entry.row.rolled_back.is_empty() && entry.versions.len() == 1;
        let is_gone = expected != ObservedVersion::Nothing || entry.revision() < 0;
        is_clean && is_gone && entry.versions[0].saw == expected
    })
}

fn swept(model: &Protocol, state: &State) -> Option<[RowId; DOCUMENTS_MAX]> {
    let mut rows = state.rows;
    let change = |rows: &mut [RowId; DOCUMENTS_MAX], document: u8, operation| {
        let row = &mut rows[usize::from(document)];
        match model.table.step(operation, *row) {
            Outcome::Change(next) => *row = next,
            Outcome::Remove => *row = model.table.missing(document),
            _ => {}
        }
    };
    for document in model.documents() {
        let Some(start) = model.table.entry(rows[usize::from(document)]).lock else { continue };
        let (client, of) = model.clients(state).find(|(_, of)| of.has_begun() && of.start == start)?;
        let decision = match model.answer(&rows, of, client) {
            PrimaryAnswer::Decided(decision) => decision,
            PrimaryAnswer::Change(primary, next) => {
                rows[usize::from(primary)] = next;
                Decision::RolledBack
            }
            PrimaryAnswer::Nothing => return None,
        };
        change(&mut rows, document, resolution(decision, of.claim(client)));
    }
    for document in model.documents() {
        change(&mut rows, document, Operation::Collect(state.clock + 1));
    }
    Some(rows)
}
