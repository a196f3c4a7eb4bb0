//! Commits whose result gets lost between the server and its store.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use handfast_store::{DocumentStore, MemoryStore, Sources};
use handfast_txn::{Database, PercolatorOptions};

use super::{TRANSIENT, abort, code_and_labels, commit, count, first, insert_of, within};
use crate::options::Options;
use crate::sessions::NumberState;
use crate::testing::{ReplyFields, TestClient, TestServer, labels, lsid};

const UNKNOWN: &str = "UnknownTransactionCommitResult";

/// Starts a server over a store with these faults.
fn server_over(plan: Plan) -> (TestServer, Arc<Faulty<MemoryStore>>) {
    let (sources, clock) = Sources::manual(7);
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(sources.clone())), plan));
    let database = Database::local(Arc::clone(&store), sources);
    (TestServer::over(database, clock, Options::default()), store)
}

/// Begins a transaction and inserts one document in it.
async fn insert_one(server: &mut TestServer) -> TestClient {
    let mut client = server.connect();
    assert_eq!(client.run("d", first(insert_of(1), 1, 1)).await.int("n"), 1);
    client
}

fn the_commit() -> Address {
    Address::first(Operation::Commit)
}

/// Commits with this fault, and loses the reply to the request that reads the outcome too: it begins with a flush.
async fn in_doubt(fault: Fault) -> (TestServer, TestClient) {
    let outcome = Address::first(Operation::Flush);
    let (mut server, store) = server_over(Plan::at_requests([(the_commit(), fault), (outcome, Fault::LoseReply)]));
    let mut client = insert_one(&mut server).await;
    let reply = client.run("admin", within(commit(), 1, 1)).await;
    assert_eq!(store.injected().len(), 2);
    let (code, labels) = code_and_labels(&reply);
    assert_eq!(code, 9001, "{reply:?}");
    assert!(labels.iter().any(|label| label == UNKNOWN), "the commit is to be repeated: {reply:?}");
    assert!(!labels.iter().any(|label| label == TRANSIENT), "the transaction is not to be repeated: {reply:?}");
    (server, client)
}

#[tokio::test]
async fn the_outcome_of_a_commit_whose_reply_is_lost_is_read() {
    let (mut server, store) = server_over(Plan::at_request(the_commit(), Fault::LoseReply));
    let mut client = insert_one(&mut server).await;
    for _ in 0..2 {
        assert_eq!(client.run("admin", within(commit(), 1, 1)).await, rawdoc! { "ok": 1.0 });
    }
    assert_eq!(store.injected().len(), 1);
    assert_eq!(count(&mut client).await, 1);
}

#[tokio::test]
async fn a_commit_in_doubt_can_be_repeated_until_its_outcome_is_known() {
    let (_server, mut client) = in_doubt(Fault::LoseReply).await;
    for (database, command) in [("d", insert_of(2)), ("admin", abort())] {
        assert_eq!(client.refused(database, within(command, 1, 1)).await.0, 256, "the outcome is still unknown");
    }
    for _ in 0..2 {
        assert_eq!(client.run("admin", within(commit(), 1, 1)).await, rawdoc! { "ok": 1.0 });
    }
    assert_eq!(count(&mut client).await, 1);
    assert_eq!(client.refused("d", within(insert_of(2), 1, 1)).await.0, 256);
}

