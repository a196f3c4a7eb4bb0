//! The possible actions of clients, of processes that find a lock, of the collector and of the network.
//!
//! ```text
//! client       begin ── read ── prewrite.. ── commit timestamp ── commit the primary ── learns the outcome
//!                                  └─ refused ── remove the locks
//! any process  reads the primary of a lock ── rolls it back, with a record ── resolves the other rows
//! collector    below the safe point, once no lock from there is left: deletes versions, records, tombstones
//! network      each request is conditional on the revision that its sender read. It arrives at once, later, twice, or never
//! ```
//!
//! There is no action for a crash: in each state, any client may take no further action, which is the same. Other processes resolve
//! its locks, and the properties check the rows that remain if all processes stop.

use std::sync::atomic::{AtomicU64, Ordering};

use stateright::{Model, Property};

use crate::properties;
use crate::rules::{Mutant, Rules};
use crate::state::{CLIENTS_MAX, Client, DOCUMENTS_MAX, Kind, Locked, PROGRAMS, Phase, Request, State};
use crate::table::{RowId, Table};

/// The number of a client.
pub(crate) type ClientIndex = u8;
/// The number of a document.
pub(crate) type DocumentIndex = u8;

/// An action in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// The client begins a transaction with this program.
    Begin(ClientIndex, u8),
    Read(ClientIndex, DocumentIndex),
    /// The flag tells whether the client receives the answer.
    Prewrite(ClientIndex, DocumentIndex, bool),
    FetchTimestamp(ClientIndex),
    Commit(ClientIndex, DocumentIndex),
    GiveUp(ClientIndex),
    RemoveLock(ClientIndex, DocumentIndex),
    /// A mutant sends its writes again without reading the outcome of the first attempt.
    SendAgain(ClientIndex),
    /// A process reads the primary of this client's transaction.
    ReadPrimary(ClientIndex),
    /// A process that knows the outcome resolves another row.
    Resolve(ClientIndex, DocumentIndex),
    /// The request arrives; the flag tells whether its sender receives the answer.
    Arrive(Request, bool),
    /// No request of the client can arrive any more.
    Over(ClientIndex),
    Collect(DocumentIndex),
    /// The oracle of a mutant restarts with an old timestamp.
    RestartOracle,
}

/// The size of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) clients: usize,
    pub(crate) documents: usize,
    /// The programs of clients, as indexes of [`PROGRAMS`].
    pub(crate) programs: &'static [u8],
    /// Whether there is a collector.
    pub(crate) collects: bool,
    pub(crate) network: Network,
}

/// The requests that a state keeps in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// All requests are kept.
    All,
    /// Only requests that their sender would not send again are kept; the others arrive when they are sent.
    Late,
}

/// An event in a step that the state does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    ReaderWaits,
    PrewriteLocked,
    PrewriteRolledBack,
    PrewriteConflict,
    PrewriteLate,
    CommitRolledBack,
    OthersLearn,
    HistoryCut,
}

const EVENTS: [Event; 8] = [
    Event::ReaderWaits,
    Event::PrewriteLocked,
    Event::PrewriteRolledBack,
    Event::PrewriteConflict,
    Event::PrewriteLate,
    Event::CommitRolledBack,
    Event::OthersLearn,
    Event::HistoryCut,
];

/// The model.
pub(crate) struct Protocol {
    pub(crate) bounds: Bounds,
    pub(crate) rules: Rules,
    pub(crate) table: Table,
    /// The counts of events.
    happened: [AtomicU64; EVENTS.len()],
}

impl Protocol {
    pub(crate) fn new(bounds: Bounds, rules: Rules) -> Self {
        Protocol { bounds, rules, table: Table::new(rules, bounds.collects), happened: Default::default() }
    }

    pub(crate) fn happened(&self) -> Vec<(Event, u64)> {
        EVENTS.into_iter().zip(&self.happened).map(|(event, count)| (event, count.load(Ordering::Relaxed))).collect()
    }

