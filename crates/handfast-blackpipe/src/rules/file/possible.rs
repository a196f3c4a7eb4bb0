//! Finds what would keep a rule from ever applying: a command that no driver sends, a collection that cannot be, numbers that exclude each
//! other, and an earlier rule that decides about the same operations.

use super::WrittenRule;
use crate::Fault;
use crate::rules::{Condition, Probability};

/// Commands about a collection by their names on the wire, where their letters are significant.
const COLLECTION_COMMANDS: [&str; 18] = [
    "aggregate",
    "collMod",
    "collStats",
    "count",
    "create",
    "createIndexes",
    "delete",
    "distinct",
    "drop",
    "dropIndexes",
    "find",
    "findAndModify",
    "getMore",
    "insert",
    "listIndexes",
    "mapReduce",
    "update",
    "validate",
];
/// Other commands of applications.
const OTHER_COMMANDS: [&str; 25] = [
    "abortTransaction",
    "buildInfo",
    "bulkWrite",
    "commitTransaction",
    "configureFailPoint",
    "connectionStatus",
    "createUser",
    "currentOp",
    "dbHash",
    "dbStats",
    "dropDatabase",
    "dropUser",
    "explain",
    "getParameter",
    "hostInfo",
    "killOp",
    "listCollections",
    "listCommands",
    "listDatabases",
    "ping",
    "renameCollection",
    "replSetGetStatus",
    "serverStatus",
    "setParameter",
    "usersInfo",
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

/// Returns why no operation of this command has a collection.
pub(super) fn no_collection(command: &str) -> Option<String> {
    let reason = || format!("the command '{command}' is not about a collection: remove 'collection'");
    OTHER_COMMANDS.contains(&command).then(reason)
}

/// Returns why no operation has this command.
pub(super) fn command_mistake(command: &str) -> Option<String> {
    let mut commands = COLLECTION_COMMANDS.into_iter().chain(OTHER_COMMANDS);
    if commands.clone().chain(ALIASES).any(|known| known == command) {
        return None;
    }
    let small = command.to_ascii_lowercase().replace('_', "");
    let sent = match small.as_str() {
        "bulkwrite" => {
            Some("that of a collection sends \"insert\", \"update\" and \"delete\", that of a client \"bulkWrite\"")
        }
        "starttransaction" => Some("the first operation of a transaction starts it"),
        _ => None,
    };
    if let Some(sent) = sent {
        return Some(format!("'{command}' is a method of drivers, and no command: {sent}"));
    }
    let method = METHODS.iter().find(|(method, _)| *method == small).map(|(_, command)| *command);
    let known = method.or_else(|| commands.find(|known| known.eq_ignore_ascii_case(&small)));
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

/// The rules so far that decide about all operations of their window.
#[derive(Default)]
pub(super) struct Decisive(Vec<DecisiveRule>);

struct DecisiveRule {
    line: usize,
    condition: Condition,
    /// Operations without a reply are left to other rules.
    needs_reply: bool,
}

impl DecisiveRule {
    /// Returns whether it decides about all operations of a condition.
    fn covers(&self, condition: &Condition) -> bool {
        let Condition { command, collection, first, last, .. } = &self.condition;
        let is_of_all = |own: &Option<String>, other: &Option<String>| own.is_none() || own == other;
        if !is_of_all(command, &condition.command) || !is_of_all(collection, &condition.collection) {
            return false;
        }
        if (first.get(), last) == (1, &None) {
            return true;
        }
        // Operations are numbered for each command and collection, so that the windows of others cannot be compared.
        let is_numbered_alike = (command, collection) == (&condition.command, &condition.collection);
        let ends_later = last.is_none_or(|last| condition.last.is_some_and(|other| other <= last));
        is_numbered_alike && *first <= condition.first && ends_later
    }
}

impl Decisive {
    /// Adds a rule.
    ///
    /// # Errors
    /// Returns the reason why the rule never applies: one of the rules before decides about all its operations.
    pub(super) fn add(&mut self, WrittenRule { line, rule }: &WrittenRule) -> Result<(), String> {
        let (condition, needs_reply) = (&rule.condition, rule.injection.needs_reply());
        let mut before = self.0.iter().filter(|earlier| needs_reply || !earlier.needs_reply);
        if let Some(DecisiveRule { line, .. }) = before.find(|earlier| earlier.covers(condition)) {
            return Err(format!(
                "the rule never applies: the rule of line {line} decides about the same operations first; move this rule before it"
            ));
        }
        let window = condition.last.map(|last| last.get() - condition.first.get() + 1);
        let has_times_for_all = condition.times.is_none_or(|times| window.is_some_and(|window| window <= times.get()));
        // One with reorder applies to no operation while it holds another one back.
        if rule.injection.fault() != Fault::Reorder
            && has_times_for_all
            && condition.probability == Probability::CERTAIN
        {
            self.0.push(DecisiveRule { line: *line, condition: condition.clone(), needs_reply });
        }
        Ok(())
    }
}
