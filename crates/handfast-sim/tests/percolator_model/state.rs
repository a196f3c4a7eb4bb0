//! A state of the model: rows, clients, and requests in flight.

use crate::rules::ObservedVersion;
use crate::table::{Claim, RowId};

pub(crate) const DOCUMENTS_MAX: usize = 3;
pub(crate) const CLIENTS_MAX: usize = 4;

/// A write of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Put,
    Delete,
}

/// The steps of a transaction: it reads documents and then writes some.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) reads: &'static [u8],
    /// The writes, that of the primary first.
    pub(crate) writes: &'static [RowWrite],
}

/// A write to the row of a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowWrite {
    pub(crate) document: u8,
    pub(crate) write: Write,
}

const fn put(document: u8) -> RowWrite {
    RowWrite { document, write: Write::Put }
}

const fn delete(document: u8) -> RowWrite {
    RowWrite { document, write: Write::Delete }
}

const fn program(name: &'static str, reads: &'static [u8], writes: &'static [RowWrite]) -> Program {
    Program { name, reads, writes }
}

pub(crate) const PROGRAMS: [Program; 8] = [
    program("AB", &[0, 1], &[put(0), put(1)]),
    program("BA", &[0, 1], &[put(1), put(0)]),
    program("A", &[0], &[put(0)]),
    program("A, not B", &[], &[put(0), delete(1)]),
    program("a look", &[0, 1], &[]),
    program("ABC", &[0, 1, 2], &[put(0), put(1), put(2)]),
    program("CB", &[1, 2], &[put(2), put(1)]),
    program("a look at all", &[0, 1, 2], &[]),
];

/// The indexes of the programs in [`PROGRAMS`].
pub(crate) mod programs {
    pub(crate) const AB: u8 = 0;
    pub(crate) const BA: u8 = 1;
    pub(crate) const A: u8 = 2;
    pub(crate) const A_NOT_B: u8 = 3;
    pub(crate) const LOOK: u8 = 4;
    pub(crate) const ABC: u8 = 5;
    pub(crate) const CB: u8 = 6;
    pub(crate) const LOOK_AT_ALL: u8 = 7;
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The last tick that the oracle gave out.
    pub(crate) clock: u8,
    pub(crate) rows: [RowId; DOCUMENTS_MAX],
    /// The last revisions of removed rows.
    pub(crate) ended_at: [i64; DOCUMENTS_MAX],
    pub(crate) clients: [Client; CLIENTS_MAX],
    /// Requests that may arrive, sorted. Each may arrive again; each may also never arrive.
    pub(crate) network: Vec<Request>,
    /// A violation in a step that the state does not show.
    pub(crate) broken: Option<Broken>,
    pub(crate) is_restarted: bool,
}

/// A violation of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    RevisionRepeated,
    TwoDecisions,
    AppliedTwice,
    TooOld,
}

/// A request to replace a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) document: u8,
    /// The revision that it is conditional on.
    pub(crate) expects: i64,
    pub(crate) next: RowId,
    /// The client of the transaction.
    pub(crate) client: u8,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Prewrite,
    Commit,
    RollBack,
    GiveUp,
    Forward,
}

/// A client, which runs one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// Whether no request of the client can arrive any more, and it sends none.
    pub(crate) is_over: bool,
    /// The index of its program in [`PROGRAMS`].
    pub(crate) program: u8,
    pub(crate) start: u8,
    /// The commit timestamp, once it is fetched.
    pub(crate) at: u8,
    pub(crate) reads: [Option<ObservedVersion>; DOCUMENTS_MAX],
    pub(crate) locks: [Locked; DOCUMENTS_MAX],
    /// The outcome in the primary row, which only properties read.
    pub(crate) decided: Option<Decision>,
    /// The outcome that other processes have read from the primary.
    pub(crate) learned: Option<Decision>,
    pub(crate) is_retried: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// The client has not begun its transaction.
    Idle,
    /// The client reads, and then locks rows.
    Open,
    /// The client has all locks and the commit timestamp.
    Committing,
    /// The client has the answer to its commit.
    Committed,
    /// The client removes its locks. If it is in doubt, some of its prewrites may still arrive.
    GivenUp { in_doubt: bool },
}

/// The state of a lock, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Locked {
    Unknown,
    Yes,
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Decision {
    Committed(u8),
    RolledBack,
}

impl Client {
    pub(crate) const IDLE: Client = Client {
        phase: Phase::Idle,
        is_over: false,
        program: 0,
        start: 0,
        at: 0,
        reads: [None; DOCUMENTS_MAX],
        locks: [Locked::Unknown; DOCUMENTS_MAX],
        decided: None,
        learned: None,
        is_retried: false,
    };

    pub(crate) fn program(&self) -> &'static Program {
        &PROGRAMS[usize::from(self.program)]
    }

    pub(crate) fn primary(&self) -> Option<u8> {
        self.program().writes.first().map(|write| write.document)
    }

    pub(crate) fn claim(&self, client: u8) -> Claim {
        Claim { client, start: self.start, program: self.program }
    }

    pub(crate) fn lock_of(&self, document: u8) -> Locked {
        self.locks[usize::from(document)]
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.phase != Phase::Idle
    }

    pub(crate) fn is_open(&self) -> bool {
        self.has_begun() && !self.is_over
    }

    pub(crate) fn has_read_all(&self) -> bool {
        self.program().reads.iter().all(|document| self.reads[usize::from(*document)].is_some())
    }

    pub(crate) fn all_locks_are(&self, locked: Locked) -> bool {
        self.program().writes.iter().all(|write| self.lock_of(write.document) == locked)
    }

    pub(crate) fn some_lock_is(&self, locked: Locked) -> bool {
        self.program().writes.iter().any(|write| self.lock_of(write.document) == locked)
    }
}

impl State {
    pub(crate) fn row(&self, document: u8) -> RowId {
        self.rows[usize::from(document)]
    }
}
