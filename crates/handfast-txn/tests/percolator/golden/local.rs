//! The scripts with only commands of clients run over the engine `Local`: clients get the same results.
//!
//! Each actor is a process of its own there, too: it does not see the claims of the others before the
//! commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::rawdoc;
use handfast_store::{MemoryStore, Sources, StoreExt};
use handfast_txn::{Database, Transaction, TransactionOptions};

use super::actors::{Came, Change, DONE, Deed, begin, in_transaction, paid};
use crate::support::{accounts, balances};

/// The actors, and the store that they share.
pub(super) struct Stage {
    store: Arc<MemoryStore>,
    sources: Sources,
    actors: BTreeMap<String, (Database, Option<Transaction>)>,
}

impl Stage {
    pub(super) async fn new() -> Stage {
        let store = Arc::new(MemoryStore::new(Sources::seeded(1)));
        for (name, balance) in [("Bob", 10), ("Joe", 2)] {
            store.insert_one(&accounts(), rawdoc! { "_id": name, "balance": balance }).await.unwrap();
        }
        Stage { store, sources: Sources::seeded(2), actors: BTreeMap::new() }
    }

    fn process(&self) -> Database {
        Database::local(Arc::clone(&self.store), self.sources.clone())
    }

    /// Executes a line of a script and returns its result; `None` if the line is no command of a client.
    pub(super) async fn play(&mut self, line: &str) -> Option<Option<String>> {
        let words: Vec<_> = line.split_whitespace().collect();
        let [name, ref does @ ..] = words[..] else { return None };
        if words[..] == ["everybody", "reads"] {
            let (bob, joe) = balances(&self.process()).await;
            return Some(Some(format!("Bob {bob}, Joe {joe}")));
        }
        if !self.actors.contains_key(name) {
            self.actors.insert(name.to_owned(), (self.process(), None));
        }
        let (database, tx) = self.actors.get_mut(name)?;
        let number = |text: &str| text.parse::<i32>().ok();
        let deed = match *does {
            ["begins", ref how @ ..] => {
                let options = match how {
                    [] => TransactionOptions::default(),
                    ["serializable"] => TransactionOptions::serializable(),
                    _ => return None,
                };
                *tx = begin(database.clone(), options).await.tx;
                // Each engine chooses the timestamp, so it is not compared.
                return Some(None);
            }
            ["commits"] => {
                let committed = tx.take()?.commit().await;
                return Some(Some(Came::of(committed.map(|_| "committed".to_owned())).said));
            }
            ["reads", name] => Deed::Find(rawdoc! { "_id": name }),
            ["finds", "over", least] => Deed::Find(rawdoc! { "balance": { "$gt": number(least)? } }),
            ["sets", name, balance] => Deed::Change(vec![(name.to_owned(), Change::Set(number(balance)?))]),
            ["removes", name] => Deed::Change(vec![(name.to_owned(), Change::Remove)]),
            ["pays", of] => Deed::Change(paid(number(of)?)),
            _ => return None,
        };
        let came = in_transaction(tx.take()?, deed).await;
        *tx = came.tx;
        Some(Some(came.said).filter(|said| said != DONE))
    }
}
