//! Writes with tickets: the result is part of the same state as the write.

use bson::DateTime;
use handfast_mql::Code;

use super::state::{State, id_key};
use crate::ticket::Recorded;
use crate::{Error, Namespace, Result, Ticket};

/// Runs a write, or returns the recorded result if its ticket was used.
pub(super) fn once<T: Recorded>(
    state: &mut State,
    ticket: Option<Ticket>,
    now: DateTime,
    uuid: impl FnOnce() -> [u8; 16],
    write: impl FnOnce(&mut State) -> Result<T>,
) -> Result<T> {
    let Some(ticket) = ticket else { return write(state) };
    let namespace = Ticket::namespace()?;
    let key = id_key(ticket.record_id().as_raw_bson_ref());
    let stored = state.collections.get(&namespace).and_then(|records| records.documents.get(&key)).cloned();
    let record = stored.as_ref().map(|stored| &stored.document);
    if let Some(result) = record.map(|record| ticket.result(record)).transpose()?.flatten() {
        return T::from_result(&result);
    }
    let done = write(state)?;
    if let Some(result) = done.to_result() {
        let record = ticket.record(record.map(|record| &**record), &result, now)?;
        state.collection_or_new(&namespace, uuid)?;
        state.remove(&namespace, &key)?;
        state.add(&namespace, record, stored.map(|stored| stored.record))?;
    }
    Ok(done)
}

pub(super) fn read_conflict(namespace: &Namespace) -> Error {
    let text = format!("write conflict: what was read of {namespace} has been changed since then");
    Error::command(Code::WriteConflict, text)
}
