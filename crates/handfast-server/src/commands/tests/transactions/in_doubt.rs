//! Commits whose answer gets lost between the server and its store.

use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{MemoryStore, Sources};
use handfast_txn::{Database, PercolatorOptions};

use super::*;

const UNKNOWN: &str = "UnknownTransactionCommitResult";

/// A server over a store that does what is asked of it as planned.
fn server_over(plan: Plan) -> (TestServer, Arc<Faulty<MemoryStore>>) {
    let (sources, clock) = Sources::manual(7);
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(sources.clone())), plan));
    let database = Database::local(Arc::clone(&store), sources);
    (TestServer::over(database, clock, Options::default()), store)
}

/// A transaction that has one insert, and is about to be committed.
async fn insert_one(server: &mut TestServer) -> TestClient {
    let mut client = server.connect();
    assert_eq!(client.run("d", first(insert_of(1), 1, 1)).await.int("n"), 1);
    client
}

/// The number of the operation that commits such a transaction. What comes after it is the library's question for the outcome,
/// and one more with each repetition of the commit.
async fn commit_number() -> u64 {
    let (mut server, store) = server_over(Plan::none());
    insert_one(&mut server).await;
    store.operations()
}

/// A commit that fails like this, and whose outcome is not found out for now.
async fn in_doubt(fault: Fault) -> (TestServer, TestClient) {
    let commits = commit_number().await;
    let (mut server, store) = server_over(Plan::explicit([(commits, fault), (commits + 1, Fault::LoseReply)]));
    let mut client = insert_one(&mut server).await;
    let reply = client.run("admin", within(commit(), 1, 1)).await;
    assert_eq!(store.injected().len(), 2);
    let (code, labels) = code_and_labels(&reply);
    assert_eq!(code, 9001, "{reply:?}");
    assert!(labels.iter().any(|label| label == UNKNOWN), "the commit is to be repeated: {reply:?}");
    assert!(!labels.iter().any(|label| label == TRANSIENT), "not the transaction: {reply:?}");
    (server, client)
}

#[tokio::test]
async fn a_lost_answer_is_asked_for() {
    let (mut server, store) = server_over(Plan::at(commit_number().await, Fault::LoseReply));
    let mut client = insert_one(&mut server).await;
    for _ in 0..2 {
        assert_eq!(client.run("admin", within(commit(), 1, 1)).await, rawdoc! { "ok": 1.0 });
    }
    assert_eq!(store.injected().len(), 1);
    assert_eq!(count(&mut client).await, 1);
}

#[tokio::test]
async fn a_commit_in_doubt_is_repeated_until_it_is_known() {
    let (_server, mut client) = in_doubt(Fault::LoseReply).await;
    for (database, command) in [("d", insert_of(2)), ("admin", abort())] {
        assert_eq!(client.refused(database, within(command, 1, 1)).await.0, 256, "that does not end the doubt");
    }
    for _ in 0..2 {
        assert_eq!(client.run("admin", within(commit(), 1, 1)).await, rawdoc! { "ok": 1.0 });
    }
    assert_eq!(count(&mut client).await, 1);
    assert_eq!(client.refused("d", within(insert_of(2), 1, 1)).await.0, 256);
}

/// Over a store of single documents a commit in doubt is rolled back for good once a client asks and it has not happened: no
/// client has to repeat it for ever. Whatever operation of the commit the store dies at.
#[tokio::test]
async fn a_commit_that_turns_out_rolled_back_is_not_in_doubt_any_more() {
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
    let (mut done, mut undone) = (0, 0);
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
        // The locks of the commit are free again.
        server.advance(Duration::from_secs(6));
        let replies =
            [client.run("admin", within(commit(), 1, 1)).await, client.run("admin", within(commit(), 1, 1)).await];
        store.deliver_late().await;
        let has_happened = count(&mut client).await == 1;
        *(if has_happened { &mut done } else { &mut undone }) += 1;
        for reply in replies {
            if has_happened {
                assert_eq!(reply, rawdoc! { "ok": 1.0 }, "{fault:?} at {number}");
            } else {
                assert_eq!(code_and_labels(&reply), (251, vec![TRANSIENT.to_owned()]), "{fault:?} at {number}");
            }
        }
        assert_eq!(server.shared.sessions.transactions().len(), 0, "{fault:?} at {number}");
        // The session goes on.
        assert_eq!(client.run("d", super::first(insert_of(2), 1, 2)).await.int("n"), 1);
        assert_eq!(client.run("admin", within(commit(), 1, 2)).await, rawdoc! { "ok": 1.0 });
        assert_eq!(server.shared.database.counts().open(), 0);
    }
    assert!(done > 0 && undone > 0, "{done} done, {undone} not");
}

/// No request ends it if its client is gone: it must not stay until the server is restarted.
#[tokio::test]
async fn a_session_whose_commit_is_in_doubt_can_end() {
    let kills = [
        rawdoc! { "killAllSessions": [] },
        rawdoc! { "killSessions": [lsid(1)] },
        rawdoc! { "endSessions": [lsid(1)] },
        rawdoc! { "killAllSessionsByPattern": [{ "lsid": lsid(1) }] },
    ];
    for end in kills.into_iter().map(Some).chain([None]) {
        for (fault, has_happened) in [(Fault::LoseReply, true), (Fault::LoseRequest, false)] {
            let (mut server, mut client) = in_doubt(fault).await;
            let sessions = Arc::clone(&server.shared.sessions);
            server.advance(Duration::from_secs(29 * 60));
            assert_eq!((sessions.len(), sessions.transactions().len()), (1, 1), "it is shown");
            match &end {
                Some(kill) => drop(server.connect().run("admin", kill.clone()).await),
                None => server.advance(Duration::from_secs(2 * 60)),
            }
            assert_eq!((sessions.len(), sessions.transactions().len()), (0, 0), "{end:?}");
            // A client that asks after all gets the answer that it gets after a restart: the outcome in the store.
            for _ in 0..2 {
                let reply = client.run("admin", within(commit(), 1, 1)).await;
                match has_happened {
                    true => assert_eq!(reply, rawdoc! { "ok": 1.0 }),
                    false => assert_eq!(code_and_labels(&reply), (251, vec![TRANSIENT.to_owned()])),
                }
            }
            assert_eq!(count(&mut client).await, i32::from(has_happened));
        }
    }
}

/// The end of a session comes while its commit is under way, which then turns out to be in doubt.
#[tokio::test]
async fn a_session_that_waits_for_its_commit_does_not_wait_for_doubts() {
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
