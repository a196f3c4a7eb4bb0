use clap::Parser as _;
use serde_json::json;

use super::{Checked, PairRun, Report, quoted};
use crate::command::arguments::{Arguments, Command};
use crate::command::blackpipe::arguments::{BlackpipeArguments, ExploreArguments};
use crate::command::blackpipe::junit;
use crate::command::blackpipe::program::{Ended, Finished};
use crate::exit::Exit;

fn arguments(words: &[&str]) -> Box<ExploreArguments> {
    let parsed = Arguments::try_parse_from([&["handfast", "blackpipe", "explore"], words].concat()).unwrap();
    let Command::Blackpipe(BlackpipeArguments::Explore(arguments)) = parsed.command else { panic!("{parsed:?}") };
    arguments
}

fn run(pair: &str, is_reached: bool, program: Ended, check: Ended, last_line: &str) -> PairRun {
    let check = Finished { ended: check, last_line: last_line.to_owned() };
    let checked = Checked { program: Some(check), violations: Vec::new() };
    PairRun { pair: pair.parse().unwrap(), is_reached, program, checked }
}

#[test]
fn a_report_shows_each_run_and_how_to_repeat_a_finding() {
    let arguments = arguments(&["--check", "python check.py", "--times", "2", "--", "python", "my app.py"]);
    let runs = vec![
        run("find:1/lose-request", true, Ended::Exit(0), Ended::Exit(0), "all is well"),
        run("update:1/lose-reply", true, Ended::Exit(1), Ended::Exit(1), "balance is 2, not 1"),
        run("update:2/lose-reply", true, Ended::TimedOut, Ended::Exit(0), ""),
        run("update:9/lose-reply", false, Ended::Exit(0), Ended::Exit(0), ""),
    ];
    let report = Report { arguments: &arguments, runs };
    let replay = "replay: handfast blackpipe explore --check 'python check.py' --times 2 --timeout 1m --replay";
    let expected = [
        "pair                 program    check   result",
        "find:1/lose-request  exit 0     exit 0  right",
        "update:1/lose-reply  exit 1     exit 1  FINDING balance is 2, not 1",
        "update:2/lose-reply  timed out  exit 0  FINDING the program did not end",
        "update:9/lose-reply  exit 0     exit 0  not reached",
        &format!("{replay} update:1/lose-reply -- python 'my app.py'"),
        &format!("{replay} update:2/lose-reply -- python 'my app.py'"),
        "1 operation did not occur: the program sends other commands from run to run, or in --replay the number is too high",
        "4 pairs, 2 findings",
    ];
    assert_eq!(report.text(), expected.join("\n"));
    assert_eq!(report.json()["findings"], 2);
    assert_eq!(report.json()["not_reached"], 1);
    assert_eq!(report.json()["pairs"][2]["program"], json!({ "timed_out": true }));
    assert_eq!(report.exit(), Exit::GuaranteeBroken);
}

/// Returns the run of a pair after which data were checked without a program.
fn run_with_data_checks(violations: &[&str]) -> PairRun {
    let checked = Checked { program: None, violations: violations.iter().map(|text| (*text).to_owned()).collect() };
    PairRun { pair: "find:1/cut".parse().unwrap(), is_reached: true, program: Ended::Exit(0), checked }
}

#[test]
fn checks_of_data_are_reported_with_what_they_find() {
    let arguments = arguments(&["--sum", "a.b=3", "--unique", "a.c", "--count-equals", "a", "d e", "--", "true"]);
    let mut both = run("find:2/cut", true, Ended::Exit(0), Ended::Exit(1), "wrong");
    both.checked.violations = vec!["the sum of a.b is 4, not 3".to_owned()];
    let twice = run_with_data_checks(&["a.c has 7 in 2 documents", "a has 1 documents, and d has 2"]);
    let report = Report { arguments: &arguments, runs: vec![run_with_data_checks(&[]), twice, both] };
    let text = report.text();
    let expected = [
        "pair        program  check   result",
        "find:1/cut  exit 0   passed  right",
        "find:1/cut  exit 0   failed  FINDING a.c has 7 in 2 documents; a has 1 documents, and d has 2",
        "find:2/cut  exit 0   exit 1  FINDING wrong; the sum of a.b is 4, not 3",
    ];
    assert_eq!(text.lines().take(4).collect::<Vec<_>>(), expected);
    let replay = "replay: handfast blackpipe explore --sum a.b=3 --unique a.c --count-equals a 'd e' --timeout 1m --replay find:1/cut -- true";
    assert_eq!(text.lines().nth(4), Some(replay));
    assert_eq!(report.json()["pairs"][1]["check"], json!(null));
    assert_eq!(report.json()["pairs"][2]["violations"], json!(["the sum of a.b is 4, not 3"]));
    assert_eq!(report.exit(), Exit::GuaranteeBroken);
    assert_eq!(Report { arguments: &arguments, runs: vec![run_with_data_checks(&[])] }.exit(), Exit::Good);
}

