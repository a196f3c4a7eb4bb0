//! The recorded settings that transactions and their participants depend on, and changes of them.
//!
//! ```text
//! db.transactions.settings  {_id: "two-phase", revision: 1, settings: {
//!                              accounts: {collection: "accounts", balance: "balance", overdraft: false,
//!                                         pending: {credits: "pendingCredits", debits: "pendingDebits"}},
//!                              participants: [{collection: "stock"}], finishedMax: 100,
//!                              fields: {state: "state", ..}}}
//! db.transactions           {_id: 7, state: "pending", application: "App1", ..}                after a change also settings: 2
//! ```
//!
//! The claim of a transaction writes the revision of the claimer's settings into it, unless that is the first one, and
//! the transaction is carried out by that revision to its end. So a process that opened the pattern before a change of
//! the settings does no harm: other processes finish the transactions that it claims afterwards by its settings.

use std::collections::BTreeSet;
use std::sync::Arc;

use bson::{Bson, Document, doc};
use handfast_store::{DocumentStore, Namespace};

use super::options::{Accounts, Fields, PendingFields, TwoPhaseOptions};
use super::sharing;
use super::{Record, State, TwoPhase};
use crate::settings::{Recorded, SettingsRecord, read_namespace, written_namespace};
use crate::steps::Steps;
use crate::value::{array, boolean, count, string, subdocument};
use crate::{Error, FieldNames, Result};

/// The revision of a transaction that names none.
const FIRST: i64 = 1;

/// The settings of each revision; the last one is in force.
#[derive(Clone)]
pub(super) struct Revisions(Arc<Vec<(i64, Arc<TwoPhaseOptions>)>>);

impl Revisions {
    fn new(recorded: Option<&Recorded>, transactions: &Namespace, options: TwoPhaseOptions) -> Result<Self> {
        let mut revisions = Vec::new();
        for (revision, settings) in recorded.into_iter().flat_map(|recorded| &recorded.earlier) {
            let earlier = read(settings, transactions, &options)?;
            revisions.push((*revision, Arc::new(earlier)));
        }
        revisions.push((recorded.map_or(FIRST, |recorded| recorded.revision), Arc::new(options)));
        Ok(Revisions(Arc::new(revisions)))
    }

    /// Returns the revision by which this process claims; `None` for the first one.
    pub(super) fn to_write(&self) -> Option<i64> {
        self.0.last().map(|(revision, _)| *revision).filter(|revision| *revision != FIRST)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &TwoPhaseOptions> {
        self.0.iter().map(|(_, options)| &**options)
    }

    /// Returns the settings of each revision with a filter for the transactions that were claimed by it.
    pub(super) fn with_claims(&self) -> impl Iterator<Item = (&TwoPhaseOptions, Document)> {
        self.0.iter().map(|(revision, options)| {
            let claimed: Bson = if *revision == FIRST { doc! { "$exists": false }.into() } else { (*revision).into() };
            (&**options, doc! { &options.fields.settings: claimed })
        })
    }

    fn of(&self, revision: i64) -> Option<&Arc<TwoPhaseOptions>> {
        self.0.iter().find(|(known, _)| *known == revision).map(|(_, options)| options)
    }
}

impl TwoPhaseOptions {
    /// Reads the recorded settings of the transactions of a collection, with this name of the application; `None` if
    /// nothing is recorded.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a record that cannot be read.
    pub async fn recorded(
        store: Arc<dyn DocumentStore>,
        transactions: &Namespace,
        application: impl Into<String>,
    ) -> Result<Option<Self>> {
        let record = record(&Steps::new(store, transactions.clone()))?;
        // The recorded settings replace these.
        let own = TwoPhaseOptions::new(application, transactions.clone());
        record.read().await?.map(|recorded| read(&recorded.settings, transactions, &own)).transpose()
    }
}

impl TwoPhase {
    /// Changes the recorded settings of the transactions of a collection to those of `options`; records them if
    /// nothing is recorded. Processes that have opened it before keep the old settings until they are restarted; the
    /// transactions that they claim are finished by those.
    ///
    /// # Errors
    /// [`Error::Invalid`] while transactions are under way, and for other field names, another field of the balance or
    /// another collection of the accounts once there are transactions. [`Error::Store`] if the store fails: call
    /// again.
    pub async fn change_settings(
        store: Arc<dyn DocumentStore>,
        transactions: Namespace,
        options: &TwoPhaseOptions,
    ) -> Result<()> {
        options.check()?;
        let steps = Steps::new(store, transactions);
        let (record, new) = (record(&steps)?, written(options, steps.namespace()));
        let Some(recorded) = record.read().await? else {
            sharing::claim(&steps, &collections(options)).await?;
            return record.open(&new).await.map(|_| ());
        };
        let old = read(&recorded.settings, steps.namespace(), options)?;
        let lasting = |options: &TwoPhaseOptions| {
            let Accounts { namespace, balance, .. } = options.accounts.clone();
            (options.fields.to_document(), namespace, balance)
        };
        if lasting(&old) != lasting(options) && steps.count(&Document::new()).await? > 0 {
            return Err(Error::invalid(format!(
                "{} has transactions by other names of fields, another field of the balance, or accounts in another collection: these \
                 cannot be changed any more, begin another collection of transactions",
                steps.namespace()
            )));
        }
        let under_way = [State::Pending, State::Applied, State::Canceling].map(State::name).to_vec();
        let under_way = steps.count(&doc! { &old.fields.state: { "$in": under_way } }).await?;
        if under_way > 0 {
            return Err(Error::invalid(format!(
                "{under_way} transactions of {} are under way by the recorded settings: bring them to their end first (recover)",
                steps.namespace()
            )));
        }
        sharing::claim(&steps, &added(&old, options)).await?;
        record.change(&recorded, &new).await?;
        sharing::release(&steps, &added(options, &old)).await
    }

