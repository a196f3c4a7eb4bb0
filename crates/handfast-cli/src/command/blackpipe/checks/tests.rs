use bson::{RawDocumentBuf, rawdoc};
use clap::Parser;
use handfast_store::{DocumentStore as _, MemoryStore, Namespace, Sources, StoreExt as _};

use super::DataChecks;
use crate::command::blackpipe::report::quoted;

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    checks: DataChecks,
}

fn checks(flags: &[&str]) -> Result<DataChecks, String> {
    let parsed = Flags::try_parse_from([&["checks"], flags].concat());
    parsed.map(|flags| flags.checks).map_err(|error| error.to_string())
}

type Collections<'a> = &'a [(&'a str, Vec<RawDocumentBuf>)];

async fn store(collections: Collections<'_>) -> MemoryStore {
    let store = MemoryStore::new(Sources::seeded(1));
    for (namespace, documents) in collections {
        let (database, collection) = namespace.split_once('.').unwrap();
        let namespace = Namespace::new(database, collection).unwrap();
        for document in documents {
            store.insert_one(&namespace, document.clone()).await.unwrap();
        }
    }
    store
}

/// Compares the data of a run with those of the run without faults.
async fn check(flags: &[&str], found: Collections<'_>, right: Collections<'_>, expected: &[&str]) {
    let checks = checks(flags).unwrap();
    let right = checks.observe(&store(right).await).await.unwrap();
    assert_eq!(checks.violations(&right, None), [""; 0], "{flags:?} without faults");
    let found = checks.observe(&store(found).await).await.unwrap();
    assert_eq!(checks.violations(&found, Some(&right)), expected, "{flags:?}");
}

fn balances(balances: &[i32]) -> Vec<RawDocumentBuf> {
    balances
        .iter()
        .zip(0..)
        .map(|(balance, id)| rawdoc! { "_id": id, "balance": *balance, "a": { "b": *balance } })
        .collect()
}

#[tokio::test]
async fn a_sum_is_that_of_the_run_without_faults() {
    let right = [("bank.accounts", balances(&[10, 20]))];
    let same = [("other.accounts", balances(&[30]))];
    let more = [("bank.accounts", balances(&[10, 30]))];
    for field in ["accounts.balance", "accounts.a.b", "accounts.balance=30", "accounts.balance=30.0"] {
        check(&["--sum", field], &same, &right, &[]).await;
        let wrong = format!("the sum of {} is 40, not 30", field.split('=').next().unwrap());
        check(&["--sum", field], &more, &right, &[&wrong]).await;
    }
    check(&["--sum", "accounts.balance"], &[], &right, &["the sum of accounts.balance is 0, not 30"]).await;
}

#[tokio::test]
async fn a_unique_value_occurs_once() {
    let right = [("shop.orders", balances(&[1, 2]))];
    let twice = [("shop.orders", balances(&[7, 5, 5, 7, 7]))];
    check(&["--unique", "orders.balance"], &right, &right, &[]).await;
    check(&["--unique", "orders.balance"], &twice, &right, &["orders.balance has 5 in 2 documents"]).await;
    let missing = [("shop.orders", vec![rawdoc! { "_id": 1 }, rawdoc! { "_id": 2 }])];
    check(&["--unique", "orders.balance"], &missing, &right, &[]).await;
}

#[tokio::test]
async fn collections_have_as_many_documents_each() {
    let right = [("shop.orders", balances(&[1, 2])), ("shop.outbox", balances(&[3, 4]))];
    let flags = ["--count-equals", "orders", "outbox"];
    check(&flags, &right, &right, &[]).await;
    check(&flags, &right[..1], &right, &["orders has 2 documents, and outbox has 0"]).await;
    let twice = ["--count-equals", "orders", "outbox", "--count-equals", "outbox", "orders"];
    let expected = ["orders has 2 documents, and outbox has 0", "outbox has 0 documents, and orders has 2"];
    check(&twice, &right[..1], &right, &expected).await;
}

#[tokio::test]
async fn a_collection_of_several_databases_is_refused() {
    let store = store(&[("a.orders", balances(&[1])), ("b.orders", balances(&[1]))]).await;
    for flags in [["--sum", "orders.balance"], ["--unique", "orders.balance"]] {
        let error = checks(&flags).unwrap().observe(&store).await.unwrap_err().to_string();
        assert!(error.contains("the databases a, b each have a collection 'orders'"), "{error}");
    }
    assert!(store.drop_database("b").await.unwrap());
    assert!(checks(&["--sum", "orders.balance"]).unwrap().observe(&store).await.is_ok());
}

/// A check of what is not there would pass whatever the program does.
#[tokio::test]
async fn checks_that_have_nothing_to_look_at_are_told() {
    let documents = vec![rawdoc! { "_id": 1, "n": 1, "text": "1", "nan": f64::NAN }, rawdoc! { "_id": 2, "nan": 1 }];
    let store = store(&[("shop.orders", documents)]).await;
    let vacuous = async |flags: &[&str]| checks(flags).unwrap().observe(&store).await.unwrap().vacuous().join("; ");
    for right in [["--sum", "orders.n"], ["--unique", "orders.text"]] {
        assert_eq!(vacuous(&right).await, "", "{right:?}");
    }
    assert_eq!(vacuous(&["--count-equals", "orders", "outbox"]).await, "", "it may come");
    for (flags, expected) in [
        (["--sum", "shop.orders.n"], "there is no collection 'shop', of which 'shop.orders.n' would be a field"),
        (["--sum", "orders.text"], "no document of the collection 'orders' has a number in 'text'"),
        (["--sum", "orders.nan"], "the sum of orders.nan is NaN, whatever the other values are"),
        (["--unique", "order.n"], "there is no collection 'order', of which 'order.n' would be a field"),
        (["--unique", "orders.number"], "no document of the collection 'orders' has a value in 'number'"),
    ] {
        assert_eq!(vacuous(&flags).await, expected, "{flags:?}");
    }
    let counts = ["--count-equals", "shop.orders", "shop.outbox"];
    assert_eq!(vacuous(&counts).await, "there is neither a collection 'shop.orders' nor one 'shop.outbox'");
}

#[test]
fn flags_are_written_as_they_are_read() {
    let flags = ["--sum", "a.b", "--sum", "a.c=3", "--unique", "o.'n", "--count-equals", "a", "b"];
    let words = checks(&flags).unwrap().words(quoted);
    assert_eq!(
        words.join(" "),
        r"--sum a.b --sum 'a.c=3' --unique 'o.'\''n' --count-equals a b".replace("'a.c=3'", "a.c=3")
    );
    assert!(checks(&["--sum", "a.b"]).unwrap().need_run_without_faults());
    assert!(!checks(&["--sum", "a.b=3", "--unique", "a.b"]).unwrap().need_run_without_faults());
}

#[test]
fn what_is_no_field_is_refused() {
    let check = |flags: &[&str], expected: &str| {
        let error = checks(flags).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    check(&["--sum", "accounts"], "'accounts' is no field: write a collection and a field, such as accounts.balance");
    check(&["--unique", ".number"], "'.number' is no field");
    check(&["--sum", "accounts.balance=many"], "'many' is no sum: write a number, such as accounts.balance=100");
    check(&["--sum", "accounts.balance=nan"], "'nan' is no sum");
    check(&["--count-equals", "a"], "2 values required");
}
