//! The clients of the long run: they send requests, and read totals, at services that come and go.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};

use super::{request, request_with_body};
use crate::support::{connect, now, pause};

pub(super) const ITEMS: usize = 40;
/// The views of a request, in the mean: there are 1 to 99 in it.
pub(super) const VIEWS_MEAN: u64 = 50;
/// The threads that send requests.
const CLIENTS: u64 = 12;
/// The time between two attempts.
const POLL: Duration = Duration::from_millis(20);
/// A request is answered sooner, whatever is away meanwhile.
const ANSWER_MAX: Duration = Duration::from_secs(200);

fn views_of(number: u64) -> u64 {
    number % (2 * VIEWS_MEAN - 1) + 1
}

fn item_of(number: u64) -> usize {
    // Not in step with the views.
    (number * number % 1_009) as usize % ITEMS
}

/// The requests of a run, and how far they are.
pub(super) struct Run {
    /// The addresses of the services.
    addresses: Mutex<Vec<String>>,
    requests: u64,
    /// The number of requests that clients may send by now.
    released: AtomicU64,
    answers: AtomicU64,
    whole_rounds: AtomicU64,
    is_over: AtomicBool,
}

/// The threads of a run.
pub(super) struct Threads {
    run: Arc<Run>,
    writers: Vec<JoinHandle<Result<()>>>,
    reader: JoinHandle<Result<()>>,
}

impl Run {
    pub(super) fn new(services: usize, requests: u64) -> Self {
        let addresses = Mutex::new(vec![String::new(); services]);
        let (released, answers, whole_rounds) = Default::default();
        Run { addresses, requests, released, answers, whole_rounds, is_over: false.into() }
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// Lets clients send so many requests altogether: without that, fast ones would be ready before the last disturbance.
    pub(super) fn release(&self, requests: u64) {
        self.released.fetch_max(requests, Ordering::SeqCst);
    }

    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::SeqCst)
    }

    /// Returns how often all totals were read of which none is marked as partial.
    pub(super) fn whole_rounds(&self) -> u64 {
        self.whole_rounds.load(Ordering::SeqCst)
    }

    /// Returns whether all requests were answered, or a thread has failed.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst) || self.answers() == self.requests
    }

    pub(super) fn set_address(&self, service: usize, address: String) {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)[service] = address;
    }

    /// Returns the total of each item after all requests.
    pub(super) fn expected(&self) -> [u64; ITEMS] {
        let mut totals = [0; ITEMS];
        for number in 0..self.requests {
            totals[item_of(number)] += views_of(number);
        }
        totals
    }

    pub(super) fn start(self: &Arc<Self>) -> Threads {
        let writers = (0..CLIENTS).map(|client| {
            let run = Arc::clone(self);
            std::thread::spawn(move || run.end_with(run.write(client)))
        });
        let run = Arc::clone(self);
        Threads {
            run: Arc::clone(self),
            writers: writers.collect(),
            reader: std::thread::spawn(move || run.end_with(run.read())),
        }
    }

    /// Ends the run if a thread has failed.
    fn end_with(&self, result: Result<()>) -> Result<()> {
        if result.is_err() {
            self.is_over.store(true, Ordering::SeqCst);
        }
        result
    }

    fn connect(&self, at: usize) -> Option<TcpStream> {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let address = addresses[at % addresses.len()].clone();
        drop(addresses);
        connect(&address).ok()
    }

    /// Sends the requests of one client, each again with its key until it is answered, at the next service if a connection is lost.
    fn write(&self, client: u64) -> Result<()> {
        let (mut at, mut stream) = (client as usize, None);
        for number in (client..self.requests).step_by(CLIENTS as usize) {
            let line = format!("POST /v1/ads/{}/views", item_of(number));
            let headers = format!("content-type: application/json\r\nidempotency-key: {number}");
            let body = json!({ "n": views_of(number) }).to_string();
            while number >= self.released.load(Ordering::SeqCst) && !self.is_over() {
                pause(POLL);
            }
            let began = now();
            loop {
                if self.is_over() {
                    return Ok(());
                }
                ensure!(began.elapsed() < ANSWER_MAX, "request {number} is not answered");
                stream = stream.or_else(|| self.connect(at));
                match stream.as_mut().and_then(|stream| request_with_body(stream, &line, &headers, &body)) {
                    Some((200, _)) => break,
                    // Redis is away.
                    Some((503, body)) => ensure!(body.contains("outcome"), "{body}"),
                    Some(other) => return Err(anyhow!("request {number}: {other:?}")),
                    None => {
                        stream = None;
                        at += 1;
                    }
                }
                pause(POLL);
            }
            self.answers.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Reads all totals at one service after the other: none that is whole goes back, wherever it is read.
    fn read(&self) -> Result<()> {
        let (mut last, mut at) = ([0; ITEMS], 0);
        while !self.is_over() {
            at += 1;
            let Some(mut stream) = self.connect(at) else { continue };
            let mut whole = 0;
            for (item, last) in last.iter_mut().enumerate() {
                let Some((status, body)) = request(&mut stream, &format!("GET /v1/ads/{item}"), "") else { break };
                ensure!(matches!(status, 200 | 503), "{status} {body}");
                let total: Value = serde_json::from_str(&body)?;
                if status == 200 && total["partial"] == false {
                    let views = total["total"].as_u64().context("a total")?;
                    ensure!(views >= *last, "item {item} went back from {last} to {views}");
                    *last = views;
                    whole += 1;
                }
            }
            self.whole_rounds.fetch_add(u64::from(whole == ITEMS), Ordering::SeqCst);
            pause(POLL);
        }
        Ok(())
    }
}

impl Threads {
    /// Waits until all requests were answered; `disturbed` is how the processes were treated meanwhile, without which they may never be.
    pub(super) fn finish(self, disturbed: Result<()>) -> Result<()> {
        let failed = |_| anyhow!("a client has panicked");
        if disturbed.is_err() {
            self.run.is_over.store(true, Ordering::SeqCst);
        }
        let mut results: Vec<Result<()>> = Vec::new();
        for writer in self.writers {
            results.push(writer.join().map_err(failed)?);
        }
        self.run.is_over.store(true, Ordering::SeqCst);
        results.push(self.reader.join().map_err(failed)?);
        // The failure of a client is the reason why the rest ended early.
        results.into_iter().collect::<Result<()>>()?;
        disturbed
    }
}