#[test]
fn a_report_is_a_test_suite() {
    let arguments = arguments(&["--check", "true", "--", "python", "a<b.py"]);
    let runs = vec![
        run("find:1/cut", true, Ended::Exit(0), Ended::Exit(0), ""),
        run("find:2/cut", true, Ended::Exit(0), Ended::Exit(1), "1 < 2"),
        run("find:9/cut", false, Ended::Exit(0), Ended::Exit(0), ""),
    ];
    let replay = "handfast blackpipe explore --check true --timeout 1m --replay";
    let expected = format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="handfast blackpipe explore" tests="3" failures="2" errors="0">
  <testsuite name="handfast blackpipe explore" tests="3" failures="2" errors="0" skipped="0">
    <testcase classname="python a&lt;b.py" name="find:1/cut"/>
    <testcase classname="python a&lt;b.py" name="find:2/cut">
      <failure message="1 &lt; 2">{replay} find:2/cut -- python 'a&lt;b.py'</failure>
    </testcase>
    <testcase classname="python a&lt;b.py" name="find:9/cut">
      <failure message="the operation did not occur">{replay} find:9/cut -- python 'a&lt;b.py'</failure>
    </testcase>
  </testsuite>
</testsuites>
"#
    );
    assert_eq!(junit::xml(&Report { arguments: &arguments, runs }), expected);
}

#[test]
fn the_exit_code_is_good_only_if_every_operation_met_its_fault() {
    let arguments = arguments(&["--check", "true", "--", "true"]);
    let check = |is_reached, check, expected| {
        let runs = vec![run("find:1/lose-reply", is_reached, Ended::Exit(1), check, "")];
        assert_eq!(Report { arguments: &arguments, runs }.exit(), expected);
    };
    check(true, Ended::Exit(0), Exit::Good);
    check(false, Ended::Exit(0), Exit::GuaranteeBroken);
    check(true, Ended::Exit(1), Exit::GuaranteeBroken);
    check(true, Ended::Signal(9), Exit::GuaranteeBroken);
}

#[test]
fn a_replay_line_is_understood() {
    let given = ["--setup", "echo it's", "--check", "python check.py", "--timeout", "1m 30s", "--", "python", "a b"];
    let first = arguments(&given);
    let report = Report { arguments: &first, runs: Vec::new() };
    let line = super::replay_line(report.arguments, &"find:3/lose-reply".parse().unwrap());
    let expected = r"handfast blackpipe explore --setup 'echo it'\''s' --check 'python check.py' --timeout '1m 30s' \
                    --replay find:3/lose-reply -- python 'a b'";
    assert_eq!(line, expected.split_whitespace().filter(|word| *word != "\\").collect::<Vec<_>>().join(" "));
}

#[test]
fn a_replay_line_has_the_parameters_of_its_fault() {
    let given = ["--check", "true", "--delay", "5s", "--error-code", "91", "--error-label", "A,B", "--", "true"];
    let arguments = arguments(&given);
    let check = |pair: &str, expected: &str| {
        let line = super::replay_line(&arguments, &pair.parse().unwrap());
        let begin = "handfast blackpipe explore --check true ";
        assert_eq!(line, format!("{begin}{expected}--timeout 1m --replay {pair} -- true"));
    };
    check("find:3/delay", "--delay 5s ");
    check("find:3/error", "--error-code 91 --error-label A,B ");
    check("find:3/cut", "");
}

#[test]
fn words_are_quoted_where_a_shell_would_change_them() {
    let check = |word: &str, expected: &str| assert_eq!(quoted(word), expected);
    check("python", "python");
    check("./a-b_c.py", "./a-b_c.py");
    check("", "''");
    check("a b", "'a b'");
    check("$HOME", "'$HOME'");
    check("it's", r"'it'\''s'");
}
