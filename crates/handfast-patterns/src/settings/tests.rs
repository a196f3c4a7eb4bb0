use std::sync::Arc;

use bson::{Document, doc};
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, MemoryStore, Namespace, Sources};

use super::{CHANGES_MAX, SettingsRecord};
use crate::Error;
use crate::steps::Steps;

fn store() -> Arc<dyn DocumentStore> {
    Arc::new(MemoryStore::new(Sources::seeded(1)))
}

fn record_on(store: &Arc<dyn DocumentStore>) -> SettingsRecord {
    let pattern = Steps::new(Arc::clone(store), Namespace::new("db", "entries").expect("a name"));
    SettingsRecord::new(&pattern, "test", doc! { "fields": { "ts": "ts" } }).expect("a name")
}

fn settings(balance: &str) -> Document {
    doc! { "fields": { "ts": "ts", "type": "kind" }, "balance": balance, "limit": 7 }
}

#[tokio::test]
async fn the_first_one_records_and_others_are_compared() {
    let record = record_on(&store());
    assert_eq!(record.compare(&settings("a")).await.expect("nothing to compare with"), None);
    assert_eq!(record.read().await.expect("read"), None, "to compare records nothing");
    let recorded = record.open(&settings("a")).await.expect("the first one");
    assert_eq!((recorded.revision, &recorded.settings), (1, &settings("a")));
    assert_eq!(record.open(&settings("a")).await.expect("equal"), recorded);
    assert_eq!(record.compare(&settings("a")).await.expect("equal"), Some(recorded.clone()));

    let mut others = settings("b");
    others.remove("limit");
    let refused = record.open(&others).await.expect_err("other settings").to_string();
    assert_eq!(
        refused,
        "db.entries.settings records other settings: balance is recorded as \"a\", given as \"b\"; limit is recorded as 7, \
         given as nothing; open it with the recorded ones, or change the record first"
    );
    assert_eq!(record.read().await.expect("read"), Some(recorded), "nothing was done");
}

/// One record was written before a setting existed, another one by a shell.
#[tokio::test]
async fn a_record_stands_for_defaults_and_numbers_are_compared_by_value() {
    let record = record_on(&store());
    let old = doc! { "_id": "test", "revision": 1, "settings": { "fields": { "type": "kind" }, "balance": "a", "limit": 7.0 } };
    record.steps.insert(&old).await.expect("inserted");
    let recorded = record.open(&settings("a")).await.expect("the same");
    assert_eq!(recorded.settings.get_document("fields").expect("fields").get_str("ts").ok(), Some("ts"));
    let mut renamed = settings("a");
    renamed.get_document_mut("fields").expect("fields").insert("ts", "time");
    assert!(matches!(record.open(&renamed).await, Err(Error::OtherSettings { .. })));
}

#[tokio::test]
async fn what_is_no_record_is_refused() {
    for wrong in [doc! { "settings": {} }, doc! { "revision": 1 }, doc! { "revision": "1", "settings": {} }] {
        let record = record_on(&store());
        let mut document = doc! { "_id": "test" };
        document.extend(wrong);
        record.steps.insert(&document).await.expect("inserted");
        assert!(matches!(record.open(&settings("a")).await, Err(Error::Damaged { .. })), "{document}");
    }
}

/// Both processes have read that nothing is recorded.
#[tokio::test]
async fn the_second_of_two_first_openings_is_compared_with_the_first() {
    let record = record_on(&store());
    record.record(&settings("a")).await.expect("the first one");
    record.record(&settings("a")).await.expect("equal");
    assert!(matches!(record.record(&settings("b")).await, Err(Error::OtherSettings { .. })));
}

#[tokio::test]
async fn a_change_keeps_the_settings_of_before() {
    let record = record_on(&store());
    let first = record.open(&settings("a")).await.expect("recorded");
    let second = record.change(&first, &settings("b")).await.expect("changed");
    assert_eq!((second.revision, &second.earlier), (2, &vec![(1, settings("a"))]));
    assert_eq!(record.change(&second, &settings("b")).await.expect("nothing to change"), second);
    assert_eq!(record.open(&settings("b")).await.expect("the new ones"), second);
    assert!(matches!(record.open(&settings("a")).await, Err(Error::OtherSettings { .. })));
    // A process that has not seen the second revision cannot change the record, except to the same settings.
    assert_eq!(record.change(&first, &settings("b")).await.expect("as it is"), second);
    assert!(matches!(record.change(&first, &settings("c")).await, Err(Error::OtherSettings { .. })));
    assert_eq!(record.read().await.expect("read"), Some(second));
}

#[tokio::test]
async fn changes_have_a_bound() {
    let record = record_on(&store());
    let mut now = record.open(&settings("0")).await.expect("recorded");
    for number in 1..=CHANGES_MAX {
        now = record.change(&now, &settings(&number.to_string())).await.expect("changed");
    }
    assert!(matches!(record.change(&now, &settings("one more")).await, Err(Error::Invalid { .. })));
    assert_eq!(record.read().await.expect("read"), Some(now));
}

/// Opens, changes and reopens a record, with each fault at each operation. The record then has settings that one of
/// the processes wrote, complete, and repeating the steps completes the change.
#[tokio::test]
async fn every_fault_at_every_operation() {
    let run = async |store: &Arc<dyn DocumentStore>| {
        let record = record_on(store);
        let (a, b) = (settings("a"), settings("b"));
        match record.read().await? {
            Some(recorded) if recorded.revision > 1 => record.open(&b).await,
            _ => record.change(&record.open(&a).await?, &b).await,
        }
    };
    let faults = [
        Fault::LoseRequest,
        Fault::LoseReply,
        Fault::CrashBefore,
        Fault::CrashAfter,
        Fault::Duplicate,
        Fault::DeliverLate,
    ];
    let mut points = 0;
    for fault in faults {
        for number in 0.. {
            let store = store();
            let faulty = Arc::new(Faulty::new(Arc::clone(&store), Plan::at(number, fault)));
            let _ = run(&(Arc::clone(&faulty) as Arc<dyn DocumentStore>)).await;
            if faulty.injected().is_empty() {
                assert!(number >= 5, "{number} operations");
                break;
            }
            points += 1;
            let recorded = run(&store).await.expect("without faults");
            faulty.deliver_late().await;
            assert_eq!((recorded.revision, &recorded.earlier), (2, &vec![(1, settings("a"))]), "{fault:?} at {number}");
            assert_eq!(record_on(&store).read().await.expect("read"), Some(recorded), "{fault:?} at {number}");
        }
    }
    assert!(points >= 30, "{points} points");
}
