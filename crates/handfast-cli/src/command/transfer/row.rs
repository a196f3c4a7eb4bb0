//! Reads rows from lines of CSV and JSON, and checks them.

use bson::Bson;
use bson::oid::ObjectId;
use handfast_patterns::ledger::VALUE_MAX;
use serde_json::Value;

use super::arguments::AccountIdType;
use super::cells;
use crate::exit::Usage;
use crate::flags::Renamed;
use crate::id::shown;

/// Bytes of the id of a row or an account, which an index has to hold.
const ID_BYTES_MAX: usize = 1000;

/// A transfer that a line asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The name of the transfer, if the row has one.
    pub(super) id: Option<Bson>,
    pub(super) from: Bson,
    pub(super) to: Bson,
    /// The amount in the smallest unit of the currency; more than 0.
    pub(super) amount: i64,
    pub(super) asset: Option<String>,
}

/// Names of the columns or fields.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Columns {
    id: String,
    from: String,
    to: String,
    amount: String,
    asset: String,
}

impl Columns {
    /// Returns the default names with those that flags change.
    ///
    /// # Errors
    /// Fails if a flag names an unknown column.
    pub(super) fn new(renamed: &[Renamed]) -> anyhow::Result<Self> {
        let name = str::to_owned;
        let mut columns = Columns {
            id: name("id"),
            from: name("from"),
            to: name("to"),
            amount: name("amount"),
            asset: name("asset"),
        };
        for Renamed { default, name } in renamed {
            let column = match default.as_str() {
                "id" => &mut columns.id,
                "from" => &mut columns.from,
                "to" => &mut columns.to,
                "amount" => &mut columns.amount,
                "asset" => &mut columns.asset,
                other => {
                    let text =
                        format!("--column: there is no column '{other}'; there are id, from, to, amount and asset");
                    return Err(Usage(text).into());
                }
            };
            name.clone_into(column);
        }
        Ok(columns)
    }
}

/// The positions of the columns in a CSV file.
#[derive(Debug, PartialEq)]
pub(super) struct Header {
    cells: usize,
    id: Option<usize>,
    from: usize,
    to: usize,
    amount: usize,
    asset: Option<usize>,
    account_ids: AccountIdType,
}

impl Header {
    /// Reads the first line.
    ///
    /// # Errors
    /// Returns a text that names the column that is missing, or that occurs twice.
    pub(super) fn read(line: &str, columns: &Columns, account_ids: AccountIdType) -> Result<Self, String> {
        let cells = cells::split(line)?;
        let find = |name: &String| {
            let mut found = cells.iter().enumerate().filter(|(_, cell)| cell.trim() == name).map(|(place, _)| place);
            match (found.next(), found.next()) {
                (Some(_), Some(_)) => Err(format!("the header has two columns '{name}'")),
                (place, _) => Ok(place),
            }
        };
        let need = |name: &String, default: &str| {
            let there = cells.join(", ");
            let advice = match there.contains([';', '\t']) && cells.len() == 1 {
                true => "cells are separated by commas".to_owned(),
                false => format!("--column {default}=NAME gives another name"),
            };
            let missing = || format!("the header has no column '{name}', only {there}; {advice}");
            find(name)?.ok_or_else(missing)
        };
        Ok(Header {
            cells: cells.len(),
            id: find(&columns.id)?,
            from: need(&columns.from, "from")?,
            to: need(&columns.to, "to")?,
            amount: need(&columns.amount, "amount")?,
            asset: find(&columns.asset)?,
            account_ids,
        })
    }

    /// Returns whether the file has a column of ids.
    pub(super) fn has_ids(&self) -> bool {
        self.id.is_some()
    }

    /// Reads a further line.
    pub(super) fn row(&self, line: &str) -> Result<Row, String> {
        let cells = cells::split(line)?;
        if cells.len() != self.cells {
            return Err(format!("it has {} cells, the header has {}", cells.len(), self.cells));
        }
        let cell = |place: usize| cells.get(place).map(String::as_str).unwrap_or_default();
        let optional = |place: Option<usize>| place.map(cell).filter(|cell| !cell.is_empty());
        let amount = cell(self.amount).trim();
        // `+5` and `1_000` are refused.
        let digits = amount.strip_prefix('-').unwrap_or(amount).bytes().all(|byte| byte.is_ascii_digit());
        let amount = amount.parse().ok().filter(|_| digits).ok_or_else(|| no_amount(cell(self.amount)))?;
        let id = optional(self.id).map(Bson::from);
        let (from, to) = (self.account(cell(self.from), "from")?, self.account(cell(self.to), "to")?);
        Row { id, from, to, amount, asset: optional(self.asset).map(str::to_owned) }.checked()
    }

