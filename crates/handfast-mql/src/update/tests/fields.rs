//! Operators on fields: `$set`, `$unset`, `$inc`, `$mul`, `$min`, `$max`, `$rename`, `$currentDate`, `$bit`.

use super::*;

#[test]
fn set_assigns_fields() {
    check(doc! { "_id": 1, "a": 1, "b": 2 }, doc! { "$set": { "a": "x" } }, doc! { "_id": 1, "a": "x", "b": 2 });
    check(doc! { "_id": 1 }, doc! { "$set": { "a.b.c": 1 } }, doc! { "_id": 1, "a": { "b": { "c": 1 } } });
    check(doc! { "a": { "x": 1 } }, doc! { "$set": { "a.b": 1, "a.x": 2 } }, doc! { "a": { "x": 2, "b": 1 } });
    check(doc! { "a": [1, 2] }, doc! { "$set": { "a.1": 5 } }, doc! { "a": [1, 5] });
    check(doc! { "a": [1] }, doc! { "$set": { "a.3": 5 } }, doc! { "a": [1, Bson::Null, Bson::Null, 5] });
    check(doc! { "a": [1] }, doc! { "$set": { "a.1.b": 5 } }, doc! { "a": [1, { "b": 5 }] });
    check(doc! { "a": [{ "b": 1 }] }, doc! { "$set": { "a.0.b": 5 } }, doc! { "a": [{ "b": 5 }] });
    check(doc! {}, doc! { "$set": { "a.0": 5 } }, doc! { "a": { "0": 5 } });
    check(doc! { "a": 1 }, doc! { "$set": { "a": 1_i64 } }, doc! { "a": 1_i64 });
    unchanged(doc! { "a": { "b": [1, { "c": 2 }] } }, doc! { "$set": { "a.b.1.c": 2 } });
    unchanged(doc! { "a": 1 }, doc! { "$set": {} });
    check(doc! {}, doc! { "$set": { "a": {}, "b": [] } }, doc! { "a": {}, "b": [] });
}

#[test]
fn new_fields_are_added_in_the_order_of_their_names() {
    check(
        doc! { "z": 0 },
        doc! { "$set": { "c": 1, "10": 1, "9": 1, "b.y": 1, "b.x": 1 }, "$inc": { "a": 1 } },
        doc! { "z": 0, "9": 1, "10": 1, "a": 1, "b": { "x": 1, "y": 1 }, "c": 1 },
    );
}

#[test]
fn paths_through_scalars_are_refused() {
    fails(
        doc! { "a": 1 },
        doc! { "$set": { "a.b": 1 } },
        Code::PathNotViable,
        "Cannot create field 'b' in element {a: 1}",
    );
    fails(
        doc! { "a": [1, 2] },
        doc! { "$set": { "a.b": 1 } },
        Code::PathNotViable,
        "Cannot create field 'b' in element {a: [ 1, 2 ]}",
    );
    fails(
        doc! { "a": { "b": "x" } },
        doc! { "$inc": { "a.b.c.d": 1 } },
        Code::PathNotViable,
        "Cannot create field 'c' in element {b: \"x\"}",
    );
    fails(
        doc! { "a": Bson::Null },
        doc! { "$set": { "a.b": 1 } },
        Code::PathNotViable,
        "Cannot create field 'b' in element {a: null}",
    );
    fails(
        doc! { "a": [{ "b": 1 }] },
        doc! { "$set": { "a.0.b.c": 1 } },
        Code::PathNotViable,
        "Cannot create field 'c' in element {b: 1}",
    );
    fails(
        doc! { "a": [1] },
        doc! { "$set": { "a.1500002": 1 } },
        Code::CannotBackfillArray,
        "can't backfill more than 1500000 elements",
    );
    let applied = PLAIN.run(&doc! { "a": [1] }, &doc! { "$set": { "a.1500001": 1 } }).unwrap();
    let array = applied.document.get_array("a").unwrap();
    assert_eq!(array.get(1_500_001).unwrap().unwrap().as_i32(), Some(1));
    assert_eq!(array.get(1_500_000).unwrap().unwrap().as_null(), Some(()));
}

