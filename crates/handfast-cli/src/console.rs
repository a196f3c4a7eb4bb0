//! All output of the program: reports on standard output, errors and progress on standard error.
//!
//! No other module prints. With `--json` standard output holds JSON alone; with `--quiet` nothing. Progress is for people at a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::advice;
use crate::flags::OutputFlags;
use crate::listing::Listing;

/// The form and amount of output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    json: bool,
    quiet: bool,
}

impl Console {
    pub(crate) fn new(OutputFlags { json, quiet }: OutputFlags) -> Self {
        Console { json, quiet }
    }

    /// Prints a report in the form that was asked for.
    pub(crate) fn report(self, text: impl FnOnce() -> String, json: &impl Serialize) -> io::Result<()> {
        if self.json {
            let mut line = serde_json::to_string(json)?;
            line.push('\n');
            write_out(line.as_bytes())
        } else if self.quiet {
            Ok(())
        } else {
            write_out(format!("{}\n", text()).as_bytes())
        }
    }

    /// Prints a list: a table, or a line of JSON for each of its rows.
    pub(crate) fn list(self, listing: &Listing) -> io::Result<()> {
        if self.json {
            let mut lines = String::new();
            for line in listing.lines() {
                lines.push_str(&serde_json::to_string(line)?);
                lines.push('\n');
            }
            write_out(lines.as_bytes())?;
        } else if !self.quiet {
            write_out(format!("{}\n", listing.table()).as_bytes())?;
        }
        if listing.has_more() {
            self.remark("there are more: --limit shows them");
        }
        Ok(())
    }

    /// Writes a remark beside a report, unless --quiet is set.
    pub(crate) fn remark(self, text: &str) {
        if !self.quiet {
            write_remark(text);
        }
    }

    /// Returns a spinner, which is drawn only at a terminal.
    pub(crate) fn spinner(self, what: &'static str) -> ProgressBar {
        let style = ProgressStyle::with_template(&format!("{what} {{spinner}} {{elapsed}}"));
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::with_draw_target(None, self.target()).with_style(style);
        bar.enable_steady_tick(TICK);
        bar
    }

    fn target(self) -> ProgressDrawTarget {
        let shown = !self.quiet && !self.json && io::stderr().is_terminal();
        if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
    }

    /// Returns a progress bar, which is drawn only at a terminal. A length of 0 is a spinner that counts.
    pub(crate) fn progress(self, what: &'static str, unit: &'static str, length: u64) -> ProgressBar {
        let (length, template) = match length {
            0 => (None, format!("{what} {{spinner}} {{human_pos}} {unit} {{per_sec}} {{elapsed}} {{msg}}")),
            _ => (
                Some(length),
                format!("{what} {{wide_bar}} {{human_pos}}/{{human_len}} {unit} {{per_sec}}, {{eta}} left {{msg}}"),
            ),
        };
        let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
        ProgressBar::with_draw_target(length, self.target()).with_style(style)
    }
}

/// The pace of a spinner.
const TICK: Duration = Duration::from_millis(100);

/// Writes to standard output. A closed pipe (`| head`) is no error.
pub(crate) fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes an error as one line on standard error, with advice.
pub(crate) fn write_error(error: &anyhow::Error) {
    let mut line = one_line(&chain(error));
    if let Some(advice) = advice::of(error) {
        line = format!("{line}; {advice}");
    }
    // A failure of standard error cannot be reported.
    let _ = writeln!(io::stderr(), "handfast: {line}");
}

/// Returns the error and its causes, without causes that the text already contains.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
    }
    text
}

/// Writes a remark on standard error.
pub(crate) fn write_remark(text: &str) {
    let _ = writeln!(io::stderr(), "handfast: {}", one_line(text));
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::{chain, one_line};

    #[test]
    fn causes_are_printed_once_and_in_one_line() {
        let check = |error: anyhow::Error, expected: &str| assert_eq!(one_line(&chain(&error)), expected);
        check(anyhow!("in use").context("cannot open"), "cannot open: in use");
        check(anyhow!("in use").context("cannot open: in use"), "cannot open: in use");
        check(anyhow!("line 1\n  line 2\n\n").context("cannot read"), "cannot read: line 1; line 2");
    }
}
