//! Parses any document as a record of a ticket. Its results stay readable when another statement is added, and a result that parses as
//! that of a kind of write is the same after it is written and parsed again.
#![no_main]

use bson::{DateTime, RawDocument, rawdoc};
use handfast_mql::depth;
use handfast_store::ticket::{NESTING_OF_RECORD, Recorded, RequestedDocument, Ticket, tells_more};
use handfast_store::{Changed, CommitTimestamp, Deleted, FindAndModifyOutcome, Inserted};
use libfuzzer_sys::fuzz_target;

/// The number of statements whose results are read.
const STATEMENTS: u32 = 4;

fuzz_target!(|bytes: &[u8]| {
    let limits = depth::Limits { nesting_max: depth::NESTING_MAX + NESTING_OF_RECORD, ..depth::Limits::default() };
    if depth::check(bytes, limits).is_err() {
        return;
    }
    let record = RawDocument::from_bytes(bytes).expect("checked");
    assert!(tells_more(record, record).is_ok_and(|more| !more) || tells_more(record, record).is_err());
    let number = record.get_i64("number").unwrap_or(1);
    for statement in 0..STATEMENTS {
        let ticket = Ticket { session: [7; 16], number, statement, requested: RequestedDocument::Nothing };
        let Ok(Some(result)) = ticket.result(record) else { continue };
        let further = Ticket { statement: STATEMENTS, ..ticket };
        if let Ok(longer) = further.record(Some(record), &rawdoc! { "deleted": true }, DateTime::from_millis(0)) {
            assert_eq!(ticket.result(&longer).expect("a written result is readable"), Some(result.clone()));
            assert!(tells_more(&longer, record).expect("both were read"));
        }
        check_round_trip::<CommitTimestamp>(&result);
        check_round_trip::<Inserted>(&result);
        check_round_trip::<Deleted>(&result);
        check_round_trip::<Changed>(&result);
        check_round_trip::<FindAndModifyOutcome>(&result);
    }
});

fn check_round_trip<T: Recorded + std::fmt::Debug>(result: &RawDocument) {
    let Ok(first) = T::from_result(result) else { return };
    // A write without effect has no result.
    let Some(written) = first.to_result() else { return };
    let again = T::from_result(&written).expect("a written result is readable");
    assert_eq!(format!("{again:?}"), format!("{first:?}"));
}
