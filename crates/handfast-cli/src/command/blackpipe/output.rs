//! The output of a process, as far as it is kept: its beginning and its end, and the line of it that tells a reason.

use std::collections::VecDeque;

/// The bytes of the beginning of an output that are kept, and those of its end: most outputs are kept whole, and the outputs of all jobs fit in
/// memory.
pub(super) const PART_BYTES_MAX: usize = 32 * 1024;
/// The bytes of the outputs that a report has in all: those of 512 failing checks at least. It is in memory several times, as text, JSON and XML.
pub(super) const ALL_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Characters of a line that a table shows.
const LINE_CHARACTERS_MAX: usize = 200;

/// The beginning and the end of an output.
#[derive(Debug, Default)]
pub(super) struct KeptOutput {
    beginning: Vec<u8>,
    end: VecDeque<u8>,
    left_out: u64,
}

impl KeptOutput {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(PART_BYTES_MAX - self.beginning.len()));
        self.beginning.extend_from_slice(first);
        self.end.extend(rest);
        let excess = self.end.len().saturating_sub(PART_BYTES_MAX);
        self.end.drain(..excess);
        self.left_out += excess as u64;
    }

    /// Returns the output as text, without empty lines at its end.
    pub(super) fn into_text(self) -> String {
        let KeptOutput { beginning: mut bytes, end, left_out } = self;
        if left_out > 0 {
            bytes.extend_from_slice(format!("\n[{left_out} bytes are left out]\n").as_bytes());
        }
        bytes.extend(end);
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }
}

/// The memory for the outputs of all runs.
#[derive(Debug)]
pub(super) struct OutputMemory {
    free_bytes: usize,
}

impl Default for OutputMemory {
    fn default() -> Self {
        OutputMemory { free_bytes: ALL_BYTES_MAX }
    }
}

impl OutputMemory {
    /// Leaves an output as it is if there is memory for it. Otherwise it keeps the line that tells the reason.
    pub(super) fn keep(&mut self, output: &mut String) {
        match self.free_bytes.checked_sub(output.len()) {
            Some(free_bytes) => self.free_bytes = free_bytes,
            None => {
                let (bytes, line) = (output.len(), reason(output));
                *output = format!("[{bytes} bytes are left out: there are too many outputs; use --replay]\n{line}");
            }
        }
    }
}

/// Returns the line that tells why a program failed: usually the last one, and otherwise the last one that names an error. Runtimes write a
/// stack trace, their version, or a hint after it.
pub(super) fn reason(output: &str) -> String {
    let lines = || output.lines().rev().filter(|line| !line.trim().is_empty());
    let last = lines().next().unwrap_or_default();
    let line = if is_of_runtime(last) || may_be_of_trace(last) { lines().find(|line| names_error(line)) } else { None };
    let line = line.or_else(|| {
        // A line that only looks like one of a stack trace may be the reason.
        let is_reason = |line: &&str| !is_of_runtime(line) && !may_be_of_trace(line);
        if is_of_runtime(last) { lines().find(is_reason) } else { None }
    });
    line.unwrap_or(last).trim().chars().take(LINE_CHARACTERS_MAX).collect()
}

/// Returns whether a line is what runtimes write after the reason: Node its version, Go the exit status, Rust a hint.
fn is_of_runtime(line: &str) -> bool {
    let begins = ["Node.js v", "(Use `node ", "exit status ", "goroutine ", "note: run with `RUST_BACKTRACE"];
    begins.iter().any(|begin| line.starts_with(begin))
}

/// Returns whether a line looks like one of a stack trace. Other lines do, too: `at most 3 orders are expected`.
fn may_be_of_trace(line: &str) -> bool {
    line.starts_with([' ', '\t', '}']) || line.starts_with("at ")
}

/// Returns whether a line begins with the name of an error, as in `TypeError: x is undefined` and `panic: x`.
fn names_error(line: &str) -> bool {
    let is_of_name = |character: char| character.is_alphanumeric() || "_.$".contains(character);
    let name = line.split(|character| !is_of_name(character)).next().unwrap_or_default();
    let rest = line.get(name.len()..).unwrap_or_default();
    let is_error = name.ends_with("Error") || name.ends_with("Exception") || name == "panic";
    is_error && (rest.is_empty() || rest.starts_with(':') || rest.starts_with(" ["))
        || line.starts_with("Exception in thread ")
}

