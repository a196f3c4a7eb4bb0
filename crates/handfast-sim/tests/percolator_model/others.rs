//! The steps of other processes: they read the primary of a transaction, resolve its other rows, and delete old versions.

use handfast_txn::percolator::row::Status;

use crate::protocol::{Action, ClientIndex, DocumentIndex, Event, Network, Protocol};
use crate::rules::Mutant;
use crate::state::{Broken, Client, DOCUMENTS_MAX, Decision, Kind, Phase, State};
use crate::table::{Claim, Operation, Outcome, RowId, Table};

/// The result of reading a primary.
pub(crate) enum PrimaryAnswer {
    Decided(Decision),
    /// The primary has to become this row, unless another process changes it first.
    Change(u8, RowId),
    Nothing,
}

/// Returns the step on another row that follows from a decision.
pub(crate) fn resolution(decision: Decision, claim: Claim) -> Operation {
    match decision {
        Decision::Committed(at) => Operation::RollForward(claim, at),
        Decision::RolledBack => Operation::RollBack { claim, record: false },
    }
}

impl Protocol {
    /// Adds the actions of other processes for a client's transaction.
    pub(crate) fn others_actions(&self, state: &State, client: ClientIndex, of: &Client, actions: &mut Vec<Action>) {
        if of.has_begun() && (of.learned.is_some() || !self.keeps_decisions()) {
            // Another process may have removed the lock, and the step has to notice that.
            let written = of.program().writes.iter();
            actions.extend(written.map(|write| Action::Resolve(client, write.document)));
        }
        if of.learned.is_some() {
            return;
        }
        // A process that has found a lock, or resolves a transaction, may read the primary late.
        let may_read_primary = !of.is_over && matches!(of.phase, Phase::Committing | Phase::GivenUp { .. });
        if may_read_primary || self.holds_any(state, of) {
            actions.push(Action::ReadPrimary(client));
        }
    }

    pub(crate) fn ask(&self, state: &mut State, client: ClientIndex) -> bool {
        match self.answer(&state.rows, &state.clients[usize::from(client)], client) {
            PrimaryAnswer::Decided(decision) => self.learn(state, client, decision),
            PrimaryAnswer::Change(primary, next) => {
                if self.rules.is_broken(Mutant::RollbackNotDurable) {
                    self.learn(state, client, Decision::RolledBack);
                }
                self.change(state, client, primary, next, Kind::GiveUp)
            }
            PrimaryAnswer::Nothing => false,
        }
    }

    /// Returns the outcome in the primary of a client's transaction, or whether it has to be rolled back.
    pub(crate) fn answer(&self, rows: &[RowId; DOCUMENTS_MAX], of: &Client, client: ClientIndex) -> PrimaryAnswer {
        let Some(primary) = of.primary() else { return PrimaryAnswer::Nothing };
        let row = rows[usize::from(primary)];
        match self.table.entry(row).status(of.start) {
            _ if self.rules.is_broken(Mutant::LockTrustedFirst) => return PrimaryAnswer::Decided(Decision::RolledBack),
            Status::Committed(at) => return PrimaryAnswer::Decided(Decision::Committed(Table::tick(at))),
            Status::RolledBack => return PrimaryAnswer::Decided(Decision::RolledBack),
            Status::Locked | Status::Unknown => {}
        }
        match self.table.step(Operation::GiveUp(of.claim(client)), row) {
            Outcome::Done => PrimaryAnswer::Decided(Decision::RolledBack),
            Outcome::Change(next) => PrimaryAnswer::Change(primary, next),
            _ => PrimaryAnswer::Nothing,
        }
    }

    /// Returns whether a state keeps the outcomes that processes have read. Without a collector they can read the primary again.
    pub(crate) fn keeps_decisions(&self) -> bool {
        self.bounds.collects || self.bounds.network == Network::All
    }

    pub(crate) fn learn(&self, state: &mut State, client: ClientIndex, decision: Decision) -> bool {
        if !self.keeps_decisions() {
            return false;
        }
        let of = &mut state.clients[usize::from(client)];
        if of.learned.is_some_and(|learned| learned != decision) {
            state.broken = Some(Broken::TwoDecisions);
        }
        if of.phase != Phase::Committed && matches!(decision, Decision::Committed(_)) {
            self.note(Event::OthersLearn);
        }
        of.learned = Some(decision);
        true
    }

    pub(crate) fn resolve(&self, state: &mut State, client: ClientIndex, document: DocumentIndex) -> bool {
        let of = &state.clients[usize::from(client)];
        let known = if self.keeps_decisions() { of.learned } else { self.decision(state, of, client) };
        let Some(decision) = known else { return false };
        match self.table.step(resolution(decision, of.claim(client)), state.row(document)) {
            Outcome::Change(next) => self.change(state, client, document, next, Kind::Forward),
            _ => false,
        }
    }

    /// Returns the outcome that a process would read now.
    pub(crate) fn decision(&self, state: &State, of: &Client, client: ClientIndex) -> Option<Decision> {
        match self.answer(&state.rows, of, client) {
            PrimaryAnswer::Decided(decision) => Some(decision),
            PrimaryAnswer::Change(..) => {
                self.rules.is_broken(Mutant::RollbackNotDurable).then_some(Decision::RolledBack)
            }
            PrimaryAnswer::Nothing => None,
        }
    }

    /// Returns the tick below which no process reads and no request arrives.
    pub(crate) fn safe_point(&self, state: &State) -> u8 {
        let is_kept = |of: &Client| of.is_open() && !self.rules.is_broken(Mutant::SafePointTooNew);
        let open = self.clients(state).filter(|(_, of)| is_kept(of));
        open.map(|(_, of)| of.start).min().unwrap_or(state.clock + 1)
    }

    pub(crate) fn collect(&self, state: &mut State, document: DocumentIndex) -> bool {
        let safe = self.safe_point(state);
        let is_old = |document| self.table.entry(state.row(document)).lock.is_some_and(|start| start < safe);
        if !self.rules.is_broken(Mutant::HistoryCutBeforeLocks) && self.documents().any(is_old) {
            return false;
        }
        let next = match self.table.step(Operation::Collect(safe), state.row(document)) {
            Outcome::Change(next) => next,
            Outcome::Remove => self.table.missing(document),
            _ => return false,
        };
        if self.clients(state).any(|(_, of)| of.is_open()) {
            self.note(Event::HistoryCut);
        }
        self.put(state, document, next);
        true
    }
}
