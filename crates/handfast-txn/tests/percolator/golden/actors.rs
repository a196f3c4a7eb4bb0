//! The actors of a script: processes, cleaners and a plain client of the store.
//!
//! | command | meaning |
//! | --- | --- |
//! | `T begins`, `T begins serializable` | begins a transaction, and shows its start timestamp |
//! | `T reads Bob`, `T finds over 8` | reads a balance, or the accounts with more than this, in the transaction |
//! | `T sets Bob 5`, `T removes Bob`, `T pays 7` | changes accounts in the transaction |
//! | `T commits` | commits, including the requests after the answer |
//! | `T starts to commit` | continues up to its first request to the store; likewise `to read Bob`, `to find over 8`, `to clean`, and `to pay 7`: a whole transaction in a closure, which is run again after a conflict |
//! | `T sends` | the store executes and answers all waiting requests: one round trip |
//! | `T sends the first`, `.. the second` | the store executes and answers one of them |
//! | `T sends until Joe lock` | makes round trips until Joe's row shows `lock` |
//! | `T sends, answers lost` | the store executes the requests, and the connection breaks; likewise `requests lost`; `late`: they arrive later; `twice`: a copy arrives later |
//! | `T finishes` | makes round trips up to the answer; later requests wait |
//! | `T dies` | the process sends no more requests |
//! | `what is late arrives` | the late requests of all processes arrive |
//! | `T is asked` | shows the outcome of the commit whose outcome was unknown |
//! | `the cleaner passes` | shows the numbers of resolved locks, live locks and collected rows |
//! | `everybody reads` | shows the balances that a new process reads |
//! | `6 s pass` | moves all clocks |

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use handfast_mql::Code;
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{Find, MemoryStore, StoreExt};
use handfast_txn::{Database, Error, Outcome, Percolator, Result, Transaction, TransactionId, TransactionOptions};
use tokio::task::JoinHandle;

use super::rows;
use crate::support::*;

type Doing = Pin<Box<dyn Future<Output = Came> + Send>>;

/// The result of a command that has no other result.
pub(super) const DONE: &str = "done";
/// The most round trips of a command.
const ROUNDS_MAX: usize = 100;

pub(super) struct Stage {
    pub(super) bank: Bank,
    actors: BTreeMap<String, Actor>,
    cleaner: Percolator,
}

/// A process. Each of its requests waits until it is sent.
struct Actor {
    store: Arc<Faulty<MemoryStore>>,
    database: Database,
    engine: Arc<Percolator>,
    tx: Option<Transaction>,
    doing: Option<JoinHandle<Came>>,
    unknown: Option<TransactionId>,
}

/// A result in the words of scripts.
pub(super) struct Came {
    pub(super) said: String,
    pub(super) tx: Option<Transaction>,
    unknown: Option<TransactionId>,
}

impl Came {
    pub(super) fn of(said: Result<String>) -> Came {
        let unknown = match &said {
            Err(Error::CommitUnknown { id, .. }) => Some(*id),
            _ => None,
        };
        Came { said: said.unwrap_or_else(|error| failed(&error)), tx: None, unknown }
    }
}

impl Stage {
    pub(super) async fn new() -> Stage {
        let bank = Bank::of_the_seed().await;
        let cleaner = Percolator::new(bank.store.clone(), bank.sources.clone(), options()).unwrap();
        Stage { bank, actors: BTreeMap::new(), cleaner }
    }

    /// Executes a line of a script and returns its result; `None` if the line is no command.
    pub(super) async fn play(&mut self, line: &str) -> Option<Option<String>> {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            [seconds, "s", "pass"] => self.bank.clock.advance(Duration::from_secs(seconds.parse().ok()?)),
            ["everybody", "reads"] => {
                let (bob, joe) = self.bank.balances().await;
                return Some(Some(format!("Bob {bob}, Joe {joe}")));
            }
            ["what", "is", "late", "arrives"] => {
                for actor in self.actors.values() {
                    actor.store.deliver_late().await;
                }
            }
            ["the", "cleaner", "passes"] => return Some(Some(clean(&self.cleaner).await.said)),
            [name, ref does @ ..] => {
                if !self.actors.contains_key(name) {
                    self.actors.insert(name.to_owned(), Actor::new(&self.bank));
                }
                let actor = self.actors.get_mut(name)?;
                return actor.play(&self.bank, does).await;
            }
            [] => return None,
        }
        Some(None)
    }
}

