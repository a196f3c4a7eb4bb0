//! What the program says: reports on standard output, errors and progress on standard error.
//!
//! Only here does anything print. With `--json` standard output holds JSON alone; with `--quiet` nothing. Progress is for
//! people at a terminal.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::advice;
use crate::arguments::OutputFlags;

#[cfg(test)]
mod tests;

/// How much is said, and in which form.
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

    /// A progress bar; it draws only for people. A length of 0 is a spinner that counts.
    pub(crate) fn progress(self, what: &'static str, unit: &'static str, length: u64) -> ProgressBar {
        let shown = !self.quiet && !self.json && io::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let (length, template) = match length {
            0 => (None, format!("{what} {{spinner}} {{human_pos}} {unit} {{per_sec}} {{elapsed}} {{msg}}")),
            _ => (
                Some(length),
                format!("{what} {{wide_bar}} {{human_pos}}/{{human_len}} {unit} {{per_sec}}, {{eta}} left {{msg}}"),
            ),
        };
        let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
        ProgressBar::with_draw_target(length, target).with_style(style)
    }
}

/// Writes to standard output. A reader that went away (`| head`) is no error.
pub(crate) fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// One line on standard error, whatever the error holds, with what to do about it.
pub(crate) fn write_error(error: &anyhow::Error) {
    let mut line = one_line(&chain(error));
    if let Some(advice) = advice::of(error) {
        line = format!("{line}; {advice}");
    }
    // Nowhere left to say it if this fails.
    let _ = writeln!(io::stderr(), "handfast: {line}");
}

/// The error and its causes, without those that the text before them tells already.
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

/// A remark on standard error.
pub(crate) fn write_remark(text: &str) {
    let _ = writeln!(io::stderr(), "handfast: {}", one_line(text));
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