    fn account(&self, cell: &str, column: &str) -> Result<Bson, String> {
        let wrong = |kind: &str| format!("{column} is '{cell}', not {kind}: --account-ids sets the type of the ids");
        match self.account_ids {
            _ if cell.is_empty() => Err(format!("{column} is missing")),
            AccountIdType::Text => Ok(Bson::from(cell)),
            AccountIdType::Number => cell.trim().parse().map(Bson::Int64).map_err(|_| wrong("a whole number")),
            AccountIdType::ObjectId => {
                ObjectId::parse_str(cell.trim()).map(Bson::ObjectId).map_err(|_| wrong("an ObjectId"))
            }
        }
    }
}

/// Reads a line of JSON.
pub(super) fn of_json(line: &str, columns: &Columns) -> Result<Row, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("it is not JSON: {error}"))?;
    let mut document = match Bson::try_from(value) {
        Ok(Bson::Document(document)) => document,
        Ok(_) => return Err("it is not a JSON object".to_owned()),
        Err(error) => return Err(format!("it is not Extended JSON: {error}")),
    };
    let mut field = |name: &String| document.remove(name).filter(|value| *value != Bson::Null);
    let amount = match field(&columns.amount) {
        None => return Err(format!("{} is missing", columns.amount)),
        Some(Bson::Int32(amount)) => i64::from(amount),
        Some(Bson::Int64(amount)) => amount,
        Some(other) => return Err(no_amount(&shown(&other))),
    };
    let asset = match field(&columns.asset) {
        None => None,
        Some(Bson::String(asset)) => Some(asset),
        Some(other) => return Err(format!("{} is {other}, not a text", columns.asset)),
    };
    let mut account = |name: &String| field(name).ok_or_else(|| format!("{name} is missing"));
    let (from, to) = (account(&columns.from)?, account(&columns.to)?);
    // An empty cell of CSV names nothing either.
    let id = field(&columns.id).filter(|id| *id != Bson::from(""));
    Row { id, from, to, amount, asset }.checked()
}

fn no_amount(shown: &str) -> String {
    format!("amount is '{shown}', not a whole number of the smallest unit of the currency")
}

impl Row {
    fn checked(self) -> Result<Self, String> {
        if !(1..=VALUE_MAX).contains(&self.amount) {
            return Err(format!("amount is {}, it must be from 1 to {VALUE_MAX}", self.amount));
        }
        for (id, name) in [(Some(&self.from), "from"), (Some(&self.to), "to"), (self.id.as_ref(), "id")] {
            check_id(id, name)?;
        }
        if is_same_account(&self.from, &self.to) {
            return Err(format!("from and to are both {}", shown(&self.from)));
        }
        Ok(self)
    }
}

fn check_id(id: Option<&Bson>, name: &str) -> Result<(), String> {
    match id {
        None | Some(Bson::Int32(_) | Bson::Int64(_) | Bson::ObjectId(_) | Bson::Binary(_)) => Ok(()),
        Some(Bson::String(text)) if text.len() <= ID_BYTES_MAX => Ok(()),
        Some(Bson::String(_)) => Err(format!("{name} is longer than {ID_BYTES_MAX} bytes")),
        Some(other) => Err(format!("{name} is {}, not a text, a whole number, an ObjectId or binary", shown(other))),
    }
}

/// Returns whether two ids name the same account: a store compares numbers by value.
pub(super) fn is_same_account(one: &Bson, other: &Bson) -> bool {
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

fn whole(id: &Bson) -> Option<i64> {
    match id {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        // Shells write whole numbers so.
        Bson::Double(number) if number.fract() == 0.0 && number.abs() < 9e15 => Some(*number as i64),
        _ => None,
    }
}