#[test]
fn updates_that_nest_too_deeply_are_refused() {
    let mut value = Bson::Int32(1);
    for _ in 0..60 {
        value = Bson::Document(doc! { "x": value });
    }
    let path = ["a"; 42].join(".");
    let error = PLAIN.run(&doc! {}, &doc! { "$set": { path: value.clone() } }).unwrap_err();
    assert_eq!(error.code(), Code::Overflow);
    let path = ["a"; 41].join(".");
    assert!(PLAIN.run(&doc! {}, &doc! { "$set": { path: value.clone() } }).is_ok());
    // The depth of the moved value is known only when the update is applied.
    let deep = ["a"; 60].join(".");
    let error = PLAIN.run(&doc! { "v": value }, &doc! { "$rename": { "v": deep } }).unwrap_err();
    assert_eq!(error.code(), Code::Overflow);
}

#[test]
fn unset_removes_fields() {
    check(doc! { "a": 1, "b": 2 }, doc! { "$unset": { "a": "" } }, doc! { "b": 2 });
    check(doc! { "a": { "b": 1 } }, doc! { "$unset": { "a.b": 1 } }, doc! { "a": {} });
    check(doc! { "a": [1, 2] }, doc! { "$unset": { "a.0": 1 } }, doc! { "a": [Bson::Null, 2] });
    unchanged(doc! { "a": [Bson::Null] }, doc! { "$unset": { "a.0": 1 } });
    unchanged(doc! { "a": 1 }, doc! { "$unset": { "a.b": 1, "c.d": 1, "e": 1 } });
    unchanged(doc! { "a": [1] }, doc! { "$unset": { "a.b": 1, "a.5": 1 } });
}

#[test]
fn inc_adds_to_numbers() {
    check(doc! { "n": 1 }, doc! { "$inc": { "n": 2 } }, doc! { "n": 3 });
    check(doc! {}, doc! { "$inc": { "n": 2 } }, doc! { "n": 2 });
    check(doc! {}, doc! { "$inc": { "a.n": 2.5 } }, doc! { "a": { "n": 2.5 } });
    check(doc! { "n": 1 }, doc! { "$inc": { "n": 0.5 } }, doc! { "n": 1.5 });
    check(doc! { "n": 1 }, doc! { "$inc": { "n": 1_i64 } }, doc! { "n": 2_i64 });
    check(doc! { "n": i32::MAX }, doc! { "$inc": { "n": 1 } }, doc! { "n": i64::from(i32::MAX) + 1 });
    check(doc! { "n": [1, 2] }, doc! { "$inc": { "n.1": 1 } }, doc! { "n": [1, 3] });
    unchanged(doc! { "n": 1 }, doc! { "$inc": { "n": 0 } });
    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    check(doc! { "n": 1 }, doc! { "$inc": { "n": decimal("0.5") } }, doc! { "n": decimal("1.5") });
    fails(
        doc! { "_id": 1, "a": "x" },
        doc! { "$inc": { "a": 1 } },
        Code::TypeMismatch,
        "Cannot apply $inc to a value of non-numeric type. {_id: 1} has the field 'a' of non-numeric type string",
    );
    fails(
        doc! { "_id": 1, "a": Bson::Null },
        doc! { "$inc": { "a": 1 } },
        Code::TypeMismatch,
        "Cannot apply $inc to a value of non-numeric type. {_id: 1} has the field 'a' of non-numeric type null",
    );
    fails(
        doc! {},
        doc! { "$inc": { "a": "x" } },
        Code::TypeMismatch,
        "Cannot increment with non-numeric argument: {a: \"x\"}",
    );
    fails(
        doc! { "_id": 1, "a": i64::MAX },
        doc! { "$inc": { "a": 1 } },
        Code::BadValue,
        "Failed to apply $inc operations to current value ((NumberLong)9223372036854775807) for document {_id: 1}",
    );
    fails(
        doc! { "_id": 1, "a": i64::MIN },
        doc! { "$inc": { "a": -1_i64 } },
        Code::BadValue,
        "Failed to apply $inc operations to current value ((NumberLong)-9223372036854775808) for document {_id: 1}",
    );
}

