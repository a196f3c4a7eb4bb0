use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_wire::{Flags, Limits, Message, OpMsg};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::{Exploration, PairOutcome};
use crate::frame::read;
use crate::{Fault, ObservedOperation, Result};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A server whose only data is a list of payments. It does not add a payment whose number it has
/// already.
struct Payments {
    numbers: Arc<Mutex<Vec<i32>>>,
    _tasks: JoinSet<()>,
}

async fn start() -> (String, Payments) {
    start_with(u32::MAX).await
}

/// Starts a server that answers the first requests, and closes the connection of each further one.
async fn start_with(answered_max: u32) -> (String, Payments) {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let numbers = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    let (kept, answered) = (Arc::clone(&numbers), Arc::new(AtomicU32::new(0)));
    tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&kept), answered_max, Arc::clone(&answered)));
        }
    });
    (address, Payments { numbers, _tasks: tasks })
}

async fn serve(mut stream: TcpStream, numbers: Arc<Mutex<Vec<i32>>>, answered_max: u32, answered: Arc<AtomicU32>) {
    while let Ok(Some(frame)) = read(&mut stream, &Limits::default()).await {
        if answered.fetch_add(1, Ordering::SeqCst) >= answered_max {
            return;
        }
        let (header, message) = Message::decode(&frame.bytes, &Limits::default()).unwrap();
        let Message::Msg(request) = message else { return };
        let number = request.body.get_i32("number").unwrap();
        {
            let mut numbers = numbers.lock().unwrap();
            if number == 0 || !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        let mut bytes = Vec::new();
        OpMsg::new(Flags::default(), &rawdoc! { "ok": 1.0 }).encode(1, header.request_id, &mut bytes);
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Sends a command; returns whether it succeeded.
async fn succeeds(uri: &str, command: &RawDocumentBuf) -> bool {
    let address = uri.strip_prefix("mongodb://").and_then(|uri| uri.strip_suffix('/')).unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut bytes = Vec::new();
    OpMsg::new(Flags::default(), command).encode(1, 0, &mut bytes);
    if stream.write_all(&bytes).await.is_err() {
        return false;
    }
    let Ok(Some(reply)) = read(&mut stream, &Limits::default()).await else { return false };
    let (_, Message::Msg(reply)) = Message::decode(&reply.bytes, &Limits::default()).unwrap() else { return false };
    reply.body.get_f64("ok").is_ok_and(|ok| ok == 1.0)
}

/// Sends a payment until it succeeds. With the number 0 the payment has no number.
async fn pay(uri: String, number: i32) {
    while !succeeds(&uri, &rawdoc! { "pay": 10, "number": number }).await {}
}

async fn is_paid_once(payments: &Payments) -> std::result::Result<(), String> {
    match payments.numbers.lock().unwrap().len() {
        1 => Ok(()),
        count => Err(format!("{count} payments")),
    }
}

async fn explored(exploration: Exploration, number: i32) -> Result<Vec<String>> {
    let explored = exploration.explore(start, async |uri| pay(uri, number).await, is_paid_once).await?;
    let lines = explored.pairs.iter().map(|(pair, outcome)| format!("{pair} {outcome}"));
    assert_eq!(explored.check().is_ok(), explored.pairs.iter().all(|(_, outcome)| *outcome == PairOutcome::Right));
    Ok(lines.collect())
}

#[tokio::test]
async fn a_payment_without_a_number_is_made_twice() {
    let found = explored(Exploration::default(), 0).await.unwrap();
    assert_eq!(found, ["pay:1/lose-request right", "pay:1/lose-reply 2 payments"]);
    let faults = vec![Fault::Cut, Fault::Error, Fault::Duplicate];
    let found = explored(Exploration { faults: faults.clone(), ..Exploration::default() }, 0).await.unwrap();
    assert_eq!(found, ["pay:1/cut 2 payments", "pay:1/error right", "pay:1/duplicate 2 payments"]);
    let found = explored(Exploration { faults, ..Exploration::default() }, 7).await.unwrap();
    assert_eq!(found, ["pay:1/cut right", "pay:1/error right", "pay:1/duplicate right"]);
}

/// Each pair has one server of its own, and the run without faults has one. Nothing else is started, and only the operations that are asked for are explored.
#[tokio::test]
async fn an_exploration_of_n_pairs_starts_n_and_one_servers() {
    let starts = AtomicU32::new(0);
    let start = async || {
        starts.fetch_add(1, Ordering::SeqCst);
        start().await
    };
    let scenario = async |uri: String| {
        for number in 7..10 {
            pay(uri.clone(), number).await;
        }
    };
    let is_paid = async |payments: &Payments| match payments.numbers.lock().unwrap().len() {
        3 => Ok(()),
        count => Err(format!("{count} payments")),
    };
    let explored = Exploration::default().explore(start, scenario, is_paid).await.unwrap();
    explored.check().unwrap();
    assert_eq!((explored.pairs.len(), starts.swap(0, Ordering::SeqCst)), (6, 7));

    let only = |operation: &ObservedOperation| operation.operation.number.get() == 2;
    let exploration = Exploration { only, ..Exploration::default() };
    let explored = exploration.explore(start, scenario, is_paid).await.unwrap();
    let pairs: Vec<_> = explored.pairs.iter().map(|(pair, _)| pair.to_string()).collect();
    assert_eq!(pairs, ["pay:2/lose-request", "pay:2/lose-reply"]);
    assert_eq!(starts.into_inner(), 3);
}

#[tokio::test]
async fn a_scenario_that_does_not_end_is_a_finding() {
    let exploration =
        Exploration { faults: vec![Fault::HalfOpen], time_limit: Duration::from_millis(300), ..Exploration::default() };
    assert_eq!(explored(exploration, 7).await.unwrap(), ["pay:1/half-open the scenario did not end"]);
}

#[tokio::test]
async fn a_pair_that_is_not_reached_is_not_right() {
    let runs = AtomicU32::new(0);
    let scenario = async |uri: String| {
        let name = if runs.fetch_add(1, Ordering::SeqCst) == 0 { "pay" } else { "give" };
        let command = RawDocumentBuf::try_from(&bson::doc! { name: 10, "number": 7 }).unwrap();
        assert!(succeeds(&uri, &command).await);
    };
    let explored = Exploration::default().explore(start, scenario, is_paid_once).await.unwrap();
    assert_eq!(explored.pairs.len(), 2);
    assert!(explored.pairs.iter().all(|(_, outcome)| *outcome == PairOutcome::NotReached));
    let error = explored.check().unwrap_err().to_string();
    assert!(
        error.starts_with("2 of 2 pairs are not right:\npay:1/lose-request: the operation did not occur\npay:1/"),
        "{error}"
    );
}

/// The copy is sent, and the server closes its connection.
#[tokio::test]
async fn a_pair_whose_copy_is_not_executed_is_not_right() {
    let exploration = Exploration { faults: vec![Fault::Duplicate], ..Exploration::default() };
    for (answered_max, expected) in [(1, PairOutcome::NotDelivered), (2, PairOutcome::Right)] {
        let start = async || start_with(answered_max).await;
        let explored = exploration.explore(start, async |uri| pay(uri, 7).await, is_paid_once).await.unwrap();
        assert_eq!(explored.pairs.into_iter().map(|(_, outcome)| outcome).collect::<Vec<_>>(), [expected]);
    }
}

#[tokio::test]
async fn what_is_wrong_without_a_fault_is_an_error() {
    let error = Exploration::default().explore(start, async |_| {}, async |_| Ok(())).await.unwrap_err().to_string();
    assert_eq!(error, "the scenario fails without any fault: it sends no operation to the proxy");
    let error = Exploration::default().explore(start, async |_| {}, is_paid_once).await.unwrap_err().to_string();
    assert_eq!(error, "the scenario fails without any fault: 0 payments");
    let none = Exploration { only: |_| false, ..Exploration::default() };
    let error = explored(none, 7).await.unwrap_err().to_string();
    assert_eq!(error, "the scenario fails without any fault: `only` takes none of its operations");
}
