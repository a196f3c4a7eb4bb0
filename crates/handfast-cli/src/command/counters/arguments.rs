//! The arguments of `handfast counters`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use handfast_counters::jiff::civil::Date;
use handfast_counters::{Item, Kind, VISITOR_WINDOW_MAX};
use handfast_http::ClientLimit;
use handfast_http::counters::BotPolicy;

use super::data_arguments::{ExportArguments, ImportArguments, RebuildArguments, TrimArguments};
use super::flags::{CountersFlags, Parsed, TimeZoneFlag};
use crate::configuration::{Span, WebOrigin};

/// The commands on view counters.
#[derive(Debug, Subcommand)]
pub(crate) enum CountersArguments {
    /// Count views and return totals over HTTP
    #[command(after_help = "One instance needs a directory (--data). Several instances share Redis and a store.\n\n\
        Examples:\n  \
        handfast counters serve --data /srv/views\n  \
        handfast counters serve --redis redis://127.0.0.1:6379 --store mongodb://127.0.0.1:27017\n  \
        handfast counters serve --data /srv/views --listen 0.0.0.0:8080 --tokens tokens.txt --public-reads\n  \
        handfast counters serve --data /srv/views --visitor-window ads=30m --bots refuse")]
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
        /// Check only the items of this kind
        #[arg(long, value_name = "KIND")]
        kind: Option<Parsed<Kind>>,
        #[command(flatten)]
        counters: Box<CountersFlags>,
    },
    /// Set each total that differs to its base and the sum of its days
    #[command(
        after_help = "With --store it may run beside the service, and needs --redis: the totals that instances have there \
        follow.\n\n\
        Examples:\n  \
        handfast counters rebuild --dry-run --data /srv/views\n  \
        handfast counters rebuild --data /srv/views\n  \
        handfast counters rebuild \\\n    --redis redis://127.0.0.1:6379 --store mongodb://127.0.0.1:27017"
    )]
    Rebuild(Box<RebuildArguments>),
    /// List the items of a kind with the most saved views
    #[command(after_help = "Examples:\n  \
        handfast counters top ads --data /srv/views\n  \
        handfast counters top ads --day 2026-11-30 --limit 100 --data /srv/views\n  \
        handfast counters top ads --store mongodb://127.0.0.1:27017")]
    Top {
        /// Kind of the items
        kind: Parsed<Kind>,
        /// Count only the views of this day [default: all days]
        #[arg(long, value_name = "DAY")]
        day: Option<Parsed<Date>>,
        /// Maximum number of items to show
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
        #[command(flatten)]
        counters: Box<CountersFlags>,
    },
    /// Show the total and the days of an item
    #[command(after_help = "Examples:\n  \
        handfast counters show ads/4711 --data /srv/views\n  \
        handfast counters show ads/4711 --from 2026-01-01 --to 2026-12-31 --data /srv/views --json\n  \
        handfast counters show ads/4711 \\\n    --redis redis://127.0.0.1:6379 --store mongodb://127.0.0.1:27017")]
    Show {
        /// Kind and id of the item
        #[arg(value_name = "KIND/ID")]
        item: Parsed<Item>,
        /// First day to show [default: 29 days before the last one]
        #[arg(long, value_name = "DAY")]
        from: Option<Parsed<Date>>,
        /// Last day to show [default: today]
        #[arg(long, value_name = "DAY")]
        to: Option<Parsed<Date>>,
        #[command(flatten)]
        days: TimeZoneFlag,
        #[command(flatten)]
        counters: Box<CountersFlags>,
    },
    /// Add the totals and days of a file, each line once, even if the command is killed and repeated
    #[command(
        after_help = "A line has kind, id and total, or kind, id, day and views. Its views are added to what the item has. With \
        --store it may run beside the service, and needs --redis: the totals that instances have there follow.\n\n\
        Examples:\n  \
        handfast counters import totals.csv --dry-run\n  \
        handfast counters import totals.csv --data /srv/views\n  \
        handfast counters import totals.csv \\\n    --redis redis://127.0.0.1:6379 --store mongodb://127.0.0.1:27017\n  \
        zcat days.jsonl.gz | handfast counters import - --format jsonl --name may --data /srv/views"
    )]
    Import(Box<ImportArguments>),
    /// Write the saved totals and days as lines that import reads
    #[command(after_help = "Examples:\n  \
        handfast counters export --data /srv/views > views.jsonl\n  \
        handfast counters export --kind ads --output ads.csv --data /srv/views\n  \
        handfast counters export --output all.jsonl --store mongodb://127.0.0.1:27017")]
    Export(Box<ExportArguments>),
    /// Remove the daily figures of old months; the totals stay
    #[command(after_help = "The views of a removed month stay in the total of their item, as views without a day.\n\n\
        Examples:\n  \
        handfast counters trim --before 2026-01-01 --dry-run --data /srv/views\n  \
        handfast counters trim --before 2026-01-01 --data /srv/views\n  \
        handfast counters trim --before 2026-01-01 --store mongodb://127.0.0.1:27017")]
    Trim(Box<TrimArguments>),
}

