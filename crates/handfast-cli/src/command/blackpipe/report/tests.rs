use clap::Parser as _;
use serde_json::json;

use super::{Checked, CheckedRun, Occurrence, PairRun, Report, RunOutcome};
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

fn report_of(arguments: &ExploreArguments, runs: Vec<PairRun>) -> Report<'_> {
    Report { arguments, runs, not_run: Vec::new() }
}

fn run(pair: &str, occurrence: Occurrence, program: Ended, check: Ended, output: &str) -> PairRun {
    let check = Finished { ended: check, output: output.to_owned() };
    let checked = Checked { program: Some(check), violations: Vec::new() };
    let outcome = RunOutcome::Checked(CheckedRun { occurrence, program, checked });
    PairRun { pair: pair.parse().unwrap(), outcome }
}

fn failed_run(pair: &str, reason: &str) -> PairRun {
    PairRun { pair: pair.parse().unwrap(), outcome: RunOutcome::Failed(reason.to_owned()) }
}

#[test]
fn a_report_shows_each_run_and_how_to_repeat_a_finding() {
    let arguments = arguments(&["--check", "python check.py", "--times", "2", "--", "python", "my app.py"]);
    let runs = vec![
        run("find:1/lose-request", Occurrence::Met, Ended::Exit(0), Ended::Exit(0), "all is well"),
        run("update:1/lose-reply", Occurrence::Met, Ended::Exit(1), Ended::Exit(1), "balance is 2, not 1"),
        run("update:2/lose-reply", Occurrence::Met, Ended::TimedOut, Ended::Exit(0), ""),
        run("update:9/lose-reply", Occurrence::Missing, Ended::Exit(0), Ended::Exit(0), ""),
    ];
    let report = report_of(&arguments, runs);
    let replay = "replay: handfast blackpipe explore --check 'python check.py' --times 2 --timeout 1m --replay";
    let expected = [
        "pair                 program    check   result",
        "find:1/lose-request  exit 0     exit 0  right",
        "update:1/lose-reply  exit 1     exit 1  FINDING balance is 2, not 1",
        "update:2/lose-reply  timed out  exit 0  FINDING the program did not end",
        "update:9/lose-reply  exit 0     exit 0  not reached: the operation did not occur",
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
    let outcome = RunOutcome::Checked(CheckedRun { occurrence: Occurrence::Met, program: Ended::Exit(0), checked });
    PairRun { pair: "find:1/cut".parse().unwrap(), outcome }
}

#[test]
fn checks_of_data_are_reported_with_what_they_find() {
    let arguments = arguments(&["--sum", "a.b=3", "--unique", "a.c", "--count-equals", "a", "d e", "--", "true"]);
    let mut both = run("find:2/cut", Occurrence::Met, Ended::Exit(0), Ended::Exit(1), "wrong");
    if let RunOutcome::Checked(run) = &mut both.outcome {
        run.checked.violations = vec!["the sum of a.b is 4, not 3".to_owned()];
    }
    let twice = run_with_data_checks(&["a.c has 7 in 2 documents", "a has 1 documents, and d has 2"]);
    let report = report_of(&arguments, vec![run_with_data_checks(&[]), twice, both]);
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
    assert_eq!(report_of(&arguments, vec![run_with_data_checks(&[])]).exit(), Exit::Good);
}

/// A run that fails is reported beside the findings of the others.
#[test]
fn a_failed_run_is_named() {
    let arguments = arguments(&["--check", "true", "--", "true"]);
    let runs = vec![
        run("find:1/cut", Occurrence::Met, Ended::Exit(0), Ended::Exit(1), "wrong"),
        failed_run("find:2/cut", "--setup fails (exit 5: no space)"),
    ];
    let report = report_of(&arguments, runs);
    let text = report.text();
    let expected = [
        "pair        program  check   result",
        "find:1/cut  exit 0   exit 1  FINDING wrong",
        "find:2/cut  -        -       FAILED --setup fails (exit 5: no space)",
        "replay: handfast blackpipe explore --check true --timeout 1m --replay find:1/cut -- true",
        "replay: handfast blackpipe explore --check true --timeout 1m --replay find:2/cut -- true",
        "1 run failed before the data were checked: nothing is known about the program there",
        "2 pairs, 1 finding",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    let json = report.json();
    assert_eq!(
        (&json["failed"], &json["findings"], &json["pairs"][1]["result"]),
        (&json!(1), &json!(1), &json!("failed"))
    );
    assert_eq!(json["pairs"][1]["reason"], "--setup fails (exit 5: no space)");
    assert_eq!(report.exit(), Exit::GuaranteeBroken);
    let xml = junit::xml(&report);
    assert!(xml.contains(r#"tests="2" failures="1" errors="1""#), "{xml}");
    assert!(xml.contains(r#"<error message="--setup fails (exit 5: no space)">handfast"#), "{xml}");
    let alone = report_of(&arguments, vec![failed_run("find:2/cut", "no")]);
    assert_eq!(alone.exit(), Exit::GuaranteeBroken);
}

#[test]
fn a_write_without_a_reply_does_not_meet_the_faults_of_replies() {
    let arguments = arguments(&["--check", "true", "--", "true"]);
    let runs = vec![run("insert:1/lose-reply", Occurrence::WithoutReply, Ended::Exit(0), Ended::Exit(0), "")];
    let report = report_of(&arguments, runs);
    let expected = "not reached: the write is unacknowledged (w: 0) and has no reply, which lose-reply needs: it can meet lose-request, delay, duplicate, reorder";
    let text = report.text();
    assert!(text.contains(expected) && !text.contains("did not occur"), "{text}");
    assert_eq!((&report.json()["not_reached"], report.exit()), (&json!(1), Exit::GuaranteeBroken));
}

#[test]
fn a_fault_whose_late_request_was_lost_was_not_met() {
    let arguments = arguments(&["--check", "true", "--", "true"]);
    let lost = |check| run("insert:2/duplicate", Occurrence::NotDelivered, Ended::Exit(0), Ended::Exit(check), "wrong");
    let report = report_of(&arguments, vec![lost(0), lost(1)]);
    let text = report.text();
    let expected = "exit 0  not reached: the server did not answer a request that duplicate sends later; all copies of";
    assert!(text.contains(expected) && text.contains("exit 1  FINDING wrong"), "{text}");
    assert!(!text.contains("did not occur"), "{text}");
    assert_eq!((&report.json()["not_reached"], report.exit()), (&json!(1), Exit::GuaranteeBroken));
}

/// A table has the line with the reason; JSON and JUnit have the whole output.
#[test]
fn the_output_of_a_check_is_reported_whole() {
    let arguments = arguments(&["--check", "true", "--", "true"]);
    let output = format!("ann: {}\nError: the total is <40>\n    at check.mjs:3\n\nNode.js v20.1.0", "x".repeat(300));
    let runs = vec![run("find:1/cut", Occurrence::Met, Ended::Exit(0), Ended::Exit(1), &output)];
    let report = report_of(&arguments, runs);
    assert!(report.text().contains("exit 1  FINDING Error: the total is <40>\n"));
    assert_eq!(report.json()["pairs"][0]["check_output"], output);
    let xml = junit::xml(&report);
    let escaped = output.replace('<', "&lt;").replace('>', "&gt;");
    assert!(xml.contains(&format!("<system-out>{escaped}</system-out>")), "{xml}");
    assert!(xml.contains(r#"<failure message="Error: the total is &lt;40&gt;">handfast"#), "{xml}");
}

#[test]
fn a_report_is_a_test_suite() {
    let arguments = arguments(&["--check", "true", "--", "python", "a<b.py"]);
    let runs = vec![
        run("find:1/cut", Occurrence::Met, Ended::Exit(0), Ended::Exit(0), ""),
        run("find:2/cut", Occurrence::Met, Ended::Exit(0), Ended::Exit(1), "1 < 2"),
        run("find:9/cut", Occurrence::Missing, Ended::Exit(0), Ended::Exit(0), ""),
    ];
    let replay = "handfast blackpipe explore --check true --timeout 1m --replay";
    let expected = format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="handfast blackpipe explore" tests="3" failures="2" errors="0">
  <testsuite name="handfast blackpipe explore" tests="3" failures="2" errors="0" skipped="0">
    <testcase classname="python a&lt;b.py" name="find:1/cut"/>
    <testcase classname="python a&lt;b.py" name="find:2/cut">
      <failure message="1 &lt; 2">{replay} find:2/cut -- python 'a&lt;b.py'</failure>
      <system-out>1 &lt; 2</system-out>
    </testcase>
    <testcase classname="python a&lt;b.py" name="find:9/cut">
      <failure message="the operation did not occur">{replay} find:9/cut -- python 'a&lt;b.py'</failure>
    </testcase>
  </testsuite>
</testsuites>
"#
    );
    assert_eq!(junit::xml(&report_of(&arguments, runs)), expected);
}

#[test]
fn the_exit_code_is_good_only_if_every_operation_met_its_fault() {
    let arguments = arguments(&["--check", "true", "--", "true"]);
    let check = |occurrence, check, expected| {
        let runs = vec![run("find:1/lose-reply", occurrence, Ended::Exit(1), check, "")];
        assert_eq!(report_of(&arguments, runs).exit(), expected);
    };
    check(Occurrence::Met, Ended::Exit(0), Exit::Good);
    check(Occurrence::Missing, Ended::Exit(0), Exit::GuaranteeBroken);
    check(Occurrence::Met, Ended::Exit(1), Exit::GuaranteeBroken);
    check(Occurrence::Met, Ended::Signal(9), Exit::GuaranteeBroken);
}

#[test]
fn a_replay_line_is_understood() {
    let given = ["--setup", "echo it's", "--check", "python check.py", "--timeout", "1m 30s", "--", "python", "a b"];
    let first = arguments(&given);
    let report = report_of(&first, Vec::new());
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

/// A value that begins with a hyphen is not taken as a flag.
#[test]
fn a_replay_line_can_be_pasted() {
    let given = ["--check=-x y", "--setup=-s", "--sum=-a.b", "--error-code", "-5", "--error-label", "", "--", "true"];
    let first = arguments(&given);
    let line = super::replay_line(&first, &"find:3/error".parse().unwrap());
    let expected = "handfast blackpipe explore --setup=-s --check='-x y' --sum=-a.b --error-code=-5 --error-label '' --timeout 1m --replay find:3/error -- true";
    assert_eq!(line, expected);
    let words: Vec<&str> = line.split(' ').skip(3).collect();
    let pasted = words.join("\0").replace("'-x\0y'", "-x y").replace("''", "");
    let again = arguments(&pasted.split('\0').collect::<Vec<_>>());
    assert_eq!(super::replay_line(&again, &"find:3/error".parse().unwrap()), expected);
}

#[test]
fn a_report_of_an_exploration_that_was_stopped_says_what_did_not_run() {
    let arguments = arguments(&["--check", "true", "--", "true"]);
    let check = |ended: Ended, code: Exit| {
        let runs = vec![run("find:1/cut", Occurrence::Met, Ended::Exit(0), ended, "")];
        let not_run = ["find:2/cut", "find:3/cut"].map(|pair| pair.parse().unwrap()).to_vec();
        let report = Report { not_run, ..report_of(&arguments, runs) };
        assert_eq!(report.exit(), code, "{ended}");
        report.text().lines().last().unwrap().to_owned()
    };
    assert_eq!(check(Ended::Exit(0), Exit::Failed), "stopped after 1 of 3 pairs, 0 findings");
    assert_eq!(check(Ended::Exit(1), Exit::GuaranteeBroken), "stopped after 1 of 3 pairs, 1 finding");
}
