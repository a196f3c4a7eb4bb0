use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::Namespace;

use super::{Mapping, NameTarget, SeenName};
use crate::percolator::row::Timestamp;

fn seen_name<'n>(name: &'n Namespace, name_target: &'n NameTarget) -> SeenName<'n> {
    SeenName { name, name_target }
}

fn named(text: &str) -> Namespace {
    let (database, collection) = text.split_once('.').unwrap();
    Namespace::new(database, collection).unwrap()
}

/// Returns the example of the module: created in 4, dropped in 5, created in 6, renamed in 7.
fn example() -> Mapping {
    let (items, attic) = (named("shop.items"), named("shop.attic"));
    let mut mapping = Mapping::default();
    mapping.create(&items, 4).unwrap();
    assert!(mapping.drop(&items, &NameTarget::Collection(items.clone()), 5));
    mapping.create(&items, 6).unwrap();
    let (from, to) = (mapping.newest(&items), mapping.newest(&attic));
    assert!(mapping.rename(seen_name(&items, &from), seen_name(&attic, &to), false, 7));
    mapping
}

#[track_caller]
fn check(mapping: &Mapping, name: &str, expected: &[(u64, Option<&str>)]) {
    for (version, collection) in expected {
        let found = mapping.collection(&named(name), *version);
        assert_eq!(found, collection.map(named), "{name} in version {version}");
    }
}

#[test]
fn a_name_stands_for_one_collection_in_each_version() {
    let mapping = example();
    let items = [(3, Some("shop.items")), (4, Some("shop.items")), (5, None), (6, Some("shop.items~hf6")), (7, None)];
    check(&mapping, "shop.items", &items);
    check(
        &mapping,
        "shop.attic",
        &[(6, Some("shop.attic")), (7, Some("shop.items~hf6")), (99, Some("shop.items~hf6"))],
    );
    assert_eq!(mapping.newest(&named("shop.other")), NameTarget::Unlisted);
    assert_eq!(mapping.newest(&named("shop.items~hf6")), NameTarget::Nothing);
    assert_eq!(mapping.name_of(&named("shop.items~hf6")), &named("shop.attic"));
    assert_eq!(mapping.retired().collect::<Vec<_>>(), [&named("shop.items")]);
}

#[test]
fn it_is_stored_as_it_is() {
    let mut mapping = example();
    mapping.mark(7, Timestamp(100));
    let mut document = rawdoc! {};
    mapping.append_to(&mut document);
    assert_eq!(Mapping::from_document(&document).unwrap(), mapping);
    let mut empty = rawdoc! {};
    Mapping::default().append_to(&mut empty);
    assert_eq!(empty, rawdoc! {});
    for damaged in [rawdoc! { "names": 1 }, rawdoc! { "names": [{ "ns": "x" }] }, rawdoc! { "retired": [{}] }] {
        assert_eq!(Mapping::from_document(&damaged).unwrap_err().code(), Code::InternalError, "{damaged:?}");
    }
}

/// A change may be made twice, as its answer may get lost. It is not repeated after another process has made a change on top of it.
#[test]
fn changes_are_safe_to_repeat() {
    let (items, attic) = (named("shop.items"), named("shop.attic"));
    let mut mapping = Mapping::default();
    mapping.create(&items, 4).unwrap();
    let once = mapping.clone();
    mapping.create(&items, 5).unwrap();
    assert_eq!(mapping, once);
    let seen = mapping.newest(&items);
    let nothing = mapping.newest(&attic);
    assert!(mapping.rename(seen_name(&items, &seen), seen_name(&attic, &nothing), false, 6));
    let once = mapping.clone();
    assert!(mapping.rename(seen_name(&items, &seen), seen_name(&attic, &nothing), false, 7), "done before");
    assert_eq!(mapping, once);
    let seen_attic = mapping.newest(&attic);
    assert!(mapping.drop(&attic, &seen_attic, 8));
    let once = mapping.clone();
    assert!(!mapping.drop(&attic, &seen_attic, 9));
    assert_eq!(mapping, once);
    mapping.create(&attic, 10).unwrap();
    assert!(!mapping.drop(&attic, &seen_attic, 11), "that is another collection");
    assert!(!mapping.rename(seen_name(&attic, &seen_attic), seen_name(&items, &NameTarget::Nothing), false, 11));
}

/// Retired collections and former names are forgotten as soon as a mark of a later version is below the safe point, and not before.
#[test]
fn retired_collections_and_names_are_forgotten() {
    let mut mapping = example();
    assert_eq!(mapping.unmarked(), Some(7));
    assert_eq!(mapping.removable(Timestamp(u64::MAX)), []);
    mapping.mark(7, Timestamp(100));
    assert_eq!(mapping.unmarked(), None);
    assert_eq!(mapping.removable(Timestamp(100)), []);
    assert_eq!(mapping.removable(Timestamp(101)), [named("shop.items")]);
    let before = mapping.clone();
    mapping.forget(Timestamp(100), &[], &[]);
    assert_eq!(mapping, before);
    mapping.forget(Timestamp(101), &[named("shop.items")], &[]);
    check(&mapping, "shop.attic", &[(7, Some("shop.items~hf6"))]);
    assert_eq!(mapping.newest(&named("shop.items")), NameTarget::Unlisted);
    assert_eq!(mapping.retired().next(), None);
}

/// A name whose collection has another name now is not forgotten: it would stand for that collection again.
#[test]
fn a_name_is_kept_while_its_collection_is_used_under_another() {
    let (items, attic) = (named("shop.items"), named("shop.attic"));
    let mut mapping = Mapping::default();
    assert!(mapping.rename(
        seen_name(&items, &NameTarget::Unlisted),
        seen_name(&attic, &NameTarget::Unlisted),
        false,
        1
    ));
    mapping.mark(1, Timestamp(5));
    mapping.forget(Timestamp(6), &[], &[]);
    assert_eq!(mapping.newest(&items), NameTarget::Nothing);
    assert_eq!(mapping.newest(&attic), NameTarget::Collection(items.clone()));
    mapping.create(&items, 2).unwrap();
    assert_eq!(mapping.newest(&items), NameTarget::Collection(named("shop.items~hf2")));
}

#[test]
fn a_name_of_its_own_collection_needs_no_entry() {
    let items = named("shop.items");
    let mut mapping = Mapping::default();
    mapping.create(&items, 1).unwrap();
    mapping.mark(1, Timestamp(5));
    assert_eq!(mapping.plain(Timestamp(6)), std::slice::from_ref(&items));
    mapping.forget(Timestamp(6), &[], &[]);
    assert!(!mapping.is_empty(), "it is not in the store");
    mapping.forget(Timestamp(6), &[], std::slice::from_ref(&items));
    assert_eq!(mapping, Mapping::default());
}
