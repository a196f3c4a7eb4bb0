use bson::{Bson, doc};

use super::{at_path, count, date, identical, integer, key_of, millis, parsed, set_path, string};

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
fn a_wrong_value_is_reported_with_its_field_and_the_expected_type() {
    let document = doc! { "text": "ann", "count": -1 };
    let said = |error: crate::Error| error.to_string();
    assert_eq!(string(&document, "text").ok(), Some("ann"));
    assert_eq!(date(&document, "text").map_err(said), Err("its text is \"ann\", not a date".to_owned()));
    assert_eq!(date(&document, "ts").map_err(said), Err("its ts is missing; it must be a date".to_owned()));
    assert_eq!(count(&document, "count").map_err(said), Err("its count is -1, not from 0 to 4294967295".to_owned()));
    assert_eq!(millis(&document, "count").map_err(said), Err("its count is -1, less than 0".to_owned()));
    let state = parsed::<crate::job_queue::JobState>(&document, "text").map_err(said);
    let states = "its text is ann, but states of jobs are TODO, PROCESSING, DONE, FAILED and CANCELED";
    assert_eq!(state, Err(states.to_owned()));
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