#[test]
fn mul_multiplies_numbers() {
    check(doc! { "n": 3 }, doc! { "$mul": { "n": 2 } }, doc! { "n": 6 });
    check(doc! {}, doc! { "$mul": { "n": 2 } }, doc! { "n": 0 });
    check(doc! {}, doc! { "$mul": { "n": 2_i64 } }, doc! { "n": 0_i64 });
    check(doc! {}, doc! { "$mul": { "n": 2.0 } }, doc! { "n": 0.0 });
    check(doc! { "n": 3 }, doc! { "$mul": { "n": 0.5 } }, doc! { "n": 1.5 });
    check(doc! { "n": 1 << 30 }, doc! { "$mul": { "n": 4 } }, doc! { "n": 1_i64 << 32 });
    unchanged(doc! { "n": 3 }, doc! { "$mul": { "n": 1 } });
    fails(
        doc! { "_id": 1, "a": true },
        doc! { "$mul": { "a": 1 } },
        Code::TypeMismatch,
        "Cannot apply $mul to a value of non-numeric type. {_id: 1} has the field 'a' of non-numeric type bool",
    );
    fails(
        doc! {},
        doc! { "$mul": { "a": Bson::Null } },
        Code::TypeMismatch,
        "Cannot multiply with non-numeric argument: {a: null}",
    );
    fails(
        doc! { "_id": "k", "a": i64::MAX },
        doc! { "$mul": { "a": 2 } },
        Code::BadValue,
        "Failed to apply $mul operations to current value ((NumberLong)9223372036854775807) for document {_id: \"k\"}",
    );
}

#[test]
fn min_and_max_keep_one_of_two_values() {
    check(doc! { "n": 3 }, doc! { "$min": { "n": 2 } }, doc! { "n": 2 });
    unchanged(doc! { "n": 3 }, doc! { "$min": { "n": 4 } });
    unchanged(doc! { "n": 3 }, doc! { "$min": { "n": 3.0 } });
    check(doc! { "n": 3 }, doc! { "$max": { "n": 4.5 } }, doc! { "n": 4.5 });
    unchanged(doc! { "n": 3 }, doc! { "$max": { "n": 3_i64 } });
    check(doc! {}, doc! { "$min": { "a.n": 3 }, "$max": { "a.m": 3 } }, doc! { "a": { "m": 3, "n": 3 } });
    // Types are ordered: null < numbers < strings.
    check(doc! { "n": 3 }, doc! { "$min": { "n": Bson::Null } }, doc! { "n": Bson::Null });
    check(doc! { "n": 3 }, doc! { "$max": { "n": "x" } }, doc! { "n": "x" });
}

#[test]
fn rename_moves_values() {
    check(doc! { "a": 1, "c": 3 }, doc! { "$rename": { "a": "b" } }, doc! { "c": 3, "b": 1 });
    check(doc! { "a": 1, "b": 2, "c": 3 }, doc! { "$rename": { "a": "b" } }, doc! { "b": 1, "c": 3 });
    check(
        doc! { "a": { "x": [1, { "y": 2 }], "z": 1 } },
        doc! { "$rename": { "a.x": "b.c" } },
        doc! { "a": { "z": 1 }, "b": { "c": [1, { "y": 2 }] } },
    );
    check(
        doc! { "a": { "b": { "c": 1, "d": 2 } }, "b": 3, "c": { "d": 4 } },
        doc! { "$rename": { "c.d": "a.b.c" } },
        doc! { "a": { "b": { "c": 4, "d": 2 } }, "b": 3, "c": {} },
    );
    unchanged(doc! { "a": 1 }, doc! { "$rename": { "x": "y", "p.q": "r.s" } });
    unchanged(doc! { "a": [1] }, doc! { "$rename": { "a.5": "y" } });
    fails(
        doc! { "_id": 1, "a": [1] },
        doc! { "$rename": { "a.0": "b" } },
        Code::BadValue,
        "The source field cannot be an array element, 'a.0' in doc with _id: 1 has an array field called 'a'",
    );
    fails(
        doc! { "_id": 1, "a": 1, "b": [1] },
        doc! { "$rename": { "a": "b.0" } },
        Code::BadValue,
        "The destination field cannot be an array element, 'b.0' in doc with _id: 1 has an array field called 'b'",
    );
    fails(
        doc! { "_id": 1, "a": 1, "b": { "c": [{ "x": 1 }] } },
        doc! { "$rename": { "a": "b.c.0.y" } },
        Code::BadValue,
        "The destination field cannot be an array element, 'b.c.0.y' in doc with _id: 1 has an array field called 'c'",
    );
    unchanged(doc! { "b": [{ "x": 1 }] }, doc! { "$rename": { "a": "b.0.y" } });
    fails(
        doc! { "v": [{ "foo": 1 }] },
        doc! { "$rename": { "v.foo": "foo" } },
        Code::PathNotViable,
        "cannot use the part (v of v.foo) to traverse the element ({v: [ { foo: 1 } ]})",
    );
    fails(
        doc! { "a": 1 },
        doc! { "$rename": { "a": "a" } },
        Code::BadValue,
        "The source and target field for $rename must differ: a: \"a\"",
    );
    fails(
        doc! { "a": 1 },
        doc! { "$rename": { "a": "a.b" } },
        Code::BadValue,
        "The source and target field for $rename must not be on the same path: a: \"a.b\"",
    );
    fails(doc! {}, doc! { "$rename": { "a": 1 } }, Code::BadValue, "The 'to' field for $rename must be a string: a: 1");
    fails(
        doc! {},
        doc! { "$rename": { "a.$": "b" } },
        Code::BadValue,
        "The source field for $rename may not be dynamic: a.$",
    );
    fails(
        doc! {},
        doc! { "$rename": { "b": "a.$[]" } },
        Code::BadValue,
        "The destination field for $rename may not be dynamic: a.$[]",
    );
    fails(
        doc! { "a": 1 },
        doc! { "$rename": { "a": "b" }, "$set": { "a.c": 1 } },
        Code::ConflictingUpdateOperators,
        "Updating the path 'a.c' would create a conflict at 'a'",
    );
}

