//! `handfast transfer`: every row is applied once, also when the program is killed.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStderr, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::rawdoc;
use handfast_embedded::{EmbeddedStore, Options};
use handfast_patterns::ledger::{Ledger, NewAccount, NewEntry};
use handfast_store::{Find, Namespace, Sources, StoreExt};
use serde_json::Value;

use crate::support::{Scratch, Serve, assert_one_line, handfast, signal, until};

/// The number of killed runs after which the test fails, because the file makes no progress.
const KILLS_MAX: u32 = 150;

const ACCOUNTS: i64 = 10;
/// The maximal time until a run prints a line, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The first balance of each account.
const BALANCE: i64 = 100_000;

fn namespace(collection: &str) -> Result<Namespace> {
    Ok(Namespace::new("bank", collection)?)
}

fn account(number: i64) -> String {
    format!("a{number}")
}

async fn open(scratch: &Scratch) -> Result<(EmbeddedStore, Sources)> {
    let sources = Sources::system()?;
    let store = EmbeddedStore::open(scratch.path("data"), sources.clone(), Options::default()).await?;
    Ok((store, sources))
}

/// Creates accounts a0 to a9 with money.
async fn bank(name: &str) -> Result<Scratch> {
    let scratch = Scratch::new(name)?;
    let (store, _) = open(&scratch).await?;
    for number in 0..ACCOUNTS {
        store.insert_one(&namespace("accounts")?, rawdoc! { "_id": account(number), "balance": BALANCE }).await?;
    }
    store.close().await?;
    Ok(scratch)
}

/// Creates the same accounts in a ledger, with money from `cash`.
async fn ledger(name: &str) -> Result<Scratch> {
    let scratch = Scratch::new(name)?;
    let (store, sources) = open(&scratch).await?;
    let ledger =
        Ledger::open_with(std::sync::Arc::new(store.clone()), namespace("tx")?, sources, Default::default()).await?;
    for number in 0..ACCOUNTS {
        ledger.open_account(NewAccount::new(account(number), "EUR").with_minimum(0)).await?;
        let _ = ledger.post(NewEntry::transfer("cash", account(number), BALANCE, "EUR")).await?;
    }
    drop(ledger);
    store.close().await?;
    Ok(scratch)
}

/// Returns the row of this number: from, to, amount.
fn transfer(number: i64) -> (i64, i64, i64) {
    (number % ACCOUNTS, (number + 1 + number / ACCOUNTS % (ACCOUNTS - 1)) % ACCOUNTS, 1 + number % 7)
}

/// Writes a file of `rows` rows, with ids.
fn write_rows(scratch: &Scratch, rows: i64) -> Result<()> {
    let mut text = "id,from,to,amount\n".to_owned();
    for number in 0..rows {
        let (from, to, amount) = transfer(number);
        writeln!(text, "r{number},{},{},{amount}", account(from), account(to))?;
    }
    Ok(std::fs::write(scratch.path("rows.csv"), text)?)
}

/// Returns the balances after rows 0 to `rows` are applied once each.
fn expected(rows: i64) -> Vec<i64> {
    let mut balances = vec![BALANCE; ACCOUNTS as usize];
    for (from, to, amount) in (0..rows).map(transfer) {
        balances[from as usize] -= amount;
        balances[to as usize] += amount;
    }
    balances
}

async fn balances(scratch: &Scratch) -> Result<Vec<i64>> {
    let (store, _) = open(scratch).await?;
    let find = Find { sort: rawdoc! { "_id": 1 }, ..Find::new(namespace("accounts")?, rawdoc! {}) };
    let found = store.find_all(find).await?;
    store.close().await?;
    found.iter().map(|account| Ok(account.get_i64("balance")?)).collect()
}

async fn ledger_balances(scratch: &Scratch) -> Result<Vec<i64>> {
    let (store, sources) = open(scratch).await?;
    let ledger =
        Ledger::open_with(std::sync::Arc::new(store.clone()), namespace("tx")?, sources, Default::default()).await?;
    assert!(ledger.verify_all().await?.is_clean());
    let mut balances = Vec::new();
    for number in 0..ACCOUNTS {
        let balance = ledger.balance(account(number)).await?.context("an account")?;
        ensure!(balance.pending == 0, "{balance:?}");
        balances.push(balance.balance);
    }
    drop(ledger);
    store.close().await?;
    Ok(balances)
}

