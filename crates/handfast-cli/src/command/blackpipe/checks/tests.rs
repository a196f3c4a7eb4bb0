use bson::{RawBson, RawDocumentBuf, rawdoc};
use clap::Parser;
use handfast_store::{DocumentStore as _, MemoryStore, Namespace, Sources, StoreExt as _};

use super::DataChecks;

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

/// The name of a collection may have dots, and so may the path of a field.
#[tokio::test]
async fn a_field_is_one_of_the_collection_with_the_longest_name() {
    let right = [("bank.accounts", balances(&[1])), ("bank.accounts.old", balances(&[10, 20]))];
    let more = [("bank.accounts", balances(&[1])), ("bank.accounts.old", balances(&[10, 30]))];
    let twice = [("bank.accounts", balances(&[1])), ("bank.accounts.old", balances(&[10, 10]))];
    for field in ["accounts.old.balance", "accounts.old.a.b"] {
        check(&["--sum", field], &more, &right, &[&format!("the sum of {field} is 40, not 30")]).await;
        check(&["--unique", field], &twice, &right, &[&format!("{field} has 10 in 2 documents")]).await;
    }
    check(&["--sum", "accounts.a.b"], &more, &right, &[]).await;
}

fn totals(totals: impl IntoIterator<Item = RawBson>) -> Vec<RawDocumentBuf> {
    totals.into_iter().zip(0..).map(|(total, id)| rawdoc! { "_id": id, "n": total }).collect()
}

/// Numbers are compared by their values: as decimals if the sum is one, and otherwise as they are stored.
#[tokio::test]
async fn a_sum_is_compared_by_its_value() {
    let decimals = |texts: [&str; 2]| totals(texts.map(|text| RawBson::Decimal128(text.parse().unwrap())));
    let found = async |flag: &str, documents: Vec<RawDocumentBuf>| {
        let checks = checks(&["--sum", flag]).unwrap();
        let observation = checks.observe(&store(&[("a.c", documents)]).await).await.unwrap();
        (checks.violations(&observation, None).join("; "), observation.vacuous().join("; "))
    };
    let right = (String::new(), String::new());
    assert_eq!(found("c.n=0.3", decimals(["0.1", "0.2"])).await, right);
    assert_eq!(found("c.n=3e-1", decimals(["0.1", "0.2"])).await, right);
    assert_eq!(found("c.n=0.3", decimals(["0.1", "0.3"])).await.0, "the sum of c.n is 0.4, not 0.3");
    let doubles = |numbers: [f64; 2]| totals(numbers.map(RawBson::Double));
    assert_eq!(found("c.n=0.3", doubles([0.1, 0.2])).await.0, "the sum of c.n is 0.30000000000000004, not 0.3");
    assert_eq!(found("c.n=0.75", doubles([0.25, 0.5])).await, right);
    assert_eq!(found("c.n=9223372036854775808", decimals(["9223372036854775807", "1"])).await, right);
    let mixed = totals([RawBson::Decimal128("0.1".parse().unwrap()), RawBson::Int32(2)]);
    assert_eq!(found("c.n=2.1", mixed).await, right);

    // A sum that may hide a difference is never right.
    let large = 2_f64.powi(53);
    for documents in [doubles([large, 1.0]), doubles([large, 0.0])] {
        let (violation, vacuous) = found("c.n=9007199254740992", documents).await;
        let expected =
            "the sum of c.n is 9007199254740992, a double of 2^53 or more, which may stay as it is when 1 is added";
        assert!(violation.starts_with(expected) && vacuous.starts_with(expected), "{violation} {vacuous}");
    }
    for (values, flag) in [(["1E+34", "1"], "c.n=1e34"), (["-1E+34", "0"], "c.n=-1e34")] {
        let (violation, vacuous) = found(flag, decimals(values)).await;
        let expected = ", a decimal of 10^34 or more, which may stay as it is when 1 is added";
        assert!(violation.contains(expected) && vacuous.contains(expected), "{violation} {vacuous}");
    }
    let largest = "9999999999999999999999999999999999";
    assert_eq!(found(&format!("c.n={largest}"), decimals([largest, "0"])).await, right);
    let infinite = "the sum of c.n is inf, whatever the other values are";
    assert_eq!(found("c.n", doubles([f64::INFINITY, 1.0])).await, (infinite.to_owned(), infinite.to_owned()));
    let infinite = "the sum of c.n is Infinity, whatever the other values are";
    assert_eq!(found("c.n", decimals(["Infinity", "1"])).await.1, infinite);
    let integers = totals([RawBson::Int64(1 << 53), RawBson::Int64(1)]);
    assert_eq!(found("c.n=9007199254740993", integers).await, right);
}

/// A sum that would not change if one of its values were there twice checks nothing.
#[tokio::test]
async fn a_sum_that_hides_a_value_is_refused() {
    let vacuous = async |documents: Vec<RawDocumentBuf>, field: &str| {
        let checks = checks(&["--sum", field]).unwrap();
        let observation = checks.observe(&store(&[("a.c", documents)]).await).await.unwrap();
        observation.vacuous().join("; ")
    };
    let decimals = |texts: [&str; 2]| totals(texts.map(|text| RawBson::Decimal128(text.parse().unwrap())));
    let rounded = "which stays as it is when the smallest of the values is added once more";
    let hidden = vacuous(decimals(["1E+33", "0.5"]), "c.n").await;
    assert!(hidden.contains(rounded), "{hidden}");
    assert_eq!(vacuous(decimals(["1E+33", "2"]), "c.n").await, "");
    let doubles = |numbers: [f64; 2]| totals(numbers.map(RawBson::Double));
    let hidden = vacuous(doubles([1e8, 1e-9]), "c.n").await;
    assert!(hidden.contains(rounded), "{hidden}");
    assert_eq!(vacuous(doubles([1e8, -0.0]), "c.n").await, "");
    assert_eq!(vacuous(totals([RawBson::Int32(0), RawBson::Null]), "c.n").await, "");
    assert_eq!(vacuous(totals([RawBson::Int64(i64::MIN), RawBson::Int32(1)]), "c.n").await, "");

    let text = |value: RawBson| vec![rawdoc! { "_id": 1, "n": value }, rawdoc! { "_id": 2, "n": 2 }];
    let left_out = "the sum of c.n leaves out 1 document, where it is no number";
    assert_eq!(vacuous(text(RawBson::String("1".to_owned())), "c.n").await, left_out);
    let array = vec![rawdoc! { "_id": 1, "n": [{ "w": 1 }] }, rawdoc! { "_id": 2, "n": { "w": 2 } }];
    assert_eq!(vacuous(array, "c.n.w").await, "the sum of c.n.w leaves out 1 document, where it is no number");
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

/// A check of a missing collection or field would succeed whatever the program does.
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
        (
            ["--sum", "shop.orders.n"],
            "there is no collection 'shop.orders' or 'shop', of which 'shop.orders.n' would be a field",
        ),
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
    let words = checks(&flags).unwrap().words();
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
    for field in [".number", "orders.", "orders..number", "orders..", "orders.$n"] {
        check(&["--unique", field], &format!("'{field}' is no field"));
    }
    check(&["--sum", "accounts.balance=many"], "'many' is no sum: write a number, such as accounts.balance=100");
    check(&["--sum", "accounts.balance=nan"], "'nan' is no sum");
    check(&["--count-equals", "a"], "2 values required");
}
