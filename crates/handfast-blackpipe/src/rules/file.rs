//! The rules as people write them, in TOML.
//!
//! ```toml
//! [[rule]]
//! fault = "lose-reply"
//! command = "update"
//! collection = "bank.accounts"
//! nth = 2
//!
//! [[rule]]
//! fault = "delay"
//! delay = "500ms"
//! probability = 0.1
//! ```

mod commands;
mod possible;

use std::num::NonZeroU32;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use self::commands::UnknownCommand;
use self::possible::Decisive;
use super::{Condition, Probability, Rule};
use crate::fault::{Direction, ErrorReply, Fault, Injection};
use crate::request::DRIVER_COMMANDS;
use crate::{Error, Result};

/// The keys of a rule.
const KEYS: [&str; 16] = [
    "fault",
    "command",
    "collection",
    "nth",
    "first",
    "last",
    "times",
    "probability",
    "delay",
    "after",
    "code",
    "message",
    "labels",
    "direction",
    "bytes_per_second",
    "within",
];
/// Keys that belong to one fault.
const KEYS_OF_FAULTS: [(&str, Fault); 8] = [
    ("delay", Fault::Delay),
    ("after", Fault::Duplicate),
    ("code", Fault::Error),
    ("message", Fault::Error),
    ("labels", Fault::Error),
    ("direction", Fault::Throttle),
    ("bytes_per_second", Fault::Throttle),
    ("within", Fault::Reorder),
];
/// The JSON Schema of a rules file, for editors. [`parse`] knows more: for instance which commands there are.
pub const SCHEMA: &str = include_str!("file/schema.json");

const BEGIN: &str = "begin each rule with [[rule]]";
/// The characters of a line that a message shows.
const SHOWN_CHARACTERS_MAX: usize = 100;

/// A rule of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenRule {
    /// The line at which it begins, from 1.
    pub line: usize,
    /// The rule.
    pub rule: Rule,
    /// A sentence about a command that MongoDB does not have: the rule never applies, unless the server has it as one of its own.
    pub warning: Option<String>,
}

/// Reads the text of a rules file.
///
/// # Errors
/// [`Error::RulesSyntax`] if the text is no TOML, and [`Error::RulesFile`] with the line if a key is unknown or missing, a value is not possible, or a rule would never apply.
pub fn parse(text: &str) -> Result<Vec<WrittenRule>> {
    rules_of(text, &Lines::of(text))
}

fn rules_of(text: &str, lines: &Lines) -> Result<Vec<WrittenRule>> {
    let document = DeTable::parse(text).map_err(|error| syntax_error(text, lines, &error))?;
    let (mut rules, mut decisive) = (Vec::new(), Decisive::default());
    for (key, value) in document.get_ref() {
        let at = key.span().start;
        if key.get_ref() != "rule" {
            return Err(lines.mistake(at, format!("unknown key '{}': {BEGIN}", key.get_ref())));
        }
        let tables =
            value.get_ref().as_array().ok_or_else(|| lines.mistake(at, format!("'rule' is no list: {BEGIN}")))?;
        for table in tables {
            let at = table.span().start;
            let is_no_table = || lines.mistake(at, format!("'rule' is no list of tables: {BEGIN}"));
            let fields = table.get_ref().as_table().ok_or_else(is_no_table)?;
            let fields = Fields { lines, at, fields };
            let written = WrittenRule { line: lines.line(at), rule: fields.rule()?, warning: fields.warning()? };
            decisive.add(&written).map_err(|reason| lines.mistake(at, reason))?;
            rules.push(written);
        }
    }
    if rules.is_empty() {
        return Err(lines.mistake(0, format!("there is no rule: {BEGIN}")));
    }
    Ok(rules)
}

/// Returns the error of a text that is no TOML: the position, the line itself, and what to write.
fn syntax_error(text: &str, lines: &Lines, error: &toml::de::Error) -> Error {
    let byte = error.span().map_or(0, |span| span.start);
    let begin = text.get(..byte).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
    let column = text.get(begin..byte).unwrap_or_default().chars().count() + 1;
    let line: String = text
        .get(begin..)
        .unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default()
        .trim()
        .chars()
        .take(SHOWN_CHARACTERS_MAX)
        .collect();
    let found = if line.is_empty() { "the line is empty".to_owned() } else { format!("the line is: {line}") };
    let reason = error.message().lines().map(str::trim).collect::<Vec<_>>().join(", ");
    let advice =
        "write `key = value` with texts in quotation marks, each key once in a rule, and [[rule]] before each rule";
    Error::RulesSyntax { line: lines.line(byte), column, reason: format!("{reason}; {found}; {advice}") }
}

