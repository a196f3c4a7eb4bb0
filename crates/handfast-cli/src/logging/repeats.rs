//! Writes repeated lines of the log once, and counts the repetitions.
//!
//! ```text
//! 10:00:00 WARN a server is out of reach server="a:1"                             written
//! 10:00:01 WARN a server is out of reach server="a:1"                             the same but for its time: counted
//!    ..                                                                           40 more: counted
//! 10:00:12 INFO anything                                                          the time is over:
//!          10:00:12 repeated 41 more times: WARN a server is out of reach ..      first what was counted,
//!          10:00:12 INFO anything                                                 then the line
//! ```
//!
//! A line with another number in it is another line. Counts that are left when the program ends are not written.

use std::collections::BTreeMap;
use std::io;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use handfast_store::Clock;

/// The time during which a repeated line is counted before it is written again.
const WINDOW: Duration = Duration::from_secs(10);
/// Lines that are remembered; further ones are written as they come.
const LINES_MAX: usize = 256;
/// Bytes of a line that is remembered.
const LINE_BYTES_MAX: usize = 4096;

/// Writes lines to the standard error, each in one call.
#[derive(Clone)]
pub(super) struct Repeats {
    clock: Arc<dyn Clock>,
    table: Arc<Mutex<Table>>,
}

impl Repeats {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Repeats { clock, table: Arc::default() }
    }
}

impl Write for Repeats {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // The lock is held while the line is written, so that lines stay in order.
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = table.pass(line, self.clock.elapsed());
        io::stderr().write_all(&lines)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Recent lines, without their time.
#[derive(Default)]
struct Table(BTreeMap<Vec<u8>, Occurrences>);

/// The time of the last writing of a line, and its repetitions since.
struct Occurrences {
    at: Duration,
    counted: u64,
}

impl Table {
    /// Returns the bytes to write for a line.
    fn pass(&mut self, line: &[u8], now: Duration) -> Vec<u8> {
        // The time is the first field of JSON, and the first word of text.
        let (separator, is_json) = if line.first() == Some(&b'{') { (b',', true) } else { (b' ', false) };
        let body_at = line.iter().position(|byte| *byte == separator).map_or(line.len(), |place| place + 1);
        let (time, body) = line.split_at(body_at);
        let mut lines = Vec::new();
        self.0.retain(|before, seen| {
            let is_over = now.saturating_sub(seen.at) >= WINDOW;
            if is_over && seen.counted > 0 {
                let count = seen.counted;
                let reported =
                    if is_json { format!("\"repeated\":{count},") } else { format!("repeated {count} more times:") };
                lines.extend([time, reported.as_bytes(), before].concat());
            }
            !is_over
        });
        if let Some(seen) = self.0.get_mut(body) {
            seen.counted += 1;
            return lines;
        }
        if self.0.len() < LINES_MAX && body.len() <= LINE_BYTES_MAX {
            self.0.insert(body.to_vec(), Occurrences { at: now, counted: 0 });
        }
        lines.extend_from_slice(line);
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LINE_BYTES_MAX, LINES_MAX, Table};

    /// Checks the output for a line at a time in seconds.
    fn check(table: &mut Table, seconds: u64, line: &str, expected: &str) {
        let written = table.pass(line.as_bytes(), Duration::from_secs(seconds));
        assert_eq!(String::from_utf8(written).unwrap(), expected, "at {seconds}: {line}");
    }

    #[test]
    fn a_line_is_written_once_in_a_while_and_counted_meanwhile() {
        let mut table = Table::default();
        check(&mut table, 0, "00Z  WARN gone server=a\n", "00Z  WARN gone server=a\n");
        check(&mut table, 0, "00Z  WARN gone server=b\n", "00Z  WARN gone server=b\n");
        for second in 1..10 {
            check(&mut table, second, &format!("0{second}Z  WARN gone server=a\n"), "");
        }
        // A line that was not repeated causes no message about repetitions.
        check(&mut table, 10, "10Z  INFO x\n", "10Z repeated 9 more times: WARN gone server=a\n10Z  INFO x\n");
        check(&mut table, 11, "11Z  WARN gone server=a\n", "11Z  WARN gone server=a\n");
        check(&mut table, 12, "12Z  WARN gone server=a\n", "");
        // When the same line comes again, the number of its repetitions is written before it.
        let reported = "30Z repeated 1 more times: WARN gone server=a\n30Z  WARN gone server=a\n";
        check(&mut table, 30, "30Z  WARN gone server=a\n", reported);
    }

    #[test]
    fn a_json_line_stays_one() {
        let line = |time: u64| {
            format!("{{\"timestamp\":\"{time}\",\"level\":\"WARN\",\"fields\":{{\"message\":\"a, b\"}}}}\n")
        };
        let mut table = Table::default();
        check(&mut table, 0, &line(0), &line(0));
        check(&mut table, 1, &line(1), "");
        let reported = "{\"timestamp\":\"20\",\"repeated\":1,\"level\":\"WARN\",\"fields\":{\"message\":\"a, b\"}}\n";
        check(&mut table, 20, &line(20), &format!("{reported}{}", line(20)));
        assert!(serde_json::from_str::<serde_json::Value>(reported).is_ok());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut table = Table::default();
        for number in 0..2 * LINES_MAX {
            let line = format!("0Z line {number}\n");
            check(&mut table, 0, &line, &line);
        }
        assert_eq!(table.0.len(), LINES_MAX);
        let long = format!("0Z {}\n", "x".repeat(LINE_BYTES_MAX));
        let mut table = Table::default();
        check(&mut table, 0, &long, &long);
        check(&mut table, 0, &long, &long);
        // A line without a space is treated alike.
        check(&mut table, 0, "x\n", "x\n");
        check(&mut table, 0, "", "");
    }
}
