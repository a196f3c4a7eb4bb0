//! Requests in flight, and their arrival at the store.

use handfast_txn::percolator::row::Status;

use crate::client::commit_if_ready;
use crate::protocol::{ClientIndex, DocumentIndex, Event, Network, Protocol};
use crate::rules::Mutant;
use crate::state::{Broken, Decision, Kind, Locked, Phase, Request, State};
use crate::table::{RowId, Table};

impl Protocol {
    /// Sends a request that replaces a row, which arrives at once if the model keeps late requests only.
    pub(crate) fn change(
        &self,
        state: &mut State,
        client: ClientIndex,
        document: DocumentIndex,
        next: RowId,
        kind: Kind,
    ) -> bool {
        let request = self.request(state, client, document, next, kind);
        match self.bounds.network {
            Network::All => self.send(state, request),
            Network::Late => self.arrive(state, request, false),
        }
    }

    pub(crate) fn request(
        &self,
        state: &State,
        client: ClientIndex,
        document: DocumentIndex,
        next: RowId,
        kind: Kind,
    ) -> Request {
        let expects = self.table.entry(state.row(document)).revision();
        Request { document, expects, next, client, kind }
    }

    pub(crate) fn send(&self, state: &mut State, request: Request) -> bool {
        match state.network.binary_search(&request) {
            Ok(_) => false,
            Err(index) => {
                state.network.insert(index, request);
                true
            }
        }
    }

    pub(crate) fn arrive(&self, state: &mut State, request: Request, is_answered: bool) -> bool {
        let of = &mut state.clients[usize::from(request.client)];
        if is_answered {
            of.locks[usize::from(request.document)] = Locked::Yes;
            commit_if_ready(of);
        } else if request.kind == Kind::Prewrite && !matches!(of.phase, Phase::Open) {
            self.note(Event::PrewriteLate);
        }
        self.put(state, request.document, request.next);
        true
    }

    /// Replaces a row. Removes requests that are conditional on earlier revisions, as they cannot succeed any more: a repeated
    /// revision is a violation of its own.
    pub(crate) fn put(&self, state: &mut State, document: DocumentIndex, next: RowId) {
        let index = usize::from(document);
        let (before, after) = (self.table.entry(state.rows[index]), self.table.entry(next));
        let last = before.revision().max(state.ended_at[index]);
        let is_made = self.bounds.collects && before.revision() <= 0;
        if is_made && after.revision() <= last && after.revision() >= 0 {
            state.broken = Some(Broken::RevisionRepeated);
        }
        state.ended_at[index] = if after.revision() < 0 { last } else { 0 };
        state.rows[index] = next;
        if !self.rules.is_broken(Mutant::UnconditionalWrites) {
            // Only a collector removes rows, so only with one a row can be missing again.
            let may_match = |expects: i64| self.bounds.collects && expects < 0;
            state.network.retain(|request| request.document != document || may_match(request.expects));
        }
        self.note_decisions(state, document);
    }

    /// Notes the outcomes of the transactions with this primary.
    fn note_decisions(&self, state: &mut State, document: DocumentIndex) {
        let row = self.table.entry(state.row(document));
        for of in &mut state.clients[..self.bounds.clients] {
            if !of.has_begun() || of.primary() != Some(document) {
                continue;
            }
            let decided = match row.status(of.start) {
                Status::Committed(at) => Decision::Committed(Table::tick(at)),
                Status::RolledBack => Decision::RolledBack,
                Status::Locked | Status::Unknown => continue,
            };
            match (of.decided, decided) {
                (None, _) => of.decided = Some(decided),
                (Some(before), _) if before == decided => {}
                (Some(Decision::Committed(_)), Decision::Committed(_)) => state.broken = Some(Broken::AppliedTwice),
                (Some(_), _) => state.broken = Some(Broken::TwoDecisions),
            }
        }
    }
}
