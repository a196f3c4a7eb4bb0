//! The flags that several commands of `handfast counters` have, and their values.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use handfast_counters::jiff::civil::Date;
use handfast_counters::jiff::tz::TimeZone;
use handfast_counters::{Item, Kind, parse_day};
use handfast_http::counters::RESERVED_ID;

use crate::flags::CountersStoreFlags;

/// The counters of a command.
#[derive(Args, Debug)]
pub(crate) struct CountersFlags {
    /// Database of the counters
    #[arg(long, value_name = "NAME", default_value = "counters")]
    pub(crate) database: String,
    /// Transactions that save views on a server (--store) [default: those that the data were begun with; handfast for new ones]
    #[arg(long, value_enum, hide_short_help = true)]
    pub(crate) transactions: Option<Transactions>,
    #[command(flatten)]
    pub(crate) open: CountersStoreFlags,
}

/// The transactions that save views on a server.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Transactions {
    /// Handfast makes them; no other program may write to the collections
    Handfast,
    /// None: each document is changed by itself, exactly once, and has no fields that a program has to know to read it
    None,
}

/// The time zone of a command that asks which day it is.
#[derive(Args, Debug)]
pub(crate) struct TimeZoneFlag {
    /// Time zone in which days begin and end, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(crate) time_zone: Parsed<TimeZone>,
}

/// A value of another crate, read from an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parsed<T>(pub(crate) T);

impl FromStr for Parsed<Kind> {
    type Err = handfast_counters::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Kind::new(text).map(Parsed)
    }
}

impl FromStr for Parsed<Item> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, id) = text.split_once('/').ok_or("expected KIND/ID, such as ads/4711")?;
        if id == RESERVED_ID {
            return Err(format!("the id '{id}' is a word of the path /v1/KIND/{id}: no item has it"));
        }
        Item::new(kind, id).map(Parsed).map_err(|error| error.to_string())
    }
}

impl FromStr for Parsed<Date> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_day(text).map(Parsed).ok_or_else(|| "expected a day, such as 2026-11-30".to_owned())
    }
}

impl FromStr for Parsed<TimeZone> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        TimeZone::get(text)
            .map(Parsed)
            .map_err(|_| "expected a time zone of the tz database, such as Europe/Berlin".into())
    }
}