/// The shortest window in which one view of a visitor is counted: with less, all views are counted.
const VISITOR_WINDOW_MIN: Duration = Duration::from_secs(1);

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
    pub(crate) allowed_origins: Vec<WebOrigin>,
    /// Count one view of each visitor of a kind in this time, 24h at most, such as ads=30m; may be repeated
    #[arg(long = "visitor-window", value_name = "KIND=TIME")]
    pub(crate) visitor_windows: Vec<VisitorWindow>,
    /// Let web pages count views of this kind by a picture, GET /v1/KIND/ID/pixel.gif, without a token; may be repeated
    #[arg(long = "pixel", value_name = "KIND")]
    pub(crate) pixels: Vec<Parsed<Kind>>,
    /// Whether views of known bots are counted: count (the default), refuse, or ads=refuse; may be repeated
    ///
    /// A bot names itself in its User-Agent. ads=refuse is the policy for the kind ads.
    #[arg(long, value_name = "POLICY")]
    pub(crate) bots: Vec<OfKind<Bots>>,
    /// Number of requests that a client may send in a time, such as 600/1m, or ads=60/1m; may be repeated
    ///
    /// A client is a token, or an address without one. ads=60/1m is the limit of requests for the kind ads, which do not count for the other one.
    #[arg(long, value_name = "N/TIME")]
    pub(crate) limit_per_client: Vec<OfKind<Parsed<ClientLimit>>>,
    /// Header in which the proxy in front names the client's address as the last one, such as X-Forwarded-For
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) client_address_header: Option<String>,
    /// Interval at which views are saved from the queue
    #[arg(long, value_name = "TIME", default_value = "2s", hide_short_help = true)]
    pub(crate) flush_interval: Span,
    /// Maximum number of requests whose views wait in the queue, with --redis in the queue of each kind; further ones are refused
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    pub(crate) queue_events: u32,
    /// Maximum number of Idempotency-Keys that are remembered for a day, of about 100 bytes of memory each (without --redis); requests
    /// with further ones are refused
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    pub(crate) idempotency_keys: u32,
    /// Number of days for which daily figures are kept at least; then those of whole months are removed, and the totals
    /// stay [default: for ever]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) keep_days: Option<u32>,
    /// Time after which another instance saves the views that an instance has taken from the queue and has not saved (with --redis)
    #[arg(long, value_name = "TIME", default_value = "15m", hide_short_help = true)]
    pub(crate) take_over_after: Span,
    #[command(flatten)]
    pub(crate) days: TimeZoneFlag,
    #[command(flatten)]
    pub(crate) counters: CountersFlags,
}

/// A value for all kinds, or for one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OfKind<T> {
    pub(crate) kind: Option<Kind>,
    pub(crate) value: T,
}

