//! The table of routes.

use super::parameters::{
    BY_STATE, CHANGES, COUNT, ENTRIES, EXPORTED, JOBS, KEY, MOMENTS, OF_QUEUE, OF_USER, PAGE, VERSION,
};
use super::{
    Api, document, events, exports, healthy, ledgers, lists, queues, readiness, server_metrics, statements, synced,
    tokens, trees, two_phase, updates,
};
use crate::access::RouteAccess;
use crate::metrics::MEDIA_TYPE;
use crate::problem::ProblemKind;
use crate::route::{Reply, Route, RouteMethod, Tag};

const QUEUES: Tag = Tag {
    name: "queues",
    description: "Job queues: each job is done by one worker, again after a crash, until it is done",
};
const LEDGERS: Tag = Tag { name: "ledgers", description: "Ledgers: entries that move amounts between accounts" };
const UPDATES: Tag =
    Tag { name: "updates", description: "Updates of documents that are made once, however often they are sent" };
const TWO_PHASE: Tag =
    Tag { name: "twoPhase", description: "Two-phase commits: changes of several documents, all or none in the end" };
const SYNCED: Tag = Tag { name: "synced", description: "Main documents whose fields are copied into other documents" };
const TREES: Tag = Tag { name: "trees", description: "Trees of documents that change as a whole, in versions" };
const TOKENS: Tag =
    Tag { name: "tokens", description: "Tokens of the user who has logged in, which stand for the password" };
pub(super) const STATE: Tag = Tag { name: "state", description: "Ask how the service is, and what it offers" };

/// A request that is carried out once for each idempotency key.
const WRITE: Route<Api> = Route {
    method: RouteMethod::Post,
    path: "",
    operation: "",
    tag: &STATE,
    summary: "",
    access: RouteAccess::Write,
    query: &[],
    headers: &KEY,
    body: None,
    reply: Reply::NoContent,
    problems: &[
        ProblemKind::Forbidden,
        ProblemKind::Missing,
        ProblemKind::Conflict,
        ProblemKind::Refused,
        ProblemKind::KeyReused,
        ProblemKind::Contended,
        ProblemKind::Failed,
    ],
    handler: |_, _| Box::pin(healthy()),
};

/// A request that cannot be part of a transaction, and has no idempotency key.
const STEP: Route<Api> = Route {
    headers: &[],
    problems: &[
        ProblemKind::Forbidden,
        ProblemKind::Missing,
        ProblemKind::Conflict,
        ProblemKind::Refused,
        ProblemKind::Contended,
        ProblemKind::Failed,
    ],
    ..WRITE
};

/// A request that changes nothing.
const READ: Route<Api> = Route {
    method: RouteMethod::Get,
    access: RouteAccess::Read,
    headers: &[],
    problems: &[
        ProblemKind::Forbidden,
        ProblemKind::OriginRefused,
        ProblemKind::Missing,
        ProblemKind::Contended,
        ProblemKind::Failed,
    ],
    ..WRITE
};