#[test]
fn current_date_sets_the_time() {
    let date = DateTime::from_millis(NOW_MILLIS);
    check(doc! {}, doc! { "$currentDate": { "a": true } }, doc! { "a": date });
    check(doc! { "a": 1 }, doc! { "$currentDate": { "a": { "$type": "date" } } }, doc! { "a": date });
    check(
        doc! {},
        doc! { "$currentDate": { "a": { "$type": "timestamp" } } },
        doc! { "a": Timestamp { time: 9, increment: 3 } },
    );
    let text = "The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: {field : {$type: \
                'date'}}}";
    fails(doc! {}, doc! { "$currentDate": { "a": { "$type": "x" } } }, Code::BadValue, text);
    fails(doc! {}, doc! { "$currentDate": { "a": {} } }, Code::BadValue, text);
    fails(
        doc! {},
        doc! { "$currentDate": { "a": { "$kind": "date" } } },
        Code::BadValue,
        "Unrecognized $currentDate option: $kind",
    );
    fails(
        doc! {},
        doc! { "$currentDate": { "a": 1 } },
        Code::BadValue,
        "int is not valid type for $currentDate. Please use a boolean ('true') or a $type expression ({$type: \
         'timestamp/date'}).",
    );
}

#[test]
fn bit_combines_integers() {
    check(doc! { "n": 13 }, doc! { "$bit": { "n": { "and": 10 } } }, doc! { "n": 8 });
    check(doc! { "n": 3 }, doc! { "$bit": { "n": { "or": 5 } } }, doc! { "n": 7 });
    check(doc! { "n": 1 }, doc! { "$bit": { "n": { "xor": 5 } } }, doc! { "n": 4 });
    check(doc! { "n": -1 }, doc! { "$bit": { "n": { "and": 0xff_i64 } } }, doc! { "n": 0xff_i64 });
    check(doc! { "n": 6 }, doc! { "$bit": { "n": { "and": 3, "or": 8 } } }, doc! { "n": 10 });
    check(doc! {}, doc! { "$bit": { "n": { "or": 5 } } }, doc! { "n": 5 });
    check(doc! {}, doc! { "$bit": { "n": { "and": 5_i64 } } }, doc! { "n": 0_i64 });
    fails(
        doc! { "_id": 1, "n": 1.0 },
        doc! { "$bit": { "n": { "or": 5 } } },
        Code::BadValue,
        "Cannot apply $bit to a value of non-integral type._id: 1 has the field n of non-integer type double",
    );
    fails(
        doc! {},
        doc! { "$bit": { "n": { "or": 1.0 } } },
        Code::BadValue,
        "The $bit modifier field must be an Integer(32/64 bit); a 'double' is not supported here: {or: 1.0}",
    );
    fails(
        doc! {},
        doc! { "$bit": { "n": { "nand": 1 } } },
        Code::BadValue,
        "The $bit modifier only supports 'and', 'or', and 'xor', not 'nand' which is an unknown operator: {nand: 1}",
    );
    fails(
        doc! {},
        doc! { "$bit": { "n": {} } },
        Code::BadValue,
        "You must pass in at least one bitwise operation. The format is: {$bit: {field: {and/or/xor: #}}",
    );
    fails(
        doc! {},
        doc! { "$bit": { "n": "x" } },
        Code::BadValue,
        "The $bit modifier is not compatible with a string. You must pass in an embedded document: {$bit: {field: \
         {and/or/xor: #}}",
    );
}
