//! The steps of a client.
//!
//! A client begins, reads, repeats each prewrite until it knows the result, fetches the commit timestamp, and repeats the commit of
//! the primary until it has an answer; or it gives up and removes its locks. Other processes can take the later steps as well.

use crate::protocol::{Action, ClientIndex, DocumentIndex, Event, Network, Protocol};
use crate::rules::{Mutant, Reading};
use crate::state::{Broken, Client, Decision, Kind, Locked, Phase, RowWrite, State};
use crate::table::{Operation, Outcome};

impl Protocol {
    pub(crate) fn client_actions(&self, state: &State, client: ClientIndex, of: &Client, actions: &mut Vec<Action>) {
        let writes = || of.program().writes.iter().map(|write| write.document);
        match of.phase {
            Phase::Idle => {}
            _ if of.is_over => {}
            Phase::Open => {
                let mut reads = of.program().reads.iter();
                let unread = reads.find(|document| of.reads[usize::from(**document)].is_none());
                actions.extend(unread.map(|document| Action::Read(client, *document)));
                if !of.has_read_all() || of.program().writes.is_empty() {
                    return;
                }
                let open = writes().filter(|document| of.lock_of(*document) == Locked::Unknown);
                for document in open {
                    actions.push(Action::Prewrite(client, document, false));
                    if self.bounds.network == Network::Late {
                        actions.push(Action::Prewrite(client, document, true));
                    }
                }
                let is_early = self.rules.is_broken(Mutant::TimestampBeforeLocks) && of.at == 0;
                if of.all_locks_are(Locked::Yes) || is_early {
                    actions.push(Action::FetchTimestamp(client));
                }
                if of.some_lock_is(Locked::Refused) {
                    actions.push(Action::GiveUp(client));
                }
            }
            Phase::Committing => {
                let count = if self.rules.is_broken(Mutant::SecondaryBeforePrimary) { usize::MAX } else { 1 };
                actions.extend(writes().take(count).map(|document| Action::Commit(client, document)));
                let is_free = || !self.holds_any(state, of);
                if self.rules.is_broken(Mutant::AppliedAgain) && !of.is_retried && is_free() {
                    actions.push(Action::SendAgain(client));
                }
            }
            Phase::Committed => {}
            Phase::GivenUp { .. } => {
                actions.extend(writes().map(|document| Action::RemoveLock(client, document)));
            }
        }
    }

    pub(crate) fn begin(&self, state: &mut State, client: ClientIndex, program: u8) -> bool {
        state.clock += 1;
        let begun = Client { phase: Phase::Open, program, start: state.clock, ..Client::IDLE };
        state.clients[usize::from(client)] = begun;
        true
    }

    pub(crate) fn read(&self, state: &mut State, client: ClientIndex, document: DocumentIndex) -> bool {
        let of = &mut state.clients[usize::from(client)];
        match self.table.read(state.rows[usize::from(document)], of.start) {
            Reading::ObservedVersion(saw) => of.reads[usize::from(document)] = Some(saw),
            Reading::TooOld => state.broken = Some(Broken::TooOld),
            Reading::Locked => {
                self.note(Event::ReaderWaits);
                return false;
            }
        }
        true
    }

    pub(crate) fn prewrite(
        &self,
        state: &mut State,
        client: ClientIndex,
        document: DocumentIndex,
        is_answered: bool,
    ) -> bool {
        let claim = state.clients[usize::from(client)].claim(client);
        let locked = &mut state.clients[usize::from(client)].locks[usize::from(document)];
        match self.table.step(Operation::Prewrite(claim), state.rows[usize::from(document)]) {
            Outcome::Done => *locked = Locked::Yes,
            Outcome::Change(next) => {
                let request = self.request(state, client, document, next, Kind::Prewrite);
                match self.bounds.network {
                    Network::All => return self.send(state, request),
                    Network::Late => return self.arrive(state, request, is_answered),
                }
            }
            Outcome::Locked => {
                self.note(Event::PrewriteLocked);
                *locked = Locked::Refused;
            }
            Outcome::RolledBack => {
                self.note(Event::PrewriteRolledBack);
                *locked = Locked::Refused;
            }
            Outcome::Refused => {
                self.note(Event::PrewriteConflict);
                *locked = Locked::Refused;
            }
            Outcome::Committed(_) | Outcome::Remove => state.broken = Some(Broken::TwoDecisions),
        }
        commit_if_ready(&mut state.clients[usize::from(client)]);
        true
    }

