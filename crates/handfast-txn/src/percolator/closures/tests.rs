//! Who may commit where, as tables; and what is remembered.

use bson::rawdoc;
use handfast_store::Namespace;

use super::*;

fn namespace(name: &str) -> Namespace {
    let (database, collection) = name.split_once('.').unwrap();
    Namespace::new(database, collection).unwrap()
}

fn id(number: u8) -> ClosingId {
    [number; 16]
}

fn closed(of: &[&str]) -> Closures {
    let mut closures = Closures::default();
    let of: Vec<_> = of.iter().map(|name| Part::of_name(name).unwrap()).collect();
    closures.close(id(1), &of, Timestamp(7));
    closures
}

fn is_open(closures: &Closures, name: &str, begun: u64) -> bool {
    closures.check(&namespace(name), begun).is_ok()
}

#[test]
fn nobody_commits_in_what_is_closed() {
    let closures = closed(&["shop.items", "attic"]);
    for (name, expected) in
        [("shop.items", false), ("shop.item", true), ("attic.all", false), ("attics.all", true), ("shop.attic", true)]
    {
        assert_eq!(is_open(&closures, name, 5), expected, "{name}");
    }
}

#[test]
fn who_began_before_it_was_open_again_does_not_commit() {
    let mut closures = closed(&["shop.items"]);
    closures.close(id(2), &[Part::Database("shop".to_owned())], Timestamp(8));
    closures.open(id(1), 6);
    // The other one is not over.
    assert!(!is_open(&closures, "shop.items", 6));
    closures.open(id(2), 8);
    for (begun, expected) in [(5, false), (7, false), (8, true), (9, true)] {
        assert_eq!(is_open(&closures, "shop.items", begun), expected, "{begun}");
    }
    // To say it again changes nothing.
    closures.open(id(2), 20);
    closures.close(id(2), &[Part::Database("shop".to_owned())], Timestamp(8));
    assert!(is_open(&closures, "shop.items", 8));
}

#[test]
fn what_is_forgotten_is_in_everybody_s_way() {
    let mut closures = closed(&["shop.items"]);
    for number in 0..OVER_MAX as u64 + 10 {
        let mut id = [9; 16];
        id[..8].copy_from_slice(&number.to_be_bytes());
        let name = format!("shop.c{number}");
        closures.close(id, &[Part::of_name(&name).unwrap()], Timestamp(8));
        closures.open(id, 100 + number);
    }
    // What is closed is not forgotten.
    assert!(!is_open(&closures, "shop.items", 1000));
    assert_eq!(closures.closings.len(), OVER_MAX + 1);
    for (begun, expected) in [(99, false), (108, false), (109, true), (110, true)] {
        assert_eq!(is_open(&closures, "other.things", begun), expected, "{begun}");
    }
    assert!(!is_open(&closures, "shop.c10", 109) && is_open(&closures, "shop.c10", 110));
}

#[test]
fn what_is_closed_for_long_is_opened() {
    let mut closures = closed(&["shop.items"]);
    assert!(!closures.has_older(Timestamp(7)));
    assert!(closures.has_older(Timestamp(8)));
    closures.open_older(Timestamp(8), 3);
    assert!(!closures.has_older(Timestamp(8)));
    assert!(is_open(&closures, "shop.items", 3) && !is_open(&closures, "shop.items", 2));
}

#[test]
fn they_are_stored_and_read_again() {
    let mut closures = closed(&["shop.items", "attic"]);
    closures.close(id(2), &[Part::of_name("shop.old").unwrap()], Timestamp(8));
    closures.open(id(2), 6);
    closures.opened = 4;
    let mut stored = rawdoc! { "_id": "catalog" };
    closures.append_to(&mut stored);
    assert_eq!(Closures::from_document(&stored).unwrap(), closures);
    assert_eq!(Closures::from_document(&rawdoc! { "_id": "catalog" }).unwrap(), Closures::default());
    for damage in [rawdoc! { "closed": 1 }, rawdoc! { "closed": [1] }, rawdoc! { "closed": [{ "id": 1 }] }] {
        Closures::from_document(&damage).unwrap_err();
    }
}