/// On a store that is atomic one document at a time, a repeated commit rolls the transaction back for good if it has not been
/// applied, so that no client repeats it for ever. The store crashes at each operation of the commit.
#[tokio::test]
async fn a_repeated_commit_that_was_not_applied_is_rolled_back() {
    let over = |plan: Plan| {
        let (sources, clock) = Sources::manual(7);
        let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(sources.clone())), plan));
        let options = PercolatorOptions { cleaning_interval: None, ..PercolatorOptions::default() };
        let database = Database::percolator(Arc::clone(&store) as Arc<dyn DocumentStore>, sources, options).unwrap();
        (TestServer::over(database, clock, Options::default()), store)
    };
    let (mut server, store) = over(Plan::none());
    let mut client = insert_one(&mut server).await;
    let first = store.operations();
    client.run("admin", within(commit(), 1, 1)).await;
    server.shared.database.flush().await.unwrap();
    let (mut applied, mut rolled_back) = (0, 0);
    for (number, fault) in
        (first..store.operations()).flat_map(|at| [(at, Fault::CrashBefore), (at, Fault::CrashAfter)])
    {
        let (mut server, store) = over(Plan::at(number, fault));
        let mut client = insert_one(&mut server).await;
        let reply = client.run("admin", within(commit(), 1, 1)).await;
        if !labels(&reply).iter().any(|label| label == UNKNOWN) {
            continue;
        }
        store.restart();
        // The locks of the commit have expired.
        server.advance(Duration::from_secs(6));
        let replies =
            [client.run("admin", within(commit(), 1, 1)).await, client.run("admin", within(commit(), 1, 1)).await];
        store.deliver_late().await;
        let is_applied = count(&mut client).await == 1;
        *(if is_applied { &mut applied } else { &mut rolled_back }) += 1;
        for reply in replies {
            if is_applied {
                assert_eq!(reply, rawdoc! { "ok": 1.0 }, "{fault:?} at {number}");
            } else {
                assert_eq!(code_and_labels(&reply), (251, vec![TRANSIENT.to_owned()]), "{fault:?} at {number}");
            }
        }
        assert_eq!(server.shared.sessions.transactions().len(), 0, "{fault:?} at {number}");
        // The session can be used for the next transaction.
        assert_eq!(client.run("d", super::first(insert_of(2), 1, 2)).await.int("n"), 1);
        assert_eq!(client.run("admin", within(commit(), 1, 2)).await, rawdoc! { "ok": 1.0 });
        assert_eq!(server.shared.database.counts().open(), 0);
    }
    assert!(applied > 0 && rolled_back > 0, "{applied} applied, {rolled_back} rolled back");
}

/// A session whose client is gone gets no more requests. It must not stay until the server is restarted.
#[tokio::test]
async fn a_session_whose_commit_is_in_doubt_can_end() {
    let kills = [
        rawdoc! { "killAllSessions": [] },
        rawdoc! { "killSessions": [lsid(1)] },
        rawdoc! { "endSessions": [lsid(1)] },
        rawdoc! { "killAllSessionsByPattern": [{ "lsid": lsid(1) }] },
    ];
    for end in kills.into_iter().map(Some).chain([None]) {
        for (fault, is_applied) in [(Fault::LoseReply, true), (Fault::LoseRequest, false)] {
            let (mut server, mut client) = in_doubt(fault).await;
            let sessions = Arc::clone(&server.shared.sessions);
            server.advance(Duration::from_secs(29 * 60));
            assert_eq!((sessions.len(), sessions.transactions().len()), (1, 1), "it is shown");
            match &end {
                Some(kill) => drop(server.connect().run("admin", kill.clone()).await),
                None => server.advance(Duration::from_secs(2 * 60)),
            }
            assert_eq!((sessions.len(), sessions.transactions().len()), (0, 0), "{end:?}");
            // A client that repeats the commit later gets the outcome from the store, as it does after a restart.
            for _ in 0..2 {
                let reply = client.run("admin", within(commit(), 1, 1)).await;
                match is_applied {
                    true => assert_eq!(reply, rawdoc! { "ok": 1.0 }),
                    false => assert_eq!(code_and_labels(&reply), (251, vec![TRANSIENT.to_owned()])),
                }
            }
            assert_eq!(count(&mut client).await, i32::from(is_applied));
        }
    }
}

/// A session is ended during its commit, whose outcome is then unknown.
#[tokio::test]
async fn a_session_that_was_ended_during_its_commit_does_not_wait_for_an_unknown_outcome() {
    let mut server = TestServer::transactional();
    insert_one(&mut server).await;
    let sessions = Arc::clone(&server.shared.sessions);
    let open = sessions.transactions().pop().unwrap();
    assert!(sessions.begin_commit(&open).is_ok());
    assert!(sessions.end(open.session));
    assert_eq!(sessions.len(), 1);
    sessions.set_state(&open, NumberState::InDoubt(Arc::clone(&open)));
    assert_eq!(sessions.len(), 0);
}