pub(super) static ROUTES: [Route<Api>; 54] = [
    Route {
        path: "/v1/{database}/queues/{queue}/jobs",
        operation: "enqueueJob",
        tag: &QUEUES,
        summary: "Add a job to a queue",
        body: Some("NewJob"),
        reply: Reply::Json { schema: "EnqueuedJob" },
        handler: |api, call| Box::pin(queues::enqueue(api, call)),
        ..WRITE
    },
    Route {
        path: "/v1/{database}/queues/{queue}/jobs/{job}/cancel",
        operation: "cancelJob",
        tag: &QUEUES,
        summary: "Cancel a job; a worker that has it learns of that when it next renews its claim",
        reply: Reply::Json { schema: "CanceledJob" },
        handler: |api, call| Box::pin(queues::cancel(api, call)),
        ..WRITE
    },
    Route {
        path: "/v1/{database}/queues/{queue}/jobs",
        operation: "listJobs",
        tag: &QUEUES,
        summary: "Return the jobs in a state, those with the greatest ids first",
        query: &JOBS,
        reply: Reply::Json { schema: "Jobs" },
        handler: |api, call| Box::pin(lists::jobs(api, call)),
        ..READ
    },
    Route {
        path: "/v1/{database}/queues/{queue}/jobs/{job}",
        operation: "getJob",
        tag: &QUEUES,
        summary: "Return a job",
        reply: Reply::Json { schema: "OneJob" },
        handler: |api, call| Box::pin(lists::job(api, call)),
        ..READ
    },
    Route {
        path: "/v1/{database}/queues/{queue}/jobs/{job}/retry",
        operation: "retryJob",
        tag: &QUEUES,
        summary: "Return a job that was given up to its queue, with all its attempts again",
        reply: Reply::Json { schema: "RetriedJob" },
        handler: |api, call| Box::pin(queues::retry(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/queues/{queue}/depth",
        operation: "getQueueDepth",
        tag: &QUEUES,
        summary: "Return the numbers of jobs by state",
        reply: Reply::Json { schema: "QueueDepth" },
        handler: |api, call| Box::pin(queues::depth(api, call)),
        ..READ
    },
    Route {
        path: "/v1/{database}/queues/{queue}/pause",
        operation: "pauseQueue",
        tag: &QUEUES,
        summary: "Keep all workers from claiming jobs; they finish those that they have",
        body: Some("PauseReason"),
        reply: Reply::Json { schema: "Done" },
        handler: |api, call| Box::pin(queues::pause(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/queues/{queue}/resume",
        operation: "resumeQueue",
        tag: &QUEUES,
        summary: "Let workers claim jobs again",
        reply: Reply::Json { schema: "ResumedQueue" },
        handler: |api, call| Box::pin(queues::resume(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/queues/{queue}/claims",
        operation: "claimJobs",
        tag: &QUEUES,
        summary: "Give jobs to a worker; wait for some, if there are none",
        body: Some("Claim"),
        reply: Reply::Json { schema: "ClaimedJobs" },
        handler: |api, call| Box::pin(queues::claim(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/queues/{queue}/claims/renew",
        operation: "renewJob",
        tag: &QUEUES,
        summary: "Renew the claim of a worker, and record its progress",
        body: Some("Renewal"),
        reply: Reply::Json { schema: "ClaimState" },
        handler: |api, call| Box::pin(queues::renew(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/queues/{queue}/claims/complete",
        operation: "completeJob",
        tag: &QUEUES,
        summary: "Record that a job is done",
        body: Some("Completion"),
        reply: Reply::Json { schema: "ClaimState" },
        handler: |api, call| Box::pin(queues::complete(api, call)),
        ..WRITE
    },
    Route {
        path: "/v1/{database}/queues/{queue}/claims/fail",
        operation: "failJob",
        tag: &QUEUES,
        summary: "Record that a job has failed: it is tried again, or given up after its last attempt",
        body: Some("Failure"),
        reply: Reply::Json { schema: "ClaimState" },
        handler: |api, call| Box::pin(queues::fail(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/queues/{queue}/claims/release",
        operation: "releaseJob",
        tag: &QUEUES,
        summary: "Return a job to its queue without a failure",
        body: Some("Release"),
        reply: Reply::Json { schema: "ClaimState" },
        handler: |api, call| Box::pin(queues::release(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/ledgers/{ledger}/accounts",
        operation: "openAccount",
        tag: &LEDGERS,
        summary: "Open an account with a minimum or a sequence; others are opened by their first entry",
        body: Some("NewAccount"),
        reply: Reply::Json { schema: "Done" },
        handler: |api, call| Box::pin(ledgers::open_account(api, call)),
        ..WRITE
    },
    Route {
        path: "/v1/{database}/ledgers/{ledger}/accounts/{account}/balance",
        operation: "getBalance",
        tag: &LEDGERS,
        summary: "Return the balance of an account, now, or as of a time, an entry or a place",
        query: &MOMENTS,
        reply: Reply::Json { schema: "Balance" },
        handler: |api, call| Box::pin(ledgers::balance(api, call)),
        ..READ
    },
    Route {
        path: "/v1/{database}/ledgers/{ledger}/accounts/{account}/statement",
        operation: "getStatement",
        tag: &LEDGERS,
        summary: "Return the changes of an account with the balances after them, in the order of their places",
        query: &CHANGES,
        reply: Reply::Json { schema: "Statement" },
        handler: |api, call| Box::pin(statements::statement(api, call)),
        ..READ
    },
    Route {
        path: "/v1/{database}/ledgers/{ledger}/accounts/{account}/export",
        operation: "exportAccount",
        tag: &LEDGERS,
        summary: "Send all changes of an account as a file",
        query: &EXPORTED,
        reply: Reply::Text { media_types: &exports::MEDIA_TYPES },
        handler: |api, call| Box::pin(statements::export(api, call)),
        ..READ
    },
    Route {
        path: "/v1/{database}/ledgers/{ledger}/export",
        operation: "exportLedger",
        tag: &LEDGERS,
        summary: "Send all entries of a ledger as a file",
        query: &EXPORTED,
        reply: Reply::Text { media_types: &exports::MEDIA_TYPES },
        problems: &[
            ProblemKind::Forbidden,
            ProblemKind::OriginRefused,
            ProblemKind::Missing,
            ProblemKind::Conflict,
            ProblemKind::Contended,
            ProblemKind::Failed,
        ],
        handler: |api, call| Box::pin(exports::ledger(api, call)),
        ..READ
    },
    Route {
        path: "/v1/{database}/ledgers/{ledger}/entries",
        operation: "postEntry",
        tag: &LEDGERS,
        summary: "Post an entry with all its changes of accounts, or with none",
        body: Some("NewEntry"),
        reply: Reply::Json { schema: "PostedEntry" },
        handler: |api, call| Box::pin(ledgers::post_entry(api, call)),
        ..WRITE
    },
    Route {
        path: "/v1/{database}/ledgers/{ledger}/entries/{entry}/cancel",
        operation: "cancelEntry",
        tag: &LEDGERS,
        summary: "Cancel an entry: by a mark if it is not committed, and by a reversing entry afterwards",
        body: Some("Reason"),
        reply: Reply::Json { schema: "CanceledEntry" },
        handler: |api, call| Box::pin(ledgers::cancel_entry(api, call)),
        ..WRITE
    },
    Route {
        path: "/v1/{database}/ledgers/{ledger}/accounts",
        operation: "listAccounts",
        tag: &LEDGERS,
        summary: "Return the accounts of a ledger, those with the greatest ids first",
        query: &PAGE,
        reply: Reply::Json { schema: "Accounts" },
        handler: |api, call| Box::pin(lists::accounts(api, call)),
        ..READ
    },
    Route {
        path: "/v1/{database}/ledgers/{ledger}/entries",
        operation: "listEntries",
        tag: &LEDGERS,
        summary: "Return the entries in a state, those with the greatest ids first",
        query: &ENTRIES,
        reply: Reply::Json { schema: "Entries" },
        handler: |api, call| Box::pin(lists::entries(api, call)),
        ..READ
    },
    Route {
        path: "/v1/{database}/ledgers/{ledger}/holds",
        operation: "postHold",
        tag: &LEDGERS,
        summary: "Hold an amount of a payer for a payee",
        body: Some("NewHold"),
        reply: Reply::Json { schema: "PostedHold" },
        handler: |api, call| Box::pin(ledgers::post_hold(api, call)),
        ..WRITE
    },
    Route {
        path: "/v1/{database}/ledgers/{ledger}/holds/{hold}/capture",
        operation: "captureHold",
        tag: &LEDGERS,
        summary: "Give the payee the amount that is held, or a part of it; the rest is free again",
        body: Some("Capture"),
        reply: Reply::Json { schema: "ResolvedHold" },
        handler: |api, call| Box::pin(ledgers::capture_hold(api, call)),
        ..WRITE
    },
    Route {
        path: "/v1/{database}/ledgers/{ledger}/holds/{hold}/release",
        operation: "releaseHold",
        tag: &LEDGERS,
        summary: "Free the amount that is held",
        reply: Reply::Json { schema: "ResolvedHold" },
        handler: |api, call| Box::pin(ledgers::release_hold(api, call)),
        ..WRITE
    },
    Route {
        path: "/v1/{database}/ledgers/{ledger}/reconcile",
        operation: "reconcileLedger",
        tag: &LEDGERS,
        summary: "Commit the entries that are due, and free holds whose time is over",
        body: Some("Count"),
        reply: Reply::Json { schema: "Reconciled" },
        handler: |api, call| Box::pin(ledgers::reconcile(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/updates/{collection}",
        operation: "applyOnce",
        tag: &UPDATES,
        summary: "Make an update of a document once for each token",
        body: Some("OnceUpdate"),
        reply: Reply::Json { schema: "AppliedUpdate" },
        handler: |api, call| Box::pin(updates::apply_once(api, call)),
        ..WRITE
    },
    Route {
        path: "/v1/{database}/updates/{collection}/finish",
        operation: "finishUpdates",
        tag: &UPDATES,
        summary: "Finish updates in two steps whose programs have ended",
        body: Some("PendingUpdates"),
        reply: Reply::Json { schema: "Finished" },
        handler: |api, call| Box::pin(updates::finish_updates(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/two-phase/{collection}/open",
        operation: "openTwoPhase",
        tag: &TWO_PHASE,
        summary: "Record the settings of a collection of two-phase transactions, if they are not the defaults",
        body: Some("TwoPhaseSettings"),
        reply: Reply::Json { schema: "Done" },
        handler: |api, call| Box::pin(two_phase::open_two_phase(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/two-phase/{collection}/transactions",
        operation: "beginTwoPhase",
        tag: &TWO_PHASE,
        summary: "Begin a transfer, or a transaction of several participants",
        body: Some("NewTwoPhase"),
        reply: Reply::Json { schema: "TwoPhaseState" },
        handler: |api, call| Box::pin(two_phase::begin_two_phase(api, call)),
        ..WRITE
    },
    Route {
        path: "/v1/{database}/two-phase/{collection}/transactions",
        operation: "listTwoPhase",
        tag: &TWO_PHASE,
        summary: "Return the transactions in a state, those with the greatest ids first",
        query: &BY_STATE,
        reply: Reply::Json { schema: "TwoPhaseTransactions" },
        handler: |api, call| Box::pin(lists::two_phase(api, call)),
        ..READ
    },
    Route {
        path: "/v1/{database}/two-phase/{collection}/transactions/{transaction}/advance",
        operation: "advanceTwoPhase",
        tag: &TWO_PHASE,
        summary: "Carry a transaction out to its end",
        body: Some("Application"),
        reply: Reply::Json { schema: "TwoPhaseState" },
        handler: |api, call| Box::pin(two_phase::advance_two_phase(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/two-phase/{collection}/transactions/{transaction}/cancel",
        operation: "cancelTwoPhase",
        tag: &TWO_PHASE,
        summary: "Cancel a transaction, and undo what was applied",
        body: Some("TwoPhaseReason"),
        reply: Reply::Json { schema: "TwoPhaseState" },
        handler: |api, call| Box::pin(two_phase::cancel_two_phase(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/two-phase/{collection}/transactions/{transaction}/compensate",
        operation: "compensateTwoPhase",
        tag: &TWO_PHASE,
        summary: "Begin a transaction that undoes one that was carried out",
        body: Some("Compensation"),
        reply: Reply::Json { schema: "TwoPhaseState" },
        handler: |api, call| Box::pin(two_phase::compensate_two_phase(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/two-phase/{collection}/recover",
        operation: "recoverTwoPhase",
        tag: &TWO_PHASE,
        summary: "Carry out the transactions of programs that have ended",
        body: Some("TwoPhaseRecovery"),
        reply: Reply::Json { schema: "RecoveredTwoPhase" },
        handler: |api, call| Box::pin(two_phase::recover_two_phase(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/synced/{collection}/open",
        operation: "openSyncFlag",
        tag: &SYNCED,
        summary: "Record the links between main documents and the copies of their fields",
        body: Some("Links"),
        reply: Reply::Json { schema: "Done" },
        handler: |api, call| Box::pin(synced::open_sync_flag(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/synced/{collection}/documents/{document}/changes",
        operation: "setSynced",
        tag: &SYNCED,
        summary: "Change a main document, and bring its copies up to date",
        body: Some("SyncedChange"),
        reply: Reply::Json { schema: "SyncedVersion" },
        handler: |api, call| Box::pin(synced::set_synced(api, call)),
        ..STEP
    },
    Route {
        method: RouteMethod::Delete,
        path: "/v1/{database}/synced/{collection}/documents/{document}",
        operation: "deleteSynced",
        tag: &SYNCED,
        summary: "Delete a main document, and treat its copies as the links say",
        reply: Reply::Json { schema: "DeletedSynced" },
        handler: |api, call| Box::pin(synced::delete_synced(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/synced/{collection}/copies",
        operation: "insertSynced",
        tag: &SYNCED,
        summary: "Insert a document with copies of the fields of its main document",
        body: Some("NewCopy"),
        reply: Reply::Json { schema: "InsertedCopy" },
        handler: |api, call| Box::pin(synced::insert_synced(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/synced/{collection}/sweep",
        operation: "sweepSynced",
        tag: &SYNCED,
        summary: "Bring the copies of interrupted changes up to date",
        body: Some("Sweep"),
        reply: Reply::Json { schema: "Swept" },
        handler: |api, call| Box::pin(synced::sweep_synced(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/synced/{collection}/pending",
        operation: "listPendingSynced",
        tag: &SYNCED,
        summary: "Return the main documents whose flag is set, those with the greatest ids first",
        query: &PAGE,
        reply: Reply::Json { schema: "PendingSynced" },
        handler: |api, call| Box::pin(lists::pending(api, call)),
        ..READ
    },
    Route {
        path: "/v1/{database}/synced/{collection}/audit",
        operation: "auditSynced",
        tag: &SYNCED,
        summary: "Compare all copies with their main documents",
        query: &COUNT,
        reply: Reply::Json { schema: "SyncedAudit" },
        handler: |api, call| Box::pin(synced::audit_synced(api, call)),
        ..READ
    },
    Route {
        path: "/v1/{database}/trees/{collection}/{tree}/versions",
        operation: "writeTree",
        tag: &TREES,
        summary: "Write a version of a tree, which readers see as a whole or not at all",
        body: Some("NewVersion"),
        reply: Reply::Json { schema: "WrittenVersion" },
        handler: |api, call| Box::pin(trees::write_tree(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/{database}/trees/{collection}/{tree}",
        operation: "readTree",
        tag: &TREES,
        summary: "Return the newest version of a tree, or an older one",
        query: &VERSION,
        reply: Reply::Json { schema: "TreeVersion" },
        handler: |api, call| Box::pin(trees::read_tree(api, call)),
        ..READ
    },
    Route {
        path: "/v1/{database}/trees/{collection}/{tree}/sweep",
        operation: "sweepTree",
        tag: &TREES,
        summary: "Remove the nodes of versions that were not finished",
        body: Some("Count"),
        reply: Reply::Json { schema: "Swept" },
        handler: |api, call| Box::pin(trees::sweep_tree(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/tokens",
        operation: "createToken",
        tag: &TOKENS,
        summary: "Make a token of the user, which is shown this once",
        body: Some("NewToken"),
        reply: Reply::Json { schema: "CreatedToken" },
        handler: |api, call| Box::pin(tokens::create(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/tokens",
        operation: "listTokens",
        tag: &TOKENS,
        summary: "Return the tokens of the user, without their secrets",
        query: &OF_USER,
        reply: Reply::Json { schema: "Tokens" },
        problems: &[ProblemKind::Forbidden, ProblemKind::Missing, ProblemKind::OriginRefused, ProblemKind::Conflict],
        handler: |api, call| Box::pin(tokens::list(api, call)),
        ..READ
    },
    Route {
        method: RouteMethod::Delete,
        path: "/v1/tokens/{token}",
        operation: "revokeToken",
        tag: &TOKENS,
        summary: "Revoke a token of the user",
        query: &OF_USER,
        reply: Reply::Json { schema: "RevokedToken" },
        handler: |api, call| Box::pin(tokens::revoke(api, call)),
        ..STEP
    },
    Route {
        path: "/v1/operations",
        operation: "listOperations",
        summary: "Return the commands that run, and the open transactions",
        reply: Reply::Json { schema: "Operations" },
        handler: |api, call| Box::pin(lists::operations(api, call)),
        ..READ
    },
    Route {
        path: "/v1/events",
        operation: "streamEvents",
        summary: "Send the rates of the server, or the numbers of jobs of a queue, once a second (server-sent events)",
        query: &OF_QUEUE,
        reply: Reply::Text { media_types: &[events::MEDIA_TYPE] },
        handler: |api, call| Box::pin(events::events(api, call)),
        ..READ
    },
    Route {
        path: "/readyz",
        operation: "getReadiness",
        summary: "Answer whether requests are taken; the problem names the parts that do not work",
        access: RouteAccess::Open,
        problems: &[ProblemKind::Unavailable],
        handler: |api, _| Box::pin(readiness::ready(api)),
        ..READ
    },
    Route {
        path: "/metrics",
        operation: "getMetrics",
        summary: "Return the metrics of the server, as Prometheus reads them",
        reply: Reply::Text { media_types: &[MEDIA_TYPE] },
        handler: |api, call| Box::pin(server_metrics(api, call)),
        ..READ
    },
    Route {
        path: "/healthz",
        operation: "getHealth",
        summary: "Answer as long as the process runs",
        access: RouteAccess::Open,
        problems: &[],
        ..READ
    },
    Route {
        path: "/openapi.json",
        operation: "getOpenApi",
        summary: "Return this document",
        access: RouteAccess::Open,
        reply: Reply::Document,
        problems: &[],
        handler: |api, _| Box::pin(document(api)),
        ..READ
    },
];
