//! `--only`: the operations that are explored, and the faults that they meet.

use std::fmt;
use std::str::FromStr;

use handfast_blackpipe::{Fault, ObservedOperation, OperationNumber, Pair};

/// The word for every fault.
const ALL_FAULTS: &str = "all";

/// A value of `--only`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// All operations of a command.
    Command(String),
    Operation(OperationNumber),
    Fault(Fault),
    AllFaults,
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == ALL_FAULTS {
            return Ok(Selection::AllFaults);
        }
        if let Ok(fault) = text.parse::<Fault>() {
            return check_explored(fault).map(|()| Selection::Fault(fault));
        }
        if text.contains(':') {
            return text
                .parse()
                .map(Selection::Operation)
                .map_err(|error: handfast_blackpipe::Error| error.to_string());
        }
        match !text.is_empty() && text.chars().all(|character| character.is_ascii_alphanumeric()) {
            true => Ok(Selection::Command(text.to_owned())),
            false => Err(format!(
                "'{text}' is neither an operation nor a fault: write a command such as update, an operation such as update:2, or a fault: \
                 {}, or all",
                explored_faults()
            )),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selection::Command(command) => f.write_str(command),
            Selection::Operation(operation) => operation.fmt(f),
            Selection::Fault(fault) => fault.fmt(f),
            Selection::AllFaults => f.write_str(ALL_FAULTS),
        }
    }
}

/// Reads a pair of an operation and a fault that is explored.
pub(super) fn explored_pair(text: &str) -> Result<Pair, String> {
    let pair: Pair = text.parse().map_err(|error: handfast_blackpipe::Error| error.to_string())?;
    check_explored(pair.fault).map(|()| pair)
}

fn check_explored(fault: Fault) -> Result<(), String> {
    match fault.is_explored() {
        true => Ok(()),
        false => Err(format!(
            "the fault {fault} loses and doubles nothing, and is not explored: write a rule for `handfast blackpipe proxy`"
        )),
    }
}

/// Returns the names of the faults that are explored.
fn explored_faults() -> String {
    let explored = Fault::ALL.into_iter().filter(|fault| fault.is_explored());
    explored.map(Fault::name).collect::<Vec<_>>().join(", ")
}

impl Selection {
    fn is_of_operations(&self) -> bool {
        matches!(self, Selection::Command(_) | Selection::Operation(_))
    }

    fn has(&self, operation: &OperationNumber) -> bool {
        match self {
            Selection::Command(command) => *command == operation.command,
            Selection::Operation(selected) => selected == operation,
            Selection::Fault(_) | Selection::AllFaults => false,
        }
    }
}

/// Returns the faults that are selected, or those of every exploration.
fn faults(only: &[Selection]) -> Vec<Fault> {
    let is_selected = |fault: &Fault| match only.contains(&Selection::AllFaults) {
        true => fault.is_explored(),
        false => only.contains(&Selection::Fault(*fault)),
    };
    let selected: Vec<Fault> = Fault::ALL.into_iter().filter(is_selected).collect();
    if selected.is_empty() { Fault::DEFAULT.to_vec() } else { selected }
}

/// Returns the pairs of the selected operations and faults.
///
/// # Errors
/// Fails if the program has no operation of a value of `--only`, or no selected operation can meet a selected fault.
pub(super) fn pairs(operations: &[ObservedOperation], only: &[Selection]) -> Result<Vec<Pair>, String> {
    let faults = faults(only);
    let is_selected = |observed: &&ObservedOperation| {
        !only.iter().any(Selection::is_of_operations) || only.iter().any(|selection| selection.has(&observed.operation))
    };
    let missing = only.iter().filter(|selection| selection.is_of_operations());
    let missing: Vec<String> = missing
        .filter(|selection| !operations.iter().any(|observed| selection.has(&observed.operation)))
        .map(ToString::to_string)
        .collect();
    if !missing.is_empty() {
        let mut commands: Vec<&str> = operations.iter().map(|observed| observed.operation.command.as_str()).collect();
        commands.sort_unstable();
        commands.dedup();
        return Err(format!(
            "--only: the program sends no {}: its commands are {}; the faults are {}",
            missing.join(", "),
            commands.join(", "),
            explored_faults()
        ));
    }
    let pairs: Vec<Pair> = operations.iter().filter(is_selected).flat_map(|observed| observed.pairs(&faults)).collect();
    match pairs.is_empty() {
        false => Ok(pairs),
        true => Err("--only: the operations are writes without acknowledgement (w: 0), which have no reply, and the faults need one: such a \
             write can meet lose-request, delay, duplicate and reorder"
            .to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use handfast_blackpipe::{Operation, Rules};

    use super::{Selection, explored_pair, pairs};

    fn selected(only: &[&str]) -> Result<Vec<String>, String> {
        let mut rules = Rules::default();
        for command in ["find", "update", "update"] {
            rules.decide(&Operation::of(command));
        }
        rules.decide(&Operation { has_reply: false, ..Operation::of("insert") });
        let only = only.iter().map(|text| text.parse().unwrap()).collect::<Vec<Selection>>();
        Ok(pairs(rules.operations(), &only)?.iter().map(ToString::to_string).collect())
    }

    fn check(only: &[&str], expected: &[&str]) {
        assert_eq!(selected(only).unwrap(), expected, "{only:?}");
    }

    #[test]
    fn operations_and_faults_are_selected_independently() {
        check(&["find"], &["find:1/lose-request", "find:1/lose-reply"]);
        check(&["update:2"], &["update:2/lose-request", "update:2/lose-reply"]);
        check(&["cut"], &["find:1/cut", "update:1/cut", "update:2/cut"]);
        check(&["find", "update:2", "duplicate"], &["find:1/duplicate", "update:2/duplicate"]);
        check(
            &["insert", "all"],
            &["insert:1/lose-request", "insert:1/delay", "insert:1/duplicate", "insert:1/reorder"],
        );
        assert_eq!(selected(&["find", "all"]).unwrap().len(), 8);
        assert_eq!(selected(&[]).unwrap().len(), 7);
    }

    #[test]
    fn a_selection_of_nothing_says_what_there_is() {
        let check = |only: &[&str]| {
            let error = selected(only).unwrap_err();
            assert!(error.contains("its commands are find, insert, update; the faults are lose-request"), "{error}");
        };
        check(&["delete"]);
        check(&["update:3"]);
        // A name that is misspelt leaves an operation out, which nobody would notice.
        check(&["update", "inserts"]);
        assert!(selected(&["update:3", "find", "delete"]).unwrap_err().contains("sends no update:3, delete: its"));
        assert!(selected(&["insert", "cut"]).unwrap_err().contains("can meet lose-request"));
    }

    #[test]
    fn a_word_that_selects_nothing_is_refused() {
        let check = |text: &str, expected: &str| {
            let error = text.parse::<Selection>().unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check("lose-requests", "neither an operation nor a fault");
        check("", "neither an operation nor a fault");
        check("update:0", "'update:0' is not an operation");
        assert!(explored_pair("find:1/throttle").unwrap_err().contains("is not explored"));
        check("throttle", "the fault throttle loses and doubles nothing, and is not explored");
    }
}
