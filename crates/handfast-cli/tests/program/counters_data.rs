//! The commands on the figures of view counters: import, export, rebuild and trim. An import is killed in its midst and begun again.

use std::io::Write as _;
use std::process::{Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use bson::{RawDocumentBuf, rawdoc};
use handfast_embedded::EmbeddedStore;
use handfast_store::{Namespace, Sources, StoreExt as _};
use serde_json::{Value, json};

use crate::counters::{SERVE, ask, run, stdout, stopped};
use crate::support::{Scratch, Serve, assert_one_line, finish, handfast, until};

/// Totals and days in the order of an export.
const JSONL: &str = "{\"kind\":\"ads\",\"id\":\"7\",\"total\":1200}\n\
    {\"kind\":\"ads\",\"id\":\"7\",\"day\":\"2026-09-30\",\"views\":5}\n\
    {\"kind\":\"ads\",\"id\":\"7\",\"day\":\"2026-10-01\",\"views\":20}\n\
    {\"kind\":\"news\",\"id\":\"8\",\"day\":\"2026-10-31\",\"views\":3}\n";
const CSV: &str =
    "kind,id,total,day,views\nads,7,1200,,\nads,7,,2026-09-30,5\nads,7,,2026-10-01,20\nnews,8,,2026-10-31,3\n";

/// The lines of the file whose import is killed.
const LINES: usize = 25_000;
/// Items and days that they are about.
const ITEMS: usize = 50;
const DAYS: usize = 28;

fn write(scratch: &Scratch, name: &str, text: &str) -> Result<()> {
    Ok(std::fs::write(scratch.path(name), text)?)
}

/// Imports a file that is right, and returns the report.
fn imported(scratch: &Scratch, arguments: &[&str]) -> Result<Value> {
    let arguments = [&["import"], arguments, &["--json"]].concat();
    Ok(serde_json::from_str(&stdout(&run(scratch, &arguments)?)?)?)
}

fn exported(scratch: &Scratch, format: &str) -> Result<String> {
    stdout(&run(scratch, &["export", "--format", format])?)
}

#[test]
fn what_is_exported_is_imported_to_the_same_figures() -> Result<()> {
    let scratch = Scratch::new("counters-round-trip")?;
    write(&scratch, "views.csv", CSV)?;
    let report = imported(&scratch, &["views.csv"])?;
    assert_eq!(
        (&report["lines"], &report["views"], &report["before"]),
        (&json!(4), &json!(1_228), &json!(0)),
        "{report}"
    );
    assert_eq!(exported(&scratch, "jsonl")?, JSONL);
    assert_eq!(exported(&scratch, "csv")?, CSV);
    let written = run(&scratch, &["export", "--output", "out.jsonl"])?;
    assert_eq!(stdout(&written)?, "wrote 4 lines to out.jsonl\n");
    assert_eq!(std::fs::read_to_string(scratch.path("out.jsonl"))?, JSONL);
    let other = handfast(&scratch, &["counters", "import", "out.jsonl", "--data", "other"]).output()?;
    let text = stdout(&other)?;
    ensure!(text.starts_with("added 4 lines with 1228 views, as the import sha256:"), "{text}");
    let again = handfast(&scratch, &["counters", "export", "--data", "other"]).output()?;
    assert_eq!(stdout(&again)?, JSONL);
    assert_eq!(stdout(&run(&scratch, &["export", "--kind", "news"])?)?.lines().count(), 1);
    let shown = stdout(&run(&scratch, &["show", "ads/7", "--to", "2026-10-02"])?)?;
    let expected =
        "ads/7 has 1225 views, 1200 of them without a day\nday         views\n2026-09-30  5\n2026-10-01  20\n";
    assert_eq!(shown, expected);
    stdout(&run(&scratch, &["verify"])?).map(drop)
}

#[test]
fn a_file_is_added_once_and_a_grown_one_goes_on() -> Result<()> {
    let scratch = Scratch::new("counters-import-twice")?;
    write(&scratch, "views.jsonl", JSONL)?;
    imported(&scratch, &["views.jsonl", "--name", "may"])?;
    let again = stdout(&run(&scratch, &["import", "views.jsonl", "--name", "may"])?)?;
    assert_eq!(again, "nothing was added: the import may had added all 4 lines before\n");
    // Without the name it is another import of the same lines, or of a file that has grown.
    let doubled = run(&scratch, &["import", "views.jsonl"])?;
    let text = "views.jsonl begins with the lines that the import may has added, up to line 4: --name may adds those behind it";
    assert_one_line(&doubled, 1, text);
    write(&scratch, "views.jsonl", &format!("{JSONL}{{\"kind\":\"ads\",\"id\":\"7\",\"total\":1}}\n"))?;
    assert_one_line(&run(&scratch, &["import", "views.jsonl"])?, 1, text);
    // A shorter one, and one that goes on with other lines.
    let first_lines = JSONL.lines().take(3).collect::<Vec<_>>().join("\n");
    write(&scratch, "views.jsonl", &first_lines)?;
    let shared = "views.jsonl begins with at least 2 of the 4 lines that the import may has added, empty ones not counted: leave out what was added";
    assert_one_line(&run(&scratch, &["import", "views.jsonl"])?, 1, shared);
    assert_eq!(exported(&scratch, "jsonl")?, JSONL, "nothing was added");
    write(&scratch, "views.jsonl", &format!("{JSONL}{{\"kind\":\"ads\",\"id\":\"7\",\"total\":1}}\n"))?;
    let grown = imported(&scratch, &["views.jsonl", "--name", "may"])?;
    assert_eq!(grown, json!({ "name": "may", "lines": 1, "views": 1, "before": 4 }));
    write(&scratch, "views.jsonl", &JSONL.replacen("1200", "1201", 1))?;
    let changed = run(&scratch, &["import", "views.jsonl", "--name", "may"])?;
    assert_one_line(&changed, 1, "views.jsonl has other lines than those that the import may has added");
    assert_eq!(exported(&scratch, "jsonl")?, JSONL.replacen("1200", "1201", 1));
    // A second file of its own, twice without a name.
    write(&scratch, "more.csv", "kind,id,total\nads,9,5\n")?;
    let first = imported(&scratch, &["more.csv"])?;
    ensure!(first["name"].as_str().is_some_and(|name| name.len() == "sha256:".len() + 64), "{first}");
    let second = imported(&scratch, &["more.csv"])?;
    assert_eq!((&second["lines"], &second["before"]), (&json!(0), &json!(1)), "{second}");
    Ok(())
}

/// An editor adds an empty line: it is the same file.
#[test]
fn empty_lines_are_no_other_file() -> Result<()> {
    let scratch = Scratch::new("counters-import-empty-lines")?;
    write(&scratch, "a.csv", "kind,id,total\nads,7,5\nads,8,6\n")?;
    let first = imported(&scratch, &["a.csv"])?;
    let name = first["name"].as_str().context("a name")?;
    let expected = "kind,id,total,day,views\nads,7,5,,\nads,8,6,,\n";
    assert_eq!(exported(&scratch, "csv")?, expected);
    write(&scratch, "a.csv", "kind,id,total\n\nads,7,5\nads,8,6\n")?;
    let text =
        format!("a.csv begins with the lines that the import {name} has added, up to line 4: --name {name} adds");
    assert_one_line(&run(&scratch, &["import", "a.csv"])?, 1, &text);
    let again = imported(&scratch, &["a.csv", "--name", name])?;
    assert_eq!(again, json!({ "name": name, "lines": 0, "views": 0, "before": 2 }));
    assert_eq!(exported(&scratch, "csv")?, expected);
    // The reverse: the file with the empty line is the first one, and grows when the line is gone.
    write(&scratch, "b.csv", "kind,id,total\n\nads,9,5\n")?;
    let first = imported(&scratch, &["b.csv"])?;
    let name = first["name"].as_str().context("a name")?;
    write(&scratch, "b.csv", "kind,id,total\nads,9,5\nads,9,1\n")?;
    let text =
        format!("b.csv begins with the lines that the import {name} has added, up to line 2: --name {name} adds");
    assert_one_line(&run(&scratch, &["import", "b.csv"])?, 1, &text);
    let grown = imported(&scratch, &["b.csv", "--name", name])?;
    assert_eq!(grown, json!({ "name": name, "lines": 1, "views": 1, "before": 1 }));
    assert_eq!(exported(&scratch, "csv")?, format!("{expected}ads,9,6,,\n"));
    Ok(())
}

#[test]
fn a_header_alone_is_not_the_beginning_of_all_files() -> Result<()> {
    let scratch = Scratch::new("counters-import-header")?;
    write(&scratch, "header.csv", "kind,id,total\n")?;
    assert_eq!(imported(&scratch, &["header.csv"])?["lines"], 0);
    write(&scratch, "a.csv", "kind,id,total\nads,7,5\n")?;
    assert_eq!(imported(&scratch, &["a.csv"])?["lines"], 1);
    Ok(())
}

#[test]
fn wrong_lines_are_named_before_anything_is_added() -> Result<()> {
    let scratch = Scratch::new("counters-import-wrong")?;
    write(&scratch, "views.csv", "kind,id,total\nads,7,5\nads,7 7,5\nads,8,x\n")?;
    let refused = run(&scratch, &["import", "views.csv"])?;
    let text = "views.csv, line 3: id \"7 7\" must be 1 to 128";
    assert_one_line(&refused, 1, text);
    assert_one_line(&refused, 1, "; --dry-run lists 1 more wrong line; nothing was added");
    let checked = run(&scratch, &["import", "views.csv", "--dry-run"])?;
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    let text = String::from_utf8(checked.stdout)?;
    ensure!(text.contains("\n  line 3: id \"7 7\"") && text.contains("\n  line 4: total is 'x'"), "{text}");
    let report = run(&scratch, &["import", "views.csv", "--dry-run", "--json"])?;
    let report: Value = serde_json::from_slice(&report.stdout)?;
    assert_eq!((&report["lines"], &report["wrong"], &report["errors"][1]["line"]), (&json!(1), &json!(2), &json!(4)));
    ensure!(!scratch.path("data").exists(), "nothing was created");
    let usage = |arguments: &[&str], code, text| {
        assert_one_line(&run(&scratch, arguments)?, code, text);
        anyhow::Ok(())
    };
    usage(&["import", "-", "--format", "csv"], 2, "--name is missing")?;
    usage(&["import", "views"], 2, "--format csv or --format jsonl is missing")?;
    // These ask for no day.
    for command in [&["import", "views.csv"][..], &["export"], &["rebuild"], &["verify"], &["top", "ads"]] {
        let refused = run(&scratch, &[command, &["--time-zone", "Asia/Tokyo"]].concat())?;
        let text = String::from_utf8_lossy(&refused.stderr);
        ensure!(refused.status.code() == Some(2) && text.contains("unexpected argument '--time-zone'"), "{text}");
    }
    usage(&["import", "none.csv"], 1, "cannot read none.csv")?;
    let named = run(&scratch, &["import", "views.csv", "--name", "a b"])?;
    let text = String::from_utf8_lossy(&named.stderr);
    ensure!(named.status.code() == Some(2) && text.contains("must be 1 to 128 visible ASCII characters"), "{text}");
    write(&scratch, "empty.csv", "\n")?;
    usage(&["import", "empty.csv"], 1, "empty.csv has no lines: it may have been cut off")?;
    write(&scratch, "header.csv", "ads,7,5\nads,8,5\n")?;
    usage(&["import", "header.csv"], 1, "header.csv, line 1: the column 'ads' is unknown")?;
    // What a file says may be right by itself, and too much for an item.
    write(&scratch, "much.csv", "kind,id,total\nads,1,5\nads,7,9007199254740991\nads,7,1\n")?;
    usage(&["import", "much.csv"], 1, "much.csv, line 4: the total of its item would be above 9007199254740991")?;
    assert_eq!(exported(&scratch, "csv")?, "kind,id,total,day,views\n");
    Ok(())
}

/// The line with this number, and what it adds: its item, day and views.
fn line(number: usize) -> (String, (usize, usize, u64)) {
    let (item, day, views) = (number % ITEMS, (number / ITEMS) % DAYS, number as u64 % 7 + 1);
    (format!("ads,{item},2026-02-{:02},{views}\n", day + 1), (item, day, views))
}

/// The export of all lines.
fn expected() -> String {
    let mut views = [[0; DAYS]; ITEMS];
    for number in 0..LINES {
        let (item, day, more) = line(number).1;
        views[item][day] += more;
    }
    let mut items: Vec<_> = views.iter().enumerate().map(|(item, days)| (item.to_string(), days)).collect();
    items.sort();
    let mut text = "kind,id,total,day,views\n".to_owned();
    for (item, days) in items {
        for (day, views) in days.iter().enumerate().filter(|(_, views)| **views > 0) {
            text.push_str(&format!("ads,{item},,2026-02-{:02},{views}\n", day + 1));
        }
    }
    text
}

/// The lines that were written and not added yet fill at most a pipe, some chunks and a batch. So after 15,000 lines were written, some are added, and
/// not all.
#[test]
fn an_import_that_is_killed_goes_on_and_adds_each_line_once() -> Result<()> {
    let scratch = Scratch::new("counters-import-kill")?;
    let text = |lines: usize| {
        let lines = (0..lines).map(|number| line(number).0).collect::<String>();
        format!("kind,id,day,views\n{lines}")
    };
    let import = || {
        let mut command = handfast(&scratch, &["counters", "import", "-", "--format", "csv", "--name", "february"]);
        command.args(["--data", "data", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let finish = |lines: usize| -> Result<Output> {
        let mut child = import().spawn()?;
        let mut pipe = child.stdin.take().context("a pipe")?;
        pipe.write_all(text(lines).as_bytes())?;
        drop(pipe);
        finish(child)
    };
    for lines in [15_000, 18_000, 21_000] {
        let mut child = import().spawn()?;
        let mut pipe = child.stdin.take().context("a pipe")?;
        pipe.write_all(text(lines).as_bytes())?;
        child.kill()?;
        let output = child.wait_with_output()?;
        assert_eq!(output.status.code(), None, "it was killed in the midst: {output:?}");
    }
    let report: Value = serde_json::from_str(&stdout(&finish(LINES)?)?)?;
    let (lines, before) = (report["lines"].as_u64().context("lines")?, report["before"].as_u64().context("before")?);
    ensure!(lines + before == LINES as u64 && lines > 0 && before > 0, "{report}");
    assert_eq!(exported(&scratch, "csv")?, expected());
    stdout(&run(&scratch, &["verify"])?)?;
    let again: Value = serde_json::from_str(&stdout(&finish(LINES)?)?)?;
    assert_eq!(again, json!({ "name": "february", "lines": 0, "views": 0, "before": LINES }));
    // A stream with other lines, and one that ends too early.
    let shorter = finish(LINES - 1)?;
    assert_one_line(&shorter, 1, "standard input has other lines than those that the import february has added");
    assert_one_line(&shorter, 1, "it ends before all 25000 lines with views that were added");
    Ok(())
}

/// Changes the total of an item in a directory behind its back.
fn break_total(scratch: &Scratch, id: &str, change: RawDocumentBuf) -> Result<()> {
    let change = async {
        let store = EmbeddedStore::open(&scratch.path("data"), Sources::system()?, Default::default()).await?;
        let totals = Namespace::new("counters", "totals")?;
        store.update_one(&totals, rawdoc! { "_id.id": id }, change).await?;
        anyhow::Ok(store.close().await?)
    };
    tokio::runtime::Runtime::new()?.block_on(change)
}

#[test]
fn totals_are_rebuilt_and_old_days_removed() -> Result<()> {
    let scratch = Scratch::new("counters-repair")?;
    write(&scratch, "views.jsonl", JSONL)?;
    imported(&scratch, &["views.jsonl"])?;
    let more = || rawdoc! { "$inc": { "total": 1_i64 } };
    break_total(&scratch, "7", more())?;
    let changes = json!([{ "kind": "ads", "id": "7", "before": 1_226, "after": 1_225, "base": 1_200, "days": 25 }]);
    let report = |dry_run: bool| json!({ "items": 2, "dry_run": dry_run, "changes": changes, "damaged": [] });
    let dry: Value = serde_json::from_str(&stdout(&run(&scratch, &["rebuild", "--dry-run", "--json"])?)?)?;
    assert_eq!(dry, report(true));
    assert_eq!(run(&scratch, &["verify"])?.status.code(), Some(3));
    let rebuilt = stdout(&run(&scratch, &["rebuild"])?)?;
    assert_eq!(rebuilt, "2 items checked: 1 total was changed\n  ads/7: 1226 -> 1225 (base 1200 and days 25)\n");
    let text = "2 items checked: each total is its base and the sum of its days\n";
    assert_eq!(stdout(&run(&scratch, &["rebuild"])?)?, text);
    assert_one_line(&run(&scratch, &["rebuild", "--kind", "typo"])?, 1, "there is no saved item of the kind 'typo'");

    // An item that cannot be read is left, and the others are repaired.
    break_total(&scratch, "7", rawdoc! { "$set": { "total": "many" } })?;
    break_total(&scratch, "8", more())?;
    let commands = [
        (&["verify"][..], "2 items with 4 views checked: 1 total is not its base"),
        (&["rebuild", "--dry-run"], "2 items checked: 1 total would be changed\n  news/8: 4 -> 3"),
        (&["rebuild"], "2 items checked: 1 total was changed\n  news/8: 4 -> 3"),
        (&["rebuild"], "2 items checked: no total was changed\n"),
        (&["rebuild", "--dry-run"], "2 items checked: no total would be changed\n"),
    ];
    for (command, text) in commands {
        let output = run(&scratch, command)?;
        let found = String::from_utf8(output.stdout)?;
        ensure!(output.status.code() == Some(3) && found.starts_with(text) && output.stderr.is_empty(), "{found}");
        ensure!(
            found.contains("\n1 item cannot be read") && found.contains("\n  ads/7: field \"total\" of "),
            "{found}"
        );
    }
    break_total(&scratch, "7", rawdoc! { "$set": { "total": 1_225_i64 } })?;

    let dry = stdout(&run(&scratch, &["trim", "--before", "2026-10-31", "--dry-run"])?)?;
    let text = "1 month of items before 2026-10-01 with 5 views would become a part of the totals without days\n";
    assert_eq!(dry, text);
    let trimmed = stdout(&run(&scratch, &["trim", "--before", "2026-10-31"])?)?;
    assert_eq!(trimmed, text.replace("would become", "are").replace("without days", "without days now"));
    let lines = exported(&scratch, "csv")?;
    assert_eq!(lines, CSV.replace("1200", "1205").replace("ads,7,,2026-09-30,5\n", ""));
    assert_one_line(&run(&scratch, &["trim", "--before", "9999-01-01"])?, 2, "--before: 9999-01-01 is in the future");
    stdout(&run(&scratch, &["verify"])?).map(drop)
}

#[test]
fn what_waits_in_the_queue_is_said_and_saved_before_an_import() -> Result<()> {
    let scratch = Scratch::new("counters-waiting")?;
    let arguments = ["counters", "serve", "--data", "data", "--listen", "127.0.0.1:0", "--flush-interval", "1h"];
    let serve = Serve::start(&mut handfast(&scratch, &arguments))?;
    let used = run(&scratch, &["verify"])?;
    assert_one_line(&used, 1, "stop the service that uses it, or ask it over HTTP; --data names another directory");
    ask(&serve, "POST /v1/ads/7/views", "")?;
    serve.signal("KILL")?;
    serve.wait()?;
    assert_one_line(
        &run(&scratch, &["verify", "--kind", "ads"])?,
        1,
        "no saved item of the kind 'ads'; 1 request of it",
    );
    let text = "not checked: the views of 1 request in the queue, which `counters serve` saves";
    ensure!(stdout(&run(&scratch, &["verify"])?)?.contains(text));
    let exported = run(&scratch, &["export"])?;
    assert_one_line(&exported, 0, "not in the export: the views of 1 request in the queue");
    ensure!(exported.stdout.is_empty(), "{exported:?}");
    write(&scratch, "views.csv", "kind,id,total\nads,7,100\n")?;
    imported(&scratch, &["views.csv"])?;
    ensure!(stdout(&run(&scratch, &["verify"])?)?.starts_with("1 item with 101 views checked: each"));
    let serve = Serve::start(&mut handfast(&scratch, &SERVE))?;
    assert_eq!(ask(&serve, "POST /v1/ads/7/views", "")?["total"], 102);
    stopped(serve)
}

#[test]
fn a_service_removes_old_days() -> Result<()> {
    let scratch = Scratch::new("counters-keep-days")?;
    write(&scratch, "views.csv", "kind,id,day,views\nads,7,2020-01-01,100\n")?;
    imported(&scratch, &["views.csv"])?;
    let serve = Serve::start(handfast(&scratch, &SERVE).args(["--keep-days", "365"]))?;
    let days = "GET /v1/ads/7/daily?from=2020-01-01&to=2020-01-01";
    until("the months that are removed", || Ok(ask(&serve, days, "")?["views"] == 0))?;
    assert_eq!(ask(&serve, "GET /v1/ads/7", "")?["total"], 100);
    stopped(serve)?;
    ensure!(stdout(&run(&scratch, &["verify"])?)?.starts_with("1 item with 100 views checked: each"));
    assert_eq!(exported(&scratch, "csv")?, "kind,id,total,day,views\nads,7,100,,\n");
    Ok(())
}
