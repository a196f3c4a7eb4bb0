//! Any document is a record of what was done once, or an error; whatever is read from it is still there when another
//! statement has been added, and every result that reads as one kind of write is written as the same again.
#![no_main]

use bson::{DateTime, RawDocument, rawdoc};
use handfast_mql::depth;
use handfast_store::ticket::{NESTING_OF_RECORD, Recorded, RequestedDocument, Ticket, tells_more};
use handfast_store::{Changed, CommitTimestamp, Deleted, FindAndModifyOutcome, Inserted};
use libfuzzer_sys::fuzz_target;

/// Statements that are asked for: those that the record tells of first, and one that it does not.
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
            assert_eq!(ticket.result(&longer).expect("what we wrote we can read"), Some(result.clone()));
            assert!(tells_more(&longer, record).expect("both were read"));
        }
        reads_again::<CommitTimestamp>(&result);
        reads_again::<Inserted>(&result);
        reads_again::<Deleted>(&result);
        reads_again::<Changed>(&result);
        reads_again::<FindAndModifyOutcome>(&result);
    }
});

fn reads_again<T: Recorded + std::fmt::Debug>(result: &RawDocument) {
    let Ok(first) = T::from_result(result) else { return };
    // What had no effect leaves no result.
    let Some(written) = first.to_result() else { return };
    let again = T::from_result(&written).expect("what we wrote we can read");
    assert_eq!(format!("{again:?}"), format!("{first:?}"));
}