/// The window of a kind in which one view of a visitor is counted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VisitorWindow {
    pub(crate) kind: Kind,
    pub(crate) time: Duration,
}

/// The treatment of views by bots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bots {
    Count,
    Refuse,
}

impl From<Bots> for BotPolicy {
    fn from(bots: Bots) -> Self {
        match bots {
            Bots::Count => BotPolicy::Count,
            Bots::Refuse => BotPolicy::Refuse,
        }
    }
}

impl FromStr for Bots {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "count" => Ok(Bots::Count),
            "refuse" => Ok(Bots::Refuse),
            _ => Err("expected count or refuse, or that of a kind, such as ads=refuse".to_owned()),
        }
    }
}

impl<T: FromStr<Err = String>> FromStr for OfKind<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, value) = match text.split_once('=') {
            None => (None, text),
            Some((kind, value)) => (Some(Kind::new(kind).map_err(|error| error.to_string())?), value),
        };
        Ok(OfKind { kind, value: value.parse()? })
    }
}

impl FromStr for VisitorWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, time) = text.split_once('=').ok_or("expected KIND=TIME, such as ads=30m")?;
        let kind = Kind::new(kind).map_err(|error| error.to_string())?;
        let time = time.parse::<Span>()?.0;
        match (VISITOR_WINDOW_MIN..=VISITOR_WINDOW_MAX).contains(&time) {
            true => Ok(VisitorWindow { kind, time }),
            false => Err(format!("the time must be at least {} and at most 24h", Span(VISITOR_WINDOW_MIN))),
        }
    }
}

impl FromStr for Parsed<ClientLimit> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected N/TIME, such as 600/1m for 600 requests in a minute".to_owned();
        let (number, time) = text.split_once('/').ok_or_else(wrong)?;
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        let requests = number.parse().ok().filter(|requests| *requests > 0);
        let bounds = || format!("the number of requests must be at least 1 and at most {}, and is {number}", u32::MAX);
        let requests: u32 = requests.ok_or_else(bounds)?;
        let time = time.parse::<Span>()?.0;
        match (time / requests).is_zero() {
            true => Err(format!(
                "the time for {requests} requests must be at least {}, a nanosecond for each, and is {}",
                Span(Duration::from_nanos(requests.into())),
                Span(time)
            )),
            false => Ok(Parsed(ClientLimit { requests, time })),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use handfast_http::ClientLimit;

    use super::{Parsed, VisitorWindow};

    #[test]
    fn windows_and_limits_name_a_time() {
        let window: VisitorWindow = "ads=30m".parse().expect("a window");
        assert_eq!((window.kind.as_str(), window.time), ("ads", Duration::from_secs(1_800)));
        for bad in ["", "ads", "=30m", "Ads=30m", "ads=", "ads=0s", "ads=999ms", "ads=25h", "ads=30"] {
            assert!(bad.parse::<VisitorWindow>().is_err(), "{bad}");
        }
        let limit = Parsed(ClientLimit { requests: 600, time: Duration::from_secs(60) });
        assert_eq!("600/1m".parse(), Ok(limit));
        for (bad, expected) in [
            ("", "expected N/TIME"),
            ("600", "expected N/TIME"),
            ("-1/1m", "expected N/TIME"),
            ("1.5/1m", "expected N/TIME"),
            ("0/1m", "the number of requests must be at least 1 and at most 4294967295, and is 0"),
            ("4294967296/1m", "at most 4294967295, and is 4294967296"),
            ("600/0s", "the time for 600 requests must be at least 600ns, a nanosecond for each, and is 0s"),
            ("4000000000/1s", "the time for 4000000000 requests must be at least 4s, a nanosecond for each, and is 1s"),
            ("600/m", "a duration such as 10s, 30m or 1h is expected"),
        ] {
            let error = bad.parse::<Parsed<ClientLimit>>().expect_err(bad);
            assert!(error.contains(expected), "{bad}: {error}");
        }
    }
}
