//! The changes of an account over HTTP: by pages, by time, and as a file.

use std::io::{Read as _, Write as _};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::counters::stopped;
use crate::http_limits::{ask, serve};
use crate::support::{Scratch, Serve, connect, handfast, output};

/// The entries of the account, which are more than a page of an export has.
const ENTRIES: u32 = 623;

fn get(serve: &Serve, path: &str) -> Result<(u16, Value)> {
    let answer = ask(serve, &format!("GET /v1/db/ledgers/tx/accounts/{path}"), "", "")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("a body")?;
    let status = head.split(' ').nth(1).context("a status")?.parse()?;
    Ok((status, serde_json::from_str(body).with_context(|| answer.clone())?))
}

/// Posts entries that give an account 1 each, one a second of a day.
fn fill(serve: &Serve) -> Result<()> {
    let (_, address) = serve.start.rsplit_once("://").context("an address")?;
    let mut stream = connect(address.split([',', ' ']).next().unwrap_or_default())?;
    let mut buffer = [0; 4_096];
    for number in 0..ENTRIES {
        let ts = format!("2026-01-01T{:02}:{:02}:{:02}Z", number / 3_600, number / 60 % 60, number % 60);
        let changes = json!([
            { "account": "cash", "value": -1, "asset": "EUR" }, { "account": "a,b", "value": 1, "asset": "EUR" },
        ]);
        let body = json!({ "_id": number, "ts": ts, "changes": changes }).to_string();
        let head = "POST /v1/db/ledgers/tx/entries HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
        stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes())?;
        // An answer is a single small write.
        let read = stream.read(&mut buffer)?;
        ensure!(buffer.get(..read).is_some_and(|answer| answer.starts_with(b"HTTP/1.1 200")), "entry {number}");
    }
    Ok(())
}

#[test]
fn the_changes_of_an_account_are_served_by_pages_by_time_and_as_a_file() -> Result<()> {
    let scratch = Scratch::new("http-statements")?;
    // Each entry waits for the disk otherwise.
    let serve = serve(&scratch, &["--durability", "memory"])?;
    fill(&serve)?;
    let account = "a,b";
    let places = |answer: &Value| -> Vec<i64> {
        answer["lines"].as_array().into_iter().flatten().filter_map(|line| line["seqid"].as_i64()).collect()
    };
    let (status, page) = get(&serve, &format!("{account}/statement?limit=3"))?;
    assert_eq!((status, places(&page), &page["next"]), (200, vec![1, 2, 3], &json!(3)), "{page}");
    assert_eq!((&page["lines"][2]["balance"], &page["lines"][2]["entry"]), (&json!(3), &json!(2)));
    let (_, page) = get(&serve, &format!("{account}/statement?limit=500&after={}", ENTRIES - 2))?;
    assert_eq!((places(&page).len(), page.get("next")), (2, None), "the last page: {page}");

    // Of one minute, which begins in the middle of the places that are read at once.
    let minute = "from=2026-01-01T00:09:00Z&to=2026-01-01T00:10:00Z";
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let (status, page) = get(&serve, &format!("{account}/statement?{minute}&limit=25&after={after}"))?;
        assert_eq!(status, 200, "{page}");
        found.extend(places(&page));
        let Some(next) = page["next"].as_i64() else { break };
        after = next;
    }
    assert_eq!(found, (541..=600).collect::<Vec<i64>>(), "each once");

    let export = |query: &str| ask(&serve, &format!("GET /v1/db/ledgers/tx/accounts/{account}/export{query}"), "", "");
    let file = export("")?;
    assert!(
        file.contains("content-type: application/jsonl") && file.contains("transfer-encoding: chunked"),
        "{file:.400}"
    );
    assert_eq!(file.matches("\"seqid\":").count(), ENTRIES as usize);
    assert!(file.ends_with("\r\n0\r\n\r\n"), "it is complete");
    let csv = export(&format!("?format=csv&{minute}"))?;
    assert!(csv.contains("seqid,ts,entry,proc,state,type,value,hold,asset,balance,held\r\n"), "{csv:.600}");
    assert!(csv.contains("541,2026-01-01t00:09:00z,540,"), "{csv:.600}");
    assert_eq!(csv.matches(",eur,").count(), 60);

    let whole = |query: &str| ask(&serve, &format!("GET /v1/db/ledgers/tx/export{query}"), "", "");
    let files = [whole("")?, whole("?format=csv")?];
    assert!(files[0].contains("filename=\"ledger.jsonl\"") && files[1].contains("filename=\"ledger.csv\""));
    let minute_of_all = unchunked(&whole(&format!("?{minute}"))?)?;
    assert_eq!(minute_of_all.lines().count(), 60, "{minute_of_all:.400}");
    assert_eq!(unchunked(&ask(&serve, "GET /v1/db/ledgers/none/export", "", "")?)?, "");

    for (path, status) in [
        ("eve/statement", 404),
        ("eve/export", 404),
        ("a,b/statement?limit=501", 400),
        ("a,b/statement?after=-1", 400),
        ("a,b/statement?from=yesterday", 400),
        ("a,b/export?format=xml", 400),
    ] {
        assert_eq!(get(&serve, path)?.0, status, "{path}");
    }
    stopped(serve)?;
    for (file, format) in files.iter().zip(["jsonl", "csv"]) {
        let exported = output(&mut handfast(&scratch, &["ledger", "export", "--format", format, "--database", "db"]))?;
        let exported = String::from_utf8(exported.stdout)?.to_lowercase();
        assert!(
            exported.lines().count() >= ENTRIES as usize && unchunked(file)? == exported,
            "{exported:.400} {file:.800}"
        );
    }
    Ok(())
}

/// Returns the body of an answer whose encoding is chunked, and complete.
fn unchunked(answer: &str) -> Result<String> {
    let (_, mut rest) = answer.split_once("\r\n\r\n").context("a body")?;
    let mut body = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n").context("the size of a chunk")?;
        let size = usize::from_str_radix(size, 16)?;
        if size == 0 {
            return Ok(body);
        }
        body.push_str(after.get(..size).context("a chunk")?);
        rest = after.get(size + 2..).context("the end of a chunk")?;
    }
}
