use bson::{DateTime, rawdoc};
use handfast_mql::Code;

use super::{Recorded, RequestedDocument, Ticket, tells_more};
use crate::{Changed, FindAndModifyOutcome, Inserted, ReturnDocument};

const FIRST: Ticket = Ticket { session: [7; 16], number: 12, statement: 0, requested: RequestedDocument::Nothing };

fn now() -> DateTime {
    DateTime::from_millis(1000)
}

#[test]
fn a_record_returns_the_results_that_it_stores() {
    let record = FIRST.record(None, &rawdoc! { "n": 1 }, now()).unwrap();
    let second = FIRST.of_statement(1);
    let record = second.record(Some(&record), &rawdoc! { "n": 2 }, now()).unwrap();
    assert_eq!(FIRST.result(&record).unwrap(), Some(rawdoc! { "n": 1 }));
    assert_eq!(second.result(&record).unwrap(), Some(rawdoc! { "n": 2 }));
    assert_eq!(FIRST.of_statement(2).result(&record).unwrap(), None);
    assert_eq!(record.get("_id").unwrap().unwrap(), FIRST.record_id().as_raw_bson_ref());
}

#[test]
fn the_next_request_replaces_the_record() {
    let record = FIRST.record(None, &rawdoc! { "n": 1 }, now()).unwrap();
    let next = Ticket { number: 13, ..FIRST };
    assert_eq!(next.result(&record).unwrap(), None);
    let record = next.record(Some(&record), &rawdoc! { "n": 3 }, now()).unwrap();
    assert_eq!(next.result(&record).unwrap(), Some(rawdoc! { "n": 3 }));
    assert_eq!(FIRST.result(&record).unwrap_err().code(), Code::TransactionTooOld);
}

#[test]
fn many_statements_are_spread_over_records() {
    let part = |statement| FIRST.of_statement(statement).record_id();
    assert_eq!(part(0), part(63));
    assert_ne!(part(63), part(64));
}

#[test]
fn the_record_of_a_later_request_or_of_more_statements_is_newer() {
    let result = rawdoc! { "n": 1 };
    let one = FIRST.record(None, &result, now()).unwrap();
    let two = FIRST.of_statement(1).record(Some(&one), &result, now()).unwrap();
    let next = Ticket { number: 13, ..FIRST }.record(Some(&two), &result, now()).unwrap();
    let all = [one, two, next];
    for (a, more) in all.iter().enumerate() {
        for (b, less) in all.iter().enumerate() {
            assert_eq!(tells_more(more, less).unwrap(), a > b, "{more:?}, {less:?}");
        }
    }
    assert_eq!(tells_more(&all[0], &rawdoc! { "_id": 1 }).unwrap_err().code(), Code::InternalError);
}

#[test]
fn a_damaged_record_is_an_error() {
    for record in [rawdoc! {}, rawdoc! { "number": 12_i64 }, rawdoc! { "number": 12_i64, "results": [1] }] {
        assert_eq!(FIRST.result(&record).unwrap_err().code(), Code::InternalError);
    }
}

/// A repetition must ask for the document of the first attempt; the table has the code of the refusal, 0 for none.
#[test]
fn a_repetition_that_asks_for_another_document_is_refused() {
    let changed = |returns, upsert| RequestedDocument::Changed { returns, upsert };
    let (before, after) = (changed(ReturnDocument::Before, false), changed(ReturnDocument::After, false));
    let found = rawdoc! { "found": { "value": { "_id": 1 } } };
    let inserted = rawdoc! { "found": { "upserted": 1 } };
    for (first, result, again, code) in [
        (RequestedDocument::Removed, &found, RequestedDocument::Removed, 0),
        (RequestedDocument::Removed, &found, before, 40_606),
        (RequestedDocument::Removed, &found, after, 40_606),
        (before, &found, before, 0),
        (before, &found, changed(ReturnDocument::Before, true), 0),
        (before, &found, after, 40_611),
        (before, &found, RequestedDocument::Removed, 40_609),
        (after, &found, after, 0),
        (after, &found, before, 40_612),
        (changed(ReturnDocument::Before, true), &inserted, changed(ReturnDocument::Before, true), 0),
        (changed(ReturnDocument::Before, true), &inserted, before, 40_608),
        // The record names no requested document, or is of another kind of request: the result decides.
        (RequestedDocument::Nothing, &found, after, 0),
        (before, &found, RequestedDocument::Nothing, 0),
    ] {
        let record = FIRST.requesting(first).record(None, result, now()).unwrap();
        let answer = FIRST.requesting(again).result(&record);
        match answer {
            Ok(answer) => assert_eq!((answer.as_deref(), code), (Some(&**result), 0), "{first:?} {again:?}"),
            Err(error) => assert_eq!(error.code().0, code, "{first:?} {again:?}"),
        }
    }
}

#[test]
fn the_result_of_another_kind_of_request_is_refused() {
    let result = Inserted.to_result().unwrap();
    for error in [Changed::from_result(&result).err(), FindAndModifyOutcome::from_result(&result).err()] {
        let error = error.unwrap();
        assert_eq!(error.code(), Code::IncompleteTransactionHistory);
        assert_eq!(
            error.message(),
            "the number of this request was used for another kind of request in the same session"
        );
    }
}
