use bson::oid::ObjectId;
use bson::{Bson, DateTime, doc};

use super::{Id, shown};

#[test]
fn ids_are_read_and_shown() {
    let hex = "65a1b2c3d4e5f60718293a4b";
    let cases = [
        ("order-7", Bson::from("order-7")),
        ("7", Bson::Int32(7)),
        ("5000000000", Bson::Int64(5_000_000_000)),
        ("\"7\"", Bson::from("7")),
        (hex, Bson::ObjectId(ObjectId::parse_str(hex).unwrap())),
        ("\"65a1b2c3d4e5f60718293a4b\"", Bson::from(hex)),
        ("true", Bson::Boolean(true)),
        ("\"true\"", Bson::from("true")),
        ("{\"resolves\":7}", Bson::Document(doc! { "resolves": 7 })),
        ("two words", Bson::from("two words")),
        ("\"\"", Bson::from("")),
        ("{\"$numberDouble\":\"1e22\"}", Bson::Double(1e22)),
        (
            "{\"$date\":{\"$numberLong\":\"253402300800000\"}}",
            Bson::DateTime(DateTime::from_millis(253_402_300_800_000)),
        ),
    ];
    for (text, id) in cases {
        assert_eq!(text.parse(), Ok(Id(id.clone())), "{text}");
        assert_eq!(shown(&id), text);
    }
}

#[test]
fn numbers_that_would_be_rounded_are_no_ids() {
    for text in ["9223372036854775808", "-9223372036854775809", "20261127000000000001", "{\"a\":[1e300]}"] {
        assert!(text.parse::<Id>().unwrap_err().contains("may have been rounded"), "{text}");
    }
    assert_eq!("1.5".parse(), Ok(Id(Bson::Double(1.5))));
}

#[test]
fn what_begins_as_json_is_json() {
    for text in ["{a", "[1", "\"x", ""] {
        assert!(text.parse::<Id>().is_err(), "{text}");
    }
}
