use handfast_store::Namespace;

use super::*;

/// Returns the JSON of a finding with this remedy.
fn of(remedy: Remedy, repair: Repair) -> Value {
    finding(&Finding { text: "something".to_owned(), remedy }, repair)
}

#[test]
fn a_finding_says_its_remedy_and_what_it_is_about() {
    let orders = || Namespace::new("shop", "orders").unwrap();
    let expected = json!({
        "text": "something", "remedy": "build-index", "namespace": "shop.orders", "index": "total_1",
        "to_do": "--repair builds indexes again",
    });
    assert_eq!(of(Remedy::BuildIndex(orders(), "total_1".to_owned()), Repair::No), expected);
    let expected = json!({
        "text": "something", "remedy": "count", "namespace": "shop.orders", "index": null,
        "to_do": "--repair counts documents again",
    });
    assert_eq!(of(Remedy::Count(orders()), Repair::No), expected);
}

#[test]
fn what_a_repair_has_done_is_not_to_be_done_again() {
    assert_eq!(of(Remedy::MendJournal, Repair::Yes)["to_do"], Value::Null);
    assert!(of(Remedy::None, Repair::Yes)["to_do"].as_str().unwrap().starts_with("restore a backup"));
}
