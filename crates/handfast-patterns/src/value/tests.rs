use bson::{Bson, doc};

use super::{at_path, integer, key_of};

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