    pub(crate) fn note(&self, event: Event) {
        self.happened[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn documents(&self) -> impl Iterator<Item = u8> + use<> {
        (0..self.bounds.documents).map(|document| document as u8)
    }

    pub(crate) fn clients<'s>(&self, state: &'s State) -> impl Iterator<Item = (u8, &'s Client)> + use<'s> {
        state.clients[..self.bounds.clients].iter().enumerate().map(|(client, of)| (client as u8, of))
    }

    /// Returns whether the row of a document has the lock of this client's transaction.
    pub(crate) fn holds(&self, state: &State, client: &Client, document: DocumentIndex) -> bool {
        client.has_begun() && self.table.entry(state.row(document)).lock == Some(client.start)
    }

    pub(crate) fn holds_any(&self, state: &State, client: &Client) -> bool {
        client.program().writes.iter().any(|write| self.holds(state, client, write.document))
    }

    fn act(&self, state: &mut State, action: Action) -> bool {
        match action {
            Action::Begin(client, program) => self.begin(state, client, program),
            Action::Read(client, document) => self.read(state, client, document),
            Action::Prewrite(client, document, is_answered) => self.prewrite(state, client, document, is_answered),
            Action::FetchTimestamp(client) => self.fetch_timestamp(state, client),
            Action::Commit(client, document) => self.commit(state, client, document),
            Action::GiveUp(client) => self.give_up(state, client),
            Action::RemoveLock(client, document) => self.remove_lock(state, client, document),
            Action::SendAgain(client) => self.restart_with_new_timestamp(state, client),
            Action::ReadPrimary(client) => self.ask(state, client),
            Action::Resolve(client, document) => self.resolve(state, client, document),
            Action::Arrive(request, is_answered) => self.arrive(state, request, is_answered),
            Action::Over(client) => {
                state.clients[usize::from(client)].is_over = true;
                state.network.retain(|request| request.client != client);
                true
            }
            Action::Collect(document) => self.collect(state, document),
            Action::RestartOracle => {
                (state.clock, state.is_restarted) = (state.clock - 1, true);
                true
            }
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        // The first document exists and was not written by a transaction; the others do not exist.
        let mut rows = [RowId(0); DOCUMENTS_MAX];
        for (document, row) in rows.iter_mut().enumerate() {
            *row = if document == 0 { self.table.plain(0) } else { self.table.missing(document as u8) };
        }
        vec![State {
            clock: 0,
            rows,
            ended_at: [0; DOCUMENTS_MAX],
            clients: [Client::IDLE; CLIENTS_MAX],
            network: Vec::new(),
            broken: None,
            is_restarted: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        for (client, of) in self.clients(state) {
            self.client_actions(state, client, of, actions);
            self.others_actions(state, client, of, actions);
            if self.bounds.collects && of.is_open() {
                actions.push(Action::Over(client));
            }
        }
        // Clients differ only in their programs, so it is enough that they begin in the order of their numbers.
        if let Some((client, _)) = self.clients(state).find(|(_, of)| !of.has_begun()) {
            actions.extend(self.bounds.programs.iter().map(|program| Action::Begin(client, *program)));
        }
        for request in &state.network {
            let is_sent_to = self.table.entry(state.row(request.document)).revision() == request.expects;
            if !is_sent_to && !self.rules.is_broken(Mutant::UnconditionalWrites) {
                continue;
            }
            let of = &state.clients[usize::from(request.client)];
            let is_waited_for = request.kind == Kind::Prewrite
                && of.phase == Phase::Open
                && of.lock_of(request.document) == Locked::Unknown;
            if is_waited_for {
                actions.push(Action::Arrive(*request, true));
            }
            actions.push(Action::Arrive(*request, false));
        }
        if self.bounds.collects {
            actions.extend(self.documents().map(Action::Collect));
        }
        if self.rules.is_broken(Mutant::OracleRepeats) && !state.is_restarted && state.clock > 0 {
            actions.push(Action::RestartOracle);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        self.act(&mut next, action).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }

    fn format_action(&self, action: &Action) -> String {
        match action {
            Action::Begin(client, program) => format!("{client} begins {}", PROGRAMS[usize::from(*program)].name),
            other => format!("{other:?}"),
        }
    }
}
