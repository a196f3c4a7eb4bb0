//! The seed's worked example: the stored rows after each step.

use bson::doc;

use crate::support::*;

/// Bob has 10 and Joe 2. Bob pays Joe 7, with the start timestamp 7 and the commit timestamp 8, as in the seed.
#[tokio::test]
async fn bob_pays_joe_7() {
    let bank = Bank::of_the_seed().await;
    let payment = Stepped::payment(&bank);
    let mut states = vec![bank.rows().await];
    while stopped(&payment.store, || payment.payment.is_finished()).await {
        payment.store.release();
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        let rows = bank.rows().await;
        if states.last() != Some(&rows) {
            states.push(rows);
        }
    }
    payment.finish().await.unwrap();

    let old_bob = doc! { "c": 6_i64, "s": 5_i64, "doc": { "_id": "Bob", "balance": 10 } };
    let old_joe = doc! { "c": 6_i64, "s": 5_i64, "doc": { "_id": "Joe", "balance": 2 } };
    let bob_before = doc! { "_id": "Bob", "balance": 10, "_hf": { "v": 1_i64, "c": 6_i64, "s": 5_i64 } };
    let joe_before = doc! { "_id": "Joe", "balance": 2, "_hf": { "v": 1_i64, "c": 6_i64, "s": 5_i64 } };
    // The primary is Bob; its lock names Joe, and Joe's lock names Bob.
    let bob_locked = doc! { "_id": "Bob", "balance": 10, "_hf": { "v": 2_i64, "c": 6_i64, "s": 5_i64, "lock": {
        "s": 7_i64, "primary": key_of("Bob"), "keys": [key_of("Joe")],
        "op": "put", "doc": { "_id": "Bob", "balance": 3 }, "ttl": 5000_i64,
    } } };
    let joe_locked = doc! { "_id": "Joe", "balance": 2, "_hf": { "v": 2_i64, "c": 6_i64, "s": 5_i64, "lock": {
        "s": 7_i64, "primary": key_of("Bob"),
        "op": "put", "doc": { "_id": "Joe", "balance": 9 }, "ttl": 5000_i64,
    } } };
    // From here on whoever reads sees Bob with 3, and Joe with 9.
    let bob_after =
        doc! { "_id": "Bob", "balance": 3, "_hf": { "v": 3_i64, "c": 8_i64, "s": 7_i64, "p": true, "old": [old_bob] } };
    let joe_after =
        doc! { "_id": "Joe", "balance": 9, "_hf": { "v": 3_i64, "c": 8_i64, "s": 7_i64, "old": [old_joe] } };

    let expected = vec![
        vec![bob_before, joe_before],
        vec![bob_locked, joe_locked.clone()],
        vec![bob_after.clone(), joe_locked],
        vec![bob_after, joe_after],
    ];
    assert_eq!(states, expected);
}
