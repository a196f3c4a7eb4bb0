//! A proxy and a server hold the documented number of connections, or as many as the system lets a process open. The proxy's memory is bounded for
//! each connection, and for messages of the largest size.

use std::io::Write as _;

use anyhow::{Context as _, Result, ensure};
use bson::{doc, rawdoc};
use handfast_blackpipe::proxy::{CONNECTIONS_MAX, IDLE_CONNECTION_BYTES_MAX};
use handfast_wire::{Flags, OpMsg, Sequence};
use serde_json::Value;

use crate::support::{FREE_PORT, Scratch, Serve, connect, exchange, handfast, receive};

/// The number of sockets of a connection in the proxy, which is the process that has the most.
const FILES_PER_CONNECTION: usize = 2;
/// The number of files that a process has open beside those of the connections.
const OTHER_FILES: usize = 100;

/// Returns the number after a name in a file of /proc.
fn number(path: &str, name: &str) -> Result<usize> {
    let text = std::fs::read_to_string(path)?;
    let after = text.lines().find_map(|line| line.strip_prefix(name));
    let number = after.and_then(|rest| rest.split_whitespace().next()).with_context(|| format!("{path}: {name}"))?;
    // The number of open files may be unlimited.
    Ok(number.parse().unwrap_or(usize::MAX))
}

#[test]
fn ten_thousand_connections_are_held_within_memory_for_each() -> Result<()> {
    let open_files_max = number("/proc/self/limits", "Max open files")?;
    let count = CONNECTIONS_MAX.min(open_files_max.saturating_sub(OTHER_FILES) / FILES_PER_CONNECTION);
    let scratch = Scratch::new("blackpipe-connections")?;
    let server = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
    let upstream = format!("mongodb://{}", server.address()?);
    let proxy = Serve::spawn(&mut handfast(&scratch, &["blackpipe", "proxy", "--upstream", &upstream, "--json"]))?;
    let start: Value = serde_json::from_str(&proxy.start)?;
    let uri = start["uri"].as_str().context("a connection string")?;
    let address = uri.trim_start_matches("mongodb://").trim_end_matches('/');
    let (ping, memory) = (doc! { "ping": 1, "$db": "db" }, format!("/proc/{}/status", proxy.process()));

    let mut streams = vec![connect(address)?];
    // The first exchange allocates the memory that is needed once.
    exchange(&streams[0], &ping)?;
    let before = number(&memory, "VmRSS:")?;
    while streams.len() < count {
        let stream = connect(address)?;
        exchange(&stream, &ping)?;
        streams.push(stream);
    }
    let (grown, bound) = ((number(&memory, "VmRSS:")? - before) * 1024, count * IDLE_CONNECTION_BYTES_MAX);
    println!("{count} connections have {grown} bytes, {} each", grown / count);
    ensure!(grown <= bound, "{count} connections have {grown} bytes, and {bound} at most");
    // All connections work, whichever was opened first.
    for stream in &streams {
        let reply = exchange(stream, &ping)?;
        ensure!(reply.get_f64("ok").is_ok_and(|ok| ok == 1.0), "{reply}");
    }
    Ok(())
}

/// The text of each document of a large insert: three of them are a message of 40 MB, with documents of the size that a server takes.
const TEXT_BYTES: usize = 13_333_333;
/// The memory of a proxy beside the messages, for its buffers and its allocator.
const OTHER_BYTES_MAX: usize = 40 * 1024 * 1024;

/// Two inserts of 40 MB pass at the same time. The proxy has each of them in memory once.
#[test]
fn large_messages_pass_within_their_own_memory() -> Result<()> {
    let scratch = Scratch::new("blackpipe-large")?;
    let server = Serve::start(&mut handfast(&scratch, &FREE_PORT))?;
    let upstream = format!("mongodb://{}", server.address()?);
    let proxy = Serve::spawn(&mut handfast(&scratch, &["blackpipe", "proxy", "--upstream", &upstream, "--json"]))?;
    let start: Value = serde_json::from_str(&proxy.start)?;
    let address = start["uri"].as_str().context("a connection string")?;
    let address = address.trim_start_matches("mongodb://").trim_end_matches('/');
    let memory = format!("/proc/{}/status", proxy.process());
    exchange(connect(address)?, &doc! { "ping": 1, "$db": "db" })?;
    let before = number(&memory, "VmHWM:")?;

    let insert = |first: i32| -> Result<()> {
        let text = "x".repeat(TEXT_BYTES);
        let documents: Vec<_> = (first..first + 3).map(|id| rawdoc! { "_id": id, "text": text.as_str() }).collect();
        let documents = documents.iter().map(|document| &**document).collect();
        let body = rawdoc! { "insert": "texts", "$db": "db" };
        let sequences = vec![Sequence { identifier: "documents", documents }];
        let mut bytes = Vec::new();
        OpMsg { flags: Flags::default(), body: &body, sequences }.encode(1, 0, &mut bytes);
        let mut stream = connect(address)?;
        stream.write_all(&bytes)?;
        let reply = receive(stream)?;
        ensure!(reply.get_i32("n").is_ok_and(|count| count == 3), "{reply}");
        Ok(())
    };
    std::thread::scope(|scope| {
        let inserts = [1, 4].map(|first| scope.spawn(move || insert(first)));
        inserts.into_iter().try_for_each(|insert| insert.join().map_err(|_| anyhow::anyhow!("a client failed"))?)
    })?;
    let grown = (number(&memory, "VmHWM:")? - before) * 1024;
    println!("two inserts of {} bytes took {grown} bytes", 3 * TEXT_BYTES);
    ensure!(grown <= 2 * 3 * TEXT_BYTES + OTHER_BYTES_MAX, "{grown} bytes");

    // They are at the server as they were sent.
    let lengths = doc! { "_id": 1, "length": { "$strLenBytes": "$text" } };
    let sorted = [doc! { "$project": lengths }, doc! { "$sort": { "_id": 1 } }];
    let reply =
        server.command(doc! { "aggregate": "texts", "pipeline": sorted.to_vec(), "cursor": {}, "$db": "db" })?;
    let found = reply.get_document("cursor")?.get_array("firstBatch")?;
    let expected: Vec<_> = (1..7).map(|id| doc! { "_id": id, "length": TEXT_BYTES as i32 }.into()).collect();
    ensure!(*found == expected, "{reply}");
    Ok(())
}
