use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, doc};

use super::{Backoff, JobEvent, JobState, NewJob};
use crate::value::serialized;

#[test]
fn the_table_of_states() {
    let events = [
        JobEvent::Claimed,
        JobEvent::Completed,
        JobEvent::Returned,
        JobEvent::GivenUp,
        JobEvent::Canceled,
        JobEvent::OrderedAgain,
    ];
    let mut arrows = Vec::new();
    for state in JobState::ALL {
        for event in events {
            arrows.extend(state.after(event).map(|next| format!("{state} -{event:?}-> {next}")));
        }
    }
    let expected = [
        "TODO -Claimed-> PROCESSING",
        "TODO -GivenUp-> FAILED",
        "TODO -Canceled-> CANCELED",
        "PROCESSING -Completed-> DONE",
        "PROCESSING -Returned-> TODO",
        "PROCESSING -GivenUp-> FAILED",
        "PROCESSING -Canceled-> CANCELED",
        "FAILED -OrderedAgain-> TODO",
    ];
    assert_eq!(arrows, expected);
}

#[test]
fn details_are_serialized_and_read_as_they_are() {
    let id = ObjectId::from_bytes([1; 12]);
    let details = doc! { "text": { "$oid": "507f1f77bcf86cd799439011" }, "id": id, "long": 5_i64, "small": 5 };
    let job = NewJob::new("mail", &details).unwrap();
    assert_eq!(job.details, details);
    assert_eq!(serialized(&details).unwrap(), Bson::Document(details));
    assert_eq!(serialized(&()).unwrap(), Bson::Null);
    assert_eq!(
        serialized(&(1_u8, 2_u32, 3_u64, "x")).unwrap(),
        bson::serialize_to_bson(&(1_u8, 2_u32, 3_u64, "x")).unwrap()
    );
}

#[test]
fn names_of_states_can_be_read_back() {
    for state in JobState::ALL {
        assert_eq!(state.name().parse(), Ok(state));
    }
    assert!("todo".parse::<JobState>().is_err());
}

#[test]
fn the_wait_doubles_up_to_a_bound() {
    let backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_secs(60), jitter: 0.0 };
    let waits = [1, 2, 3, 4, 5, 6, u32::MAX].map(|failures| backoff.after(failures, 0).as_secs());
    assert_eq!(waits, [5, 10, 20, 40, 60, 60, 60]);
}
