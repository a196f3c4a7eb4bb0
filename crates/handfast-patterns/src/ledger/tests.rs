use super::{EntryEvent, HoldEvent, HoldState, Status};

#[test]
fn the_table_of_entries() {
    let mut arrows = Vec::new();
    for status in Status::all() {
        for event in [EntryEvent::Committed, EntryEvent::Canceled] {
            let next = status.after(event);
            arrows.extend(
                next.map(|next| format!("{} {} -{event:?}-> {} {}", status.proc, status.state, next.proc, next.state)),
            );
        }
    }
    let expected = [
        "UNCOMMITTED VALID -Committed-> COMMITTED VALID",
        "UNCOMMITTED VALID -Canceled-> UNCOMMITTED CANCELED",
        "UNCOMMITTED CANCELED -Committed-> COMMITTED CANCELED",
        "UNCOMMITTED ABANDONED -Committed-> COMMITTED ABANDONED",
    ];
    assert_eq!(arrows, expected);
}

#[test]
fn the_table_of_authorisations() {
    let mut arrows = Vec::new();
    for state in HoldState::ALL {
        for event in HoldEvent::ALL {
            arrows.extend(state.after(event).map(|next| format!("{state} -{}-> {next}", event.name())));
        }
    }
    assert_eq!(arrows, ["open -capture-> captured", "open -release-> released", "open -expire-> expired"]);
}