    pub(crate) fn fetch_timestamp(&self, state: &mut State, client: ClientIndex) -> bool {
        state.clock += 1;
        let of = &mut state.clients[usize::from(client)];
        of.at = state.clock;
        commit_if_ready(of);
        true
    }

    pub(crate) fn commit(&self, state: &mut State, client: ClientIndex, document: DocumentIndex) -> bool {
        let of = state.clients[usize::from(client)];
        let is_primary = of.primary() == Some(document);
        match self.table.step(Operation::Commit(of.claim(client), of.at), state.row(document)) {
            Outcome::Change(next) => self.change(state, client, document, next, Kind::Commit),
            Outcome::Done if is_primary => {
                state.clients[usize::from(client)].phase = Phase::Committed;
                self.learn(state, client, Decision::Committed(of.at));
                true
            }
            Outcome::RolledBack | Outcome::Refused if is_primary => {
                self.note(Event::CommitRolledBack);
                state.clients[usize::from(client)].phase = Phase::GivenUp { in_doubt: false };
                true
            }
            _ => false,
        }
    }

    pub(crate) fn remove_lock(&self, state: &mut State, client: ClientIndex, document: DocumentIndex) -> bool {
        let of = state.clients[usize::from(client)];
        let Phase::GivenUp { in_doubt } = of.phase else { return false };
        let record = in_doubt && of.primary() == Some(document);
        let is_touched = of.lock_of(document) == Locked::Yes || (in_doubt && of.lock_of(document) == Locked::Unknown);
        if !is_touched && !record {
            return false;
        }
        match self.table.step(Operation::RollBack { claim: of.claim(client), record }, state.row(document)) {
            Outcome::Change(next) => self.change(state, client, document, next, Kind::RollBack),
            _ => false,
        }
    }

    pub(crate) fn give_up(&self, state: &mut State, client: ClientIndex) -> bool {
        let of = &mut state.clients[usize::from(client)];
        of.phase = Phase::GivenUp { in_doubt: of.some_lock_is(Locked::Unknown) };
        self.keep_requests_in_flight(state, client);
        true
    }

    /// Keeps prewrites without an answer in flight when the client gives up.
    pub(crate) fn keep_requests_in_flight(&self, state: &mut State, client: ClientIndex) {
        let of = state.clients[usize::from(client)];
        if self.bounds.network == Network::All {
            return;
        }
        for RowWrite { document, .. } in of.program().writes {
            if of.lock_of(*document) != Locked::Unknown {
                continue;
            }
            if let Outcome::Change(next) = self.table.step(Operation::Prewrite(of.claim(client)), state.row(*document))
            {
                let request = self.request(state, client, *document, next, Kind::Prewrite);
                self.send(state, request);
            }
        }
    }

    /// Sends the writes again as a new transaction, without reading the outcome of the first one.
    pub(crate) fn restart_with_new_timestamp(&self, state: &mut State, client: ClientIndex) -> bool {
        state.clock += 1;
        let of = &mut state.clients[usize::from(client)];
        let decided = of.decided.filter(|decided| matches!(decided, Decision::Committed(_)));
        let (phase, start, locks) = (Phase::Open, state.clock, Client::IDLE.locks);
        *of = Client { phase, start, at: 0, locks, decided, learned: None, is_retried: true, ..*of };
        true
    }
}

/// Lets a client commit when it has all locks and a timestamp.
pub(crate) fn commit_if_ready(of: &mut Client) {
    if of.phase == Phase::Open && of.at > 0 && of.all_locks_are(Locked::Yes) {
        of.phase = Phase::Committing;
    }
}