/// The positions of the line ends of a file, by which a position becomes a line.
struct Lines {
    ends: Vec<usize>,
    /// The line ends that lookups have looked at.
    #[cfg(test)]
    looked_at: std::cell::Cell<u64>,
}

impl Lines {
    fn of(text: &str) -> Self {
        Lines {
            ends: text.match_indices('\n').map(|(byte, _)| byte).collect(),
            #[cfg(test)]
            looked_at: std::cell::Cell::default(),
        }
    }

    fn line(&self, byte: usize) -> usize {
        let is_before = |end: &usize| {
            #[cfg(test)]
            self.looked_at.set(self.looked_at.get() + 1);
            *end < byte
        };
        self.ends.partition_point(is_before) + 1
    }

    fn mistake(&self, byte: usize, reason: String) -> Error {
        Error::RulesFile { line: self.line(byte), reason }
    }
}

/// The keys and values of a rule.
struct Fields<'a> {
    lines: &'a Lines,
    /// The position of the rule.
    at: usize,
    fields: &'a DeTable<'a>,
}

impl Fields<'_> {
    fn rule(&self) -> Result<Rule> {
        let unknown = self.fields.keys().find(|key| !KEYS.contains(&key.get_ref().as_ref()));
        if let Some(key) = unknown {
            let reason = format!("unknown key '{}': the keys of a rule are {}", key.get_ref(), KEYS.join(", "));
            return Err(self.lines.mistake(key.span().start, reason));
        }
        let faults = || Fault::ALL.map(Fault::name).join(", ");
        let missing = || self.lines.mistake(self.at, format!("'fault' is missing: write one of {}", faults()));
        let fault = self.text("fault")?.ok_or_else(missing)?;
        let fault: Fault = fault.parse().map_err(|error: Error| self.wrong("fault", error.to_string()))?;
        for (key, owner) in KEYS_OF_FAULTS {
            if owner != fault && self.get(key).is_some() {
                return Err(self.wrong(key, format!("'{key}' belongs to the fault {owner}, not to {fault}: remove it")));
            }
        }
        Ok(Rule { injection: self.injection(fault)?, condition: self.condition()? })
    }

    /// Returns a sentence about a command that is possible and unknown.
    fn warning(&self) -> Result<Option<String>> {
        Ok(match self.text("command")?.and_then(commands::unknown_command) {
            Some(UnknownCommand::Possible(reason)) => Some(reason),
            _ => None,
        })
    }

    fn injection(&self, fault: Fault) -> Result<Injection> {
        Ok(match fault {
            Fault::Delay => Injection::Delay(self.time("delay")?.unwrap_or(Injection::DELAY)),
            Fault::Duplicate => Injection::Duplicate { after: Some(self.time("after")?.unwrap_or(Injection::DELAY)) },
            Fault::Error => Injection::Error(self.error()?),
            Fault::Throttle => Injection::Throttle {
                direction: self.direction()?.unwrap_or(Direction::Reply),
                bytes_per_second: self.number("bytes_per_second")?.unwrap_or(Injection::BYTES_PER_SECOND),
            },
            Fault::Reorder => Injection::Reorder { within: self.time("within")?.unwrap_or(Injection::DELAY) },
            fault => fault.into(),
        })
    }

    fn direction(&self) -> Result<Option<Direction>> {
        let Some(text) = self.text("direction")? else { return Ok(None) };
        let direction = Direction::ALL.into_iter().find(|direction| direction.name() == text);
        direction.map(Some).ok_or_else(|| {
            self.wrong("direction", format!("'{text}' is not a direction: write \"request\" or \"reply\""))
        })
    }

    fn error(&self) -> Result<ErrorReply> {
        let default = ErrorReply::default();
        let mut error = match self.get("code") {
            None => default,
            Some(value) => {
                let expected = || self.wrong("code", "'code' is the number of an error, such as 10107".to_owned());
                let code = integer(value.get_ref()).and_then(|code| i32::try_from(code).ok()).ok_or_else(expected)?;
                match code == default.code {
                    true => default,
                    false => ErrorReply::of_code(code),
                }
            }
        };
        if let Some(message) = self.text("message")? {
            error.message = message.to_owned();
        }
        if let Some(value) = self.get("labels") {
            let labels = value.get_ref().as_array().and_then(|labels| {
                labels.iter().map(|label| label.get_ref().as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
            });
            let expected =
                || self.wrong("labels", "'labels' is a list of texts, such as [\"RetryableWriteError\"]".to_owned());
            error.labels = labels.ok_or_else(expected)?;
        }
        Ok(error)
    }

    fn condition(&self) -> Result<Condition> {
        let command = self.text("command")?;
        if let Some(command) = command.filter(|command| DRIVER_COMMANDS.contains(command)) {
            let reason = format!(
                "drivers send the command '{command}' by themselves, and the proxy forwards it: write a command of the program, such as find"
            );
            return Err(self.wrong("command", reason));
        }
        if let Some(UnknownCommand::Mistake(reason)) = command.and_then(commands::unknown_command) {
            return Err(self.wrong("command", reason));
        }
        let collection = self.text("collection")?;
        if let Some(reason) = collection.and_then(possible::collection_mistake) {
            return Err(self.wrong("collection", reason));
        }
        if let (Some(reason), Some(_)) = (command.and_then(commands::no_collection), collection) {
            return Err(self.wrong("collection", reason));
        }
        let mut condition = Condition {
            command: command.map(str::to_owned),
            collection: collection.map(str::to_owned),
            first: self.number("first")?.unwrap_or(NonZeroU32::MIN),
            last: self.number("last")?,
            times: self.number("times")?,
            probability: self.probability()?,
        };
        if let Some(nth) = self.number("nth")? {
            if let Some(other) = ["first", "last"].into_iter().find(|key| self.get(key).is_some()) {
                let reason = format!("'nth' and '{other}' exclude each other: nth = 3 is first = 3 with last = 3");
                return Err(self.wrong("nth", reason));
            }
            (condition.first, condition.last) = (nth, Some(nth));
        }
        match condition.last {
            Some(last) if last < condition.first => {
                let reason = format!("'last' is {last}, which is before 'first', {}: exchange them", condition.first);
                return Err(self.wrong("last", reason));
            }
            _ => {}
        }
        match possible::condition_mistake(&condition) {
            Some((key, reason)) => Err(self.wrong(key, reason)),
            None => Ok(condition),
        }
    }

    fn get(&self, key: &str) -> Option<&Spanned<DeValue<'_>>> {
        self.fields.get(key)
    }

    fn wrong(&self, key: &str, reason: String) -> Error {
        self.lines.mistake(self.get(key).map_or(self.at, |value| value.span().start), reason)
    }

    fn text(&self, key: &str) -> Result<Option<&str>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let text = value.get_ref().as_str().filter(|text| !text.is_empty());
        text.map(Some)
            .ok_or_else(|| self.wrong(key, format!("'{key}' is a text in quotation marks, which is not empty")))
    }

    fn number(&self, key: &str) -> Result<Option<NonZeroU32>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = integer(value.get_ref()).and_then(|number| u32::try_from(number).ok()).and_then(NonZeroU32::new);
        number.map(Some).ok_or_else(|| self.wrong(key, format!("'{key}' is a whole number from 1 to {}", u32::MAX)))
    }

    fn time(&self, key: &str) -> Result<Option<Duration>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let time = value.get_ref().as_str().and_then(|text| humantime::parse_duration(text).ok());
        time.map(Some).ok_or_else(|| {
            self.wrong(key, format!("'{key}' is a time in quotation marks, such as \"500ms\" or \"2s\""))
        })
    }

    fn probability(&self) -> Result<Probability> {
        let Some(value) = self.get("probability") else { return Ok(Probability::CERTAIN) };
        let number = match value.get_ref() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            value => integer(value).map(|number| number as f64),
        };
        let probability = number.and_then(|number| Probability::new(number).ok());
        probability.ok_or_else(|| {
            self.wrong("probability", "'probability' is a number between 0 and 1, such as 0.1".to_owned())
        })
    }
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

#[cfg(test)]
mod tests;
