//! Finds what would keep a rule from ever applying: a command that no driver sends, a collection that cannot be, numbers that exclude each
//! other, and an earlier rule that decides about the same operations.

use std::collections::BTreeMap;

use super::WrittenRule;
use crate::Fault;
use crate::rules::{Condition, Probability};

/// Commands of applications by their names on the wire, where their letters are significant.
const COMMANDS: [&str; 43] = [
    "abortTransaction",
    "aggregate",
    "buildInfo",
    "bulkWrite",
    "collMod",
    "collStats",
    "commitTransaction",
    "configureFailPoint",
    "connectionStatus",
    "count",
    "create",
    "createIndexes",
    "createUser",
    "currentOp",
    "dbHash",
    "dbStats",
    "delete",
    "distinct",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "dropUser",
    "explain",
    "find",
    "findAndModify",
    "getMore",
    "getParameter",
    "hostInfo",
    "insert",
    "killOp",
    "listCollections",
    "listCommands",
    "listDatabases",
    "listIndexes",
    "mapReduce",
    "ping",
    "renameCollection",
    "replSetGetStatus",
    "serverStatus",
    "setParameter",
    "update",
    "usersInfo",
    "validate",
];
/// Second names that servers take, too.
const ALIASES: [&str; 6] = ["buildinfo", "collstats", "dbstats", "deleteIndexes", "findandmodify", "mapreduce"];
/// Methods of drivers in small letters without underscores, and the command that each sends.
const METHODS: [(&str, &str); 19] = [
    ("insertone", "insert"),
    ("insertmany", "insert"),
    ("updateone", "update"),
    ("updatemany", "update"),
    ("replaceone", "update"),
    ("deleteone", "delete"),
    ("deletemany", "delete"),
    ("findone", "find"),
    ("findoneandupdate", "findAndModify"),
    ("findoneandreplace", "findAndModify"),
    ("findoneanddelete", "findAndModify"),
    ("countdocuments", "aggregate"),
    ("estimateddocumentcount", "count"),
    ("watch", "aggregate"),
    ("createindex", "createIndexes"),
    ("dropindex", "dropIndexes"),
    ("createcollection", "create"),
    ("dropcollection", "drop"),
    ("listcollectionnames", "listCollections"),
];

/// Returns why no operation has this command.
pub(super) fn command_mistake(command: &str) -> Option<String> {
    if COMMANDS.contains(&command) || ALIASES.contains(&command) {
        return None;
    }
    let small = command.to_ascii_lowercase().replace('_', "");
    let method = METHODS.iter().find(|(method, _)| *method == small).map(|(_, command)| *command);
    let known = method.or_else(|| COMMANDS.into_iter().find(|known| known.eq_ignore_ascii_case(&small)));
    match known {
        Some(known) => Some(format!("no driver sends a command '{command}': write \"{known}\", as it is on the wire")),
        None if command.chars().all(|character| character.is_ascii_alphanumeric() || character == '_') => None,
        None => Some(format!("'{command}' is not the name of a command: write one such as \"find\"")),
    }
}

/// Returns why there is no such collection.
pub(super) fn collection_mistake(collection: &str) -> Option<String> {
    let is_possible = !collection.starts_with('.') && !collection.ends_with('.') && !collection.contains('\0');
    let reason = || {
        format!(
            "there is no collection '{collection}': write one such as \"accounts\", or \"bank.accounts\" with its database"
        )
    };
    (!is_possible).then(reason)
}

/// Returns why a condition holds for fewer operations than it says, with the key to change.
pub(super) fn condition_mistake(condition: &Condition) -> Option<(&'static str, String)> {
    if condition.probability.get() == 0.0 {
        return Some(("probability", "with the probability 0 the rule never applies: remove the rule".to_owned()));
    }
    let window = condition.last.map(|last| last.get() - condition.first.get() + 1);
    match (condition.times, window) {
        (Some(times), Some(window)) if times.get() > window => {
            let reason = format!(
                "'times' is {times}, and the rule is for {window} of the operations alone: write fewer times, or more operations with 'first' and 'last'"
            );
            Some(("times", reason))
        }
        _ => None,
    }
}

/// The rules so far that decide about every operation with their command and collection, with their lines.
#[derive(Default)]
pub(super) struct Decisive(BTreeMap<Covered, usize>);

/// A command and a collection, or any, and whether operations without a reply are left to other rules.
type Covered = (Option<String>, Option<String>, bool);

impl Decisive {
    /// Adds a rule.
    ///
    /// # Errors
    /// Returns the reason why the rule never applies: one of the rules before decides about all its operations.
    pub(super) fn add(&mut self, WrittenRule { line, rule }: &WrittenRule) -> Result<(), String> {
        let (condition, needs_reply) = (&rule.condition, rule.injection.needs_reply());
        let of_reply: &[bool] = if needs_reply { &[false, true] } else { &[false] };
        for command in [None, condition.command.clone()] {
            for collection in [None, condition.collection.clone()] {
                for of_reply in of_reply {
                    if let Some(earlier) = self.0.get(&(command.clone(), collection.clone(), *of_reply)) {
                        let reason = format!(
                            "the rule never applies: the rule of line {earlier} decides about the same operations first; move this rule before it"
                        );
                        return Err(reason);
                    }
                }
            }
        }
        // One with reorder applies to no operation while it holds another one back.
        let is_decisive = rule.injection.fault() != Fault::Reorder
            && condition.first.get() == 1
            && (condition.last, condition.times) == (None, None)
            && condition.probability == Probability::CERTAIN;
        if is_decisive {
            self.0.insert((condition.command.clone(), condition.collection.clone(), needs_reply), *line);
        }
        Ok(())
    }
}
