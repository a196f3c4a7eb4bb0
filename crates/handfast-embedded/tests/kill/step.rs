//! What one task of the child does to the store, as a line between the processes and as a change of facts.
//!
//! A fact is something about the store that a user can see: a document by its name with its number, a collection or an
//! index that is there. Each belongs to one task, so that what a task may find does not depend on the others.

use std::collections::BTreeMap;
use std::fmt;

/// What is known of one task's part of the store.
pub(crate) type Facts = BTreeMap<String, i64>;

/// Documents of a task fall into so many groups; statements about many documents are about one group.
pub(crate) const GROUPS: i64 = 4;
/// Documents of the collection that comes and goes.
pub(crate) const FILLED: i64 = 20;
/// The fact that the index that comes and goes is there.
pub(crate) const INDEX: &str = "index";
/// The fact that the collection that comes and goes is there.
pub(crate) const COLLECTION: &str = "collection";
/// The fact of a task's counter.
pub(crate) const COUNTER: &str = "counter";

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A document of this name, with 0 in it.
    Insert(String),
    /// The document of this name is gone.
    Remove(String),
    /// One more in each document of a group.
    RaiseGroup(i64),
    /// The documents of a group are gone.
    RemoveGroup(i64),
    /// The counter is at this.
    Count(i64),
    /// The index is built beside the load.
    CreateIndex,
    /// It is gone.
    DropIndex,
    /// The collection is there, empty, with an index.
    CreateCollection,
    /// It has its documents of this round.
    Fill(i64),
    /// It is gone with its documents.
    DropCollection,
}

/// The group of a document, by its name, which ends with a number.
pub(crate) fn group(name: &str) -> i64 {
    name.rsplit('-').next().and_then(|number| number.parse::<i64>().ok()).unwrap_or(0) % GROUPS
}

/// The names of the documents that fill the collection.
pub(crate) fn filling(round: i64) -> impl Iterator<Item = String> {
    (0..FILLED).map(move |n| format!("{round}-{n}"))
}

impl Step {
    /// Makes the facts what they are when it is done.
    pub(crate) fn apply(&self, facts: &mut Facts) {
        match self {
            Step::Insert(name) => drop(facts.insert(name.clone(), 0)),
            Step::Remove(name) => drop(facts.remove(name)),
            Step::RaiseGroup(raised) => {
                let documents = facts.iter_mut().filter(|(name, _)| *name != COUNTER && group(name) == *raised);
                documents.for_each(|(_, number)| *number += 1);
            }
            Step::RemoveGroup(removed) => facts.retain(|name, _| name == COUNTER || group(name) != *removed),
            Step::Count(number) => drop(facts.insert(COUNTER.to_owned(), *number)),
            Step::CreateIndex => drop(facts.insert(INDEX.to_owned(), 1)),
            Step::DropIndex => drop(facts.remove(INDEX)),
            Step::CreateCollection => drop(facts.insert(COLLECTION.to_owned(), 1)),
            Step::Fill(round) => facts.extend(filling(*round).map(|name| (name, 0))),
            Step::DropCollection => facts.retain(|name, _| name == INDEX),
        }
    }

    /// It is about many documents, each of which may be done when others are not.
    pub(crate) fn is_about_many(&self) -> bool {
        matches!(self, Step::RaiseGroup(_) | Step::RemoveGroup(_) | Step::Fill(_))
    }

    /// Reads what `Display` writes.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let number = |text: &str| text.parse::<i64>().ok();
        Some(match words {
            ["insert", name] => Step::Insert((*name).to_owned()),
            ["remove", name] => Step::Remove((*name).to_owned()),
            ["raise-group", group] => Step::RaiseGroup(number(group)?),
            ["remove-group", group] => Step::RemoveGroup(number(group)?),
            ["count", count] => Step::Count(number(count)?),
            ["create-index"] => Step::CreateIndex,
            ["drop-index"] => Step::DropIndex,
            ["create-collection"] => Step::CreateCollection,
            ["fill", round] => Step::Fill(number(round)?),
            ["drop-collection"] => Step::DropCollection,
            _ => return None,
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Insert(name) => write!(f, "insert {name}"),
            Step::Remove(name) => write!(f, "remove {name}"),
            Step::RaiseGroup(group) => write!(f, "raise-group {group}"),
            Step::RemoveGroup(group) => write!(f, "remove-group {group}"),
            Step::Count(count) => write!(f, "count {count}"),
            Step::CreateIndex => f.write_str("create-index"),
            Step::DropIndex => f.write_str("drop-index"),
            Step::CreateCollection => f.write_str("create-collection"),
            Step::Fill(round) => write!(f, "fill {round}"),
            Step::DropCollection => f.write_str("drop-collection"),
        }
    }
}
