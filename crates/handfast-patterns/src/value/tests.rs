use bson::{Bson, doc};

use super::{at_path, identical, integer, key_of, set_path};

#[test]
fn ids_that_a_store_holds_for_equal_have_one_key() {
    let key = |id: Bson| key_of(&id).expect("a value");
    assert_eq!(key(1.into()), key(1_i64.into()));
    assert_eq!(key(1.into()), key(1.0.into()));
    assert_ne!(key(1.into()), key("1".into()));
}

#[test]
fn paths_lead_into_documents() {
    let document = doc! { "a": { "b": 1, "c": [{ "d": 1 }] }, "e": 2.0, "f": 2.5 };
    assert_eq!(at_path(&document, "a.b"), Some(&Bson::Int32(1)));
    for nowhere in ["b", "a.x", "a.b.c", "a.c.d", "e.b"] {
        assert_eq!(at_path(&document, nowhere), None, "{nowhere}");
    }
    assert_eq!(integer(&document, "a.b").ok(), Some(1));
    assert_eq!(integer(&document, "e").ok(), Some(2));
    assert_eq!(integer(&document, "x").ok(), Some(0));
    assert!(integer(&document, "f").is_err());
}

#[test]
fn values_are_put_at_paths() {
    let mut document = doc! { "a": { "b": 1 } };
    set_path(&mut document, "a.c.d", 2.into()).expect("documents on the way");
    set_path(&mut document, "e", 3.into()).expect("a field");
    assert_eq!(document, doc! { "a": { "b": 1, "c": { "d": 2 } }, "e": 3 });
    assert!(set_path(&mut document, "a.b.x", 4.into()).is_err(), "through a number");
}

#[test]
fn values_are_identical_to_the_byte() {
    let nan = Bson::Double(f64::NAN);
    assert!(identical(Some(&nan), Some(&nan)) && identical(None, None));
    assert!(!identical(Some(&Bson::Int32(1)), Some(&Bson::Double(1.0))));
    assert!(!identical(Some(&Bson::Null), None));
}
