use handfast_store::Sources;

use super::*;
use crate::batches::ListCursor;

fn empty() -> Batches {
    Batches::new(Box::new(ListCursor::new(Vec::new())))
}

fn table(limits: CursorLimits) -> Cursors {
    Cursors::new(limits, Sources::seeded(1).random)
}

fn description() -> Description {
    Description {
        namespace: "d.c".to_owned(),
        session: None,
        transaction: None,
        connection: 1,
        user: None,
        no_timeout: false,
        time_left: None,
    }
}

fn open(cursors: &Cursors, description: Description, now: Duration) -> i64 {
    cursors.open(empty(), description, now).unwrap()
}

fn code<T>(outcome: CommandResult<T>) -> i32 {
    outcome.err().map_or(0, |error| error.code.0)
}

const START: Duration = Duration::ZERO;

#[test]
fn a_cursor_in_use_is_refused_to_another_command() {
    let cursors = table(CursorLimits::default());
    let id = open(&cursors, description(), START);
    let taken = cursors.take(id, "d.c", None, None, None).unwrap();
    assert_eq!(code(cursors.take(id, "d.c", None, None, None)), 12_051);
    assert!(cursors.put_back(taken, START));
    assert!(cursors.take(id, "d.c", None, None, None).is_ok());
}

#[test]
fn a_cursor_whose_command_is_dropped_is_closed() {
    let cursors = table(CursorLimits::default());
    let id = open(&cursors, description(), START);
    drop(cursors.take(id, "d.c", None, None, None).unwrap());
    assert_eq!(code(cursors.take(id, "d.c", None, None, None)), 43);
}

#[test]
fn a_cursor_that_is_killed_while_in_use_is_dropped() {
    let cursors = table(CursorLimits::default());
    let id = open(&cursors, description(), START);
    let taken = cursors.take(id, "d.c", None, None, None).unwrap();
    assert!(cursors.kill(id, "d.c", None));
    assert!(!cursors.put_back(taken, START));
    assert_eq!(cursors.counts().open, 0);
}

#[test]
fn another_namespace_is_refused() {
    let cursors = table(CursorLimits::default());
    let id = open(&cursors, description(), START);
    assert_eq!(code(cursors.take(id, "d.other", None, None, None)), 13);
    assert!(!cursors.kill(id, "d.other", None));
    assert_eq!(code(cursors.take(id + 1, "d.c", None, None, None)), 43);
    assert!(cursors.kill(id, "d.c", None));
    assert!(!cursors.kill(id, "d.c", None));
}

#[test]
fn another_session_is_refused() {
    let cursors = table(CursorLimits::default());
    let (own, other) = (SessionId::of([1; 16]), SessionId::of([2; 16]));
    let id = open(&cursors, Description { session: Some(own), ..description() }, START);
    let free = open(&cursors, description(), START);
    assert_eq!(code(cursors.take(free, "d.c", Some(other), None, None)), 50_736);
    assert_eq!(code(cursors.take(id, "d.c", None, None, None)), 50_737);
    assert_eq!(code(cursors.take(id, "d.c", Some(other), None, None)), 50_738);
    assert_eq!(code(cursors.take(id, "d.c", Some(own), None, None)), 0);
    let id = open(&cursors, Description { session: Some(own), ..description() }, START);
    cursors.kill_of_sessions(&[own]);
    assert_eq!(code(cursors.take(id, "d.c", Some(own), None, None)), 43);
    assert_eq!(code(cursors.take(free, "d.c", None, None, None)), 0);
}

#[test]
fn another_transaction_is_refused() {
    let cursors = table(CursorLimits::default());
    let own = SessionId::of([1; 16]);
    let of = |transaction| Description { session: Some(own), transaction, ..description() };
    let (within, outside) = (open(&cursors, of(Some(5)), START), open(&cursors, of(None), START));
    assert_eq!(code(cursors.take(outside, "d.c", Some(own), Some(5), None)), 50_739);
    assert_eq!(code(cursors.take(within, "d.c", Some(own), None, None)), 50_740);
    assert_eq!(code(cursors.take(within, "d.c", Some(own), Some(6), None)), 50_741);
    cursors.kill_of_transaction(own, 6);
    assert_eq!(code(cursors.take(within, "d.c", Some(own), Some(5), None)), 0);
    let within = open(&cursors, of(Some(5)), START);
    cursors.kill_of_transaction(own, 5);
    assert_eq!(code(cursors.take(within, "d.c", Some(own), Some(5), None)), 43);
    assert_eq!(code(cursors.take(outside, "d.c", Some(own), None, None)), 0);
}

#[test]
fn idle_cursors_time_out() {
    let cursors = table(CursorLimits::default());
    let seconds = Duration::from_secs;
    let idle = open(&cursors, description(), START);
    let used = open(&cursors, description(), START);
    let forever = open(&cursors, Description { no_timeout: true, ..description() }, START);
    let busy = open(&cursors, description(), START);
    let taken = cursors.take(busy, "d.c", None, None, None).unwrap();
    let again = cursors.take(used, "d.c", None, None, None).unwrap();
    cursors.put_back(again, seconds(300));
    cursors.expire(seconds(599));
    assert_eq!(cursors.counts().open, 4);
    cursors.expire(seconds(600));
    assert_eq!(code(cursors.take(idle, "d.c", None, None, None)), 43);
    assert_eq!(code(cursors.take(used, "d.c", None, None, None)), 0);
    assert_eq!(code(cursors.take(forever, "d.c", None, None, None)), 0);
    assert!(cursors.put_back(taken, seconds(600)));
    assert_eq!(cursors.counts().timed_out, 1);
}

#[test]
fn the_number_of_open_cursors_is_bounded() {
    let cursors = table(CursorLimits { open_max: 3, per_connection_max: 2, ..CursorLimits::default() });
    let of = |connection| Description { connection, ..description() };
    open(&cursors, of(1), START);
    let second = open(&cursors, of(1), START);
    assert_eq!(code(cursors.open(empty(), of(1), START)), 96);
    open(&cursors, of(2), START);
    assert_eq!(code(cursors.open(empty(), of(3), START)), 96);
    cursors.kill(second, "d.c", None);
    open(&cursors, of(3), START);
}