    /// Compares the settings with the record, and records them if `to_record` is true and nothing is recorded.
    pub(super) async fn revisions(steps: &Steps, options: TwoPhaseOptions, to_record: bool) -> Result<Revisions> {
        let (record, ours) = (record(steps)?, written(&options, steps.namespace()));
        let mut recorded = record.compare(&ours).await?;
        if to_record && recorded.is_some() {
            sharing::claim_if_free(steps, &collections(&options)).await?;
        } else if to_record {
            let Accounts { namespace, balance, .. } = &options.accounts;
            let default = Accounts::new(namespace.clone()).balance;
            steps.at(namespace.clone()).check_given_name(&default, balance, &doc! { "$exists": true }).await?;
            sharing::claim(steps, &collections(&options)).await?;
            recorded = Some(record.open(&ours).await?);
        }
        Revisions::new(recorded.as_ref(), steps.namespace(), options)
    }

    /// Returns the pattern with the settings that a transaction was claimed by.
    pub(super) fn by_settings_of(&self, record: &Record) -> Result<TwoPhase> {
        let revision = record.settings.unwrap_or(FIRST);
        match self.revisions.of(revision) {
            Some(options) => Ok(TwoPhase { options: Arc::clone(options), ..self.clone() }),
            None => Err(Error::invalid(format!(
                "transaction {} is carried out by revision {revision} of the settings, which were recorded after this process had \
                 opened them: open them again",
                record.id
            ))),
        }
    }
}

/// Returns the collections with participants by these settings.
fn collections(options: &TwoPhaseOptions) -> BTreeSet<&Namespace> {
    options.participants.iter().chain([&options.accounts.namespace]).collect()
}

/// Returns the collections that have participants by the second settings, and not by the first ones.
fn added<'a>(old: &TwoPhaseOptions, new: &'a TwoPhaseOptions) -> BTreeSet<&'a Namespace> {
    let old = collections(old);
    collections(new).into_iter().filter(|namespace| !old.contains(namespace)).collect()
}

fn record(transactions: &Steps) -> Result<SettingsRecord> {
    SettingsRecord::new(transactions, "two-phase", doc! { "fields": Fields::default().to_document() })
}

fn written(options: &TwoPhaseOptions, home: &Namespace) -> Document {
    let TwoPhaseOptions { accounts, participants, finished_max, fields, .. } = options;
    let mut of_accounts = written_namespace(&accounts.namespace, home);
    of_accounts.insert("balance", &accounts.balance);
    of_accounts.insert("overdraft", accounts.overdraft);
    if let Some(PendingFields { credits, debits }) = &accounts.pending {
        of_accounts.insert("pending", doc! { "credits": credits, "debits": debits });
    }
    let mut participants: Vec<_> = participants.iter().collect();
    participants.sort();
    participants.dedup();
    let participants: Vec<_> = participants.into_iter().map(|namespace| written_namespace(namespace, home)).collect();
    doc! {
        "accounts": of_accounts,
        "participants": participants,
        "finishedMax": i64::from(*finished_max),
        "fields": fields.to_document(),
    }
}

/// Reads the settings, with those that each process chooses for itself from `own`.
fn read(settings: &Document, home: &Namespace, own: &TwoPhaseOptions) -> Result<TwoPhaseOptions> {
    let wrong = |what: String| Error::invalid(format!("the recorded settings of {home} cannot be read: {what}"));
    let parsed = || -> std::result::Result<TwoPhaseOptions, Box<dyn std::error::Error>> {
        let accounts = subdocument(settings, "accounts")?;
        let pending = match accounts.get_document("pending") {
            Ok(pending) => Some(PendingFields {
                credits: string(pending, "credits")?.to_owned(),
                debits: string(pending, "debits")?.to_owned(),
            }),
            Err(_) => None,
        };
        let participants = array(settings, "participants")?.iter();
        let participants = participants.map(|namespace| match namespace {
            Bson::Document(namespace) => read_namespace(namespace, home),
            other => Err(format!("{other} names no collection").into()),
        });
        Ok(TwoPhaseOptions {
            accounts: Accounts {
                namespace: read_namespace(accounts, home)?,
                balance: string(accounts, "balance")?.to_owned(),
                overdraft: boolean(accounts, "overdraft")?,
                pending,
            },
            participants: participants.collect::<Result<_, _>>()?,
            finished_max: count(settings, "finishedMax")?.max(1),
            fields: Fields::from_document(subdocument(settings, "fields")?)?,
            ..own.clone()
        })
    };
    parsed().map_err(|error| wrong(error.to_string()))
}
