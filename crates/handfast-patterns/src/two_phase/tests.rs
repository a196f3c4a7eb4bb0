use bson::doc;

use super::escape::{escaped, unescaped};
use super::{Event, State};

#[test]
fn the_table_of_states() {
    let events = [Event::Claimed, Event::AllApplied, Event::Refused, Event::AllReleased, Event::AllUndone];
    let mut arrows = Vec::new();
    for state in State::ALL {
        for event in events {
            arrows.extend(state.after(event).map(|next| format!("{state} -{event:?}-> {next}")));
        }
    }
    let expected = [
        "initial -Claimed-> pending",
        "pending -AllApplied-> applied",
        "pending -Refused-> canceling",
        "applied -AllReleased-> done",
        "canceling -AllUndone-> canceled",
    ];
    assert_eq!(arrows, expected);
}

#[test]
fn names_of_states_can_be_read_back() {
    for state in State::ALL {
        assert_eq!(state.name().parse(), Ok(state));
    }
    assert!("cancelled".parse::<State>().is_err());
}

#[test]
fn operators_are_escaped_and_come_back() {
    let update = doc! { "$inc": { "stock.left": -1 }, "$push": { "log": { "$each": [{ "$odd": 1 }] } } };
    let stored = escaped(&update).expect("plain names");
    assert_eq!(stored.keys().collect::<Vec<_>>(), ["＄inc", "＄push"]);
    assert!(!format!("{stored}").contains('$'), "{stored}");
    assert_eq!(unescaped(&stored), update);
    assert!(escaped(&doc! { "a": [{ "b．c": 1 }] }).is_err(), "it would come back as something else");
}
