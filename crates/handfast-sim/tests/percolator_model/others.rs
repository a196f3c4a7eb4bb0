//! What others do about a transaction: ask its primary, settle its other rows, cut what nobody needs any more.

use handfast_txn::percolator::row::Status;

use crate::protocol::{Action, Event, Network, Protocol, Where, Who};
use crate::rules::Mutant;
use crate::state::{Broken, Client, DOCUMENTS_MAX, Decision, Kind, Phase, State};
use crate::table::{Claim, Operation, Outcome, RowId, Table};

/// What asking a primary leads to.
pub(crate) enum Asked {
    Decided(Decision),
    /// This row of the primary, if nobody changes it before.
    Change(u8, RowId),
    Nothing,
}

/// The step on another row that a decision leads to.
pub(crate) fn settlement(decision: Decision, claim: Claim) -> Operation {
    match decision {
        Decision::Committed(at) => Operation::RollForward(claim, at),
        Decision::RolledBack => Operation::RollBack { claim, record: false },
    }
}

impl Protocol {
    /// What others do about a client's transaction.
    pub(crate) fn others_actions(&self, state: &State, client: Who, of: &Client, actions: &mut Vec<Action>) {
        if of.has_begun() && (of.learned.is_some() || !self.keeps_learned()) {
            // Also where its lock is gone: the step has to see that.
            let written = of.program().writes.iter();
            actions.extend(written.map(|(document, _)| Action::Settle(client, *document)));
        }
        if of.learned.is_some() {
            return;
        }
        // Whoever has found a lock once, or is to say what became of a transaction, may ask late.
        let may_ask = !of.is_over && matches!(of.phase, Phase::Committing | Phase::GivenUp { .. });
        if may_ask || self.holds_any(state, of) {
            actions.push(Action::Ask(client));
        }
    }

    pub(crate) fn ask(&self, state: &mut State, client: Who) -> bool {
        match self.answer(&state.rows, &state.clients[usize::from(client)], client) {
            Asked::Decided(decision) => self.learn(state, client, decision),
            Asked::Change(primary, next) => {
                if self.rules.is(Mutant::RollbackNotDurable) {
                    self.learn(state, client, Decision::RolledBack);
                }
                self.change(state, client, primary, next, Kind::GiveUp)
            }
            Asked::Nothing => false,
        }
    }

    /// What the primary of a client's transaction says, and whether it is to be rolled back.
    pub(crate) fn answer(&self, rows: &[RowId; DOCUMENTS_MAX], of: &Client, client: Who) -> Asked {
        let Some(primary) = of.primary() else { return Asked::Nothing };
        let row = rows[usize::from(primary)];
        match self.table.entry(row).status(of.start) {
            _ if self.rules.is(Mutant::LockTrustedFirst) => return Asked::Decided(Decision::RolledBack),
            Status::Committed(at) => return Asked::Decided(Decision::Committed(Table::tick(at))),
            Status::RolledBack => return Asked::Decided(Decision::RolledBack),
            Status::Locked | Status::Unknown => {}
        }
        match self.table.step(Operation::GiveUp(of.claim(client)), row) {
            Outcome::Done => Asked::Decided(Decision::RolledBack),
            Outcome::Change(next) => Asked::Change(primary, next),
            _ => Asked::Nothing,
        }
    }

    /// Without a collector what a primary has said can be asked for again.
    pub(crate) fn keeps_learned(&self) -> bool {
        self.bounds.collects || self.bounds.network == Network::All
    }

    pub(crate) fn learn(&self, state: &mut State, client: Who, decision: Decision) -> bool {
        if !self.keeps_learned() {
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

    pub(crate) fn settle(&self, state: &mut State, client: Who, document: Where) -> bool {
        let of = &state.clients[usize::from(client)];
        let known = if self.keeps_learned() { of.learned } else { self.decision(state, of, client) };
        let Some(decision) = known else { return false };
        match self.table.step(settlement(decision, of.claim(client)), state.row(document)) {
            Outcome::Change(next) => self.change(state, client, document, next, Kind::Forward),
            _ => false,
        }
    }

    /// What somebody who asks just now would be told.
    pub(crate) fn decision(&self, state: &State, of: &Client, client: Who) -> Option<Decision> {
        match self.answer(&state.rows, of, client) {
            Asked::Decided(decision) => Some(decision),
            Asked::Change(..) => self.rules.is(Mutant::RollbackNotDurable).then_some(Decision::RolledBack),
            Asked::Nothing => None,
        }
    }

    /// Below it nobody reads, and nothing arrives.
    pub(crate) fn safe_point(&self, state: &State) -> u8 {
        let is_kept = |of: &Client| of.is_open() && !self.rules.is(Mutant::SafePointTooNew);
        let open = self.clients(state).filter(|(_, of)| is_kept(of));
        open.map(|(_, of)| of.start).min().unwrap_or(state.clock + 1)
    }

    pub(crate) fn collect(&self, state: &mut State, document: Where) -> bool {
        let safe = self.safe_point(state);
        let is_old = |document| self.table.entry(state.row(document)).lock.is_some_and(|start| start < safe);
        if !self.rules.is(Mutant::HistoryCutBeforeLocks) && self.documents().any(is_old) {
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