const FILE: [&str; 6] = ["transfer", "rows.csv", "--data", "data", "--database", "bank"];

fn run(scratch: &Scratch, more: &[&str]) -> Result<Output> {
    Ok(handfast(scratch, &[&FILE[..], more].concat()).output()?)
}

/// Returns the summary of a run.
fn summary(output: &Output) -> Result<Value> {
    serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))
}

fn counts(summary: &Value) -> [Option<u64>; 3] {
    ["applied", "already_applied", "rejected"].map(|count| summary[count].as_u64())
}

/// Runs the file again and again, each time a little longer before it is killed, until a run completes.
async fn run_and_kill(scratch: &Scratch, mechanism: &str, more: &[&str], rows: u64) -> Result<()> {
    let step = Duration::from_millis(15);
    let (mut kills, mut life) = (0, step);
    let summary = loop {
        ensure!(kills < KILLS_MAX, "{kills} kills, and no end: what was done is not known again");
        let arguments = [&FILE[..], &["--mechanism", mechanism, "--json"], more].concat();
        let mut child = handfast(scratch, &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        tokio::time::sleep(life).await;
        if child.try_wait()?.is_none() {
            child.kill()?;
            kills += 1;
            // A later run takes longer to reach its first row that is not yet applied.
            life += step + life / 20;
        }
        let output = child.wait_with_output()?;
        if let Some(code) = output.status.code() {
            ensure!(code == 0, "{output:?}");
            break summary(&output)?;
        }
    };
    // The test shows nothing if no run was killed during its work.
    let [applied, already, rejected] = counts(&summary);
    assert!(kills >= 10 && already > Some(0), "{kills} kills: {summary}");
    assert_eq!((applied.zip(already).map(|(applied, already)| applied + already), rejected), (Some(rows), Some(0)));
    Ok(())
}

#[tokio::test]
async fn ten_thousand_rows_are_applied_once_and_not_again() -> Result<()> {
    let scratch = bank("transfer-many").await?;
    write_rows(&scratch, 10_000)?;
    let first = summary(&run(&scratch, &["--json"])?)?;
    assert_eq!(counts(&first), [10_000, 0, 0].map(Some), "{first}");
    assert_eq!(balances(&scratch).await?, expected(10_000));
    let again = run(&scratch, &[])?;
    let text = String::from_utf8(again.stdout)?;
    assert!(text.starts_with("10000 rows by transaction: 0 applied, 10000 already applied, 0 rejected"), "{text}");
    assert_eq!(balances(&scratch).await?, expected(10_000));
    Ok(())
}

#[tokio::test]
async fn killed_at_many_moments_each_row_is_applied_once_by_transactions() -> Result<()> {
    let scratch = bank("transfer-kill").await?;
    write_rows(&scratch, 10_000)?;
    run_and_kill(&scratch, "transaction", &[], 10_000).await?;
    assert_eq!(balances(&scratch).await?, expected(10_000));
    Ok(())
}

#[tokio::test]
async fn killed_at_many_moments_each_row_is_applied_once_by_two_phase_commit() -> Result<()> {
    let scratch = bank("transfer-kill-two-phase").await?;
    write_rows(&scratch, 400)?;
    run_and_kill(&scratch, "two-phase", &["--workers", "4"], 400).await?;
    assert_eq!(balances(&scratch).await?, expected(400));
    let verified = handfast(&scratch, &["twophase", "verify", "--data", "data", "--database", "bank"]).output()?;
    assert_eq!(verified.status.code(), Some(0), "{verified:?}");
    let status =
        handfast(&scratch, &["twophase", "status", "--data", "data", "--database", "bank", "--json"]).output()?;
    let status: Value = serde_json::from_slice(&status.stdout)?;
    let states: Vec<_> = (0..6).map(|state| status["states"][state]["count"].as_u64()).collect();
    assert_eq!(states, [0, 0, 0, 400, 0, 0].map(Some), "nothing is left half done");
    Ok(())
}

#[tokio::test]
async fn killed_at_many_moments_each_row_is_applied_once_by_a_ledger() -> Result<()> {
    let scratch = ledger("transfer-kill-ledger").await?;
    write_rows(&scratch, 400)?;
    run_and_kill(&scratch, "ledger", &["--asset", "EUR"], 400).await?;
    assert_eq!(ledger_balances(&scratch).await?, expected(400));
    Ok(())
}

#[tokio::test]
async fn rows_that_are_bad_in_every_way_are_rejected_with_their_lines() -> Result<()> {
    let scratch = bank("transfer-bad").await?;
    let rows = [
        b"id,from,to,amount\n".to_vec(),
        b"1,a0,a1,5\n".to_vec(),
        b"2,a0,a1\n".to_vec(),
        b"3,a0,a1,-5\n".to_vec(),
        b"4,a0,nobody,5\n".to_vec(),
        b"5,a0,a1,100001\n".to_vec(),
        b"6,a\xff,a1,5\n".to_vec(),
        [b"7,".as_slice(), &[b'x'; 70_000], b",a1,5\n"].concat(),
        b"8,\"a0,a1,5\n".to_vec(),
        b"1,a0,a1,6\n".to_vec(),
        b",a0,a1,5\n".to_vec(),
        b"1,a0,a1,5\n".to_vec(),
        b"9,a0,a1,5\n".to_vec(),
    ];
    std::fs::write(scratch.path("rows.csv"), rows.concat())?;
    let reasons = [
        (3, "it has 3 cells, the header has 4"),
        (4, "amount is -5, it must be from 1 to 1000000000000000"),
        (5, "there is no account nobody"),
        (6, "account a0 has 99995, and needs 100001"),
        (7, "the line is not UTF-8, from byte 4 on"),
        (8, "the line is longer than 65536 bytes"),
        (9, "a quoted cell does not end in its line"),
        (10, "the id \"1\" belongs to another transfer, with other accounts or another amount"),
        (11, "the row has no id: add one, or name the whole file with --batch"),
    ];
    for mechanism in ["transaction", "two-phase"] {
        // The second mechanism uses other collections.
        let collection = if mechanism == "two-phase" { "transactions" } else { "transfers" };
        let flags = ["--mechanism", mechanism, "--collection", collection, "--rejects", "rejects.jsonl", "--json"];
        let output = run(&scratch, &flags)?;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let summary = summary(&output)?;
        let said = String::from_utf8(output.stderr)?;
        let rejects = std::fs::read_to_string(scratch.path("rejects.jsonl"))?;
        let rejects = rejects.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        assert_eq!(rejects.len(), reasons.len(), "{said}");
        for ((line, reason), reject) in reasons.iter().zip(&rejects) {
            // The account has less money at that time.
            let reason = if mechanism == "two-phase" { reason.replace("99995", "99985") } else { (*reason).to_owned() };
            assert!(said.contains(&format!("line {line} rejected: {reason}")), "{said}");
            assert_eq!((reject["line"].as_u64(), reject["reason"].as_str()), (Some(*line), Some(reason.as_str())));
        }
        assert_eq!(rejects[0]["row"], "2,a0,a1");
        assert_eq!(counts(&summary), [2, 1, 9].map(Some), "{mechanism}: {summary}");
    }
    Ok(())
}

#[tokio::test]
async fn a_file_that_changes_between_runs_is_applied_by_its_ids() -> Result<()> {
    let scratch = bank("transfer-changed").await?;
    std::fs::write(scratch.path("rows.csv"), "id,from,to,amount\n1,a0,a1,5\n2,a1,a2,5\n")?;
    assert_eq!(counts(&summary(&run(&scratch, &["--json"])?)?), [2, 0, 0].map(Some));
    std::fs::write(scratch.path("rows.csv"), "from,to,amount,id,note\na2,a3,1,3,new\na1,a2,5,2,moved\na0,a1,5,1,\n")?;
    assert_eq!(counts(&summary(&run(&scratch, &["--json"])?)?), [1, 2, 0].map(Some));
    assert_eq!(balances(&scratch).await?[..4], [BALANCE - 5, BALANCE, BALANCE + 4, BALANCE + 1]);
    Ok(())
}

/// A cell of CSV has no type, and a value of JSON has one.
#[tokio::test]
async fn one_id_is_one_transfer_whatever_file_it_comes_from() -> Result<()> {
    let of_csv = "id,from,to,amount\n1,a0,a1,5\n65a1b2c3d4e5f60718293a4b,a0,a1,5\nr-3,a0,a1,5\n";
    let of_json = r#"{"id": 1, "from": "a0", "to": "a1", "amount": 5}
{"id": {"$oid": "65a1b2c3d4e5f60718293a4b"}, "from": "a0", "to": "a1", "amount": 5}
{"id": "r-3", "from": "a0", "to": "a1", "amount": 5}
{"id": {"$numberLong": "1"}, "from": "a0", "to": "a1", "amount": 6}
"#;
    for mechanism in ["transaction", "two-phase", "ledger"] {
        for csv_first in [true, false] {
            let name = format!("transfer-formats-{mechanism}-{csv_first}");
            let scratch = if mechanism == "ledger" { ledger(&name).await? } else { bank(&name).await? };
            std::fs::write(scratch.path("rows.csv"), of_csv)?;
            std::fs::write(scratch.path("rows.jsonl"), of_json)?;
            let asset: &[&str] = if mechanism == "ledger" { &["--asset", "EUR"] } else { &[] };
            let run = |file: &str| -> Result<_> {
                let fixed =
                    ["transfer", file, "--data", "data", "--database", "bank", "--json", "--mechanism", mechanism];
                Ok(counts(&summary(&handfast(&scratch, &[&fixed[..], asset].concat()).output()?)?))
            };
            let (csv, json) = if csv_first { ([3, 0, 0], [0, 3, 1]) } else { ([0, 3, 0], [3, 0, 1]) };
            let files = [("rows.csv", csv), ("rows.jsonl", json)];
            for (file, expected) in if csv_first { files } else { [files[1], files[0]] } {
                assert_eq!(run(file)?, expected.map(Some), "{mechanism}, {file}");
            }
            let balances =
                if mechanism == "ledger" { ledger_balances(&scratch).await? } else { balances(&scratch).await? };
            assert_eq!(balances[..2], [BALANCE - 15, BALANCE + 15], "{mechanism}");
        }
    }
    Ok(())
}

/// Earlier versions recorded the value as it was in the file, and the numbers of accounts in the file's type.
#[tokio::test]
async fn an_id_that_was_recorded_in_another_type_is_known() -> Result<()> {
    let scratch = bank("transfer-recorded").await?;
    let (store, sources) = open(&scratch).await?;
    for number in [1, 2] {
        store.insert_one(&namespace("accounts")?, rawdoc! { "_id": number, "balance": BALANCE }).await?;
    }
    let recorded = rawdoc! { "_id": 7, "from": 1, "to": 2, "amount": 5_i64, "ts": sources.clock.now() };
    store.insert_one(&namespace("transfers")?, recorded).await?;
    store.close().await?;
    std::fs::write(scratch.path("rows.csv"), "id,from,to,amount\n7,1,2,5\n")?;
    assert_eq!(counts(&summary(&run(&scratch, &["--account-ids", "number", "--json"])?)?), [0, 1, 0].map(Some));
    // An account of another type is another account.
    let other = run(&scratch, &[])?;
    assert!(String::from_utf8_lossy(&other.stderr).contains("the id \"7\" belongs to another transfer"), "{other:?}");
    Ok(())
}

#[tokio::test]
async fn a_file_without_ids_needs_a_name() -> Result<()> {
    let scratch = bank("transfer-batch").await?;
    std::fs::write(scratch.path("rows.csv"), "from,to,amount\na0,a1,5\na0,a1,5\n")?;
    assert_one_line(&run(&scratch, &[])?, 2, "or the whole file with --batch");
    assert_eq!(counts(&summary(&run(&scratch, &["--json", "--batch", "march"])?)?), [2, 0, 0].map(Some));
    // The file is run again, with a line inserted, as after a kill: an applied row is recognised by its content.
    std::fs::write(scratch.path("rows.csv"), "from,to,amount\na2,a1,1\na0,a1,5\na0,a1,5\n")?;
    assert_eq!(counts(&summary(&run(&scratch, &["--json", "--batch", "march"])?)?), [1, 2, 0].map(Some));
    assert_eq!(counts(&summary(&run(&scratch, &["--json", "--batch", "april"])?)?), [3, 0, 0].map(Some));
    Ok(())
}

#[tokio::test]
async fn json_lines_come_from_standard_input_and_go_through_a_server() -> Result<()> {
    let scratch = bank("transfer-server").await?;
    let lines =
        "{\"id\": 1, \"from\": \"a0\", \"to\": \"a1\", \"cent\": 5}\n{\"id\": 2, \"from\": \"a0\", \"to\": \"a1\"}\n";
    std::fs::write(scratch.path("rows.jsonl"), lines)?;
    let serve = Serve::start(&mut handfast(&scratch, &["serve", "--listen", "127.0.0.1:0", "--data", "data"]))?;
    let store = format!("mongodb://{}", serve.address()?);
    let run = |more: &[&str]| -> Result<Output> {
        let fixed = ["transfer", "-", "--store", &store, "--database", "bank", "--column", "amount=cent", "--json"];
        let input = std::fs::File::open(scratch.path("rows.jsonl"))?;
        Ok(handfast(&scratch, &[&fixed[..], more].concat()).stdin(input).output()?)
    };
    assert_one_line(&run(&[])?, 2, "--store needs --mechanism");
    assert_one_line(&run(&["--mechanism", "two-phase"])?, 2, "--format csv or --format jsonl is missing");
    // The server's own clients would not see the locks of such a transaction.
    let refused = run(&["--mechanism", "transaction", "--format", "jsonl"])?;
    assert_one_line(&refused, 2, "that server has its own transactions");
    let accounts = serve.command(bson::doc! { "find": "accounts", "$db": "bank" })?;
    assert!(!accounts.to_string().contains("_hf"), "{accounts}");
    for outcome in [[1, 0, 1], [0, 1, 1]] {
        let output = run(&["--mechanism", "two-phase", "--format", "jsonl"])?;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8(output.stderr.clone())?.contains("line 2 rejected: cent is missing"), "{output:?}");
        assert_eq!(counts(&summary(&output)?), outcome.map(Some));
    }
    drop(serve);
    assert_eq!(balances(&scratch).await?[..2], [BALANCE - 5, BALANCE + 5]);
    Ok(())
}