#[cfg(test)]
mod tests {
    use super::{KeptOutput, LINE_CHARACTERS_MAX, OutputMemory, PART_BYTES_MAX, reason};

    #[test]
    fn the_beginning_and_the_end_are_kept() {
        let check = |chunks: &[&[u8]], expected: &str| {
            let mut output = KeptOutput::default();
            chunks.iter().for_each(|chunk| output.push(chunk));
            assert_eq!(output.into_text(), expected);
        };
        check(&[], "");
        check(&[b"one\n", b"two\n\n"], "one\ntwo");
        let (first, last) = ("a".repeat(PART_BYTES_MAX), "b".repeat(PART_BYTES_MAX));
        let whole = format!("{first}{last}");
        check(&[whole.as_bytes()], &whole);
        let bounded = format!("{first}\n[5 bytes are left out]\n{last}");
        check(&[first.as_bytes(), b"12345", last.as_bytes()], &bounded);
        check(&[format!("{first}12345{last}").as_bytes()], &bounded);
    }

    #[test]
    fn memory_is_bounded() {
        let mut output = KeptOutput::default();
        (0..1000).for_each(|_| output.push(&[7; 10_000]));
        assert_eq!((output.beginning.len(), output.end.len()), (PART_BYTES_MAX, PART_BYTES_MAX));
        assert_eq!(output.left_out, 10_000_000 - 2 * PART_BYTES_MAX as u64);
    }

    #[test]
    fn all_outputs_together_are_bounded() {
        let mut memory = OutputMemory { free_bytes: 30 };
        let mut outputs = ["a".repeat(20), "one\ntwo, three, four".to_owned(), "b".repeat(10), String::new()];
        outputs.iter_mut().for_each(|output| memory.keep(output));
        let left_out = "[20 bytes are left out: there are too many outputs; use --replay]\ntwo, three, four";
        assert_eq!(outputs, ["a".repeat(20), left_out.to_owned(), "b".repeat(10), String::new()]);
        assert_eq!(reason(left_out), "two, three, four");
    }

    #[test]
    fn the_reason_of_a_failure_is_found() {
        let check = |output: &str, expected: &str| assert_eq!(reason(output), expected);
        check("", "");
        check("one\ntwo\n\n", "two");
        check("Error: the first try\ngiving up", "giving up");
        let node = "file:///app.mjs:3\n  throw new Error('x')\n  ^\n\nError: the total is 40\n    at file:///app.mjs:3:7 {\n  code: 7\n}\n\nNode.js v20.1.0\n";
        check(node, "Error: the total is 40");
        check(
            "x\n^\n\nAssertionError [ERR_ASSERTION]: 20 !== 10\n    at app.mjs\n\nNode.js v20.1.0",
            "AssertionError [ERR_ASSERTION]: 20 !== 10",
        );
        check("Uncaught:\n'text'\n(Use `node --trace-uncaught ...`)\n\nNode.js v20.1.0", "'text'");
        check("Traceback:\n  File \"app.py\"\nValueError: 7", "ValueError: 7");
        check("panic: no total\n\ngoroutine 1 [running]:\nmain.main()\n\t/app.go:5\nexit status 2", "panic: no total");
        check("thread 'main' panicked at src/main.rs:2:5:\nno total\nnote: run with `RUST_BACKTRACE=1`", "no total");
        check(
            "Exception in thread \"main\" java.lang.Error: no\n\tat App.main(App.java:3)",
            "Exception in thread \"main\" java.lang.Error: no",
        );
        check("    all of it is indented", "all of it is indented");
        check(
            "ok so far\nat most 3 orders are expected, and there are 4",
            "at most 3 orders are expected, and there are 4",
        );
        check("the balances:\n  ann 10, bob 20", "ann 10, bob 20");
        check(&"é".repeat(300), &"é".repeat(LINE_CHARACTERS_MAX));
    }
}
