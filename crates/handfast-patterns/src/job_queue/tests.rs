use std::time::Duration;

use super::{Backoff, JobEvent, JobState};

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
