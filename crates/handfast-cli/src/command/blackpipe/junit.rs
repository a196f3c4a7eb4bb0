//! The report as JUnit XML, which build servers show: a test case for each pair.

use std::fmt::Write as _;

use super::report::{Report, Verdict};

/// The name of the suite.
const SUITE: &str = "handfast blackpipe explore";

/// Returns the report. It has no times, because a build server measures the whole command itself.
pub(super) fn xml(report: &Report<'_>) -> String {
    let failures = report.runs.iter().filter(|run| run.verdict() != Verdict::Right).count();
    let counts = format!(r#"name="{SUITE}" tests="{}" failures="{failures}" errors="0""#, report.runs.len());
    let program = escaped(&report.arguments.program.join(" "));
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite {counts} skipped=\"0\">\n"
    );
    for run in &report.runs {
        let case = format!("    <testcase classname=\"{program}\" name=\"{}\"", run.pair);
        // Writing to a string does not fail.
        let _ = match run.verdict() {
            Verdict::Right => writeln!(xml, "{case}/>"),
            Verdict::Finding | Verdict::NotReached => {
                let (message, replay) = (escaped(&run.reason()), escaped(&report.replay_line(&run.pair)));
                writeln!(xml, "{case}>\n      <failure message=\"{message}\">{replay}</failure>\n    </testcase>")
            }
        };
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

/// Returns a text as it stands in an attribute. XML has no control characters, not even escaped ones.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(' '),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            character if character.is_control() => out.push('\u{fffd}'),
            character => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn a_text_is_valid_in_xml() {
        let text = escaped("a < \"b\" & 'c'\u{1b}[0m\nd");
        assert_eq!(text, "a &lt; &quot;b&quot; &amp; 'c'\u{fffd}[0m d");
    }
}
