//! Requests with a ticket: a request that is sent again gets its first answer, whatever happened to the earlier
//! attempts.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{
    Delete, DeleteStatement, DocumentStore, FindAndModify, Insert, Modification, RequestedDocument, ReturnDocument,
    StoreExt, Ticket, Update, UpdateSpec, UpdateStatement,
};
use handfast_txn::Database;

use crate::crash_points::Late;
use crate::support::*;

/// A request that a driver may send again.
#[derive(Clone, Copy, Debug)]
enum Request {
    Insert,
    Update,
    Delete,
    FindAndModify,
}

const REQUESTS: [Request; 4] = [Request::Insert, Request::Update, Request::Delete, Request::FindAndModify];

fn increment() -> UpdateSpec {
    UpdateSpec::Document(rawdoc! { "$inc": { "balance": 7 } })
}

impl Request {
    /// Sends the request, and returns the answer as text. An error of a statement counts as an error of the
    /// request.
    async fn send(self, database: &Database) -> handfast_store::Result<String> {
        let ticket = Some(Ticket { session: [3; 16], number: 1, statement: 0, requested: RequestedDocument::Nothing });
        let first =
            |errors: Vec<handfast_store::WriteError>| errors.into_iter().next().map_or(Ok(()), |e| Err(e.error));
        Ok(match self {
            Request::Insert => {
                let documents = vec![rawdoc! { "_id": "Ann", "balance": 1 }, rawdoc! { "_id": "Eve", "balance": 2 }];
                let outcome = database.insert(Insert { ticket, ..Insert::new(accounts(), documents) }).await?;
                first(outcome.errors)?;
                format!("{}", outcome.inserted)
            }
            Request::Update => {
                let statements = ["Bob", "Joe"].map(|name| UpdateStatement::one(rawdoc! { "_id": name }, increment()));
                let zoe = UpdateStatement::one(rawdoc! { "name": "Zoe" }, increment());
                let statements = statements.into_iter().chain([UpdateStatement { upsert: true, ..zoe }]).collect();
                let outcome = database.update(Update { ticket, ..Update::new(accounts(), statements) }).await?;
                first(outcome.errors)?;
                format!("{} {} {:?}", outcome.matched, outcome.modified, outcome.upserted)
            }
            Request::Delete => {
                let any = rawdoc! { "balance": { "$gt": 0 } };
                let one = DeleteStatement { filter: any, multi: false, hint: None };
                let outcome = database.delete(Delete { ticket, ..Delete::new(accounts(), vec![one]) }).await?;
                first(outcome.errors)?;
                format!("{}", outcome.deleted)
            }
            Request::FindAndModify => {
                let returns = ReturnDocument::After;
                let modification =
                    Modification::Update { update: increment(), upsert: false, returns, array_filters: Vec::new() };
                let request = FindAndModify::new(accounts(), rawdoc! { "_id": "Bob" }, modification);
                format!("{:?}", database.find_and_modify(FindAndModify { ticket, ..request }).await?.value)
            }
        })
    }
}

/// Returns the documents without the protocol's field, and without all that differs from run to run.
async fn contents(bank: &Bank) -> Vec<RawDocumentBuf> {
    let mut found = Vec::new();
    for document in bank.process().find_all(handfast_store::Find::new(accounts(), rawdoc! {})).await.unwrap() {
        let name = document.get_str("_id").unwrap_or("Zoe").to_owned();
        found.push(rawdoc! { "name": name, "balance": document.get_i32("balance").unwrap() });
    }
    found.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    found
}

/// Sends a request whose operation of this number meets a fault, and repeats it: once in the same process, and
/// twice in a new one.
async fn scenario(request: Request, number: u64, fault: Fault, late: Late, expected: &[RawDocumentBuf]) -> bool {
    let case = format!("{request:?}, {fault:?} at {number}, late requests {late:?}");
    let bank = Bank::of_the_seed().await;
    let faulty = Arc::new(Faulty::new(bank.store.clone(), Plan::at(number, fault)));
    let database = bank.process_over(faulty.clone());
    let first = request.send(&database).await;
    database.flush().await.ok();
    if late == Late::Soon {
        faulty.deliver_late().await;
    }
    faulty.restart();
    bank.clock.advance(LOCK_TIME);
    let mut answers: Vec<_> = first.iter().cloned().collect();
    answers.push(request.send(&database).await.unwrap_or_else(|error| panic!("{case}: {error}")));
    if late == Late::PastRecovery {
        faulty.deliver_late().await;
        bank.clock.advance(LOCK_TIME);
    }
    let after_restart = bank.process();
    for _ in 0..2 {
        answers.push(request.send(&after_restart).await.unwrap_or_else(|error| panic!("{case}: {error}")));
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{case}: {answers:?}");
    database.flush().await.unwrap();
    assert_eq!(contents(&bank).await, expected, "{case}");
    first.is_ok()
}

#[tokio::test]
async fn every_operation_of_a_request_meets_every_fault() {
    for request in REQUESTS {
        let bank = Bank::of_the_seed().await;
        let counting = Arc::new(Faulty::new(bank.store.clone(), Plan::none()));
        let database = bank.process_over(counting.clone());
        request.send(&database).await.unwrap();
        database.flush().await.unwrap();
        let (operations, expected) = (counting.operations(), contents(&bank).await);
        let mut answers: BTreeMap<bool, u32> = BTreeMap::new();
        for number in 0..operations {
            for fault in Fault::ALL_OUTCOMES {
                for late in [Late::Soon, Late::PastRecovery] {
                    let answered = scenario(request, number, fault, late, &expected).await;
                    *answers.entry(answered).or_default() += 1;
                }
            }
        }
        println!(
            "{request:?}: {operations} operations, {} faults, 2 times for late requests: {answers:?}",
            Fault::ALL_OUTCOMES.len()
        );
        assert!(answers.len() == 2 && answers.values().all(|count| *count >= 4), "{answers:?}");
    }
}

/// The first and the second answer are lost; the third one equals the first.
#[tokio::test]
async fn an_answer_that_is_lost_twice() {
    for request in REQUESTS {
        let bank = Bank::of_the_seed().await;
        let expected = request.send(&bank.process()).await.unwrap();
        let after = contents(&bank).await;
        let bank = Bank::of_the_seed().await;
        // The request is carried out twice, and both answers are lost.
        for _ in 0..2 {
            let _lost = request.send(&bank.process()).await;
        }
        assert_eq!(request.send(&bank.process()).await.unwrap(), expected, "{request:?}");
        assert_eq!(contents(&bank).await, after, "{request:?}");
    }
}