#[tokio::test]
async fn killed_once_a_file_goes_into_a_ledger_through_a_server() -> Result<()> {
    let scratch = ledger("transfer-server-ledger").await?;
    write_rows(&scratch, 200)?;
    let serve = Serve::start(&mut handfast(&scratch, &["serve", "--listen", "127.0.0.1:0", "--data", "data"]))?;
    let store = format!("mongodb://{}", serve.address()?);
    let arguments = ["transfer", "rows.csv", "--store", &store, "--database", "bank", "--mechanism", "ledger"];
    let arguments = [&arguments[..], &["--asset", "EUR", "--json"]].concat();
    let mut child = handfast(&scratch, &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    // 10 entries put the first balances into the accounts.
    let entries = || -> Result<Option<i32>> {
        let counted = serve.command(bson::doc! { "count": "tx", "$db": "bank" })?;
        Ok(counted.get_i32("n").ok())
    };
    until("thirty entries", || {
        ensure!(child.try_wait()?.is_none(), "it came to its end before it was killed");
        Ok(entries()? >= Some(30))
    })?;
    child.kill()?;
    child.wait()?;
    let summary = summary(&handfast(&scratch, &arguments).output()?)?;
    let [applied, already, rejected] = counts(&summary);
    assert!(already > Some(10) && applied > Some(0) && rejected == Some(0), "{summary}");
    assert_eq!(applied.zip(already).map(|(applied, already)| applied + already), Some(200));
    drop(serve);
    assert_eq!(ledger_balances(&scratch).await?, expected(200));
    Ok(())
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_before_anything_is_done() -> Result<()> {
    let scratch = bank("transfer-refused").await?;
    write_rows(&scratch, 1)?;
    let refused = [
        (&["--mechanism", "ledger"][..], 1, "--accounts: there is no collection 'account' in bank"),
        (&["--accounts", "acounts"], 1, "--accounts: there is no collection 'acounts' in bank; there is accounts"),
        (&["--workers", "4"], 2, "--workers does not apply to --mechanism transaction: it is for two-phase and ledger"),
        (
            &["--mechanism", "two-phase", "--asset", "EUR"],
            2,
            "--asset does not apply to --mechanism two-phase: it is for ledger",
        ),
        (
            &["--mechanism", "ledger", "--overdraft"],
            2,
            "--overdraft does not apply to --mechanism ledger: it is for transaction and two-phase",
        ),
        (&["--rejects", "rows.csv"], 2, "--rejects names the same file as FILE: name another one"),
        (&["--column", "sum=x"], 2, "--column: there is no column 'sum'"),
        (&["--column", "amount=cent"], 1, "rows.csv, line 1: the header has no column 'cent'"),
    ];
    for (flags, code, expected) in refused {
        assert_one_line(&run(&scratch, flags)?, code, expected);
    }
    // A file without transfers is refused the second time, too.
    for (rows, expected) in [
        ("", "rows.csv is empty, without a header"),
        ("\n\n", "rows.csv has only empty lines"),
        (
            "id;from;to;amount\n1;a0;a1;5\n",
            "line 1: the header has no column 'from', only id;from;to;amount; cells are separated",
        ),
    ] {
        std::fs::write(scratch.path("rows.csv"), rows)?;
        let output = run(&scratch, &[])?;
        assert_one_line(&output, 1, expected);
        assert!(output.stdout.is_empty() && !String::from_utf8_lossy(&output.stderr).contains("again"), "{output:?}");
    }
    std::fs::write(scratch.path("rows.jsonl"), "\n \n")?;
    let empty = handfast(&scratch, &["transfer", "rows.jsonl", "--data", "data", "--database", "bank"]).output()?;
    assert_one_line(&empty, 1, "rows.jsonl has only empty lines");
    let nowhere = handfast(&scratch, &["transfer", "nosuch.csv", "--data", "data", "--database", "bank"]).output()?;
    assert_one_line(&nowhere, 1, "cannot read nosuch.csv");
    assert_eq!(balances(&scratch).await?, vec![BALANCE; ACCOUNTS as usize]);
    Ok(())
}

/// A run that is killed at the end of the test, even after a failure.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The run may have ended already.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Returns the lines that a run prints to standard error, as they arrive.
fn said(stderr: ChildStderr) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(std::result::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

#[tokio::test]
async fn who_stops_it_is_told_how_far_it_came() -> Result<()> {
    let scratch = bank("transfer-stopped").await?;
    let arguments = ["transfer", "-", "--format", "csv", "--data", "data", "--database", "bank"];
    let mut command = handfast(&scratch, &arguments);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut run = Running(child);
    let mut input = run.0.stdin.take().context("stdin")?;
    let lines = said(run.0.stderr.take().context("stderr")?);
    // A hundred rows are applied at once; the rows after the last full hundred are not applied yet. The last row of the
    // second hundred is rejected, and its message shows that the others are done.
    let mut rows = "id,from,to,amount\n".to_owned();
    for number in 1..=250 {
        let amount = if number == 200 { "much" } else { "1" };
        writeln!(rows, "r{number},a0,a1,{amount}")?;
    }
    input.write_all(rows.as_bytes())?;
    input.flush()?;
    let line = lines.recv_timeout(PATIENCE)?;
    assert!(line.contains("line 201 rejected: "), "{line}");
    signal(run.0.id(), "TERM")?;
    let mut text = String::new();
    while let Ok(line) = lines.recv_timeout(PATIENCE) {
        writeln!(text, "{line}")?;
    }
    drop(input);
    assert_eq!(run.0.wait()?.code(), Some(1), "{text}");
    let expected =
        "interrupted: at least 199 applied, 0 already applied, 1 rejected; the same command, with the whole input";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("stopped before the end"), "{text}");
    Ok(())
}
