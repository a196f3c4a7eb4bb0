use bson::rawdoc;

use super::*;
use crate::{Delete, Namespace, Update};

fn check_update(update: bson::RawDocumentBuf, idempotent: bool) {
    let text = format!("{update:?}");
    assert_eq!(is_idempotent(&UpdateSpec::Document(update)), idempotent, "{text}");
}

#[test]
fn operators_that_set_are_idempotent_and_those_that_count_are_not() {
    check_update(rawdoc! { "a": 1, "b": "a replacement" }, true);
    check_update(rawdoc! { "$set": { "a": 1 } }, true);
    check_update(rawdoc! { "$unset": { "a": "" }, "$setOnInsert": { "b": 1 } }, true);
    check_update(rawdoc! { "$addToSet": { "a": 1 }, "$pull": { "b": 1 }, "$pullAll": { "c": [1] } }, true);
    check_update(rawdoc! { "$min": { "a": 1 }, "$max": { "b": 1 }, "$rename": { "c": "d" } }, true);
    check_update(rawdoc! { "$set": { "a.$[].b": 1, "c.$[x]": 2, "price$.x": 3 } }, true);
    for counting in ["$inc", "$mul", "$push", "$pop", "$bit", "$currentDate", "$unknown"] {
        let mut update = rawdoc! { "$set": { "a": 1 } };
        update.append(bson::raw::CString::try_from(counting).expect("no zero byte"), rawdoc! { "n": 1 });
        check_update(update, false);
    }
    // Once the first element has changed, the filter matches another one.
    check_update(rawdoc! { "$set": { "list.$": 5 } }, false);
    check_update(rawdoc! { "$unset": { "list.$.a": "" } }, false);
    assert!(!is_idempotent(&UpdateSpec::Pipeline(vec![rawdoc! { "$set": { "n": 1 } }])));
}

fn set() -> UpdateSpec {
    UpdateSpec::Document(rawdoc! { "$set": { "a": 1 } })
}

/// Returns the effect of repeating an update when `k` is a unique key beside `_id`.
fn of(statements: Vec<UpdateStatement>) -> Repeat {
    of_update(&Update::new(Namespace::valid("d", "c"), statements), &|field| matches!(field, "_id" | "k"))
}

fn check_filter(filter: bson::RawDocumentBuf, repeat: Repeat) {
    let text = format!("{filter:?}");
    assert_eq!(of(vec![UpdateStatement::one(filter, set())]), repeat, "{text}");
}

#[test]
fn a_filter_on_a_unique_key_selects_one_document() {
    for key in ["_id", "k"] {
        let filter = |condition: bson::RawBson| {
            let mut filter = rawdoc! {};
            filter.append(bson::raw::CString::try_from(key).expect("no zero byte"), condition);
            filter
        };
        check_filter(filter(1.into()), Repeat::Always);
        check_filter(filter(rawdoc! { "$eq": 1 }.into()), Repeat::Always);
        check_filter(filter(rawdoc! { "a": 1 }.into()), Repeat::Always);
        check_filter(filter(rawdoc! {}.into()), Repeat::Always);
        check_filter(filter(rawdoc! { "$gt": 1 }.into()), Repeat::Never);
        check_filter(filter(rawdoc! { "$eq": 1, "$gt": 0 }.into()), Repeat::Never);
        check_filter(filter(rawdoc! { "$eq": [1] }.into()), Repeat::Never);
        check_filter(filter(bson::RawArrayBuf::from_iter([1]).into()), Repeat::Never);
        check_filter(filter(bson::RawBson::Null), Repeat::Never);
        let mut more = filter(1.into());
        more.append(bson::raw::cstr!("state"), "new");
        check_filter(more, Repeat::IfMatched);
    }
    check_filter(rawdoc! {}, Repeat::Never);
    check_filter(rawdoc! { "state": "new" }, Repeat::Never);
    check_filter(rawdoc! { "$or": [{ "_id": 1 }] }, Repeat::Never);
}

#[test]
fn several_statements_are_safe_only_if_none_changes_the_filter_of_another() {
    let one = |filter| UpdateStatement::one(filter, set());
    assert_eq!(of(vec![one(rawdoc! { "_id": 1 }), one(rawdoc! { "_id": 2 })]), Repeat::Always);
    // In a repetition, the first statement matches the result of the second, and the document would advance twice.
    let steps = vec![one(rawdoc! { "_id": 1, "step": 2 }), one(rawdoc! { "_id": 1, "step": 1 })];
    assert_eq!(of(steps), Repeat::Never);
    let many = |filter| UpdateStatement { multi: true, ..UpdateStatement::one(filter, set()) };
    assert_eq!(of(vec![many(rawdoc! { "step": 1 })]), Repeat::Always);
    assert_eq!(of(vec![many(rawdoc! { "step": 2 }), many(rawdoc! { "step": 1 })]), Repeat::Never);
    let delete = |multi: &[bool]| {
        let statement = |multi: &bool| DeleteStatement { filter: rawdoc! { "step": 1 }, multi: *multi, hint: None };
        let request = Delete::new(Namespace::valid("d", "c"), multi.iter().map(statement).collect());
        of_delete(&request, &|field| field == "_id")
    };
    assert_eq!(delete(&[true, true]), Repeat::Always);
    assert_eq!(delete(&[true, false]), Repeat::Never);
    assert_eq!(delete(&[false]), Repeat::Never);
}

#[test]
fn a_unique_index_over_all_documents_that_have_the_field_makes_a_key() {
    let unique = |key| IndexSpec { unique: true, ..IndexSpec::new(key) };
    assert_eq!(unique_field(&unique(rawdoc! { "k": -1 })), Some("k".to_owned()));
    assert_eq!(unique_field(&IndexSpec::new(rawdoc! { "k": 1 })), None);
    assert_eq!(unique_field(&unique(rawdoc! { "k": 1, "l": 1 })), None);
    let partial = IndexSpec { partial_filter: Some(rawdoc! { "a": 1 }), ..unique(rawdoc! { "k": 1 }) };
    assert_eq!(unique_field(&partial), None);
}
