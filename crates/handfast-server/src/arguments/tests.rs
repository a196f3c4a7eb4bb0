use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{RawBson, rawdoc};
use handfast_wire::Sequence;

use super::{Arguments, Field, GENERIC};
use crate::error::CommandResult;

/// Returns the fields of a command in a request, without its name, and without those that every command may carry.
fn fields(body: &RawDocument) -> Vec<Field<'_>> {
    let fields = body.iter().skip(1).map(|element| element.unwrap()).map(|(name, value)| (name.as_str(), value));
    fields.filter(|(name, _)| !GENERIC.contains(name)).map(|(name, value)| Field { name, value }).collect()
}

fn check<T: std::fmt::Debug>(
    body: RawDocumentBuf,
    read: impl Fn(&mut Arguments<'_>) -> CommandResult<T>,
    expected: Result<&str, (i32, &str)>,
) {
    let fields = fields(&body);
    let mut arguments = Arguments::of_command("find", &fields, &[]);
    let result = read(&mut arguments).and_then(|value| arguments.finish().map(|()| value));
    match (result, expected) {
        (Ok(value), Ok(text)) => assert_eq!(format!("{value:?}"), text, "{body:?}"),
        (Err(error), Err((code, text))) => assert_eq!((error.code.0, error.message.as_str()), (code, text)),
        (result, expected) => panic!("{body:?}: {result:?} instead of {expected:?}"),
    }
}

#[test]
fn values_of_other_types_are_refused() {
    let filter = |a: &mut Arguments<'_>| a.document_or_empty("filter").map(|d| d.iter().count());
    check(rawdoc! { "find": "c", "filter": { "a": 1 } }, filter, Ok("1"));
    check(rawdoc! { "find": "c" }, filter, Ok("0"));
    check(rawdoc! { "find": "c", "filter": RawBson::Null }, filter, Ok("0"));
    let text = "BSON field 'find.filter' is the wrong type 'string', expected type 'object'";
    check(rawdoc! { "find": "c", "filter": "x" }, filter, Err((14, text)));
    let flag = |a: &mut Arguments<'_>| a.flag("x");
    let text = "BSON field 'find.x' is the wrong type 'int', expected type 'bool'";
    check(rawdoc! { "find": "c", "x": 1 }, flag, Err((14, text)));
    let lenient = |a: &mut Arguments<'_>| a.lenient_flag("x");
    check(rawdoc! { "find": "c", "x": 0.0 }, lenient, Ok("Some(false)"));
    check(rawdoc! { "find": "c", "x": 2_i64 }, lenient, Ok("Some(true)"));
    let text = "BSON field 'find.x' is the wrong type 'string', expected types '[bool, long, int, decimal, double']";
    check(rawdoc! { "find": "c", "x": "y" }, lenient, Err((14, text)));
}

#[test]
fn numbers_of_all_types_are_read() {
    let number = |a: &mut Arguments<'_>| a.unsigned("limit");
    check(rawdoc! { "find": "c", "limit": 3 }, number, Ok("Some(3)"));
    check(rawdoc! { "find": "c", "limit": 3.9 }, number, Ok("Some(3)"));
    check(rawdoc! { "find": "c", "limit": f64::NAN }, number, Ok("Some(0)"));
    check(rawdoc! { "find": "c", "limit": 1e300 }, number, Ok("Some(9223372036854775807)"));
    let decimal: bson::Decimal128 = "7.5".parse().unwrap();
    check(rawdoc! { "find": "c", "limit": decimal }, number, Ok("Some(7)"));
    let text = "BSON field 'limit' value must be >= 0, actual value '-1'";
    check(rawdoc! { "find": "c", "limit": -1 }, number, Err((51_024, text)));
    let text = "BSON field 'find.limit' is the wrong type 'string', expected types '[long, int, decimal, double']";
    check(rawdoc! { "find": "c", "limit": "1" }, number, Err((14, text)));
}

#[test]
fn a_field_that_is_not_read_is_refused_by_name() {
    let nothing = |_: &mut Arguments<'_>| Ok(());
    check(rawdoc! { "find": "c", "lsid": {}, "$db": "d", "comment": 1, "maxTimeMS": 5 }, nothing, Ok("()"));
    check(rawdoc! { "find": "c", "foo": 1 }, nothing, Err((40_415, "BSON field 'find.foo' is an unknown field.")));
    let twice = rawdoc! { "find": "c", "a": 1, "a": 2 };
    check(twice, |a| a.integer("a"), Err((40_413, "BSON field 'find.a' is a duplicate field")));
    let mut many = rawdoc! { "find": "c", "a": 1 };
    for number in 0..100 {
        many.append(bson::raw::CString::try_from(format!("x{number}")).unwrap(), 1);
    }
    check(many, |a| a.integer("a"), Err((40_415, "BSON field 'find.x0' is an unknown field.")));
}

#[test]
fn unsupported_options_are_refused_unless_null_or_false() {
    let tailable = |a: &mut Arguments<'_>| a.unsupported(&["tailable"]);
    check(rawdoc! { "find": "c", "tailable": false }, tailable, Ok("()"));
    let text = "the option 'find.tailable' is not supported";
    check(rawdoc! { "find": "c", "tailable": true }, tailable, Err((238, text)));
    let collation = |a: &mut Arguments<'_>| a.simple_collation();
    check(rawdoc! { "find": "c", "collation": { "locale": "simple" } }, collation, Ok("()"));
    let text = "the option 'find.collation' is not supported, except {locale: \"simple\"}";
    check(rawdoc! { "find": "c", "collation": { "locale": "fr" } }, collation, Err((238, text)));
}

#[test]
fn a_document_sequence_is_read_like_an_array() {
    let body = rawdoc! { "insert": "c" };
    let document = rawdoc! { "_id": 1 };
    let sequences = [Sequence { identifier: "documents", documents: vec![&document] }];
    let insert = fields(&body);
    let mut arguments = Arguments::of_command("insert", &insert, &sequences);
    assert_eq!(arguments.documents("documents").unwrap().unwrap().len(), 1);
    let body = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }, 2] };
    let insert = fields(&body);
    let mut arguments = Arguments::of_command("insert", &insert, &[]);
    let error = arguments.documents("documents").unwrap_err();
    let text = "BSON field 'insert.documents.1' is the wrong type 'int', expected type 'object'";
    assert_eq!(error.message, text);
}
