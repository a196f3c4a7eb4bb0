//! The log: `tracing` to standard error, as text or as one JSON object a line.

mod repeats;

use std::io::{self, IsTerminal};
use std::sync::Arc;

use handfast_store::SystemClock;
use tracing::subscriber::set_global_default;
use tracing_subscriber::filter::LevelFilter;

use self::repeats::Repeats;
use crate::configuration::{LogFormat, LogLevel};

/// Starts the log; a second call changes nothing.
pub(crate) fn start(format: LogFormat, level: LogLevel) {
    let lines = Repeats::new(Arc::new(SystemClock::new()));
    let builder = tracing_subscriber::fmt().with_max_level(LevelFilter::from(level)).with_writer(move || lines.clone());
    let started = match format {
        LogFormat::Text => set_global_default(builder.with_ansi(io::stderr().is_terminal()).finish()),
        LogFormat::Json => set_global_default(builder.json().finish()),
    };
    debug_assert!(started.is_ok(), "the log is started once");
}