impl Actor {
    fn new(bank: &Bank) -> Actor {
        let store = Arc::new(Faulty::new(bank.store.clone(), Plan::always(Fault::FreezeBefore)));
        let database = bank.process_over(store.clone());
        let engine = Percolator::new(store.clone(), bank.sources.clone(), options()).unwrap();
        Actor { store, database, engine: Arc::new(engine), tx: None, doing: None, unknown: None }
    }

    async fn play(&mut self, bank: &Bank, does: &[&str]) -> Option<Option<String>> {
        match *does {
            ["sends"] => self.send(None).await,
            ["sends,", "answers", "lost"] => self.send(Some(Fault::LoseReply)).await,
            ["sends,", "requests", "lost"] => self.send(Some(Fault::LoseRequest)).await,
            ["sends,", "late"] => self.send(Some(Fault::DeliverLate)).await,
            ["sends,", "twice"] => self.send(Some(Fault::Duplicate)).await,
            ["sends,", "answers", "lost", "for", "long"] => self.send(Some(Fault::CrashAfter)).await,
            ["is", "back"] => self.store.restart(),
            ["sends", "the", which] => {
                let place = ["first", "second"].iter().position(|word| *word == which)?;
                self.store.release_one(self.store.frozen_operations().get(place)?.0, None);
                let_tasks_run().await;
            }
            ["sends", "until", name, what] => self.send_until(bank, name, what).await,
            ["dies"] => drop((self.doing.take(), self.tx.take())),
            ["starts", "to", ref what @ ..] => {
                let doing = self.doing(what)?;
                self.doing = Some(tokio::spawn(doing));
                let_tasks_run().await;
            }
            ["finishes"] => return Some(Some(self.finish().await)),
            ref what => {
                self.doing = Some(tokio::spawn(self.doing(what)?));
                let said = self.finish().await;
                while self.store.frozen() > 0 {
                    self.send(None).await;
                }
                return Some(Some(said).filter(|said| said != DONE));
            }
        }
        Some(None)
    }

    /// Carries out one round trip.
    async fn send(&self, fault: Option<Fault>) {
        let_tasks_run().await;
        for (number, _) in self.store.frozen_operations() {
            self.store.release_one(number, fault);
        }
        let_tasks_run().await;
    }

    async fn send_until(&self, bank: &Bank, name: &str, what: &str) {
        for _ in 0..ROUNDS_MAX {
            let rows = rows::shown(bank).await;
            if rows.iter().any(|row| row.starts_with(name) && row.contains(what)) {
                return;
            }
            self.send(None).await;
        }
        panic!("{name} never has {what}");
    }

    /// Continues to the answer.
    async fn finish(&mut self) -> String {
        let doing = self.doing.take().expect("it does something");
        for _ in 0..ROUNDS_MAX {
            let_tasks_run().await;
            if doing.is_finished() {
                let came = doing.await.unwrap();
                (self.tx, self.unknown) = (came.tx.or(self.tx.take()), came.unknown.or(self.unknown.take()));
                return came.said;
            }
            self.send(None).await;
        }
        panic!("it never ends");
    }

    fn in_transaction(&mut self, deed: Deed) -> Option<Doing> {
        Some(Box::pin(in_transaction(self.tx.take()?, deed)))
    }

    /// Returns the work of a command that runs in the background of the script.
    fn doing(&mut self, what: &[&str]) -> Option<Doing> {
        let database = self.database.clone();
        let number = |text: &str| text.parse::<i32>().ok();
        Some(match *what {
            ["begins"] => Box::pin(begin(database, TransactionOptions::default())),
            ["begins", "serializable"] => Box::pin(begin(database, TransactionOptions::serializable())),
            ["pay", of] => {
                let of = number(of)?;
                Box::pin(async move {
                    let paid = database.transaction(|tx| async move { change(&tx, &paid(of)).await }).await;
                    Came::of(paid.map(|()| "committed".to_owned()))
                })
            }
            ["clean"] => {
                let engine = Arc::clone(&self.engine);
                Box::pin(async move { clean(&engine).await })
            }
            ["is", "asked"] => {
                let id = self.unknown?;
                Box::pin(async move {
                    let outcome = database.outcome(id).await;
                    let said = outcome.map(|outcome| match outcome {
                        Outcome::Committed(at) => format!("committed at {}", rows::moment(at.0 as i64)),
                        Outcome::RolledBack => "rolled back".to_owned(),
                        Outcome::Forgotten => "forgotten".to_owned(),
                    });
                    Came::of(said.map_err(Error::of_store))
                })
            }
            ["commit" | "commits"] => {
                let tx = self.tx.take()?;
                Box::pin(async move { Came::of(tx.commit().await.map(|_| "committed".to_owned())) })
            }
            ["reads" | "read", name] => self.in_transaction(Deed::Find(rawdoc! { "_id": name }))?,
            ["finds" | "find", "over", least] => {
                self.in_transaction(Deed::Find(rawdoc! { "balance": { "$gt": number(least)? } }))?
            }
            ["sets", name, balance] => {
                self.in_transaction(Deed::Change(vec![(name.to_owned(), Change::Set(number(balance)?))]))?
            }
            ["removes", name] => self.in_transaction(Deed::Change(vec![(name.to_owned(), Change::Remove)]))?,
            ["pays", of] => self.in_transaction(Deed::Change(paid(number(of)?)))?,
            _ => return None,
        })
    }
}

