//! The report as JUnit XML, which build servers show: a test case for each pair.

use super::report::{Report, Verdict};

/// The name of the suite.
const SUITE: &str = "handfast blackpipe explore";
/// Why a pair was skipped.
const NOT_RUN: &str = "the exploration was asked to stop before";

/// Returns the report. It has no times, because a build server measures the whole command itself.
pub(super) fn xml(report: &Report<'_>) -> String {
    let count = |is_counted: fn(Verdict) -> bool| report.runs.iter().filter(|run| is_counted(run.verdict())).count();
    let failures = count(|verdict| matches!(verdict, Verdict::Finding | Verdict::NotReached));
    let errors = count(|verdict| verdict == Verdict::Failed);
    let skipped = report.not_run.len();
    let tests = report.runs.len() + skipped;
    let counts = format!(r#"name="{SUITE}" tests="{tests}" failures="{failures}" errors="{errors}""#);
    let program = attribute(&report.arguments.program.join(" "));
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite {counts} skipped=\"{skipped}\">\n"
    );
    for run in &report.runs {
        let case = format!("    <testcase classname=\"{program}\" name=\"{}\"", run.pair);
        let kind = match run.verdict() {
            Verdict::Right => {
                xml.push_str(&format!("{case}/>\n"));
                continue;
            }
            Verdict::Finding | Verdict::NotReached => "failure",
            Verdict::Failed => "error",
        };
        let (message, replay) = (attribute(&run.reason()), attribute(&report.replay_line(&run.pair)));
        let output = run.check_output().filter(|output| !output.is_empty());
        let output = output.map(|output| format!("      <system-out>{}</system-out>\n", content(output)));
        xml.push_str(&format!(
            "{case}>\n      <{kind} message=\"{message}\">{replay}</{kind}>\n{}    </testcase>\n",
            output.unwrap_or_default()
        ));
    }
    for pair in &report.not_run {
        xml.push_str(&format!(
            "    <testcase classname=\"{program}\" name=\"{pair}\">\n      <skipped message=\"{NOT_RUN}\"/>\n    </testcase>\n"
        ));
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

/// Returns a text as it stands in an attribute, in one line.
fn attribute(text: &str) -> String {
    content(&text.replace(['\n', '\t'], " "))
}

/// Returns a text as it stands between tags. XML has no control characters, not even escaped ones.
fn content(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(character),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            character if character.is_control() => out.push('\u{fffd}'),
            character => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{attribute, content};

    #[test]
    fn a_text_is_valid_in_xml() {
        let text = "a < \"b\" & 'c'\u{1b}[0m\nd";
        assert_eq!(content(text), "a &lt; &quot;b&quot; &amp; 'c'\u{fffd}[0m\nd");
        assert_eq!(attribute(text), "a &lt; &quot;b&quot; &amp; 'c'\u{fffd}[0m d");
    }
}
