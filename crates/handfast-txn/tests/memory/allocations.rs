//! The allocations of a transfer on the thread that runs it are bounded: besides its reads they are most of its cost there.

use allocation_counter::measure;
use bson::rawdoc;
use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::{Namespace, Sources, StoreExt};
use handfast_txn::Database;

/// The bound: a few more allocations than a transfer makes. An update by `_id` that opened a cursor would need 30 more.
const TRANSFER_MAX: u64 = 160;

#[test]
fn a_transfer_allocates_a_bounded_number_of_times() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let opening = EmbeddedStore::open(directory.path(), Sources::seeded(1), Options::default());
    let database = Database::local(runtime.block_on(opening).unwrap(), Sources::seeded(2));
    let accounts = Namespace::new("bank", "accounts").unwrap();
    for id in 0..2 {
        runtime.block_on(database.insert_one(&accounts, rawdoc! { "_id": id, "balance": 100 })).unwrap();
    }
    let transfer = || {
        let tx = runtime.block_on(database.begin()).unwrap();
        for (id, amount) in [(0, -1), (1, 1)] {
            let change = rawdoc! { "$inc": { "balance": amount } };
            let outcome = runtime.block_on(tx.update_one(&accounts, rawdoc! { "_id": id }, change)).unwrap();
            assert_eq!(outcome.modified, 1);
        }
        runtime.block_on(tx.commit()).unwrap();
    };
    transfer();
    let allocations = measure(transfer).count_total;
    println!("a transfer allocates {allocations} times");
    assert!(allocations <= TRANSFER_MAX);
}