/// Runs the tasks until all of them wait.
async fn let_tasks_run() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    // The time of the test moves: a transaction pauses before a locked row.
    tokio::time::sleep(Duration::from_millis(1)).await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

pub(super) async fn begin(database: Database, options: TransactionOptions) -> Came {
    match database.begin_with(options).await {
        Ok(tx) => {
            let said = rows::moment(tx.read_at().unwrap().0 as i64);
            Came { tx: Some(tx), ..Came::of(Ok(said)) }
        }
        Err(error) => Came::of(Err(error)),
    }
}

/// A command in an open transaction.
pub(super) enum Deed {
    Find(RawDocumentBuf),
    Change(Vec<(String, Change)>),
}

pub(super) async fn in_transaction(tx: Transaction, deed: Deed) -> Came {
    let said = match deed {
        Deed::Find(filter) => found(&tx, filter).await,
        Deed::Change(changes) => change(&tx, &changes).await.map(|()| DONE.to_owned()),
    };
    Came { tx: Some(tx), ..Came::of(said) }
}

async fn clean(engine: &Percolator) -> Came {
    let cleaned = engine.clean().await.map_err(Error::of_store);
    Came::of(cleaned.map(|of| format!("resolved {}, alive {}, collected {}", of.resolved, of.alive, of.collected)))
}

async fn found(tx: &Transaction, filter: RawDocumentBuf) -> Result<String> {
    let found = tx.find_all(Find { sort: rawdoc! { "_id": 1 }, ..Find::new(accounts(), filter) }).await?;
    let shown = |of: &RawDocumentBuf| format!("{} {}", of.get_str("_id").unwrap(), of.get_i32("balance").unwrap());
    let shown: Vec<_> = found.iter().map(shown).collect();
    Ok(if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") })
}

pub(super) enum Change {
    Set(i32),
    Add(i32),
    Remove,
}

/// Returns the changes by which Bob pays Joe this amount.
pub(super) fn paid(of: i32) -> Vec<(String, Change)> {
    vec![("Bob".to_owned(), Change::Add(-of)), ("Joe".to_owned(), Change::Add(of))]
}

/// Changes accounts, all of which are read first, at once.
async fn change(tx: &Transaction, changes: &[(String, Change)]) -> Result<()> {
    let ids: bson::RawArrayBuf = changes.iter().map(|(name, _)| bson::RawBson::String(name.clone())).collect();
    tx.find_all(Find::new(accounts(), rawdoc! { "_id": { "$in": ids } })).await?;
    for (name, change) in changes {
        let filter = rawdoc! { "_id": name.as_str() };
        match change {
            Change::Set(balance) => drop(tx.update_one(&accounts(), filter, set(*balance)).await?),
            Change::Add(of) => drop(tx.update_one(&accounts(), filter, rawdoc! { "$inc": { "balance": *of } }).await?),
            Change::Remove => drop(tx.delete_one(&accounts(), filter).await?),
        }
    }
    Ok(())
}

fn set(balance: i32) -> RawDocumentBuf {
    rawdoc! { "$set": { "balance": balance } }
}

fn failed(error: &Error) -> String {
    match error {
        Error::CommitUnknown { .. } => "unknown".to_owned(),
        error if error.code() == Code::SnapshotTooOld => "snapshot too old".to_owned(),
        Error::Conflict(_) => "conflict".to_owned(),
        Error::Store(error) => format!("error {}", error.code().0),
    }
}
