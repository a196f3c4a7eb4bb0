//! What the program says: reports on standard output, errors and progress on standard error.
//!
//! Only here does anything print. With `--json` standard output holds JSON alone; with `--quiet` nothing. Progress is for
//! people at a terminal.

use std::io::{self, Write};

use serde::Serialize;

use crate::arguments::CommonFlags;

/// How much is said, and in which form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    json: bool,
    quiet: bool,
}

impl Console {
    pub(crate) fn new(flags: &CommonFlags) -> Self {
        Console { json: flags.json, quiet: flags.quiet }
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
}

/// Writes to standard output. A reader that went away (`| head`) is no error.
pub(crate) fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// One line on standard error, whatever the error holds.
pub(crate) fn write_error(error: &anyhow::Error) {
    let line = one_line(&format!("{error:#}"));
    // Nowhere left to say it if this fails.
    let _ = writeln!(io::stderr(), "handfast: {line}");
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
