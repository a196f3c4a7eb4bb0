//! Totals that something else has changed are computed again from their base and days.

use std::sync::Arc;

use bson::rawdoc;
use handfast_counters::jiff::civil::date;
use handfast_counters::{Counters, Difference, Kind};
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use handfast_store::{Namespace, StoreExt as _};

use crate::imports::{add, file};
use crate::retention::break_total;
use crate::waiting::until_frozen;
use crate::world::{World, ad, ads, save_all};

/// Rebuilds the totals of a kind, and returns the number of items and what was wrong.
pub(crate) async fn rebuild(
    counters: &Counters,
    kind: Option<&Kind>,
) -> handfast_counters::Result<(u64, Vec<Difference>)> {
    let mut rebuilt = Vec::new();
    let rebuilt_item =
        |difference: Result<Difference, String>| rebuilt.push(difference.expect("an item that can be read"));
    let items = counters.rebuild(kind, |_| (), rebuilt_item).await?;
    Ok((items, rebuilt))
}

async fn stored(counters: &Counters) -> Vec<u64> {
    counters.storage().totals(&ads(), &[ad("a").id, ad("b").id]).await.expect("totals")
}

#[tokio::test]
async fn only_totals_that_differ_are_set() {
    let world = World::embedded();
    let counters = world.healthy(1).await;
    add(&counters, "may", &file()).await.expect("saved");
    assert_eq!(rebuild(&counters, None).await.expect("rebuilt"), (2, vec![]));
    break_total(&world, "a", 9).await;
    let other = Kind::new("news").expect("a kind");
    assert_eq!(rebuild(&counters, Some(&other)).await.expect("rebuilt"), (0, vec![]));
    let wrong = Difference { item: ad("a"), total: 1_134, base: 1_000, days: 125 };
    assert_eq!(wrong.right_total(), 1_125);
    assert_eq!(
        counters.storage().verify(None, |_| ()).await.expect("checked").differences,
        std::slice::from_ref(&wrong)
    );
    assert_eq!(rebuild(&counters, Some(&ads())).await.expect("rebuilt"), (2, vec![wrong]));
    assert_eq!(stored(&counters).await, [1_125, 307]);
    save_all(&counters).await;
}

#[tokio::test]
async fn items_that_cannot_be_read_are_named_and_the_others_repaired() {
    let world = World::embedded();
    let counters = world.healthy(1).await;
    add(&counters, "may", &file()).await.expect("saved");
    add(&counters, "june", &[("0", None, 1), ("c", Some(date(2026, 10, 1)), 2)]).await.expect("saved");
    let [totals, days] = ["totals", "days"].map(|name| Namespace::new("counters", name).expect("a name"));
    let set = |value: &str| rawdoc! { "$set": { "total": value } };
    world.store.update_one(&totals, rawdoc! { "_id.id": "0" }, set("1")).await.expect("changed");
    world.store.update_one(&days, rawdoc! { "_id.id": "a" }, rawdoc! { "$set": { "days": 5 } }).await.expect("changed");
    world.store.insert_one(&totals, rawdoc! { "_id": { "kind": "ads", "id": "b b" } }).await.expect("inserted");
    break_total(&world, "b", 9).await;
    break_total(&world, "c", -1).await;
    let named = |damaged: &[String]| {
        let mut named =
            damaged.iter().map(|what| what.split(':').next().expect("a part").to_owned()).collect::<Vec<_>>();
        named.sort();
        assert_eq!((named.len(), &*named[0], &*named[1]), (3, "ads/0", "ads/a"), "{damaged:?}");
        let foreign = r#"the item of the document {"kind":"ads","id":"b b"}: "#;
        assert!(damaged.iter().any(|what| what.starts_with(foreign)), "{damaged:?}");
    };
    let found = counters.storage().verify(None, |_| ()).await.expect("checked");
    assert_eq!((found.items, found.differences.len()), (5, 2));
    named(&found.damaged);
    let (mut rebuilt, mut damaged) = (Vec::new(), Vec::new());
    let repaired = |change: Result<Difference, String>| match change {
        Ok(difference) => rebuilt.push(difference),
        Err(what) => damaged.push(what),
    };
    assert_eq!(counters.rebuild(None, |_| (), repaired).await.expect("rebuilt"), 5);
    assert_eq!(rebuilt, found.differences);
    named(&damaged);
    let repaired = counters.storage().totals(&ads(), &[ad("b").id, ad("c").id]).await.expect("totals");
    assert_eq!(repaired, [307, 2]);
    assert_eq!(counters.storage().verify(None, |_| ()).await.expect("checked").differences, []);
}

#[tokio::test]
async fn a_total_that_is_gone_is_made_from_its_days() {
    let world = World::embedded();
    let counters = world.healthy(1).await;
    add(&counters, "may", &file()).await.expect("saved");
    let totals = Namespace::new("counters", "totals").expect("a name");
    world.store.delete_many(&totals, rawdoc! {}).await.expect("deleted");
    let (items, rebuilt) = rebuild(&counters, None).await.expect("rebuilt");
    assert_eq!((items, rebuilt.len()), (2, 2));
    assert_eq!(stored(&counters).await, [125, 7], "the base is lost");
    save_all(&counters).await;
}

/// A repair that hangs before its commit, while views are saved and a month is removed: it runs again, and overwrites neither.
#[tokio::test]
async fn a_repair_beside_other_changes_overwrites_none() {
    for trims in [false, true] {
        let world = World::embedded();
        let counters = world.healthy(1).await;
        add(&counters, "may", &file()).await.expect("saved");
        break_total(&world, "a", 9).await;
        let plan = Plan::at_request(Address::first(Operation::Commit), Fault::FreezeBefore);
        let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
        let slow = world.start(2, faulty.clone()).await.expect("a process");
        let repairing = tokio::spawn(async move { rebuild(&slow, None).await });
        until_frozen(&faulty, &repairing).await;
        if trims {
            counters.storage().trim(date(2026, 12, 1), u64::MAX, |_| ()).await.expect("removed");
        } else {
            counters.view(ad("a"), 2, None).await.expect("counted");
            counters.flush().await.expect("saved");
        }
        faulty.release();
        let (_, rebuilt) = repairing.await.expect("ended").expect("rebuilt");
        assert_eq!(rebuilt.len(), 1);
        assert_eq!(stored(&counters).await, [if trims { 1_125 } else { 1_127 }, 307]);
        save_all(&counters).await;
    }
}
