//! The arguments of `handfast counters`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use handfast_counters::jiff::civil::Date;
use handfast_counters::jiff::tz::TimeZone;
use handfast_counters::{Item, Kind};

use crate::configuration::Span;
use crate::flags::CountersStoreFlags;

/// The commands on view counters.
#[derive(Debug, Subcommand)]
pub(crate) enum CountersArguments {
    /// Count views and return totals over HTTP
    #[command(after_help = "One instance needs a directory (--data). Several instances share Redis and a store.\n\n\
        Examples:\n  \
        handfast counters serve --data /srv/views\n  \
        handfast counters serve --redis redis://127.0.0.1:6379 --store mongodb://127.0.0.1:27017\n  \
        handfast counters serve --data /srv/views --time-zone Europe/Berlin\n  \
        handfast counters serve --data /srv/views --listen 0.0.0.0:8080 --tokens tokens.txt --public-reads")]
    Serve(Box<ServeCountersArguments>),
    /// Check that the total of each item is its base and the sum of its days
    #[command(
        after_help = "Exit code 3 if an item differs. With --store it may run beside the service; with --redis it \
        also counts what waits in the queue.\n\n\
        Examples:\n  \
        handfast counters verify --data /srv/views\n  \
        handfast counters verify --store mongodb://127.0.0.1:27017"
    )]
    Verify {
        #[command(flatten)]
        counters: Box<CountersFlags>,
        /// Check only the items of this kind
        #[arg(long, value_name = "KIND")]
        kind: Option<Parsed<Kind>>,
    },
    /// List the items of a kind with the most saved views
    #[command(after_help = "Examples:\n  \
        handfast counters top ads --data /srv/views\n  \
        handfast counters top ads --day 2026-11-30 --limit 100 --data /srv/views\n  \
        handfast counters top ads --store mongodb://127.0.0.1:27017")]
    Top {
        #[command(flatten)]
        counters: Box<CountersFlags>,
        /// Kind of the items
        kind: Parsed<Kind>,
        /// Count only the views of this day [default: all days]
        #[arg(long, value_name = "DAY")]
        day: Option<Parsed<Date>>,
        /// Maximum number of items to show
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Show the total and the days of an item
    #[command(after_help = "Examples:\n  \
        handfast counters show ads/4711 --data /srv/views\n  \
        handfast counters show ads/4711 --from 2026-01-01 --to 2026-12-31 --data /srv/views --json\n  \
        handfast counters show ads/4711 \\\n    --redis redis://127.0.0.1:6379 --store mongodb://127.0.0.1:27017")]
    Show {
        #[command(flatten)]
        counters: Box<CountersFlags>,
        /// Kind and id of the item
        #[arg(value_name = "KIND/ID")]
        item: Parsed<Item>,
        /// First day to show [default: 29 days before the last one]
        #[arg(long, value_name = "DAY")]
        from: Option<Parsed<Date>>,
        /// Last day to show [default: today]
        #[arg(long, value_name = "DAY")]
        to: Option<Parsed<Date>>,
    },
}

/// The counters of a command.
#[derive(Args, Debug)]
pub(crate) struct CountersFlags {
    /// Database of the counters
    #[arg(long, value_name = "NAME", default_value = "counters")]
    pub(crate) database: String,
    /// Time zone in which days begin and end, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(crate) time_zone: Parsed<TimeZone>,
    #[command(flatten)]
    pub(crate) open: CountersStoreFlags,
}

/// `handfast counters serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeCountersArguments {
    /// Address and port to listen on; port 0 takes a free port. An address that other machines can reach needs --tokens
    #[arg(id = "http_listen", long = "listen", value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,
    /// File with the SHA-256 hash of a token on each line, as sha256sum prints it. A request needs one of the tokens
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// Allow reading without a token
    #[arg(long, requires = "tokens")]
    pub(crate) public_reads: bool,
    /// Origin of web pages that may send requests from browsers, such as https://example.org; may be repeated
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    pub(crate) allowed_origins: Vec<Origin>,
    /// Interval at which views are saved from the queue
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub(crate) flush_interval: Span,
    /// Maximum number of requests whose views wait in the queue, with --redis in the queue of each kind; further ones are refused
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) queue_events: u32,
    /// Time after which another instance saves the views that an instance has taken from the queue and has not saved (with --redis)
    #[arg(long, value_name = "TIME", default_value = "15m", hide_short_help = true)]
    pub(crate) take_over_after: Span,
    #[command(flatten)]
    pub(crate) counters: CountersFlags,
}

/// A value of another crate, read from an argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parsed<T>(pub(crate) T);

/// The origin of a web page, as browsers send it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Origin(pub(crate) String);

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
        Item::new(kind, id).map(Parsed).map_err(|error| error.to_string())
    }
}

impl FromStr for Parsed<Date> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A time behind the day would be read, too, and ignored.
        let day = if text.len() == "2026-11-30".len() { text.parse().ok() } else { None };
        day.map(Parsed).ok_or_else(|| "expected a day, such as 2026-11-30".to_owned())
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

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let is_origin = host.is_some_and(|host| {
            let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:[]".contains(&byte);
            !host.is_empty() && host.bytes().all(letters)
        });
        match is_origin {
            true => Ok(Origin(text.to_owned())),
            false => {
                Err("expected a scheme and a host, such as https://example.org, in lower case and without a path"
                    .into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Origin;

    #[test]
    fn an_origin_is_what_browsers_send() {
        for good in ["https://example.org", "http://localhost:3000", "http://[::1]:8080"] {
            assert_eq!(good.parse(), Ok(Origin(good.to_owned())));
        }
        for bad in ["", "*", "null", "example.org", "https://", "https://example.org/", "https://Example.org"] {
            assert!(bad.parse::<Origin>().is_err(), "{bad}");
        }
    }
}
