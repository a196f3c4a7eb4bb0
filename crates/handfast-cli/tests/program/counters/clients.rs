//! Clients of several services, which ask another one while one is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::request;
use super::scaled::ITEMS;
use crate::support::{connect, now, pause, until};

/// The threads that send requests.
const CLIENTS: usize = 6;
/// The requests of each thread.
const REQUESTS: usize = 250;
/// The time between two attempts.
const POLL: Duration = Duration::from_millis(20);
/// The time in which all requests of a client are answered, even on a busy machine.
const SEND_MAX: Duration = Duration::from_secs(300);

/// Threads that send requests.
pub(super) struct Clients {
    threads: Vec<JoinHandle<()>>,
    answers: Arc<AtomicU64>,
}

impl Clients {
    /// The requests of all clients.
    pub(super) const REQUESTS: u64 = (CLIENTS * REQUESTS) as u64;

    pub(super) fn start(addresses: Vec<String>) -> Self {
        let (answers, addresses) = (Arc::new(AtomicU64::new(0)), Arc::new(addresses));
        let threads = (0..CLIENTS).map(|client| {
            let (answers, addresses) = (Arc::clone(&answers), Arc::clone(&addresses));
            std::thread::spawn(move || send(&addresses, client, &answers))
        });
        Clients { threads: threads.collect(), answers }
    }

    /// Waits until so many requests were answered.
    pub(super) fn until(&self, count: u64) -> Result<()> {
        until(&format!("{count} answers"), || {
            let ended = self.threads.iter().filter(|thread| thread.is_finished()).count();
            let answers = self.answers.load(Ordering::SeqCst);
            ensure!(
                answers >= (ended * REQUESTS) as u64,
                "of {CLIENTS} clients {ended} have ended after {answers} answers"
            );
            Ok(answers >= count)
        })
    }

    /// Waits until all requests were answered.
    pub(super) fn finish(self) -> Result<()> {
        for thread in self.threads {
            thread.join().map_err(|_| anyhow::anyhow!("a client has failed"))?;
        }
        Ok(())
    }
}

/// Sends the requests of one client, each again with its key at one service after the other until it is answered.
fn send(addresses: &[String], client: usize, answers: &AtomicU64) {
    let began = now();
    let mut at = client;
    let mut stream = None;
    for number in 0..REQUESTS {
        let line = format!("POST /v1/ads/{}/views", number % ITEMS);
        let key = format!("idempotency-key: {client}-{number}");
        loop {
            if stream.is_none() {
                stream = connect(&addresses[at % addresses.len()]).ok();
            }
            match stream.as_mut().and_then(|stream| request(stream, &line, &key)) {
                Some((200, _)) => break,
                // Redis is away.
                Some((503, body)) => assert!(body.contains("outcome"), "{body}"),
                Some(other) => panic!("{other:?}"),
                None => {
                    stream = None;
                    at += 1;
                }
            }
            assert!(began.elapsed() < SEND_MAX, "request {number} of client {client} is not answered");
            pause(POLL);
        }
        answers.fetch_add(1, Ordering::SeqCst);
    }
}

/// Reads the totals of a service until it is told to stop, and fails if one of them goes back.
pub(super) fn read(address: &str, stop: &AtomicBool) -> u64 {
    let (mut last, mut reads) = ([0; ITEMS], 0);
    let mut stream = connect(address).unwrap();
    while !stop.load(Ordering::SeqCst) {
        for (item, last) in last.iter_mut().enumerate() {
            let (status, body) = request(&mut stream, &format!("GET /v1/ads/{item}"), "").unwrap();
            assert_eq!(status, 200, "{body}");
            let total: Value = serde_json::from_str(&body).unwrap();
            if total["partial"] == false {
                let views = total["total"].as_u64().unwrap();
                assert!(views >= *last, "item {item} went back from {last} to {views}");
                *last = views;
                reads += 1;
            }
        }
        pause(Duration::from_millis(1));
    }
    reads
}
