use bson::{Bson, doc};

use crate::expression::testing::{check, check_error, check_missing, gives};

#[test]
fn merged_objects_have_the_last_value_of_each_field() {
    gives(doc! { "$mergeObjects": [{ "a": 1, "b": 1 }, null, { "b": 2, "c": 3 }] }, doc! { "a": 1, "b": 2, "c": 3 });
    gives(doc! { "$mergeObjects": [] }, doc! {});
    check(doc! { "$mergeObjects": "$x" }, doc! {}, doc! {});
    check(doc! { "$mergeObjects": "$a" }, doc! { "a": [{ "x": 1 }, { "x": 2, "y": 1 }] }, doc! { "x": 2, "y": 1 });
    check_error(doc! { "$mergeObjects": [{ "a": 1 }, 1] }, doc! {}, 40400);
}

#[test]
fn fields_are_read_set_and_removed_by_name() {
    check(doc! { "$getField": "a.b" }, doc! { "a.b": 5 }, 5);
    check(doc! { "$getField": { "$literal": "$price" } }, doc! { "$price": 5 }, 5);
    check(doc! { "$getField": { "field": "x", "input": "$d" } }, doc! { "d": { "x": 1 } }, 1);
    check_missing(doc! { "$getField": { "field": "y", "input": "$d" } }, doc! { "d": { "x": 1 } });
    check_missing(doc! { "$getField": { "field": "y", "input": 5 } }, doc! {});
    check(doc! { "$getField": { "field": "y", "input": null } }, doc! {}, Bson::Null);
    check_error(doc! { "$getField": 1 }, doc! {}, 5654602);
    check_error(doc! { "$getField": { "field": "a" } }, doc! {}, 3041703);
    check_error(doc! { "$getField": { "input": "a" } }, doc! {}, 3041702);
    check_error(doc! { "$getField": { "field": "a", "input": 1, "x": 1 } }, doc! {}, 3041701);

    check(
        doc! { "$setField": { "field": "a.b", "input": "$$ROOT", "value": 2 } },
        doc! { "x": 1, "a.b": 1, "y": 1 },
        doc! { "x": 1, "a.b": 2, "y": 1 },
    );
    check(
        doc! { "$setField": { "field": "n", "input": "$$ROOT", "value": 2 } },
        doc! { "x": 1 },
        doc! { "x": 1, "n": 2 },
    );
    check(doc! { "$setField": { "field": "x", "input": "$$ROOT", "value": "$$REMOVE" } }, doc! { "x": 1 }, doc! {});
    check(doc! { "$unsetField": { "field": "x.y", "input": "$$ROOT" } }, doc! { "x.y": 1, "z": 1 }, doc! { "z": 1 });
    gives(doc! { "$setField": { "field": "x", "input": null, "value": 1 } }, Bson::Null);
    check_error(doc! { "$setField": 1 }, doc! {}, 4161100);
    check_error(doc! { "$setField": { "field": "x", "input": 1, "value": 1, "y": 1 } }, doc! {}, 4161101);
    check_error(doc! { "$setField": { "input": {}, "value": 1 } }, doc! {}, 4161102);
    check_error(doc! { "$setField": { "field": "x", "input": {} } }, doc! {}, 4161103);
    check_error(doc! { "$setField": { "field": "x", "input": 1, "value": 1 } }, doc! {}, 4161105);
    check_error(doc! { "$setField": { "field": 1, "input": {}, "value": 1 } }, doc! {}, 4161106);
    check_error(doc! { "$setField": { "field": "$x", "input": {}, "value": 1 } }, doc! {}, 4161108);
    check_error(doc! { "$setField": { "field": "x", "value": 1 } }, doc! {}, 4161109);
}
