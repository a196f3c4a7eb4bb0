use bson::{RawBson, rawdoc};

use super::{check, compile, context};
use crate::Code;

#[test]
fn a_sample_rate_is_the_chance_of_each_document() {
    check(rawdoc! { "$sampleRate": 1 }, [rawdoc! {}, rawdoc! { "a": 1 }], []);
    check(rawdoc! { "$sampleRate": 0.0, "a": 1 }, [], [rawdoc! {}, rawdoc! { "a": 1 }]);
    let (filter, context) = (compile(&rawdoc! { "$sampleRate": 0.25 }).unwrap(), context());
    let found = (0..1000).filter(|_| filter.matches(&rawdoc! {}, &context).unwrap()).count();
    assert!((200..300).contains(&found), "{found}");
    for (rate, code) in [
        (RawBson::from("x"), 2),
        (RawBson::Null, 2),
        (RawBson::Double(-0.1), 2),
        (RawBson::Double(1.1), 2),
        (RawBson::Double(f64::NAN), 2),
    ] {
        assert_eq!(compile(&rawdoc! { "$sampleRate": rate }).unwrap_err().code(), Code(code));
    }
}
