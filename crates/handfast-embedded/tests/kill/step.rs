//! The steps of the child's tasks, as lines between the processes and as changes of facts.
//!
//! A fact is something that a user of the store can see: a document by its name with its number, a collection or an index that
//! exists. Each belongs to one task, so the facts of a task do not depend on the others.

use std::collections::BTreeMap;
use std::fmt;

/// The facts of one task's part of the store.
pub(crate) type Facts = BTreeMap<String, i64>;

/// The number of groups of a task's documents; a statement on many documents changes one group.
pub(crate) const GROUPS: i64 = 4;
/// The number of documents of the collection that is created and dropped.
pub(crate) const FILLED: i64 = 20;
/// The fact that the index exists that is created and dropped.
pub(crate) const INDEX: &str = "index";
/// The fact that the collection exists that is created and dropped.
pub(crate) const COLLECTION: &str = "collection";
/// The fact of a task's counter.
pub(crate) const COUNTER: &str = "counter";

/// A step of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Inserts a document of this name, with the number 0.
    Insert(String),
    /// Deletes the document of this name.
    Remove(String),
    /// Adds one to each document of a group.
    RaiseGroup(i64),
    /// Deletes the documents of a group.
    RemoveGroup(i64),
    /// Increments the counter to this value.
    Count(i64),
    /// Builds the index during the load.
    CreateIndex,
    /// Drops the index.
    DropIndex,
    /// Creates the empty collection with an index.
    CreateCollection,
    /// Inserts the documents of this round.
    Fill(i64),
    /// Drops the collection.
    DropCollection,
}

/// Returns the group of a document by its name, which ends with a number.
pub(crate) fn group(name: &str) -> i64 {
    name.rsplit('-').next().and_then(|number| number.parse::<i64>().ok()).unwrap_or(0) % GROUPS
}

/// Returns the names of the documents of a round.
pub(crate) fn filling(round: i64) -> impl Iterator<Item = String> {
    (0..FILLED).map(move |n| format!("{round}-{n}"))
}

impl Step {
    /// Changes the facts as the completed step does.
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

    /// Returns whether the step changes many documents, of which a part may be changed when it is interrupted.
    pub(crate) fn is_about_many(&self) -> bool {
        matches!(self, Step::RaiseGroup(_) | Step::RemoveGroup(_) | Step::Fill(_))
    }

    /// Parses the output of `Display`.
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
