//! Documents that the pattern cannot read: another program has written them, or the settings name other fields.
//!
//! Each is a finding, and none of them ends a verification.

use bson::{Bson, Document, doc};
use handfast_store::Namespace;

use super::options::{Accounts, PendingFields};
use super::verify::{Finding, Verified};
use super::{Record, State, TwoPhase};
use crate::value::{at_path, integer};
use crate::{Error, Result};

/// Separates an error in a document from one of the store.
pub(super) fn unreadable<T>(result: Result<T>) -> Result<Result<T, String>> {
    match result {
        Ok(read) => Ok(Ok(read)),
        Err(Error::Damaged { what, .. } | Error::Invalid { what }) => Ok(Err(what)),
        Err(error) => Err(error),
    }
}

impl TwoPhase {
    /// Verifies all transactions under way: each can be carried out, and the updates of applied ones have been made.
    pub(super) async fn verify_under_way(
        &self,
        page: u32,
        tell: &impl Fn(&Verified),
        verified: &mut Verified,
    ) -> Result<()> {
        let states = [State::Pending, State::Applied, State::Canceling].map(State::name).to_vec();
        let mut pages = self.transactions.pages(&doc! { &self.fields().state: { "$in": states } }, page).await?;
        while let Some(found) = pages.next().await? {
            for document in found {
                let transaction = document.get("_id").cloned().unwrap_or(Bson::Null);
                match unreadable(self.verify_one(&document, verified).await)? {
                    Ok(lacking) => lacking.into_iter().for_each(|finding| verified.found(finding)),
                    Err(what) => self.found_unreadable(&transaction, what, verified),
                }
            }
            tell(verified);
        }
        Ok(())
    }

    /// Returns the participants that lack the update of a transaction under way.
    async fn verify_one(&self, document: &Document, verified: &mut Verified) -> Result<Vec<Finding>> {
        let is_applied = document.get_str(&self.fields().state).is_ok_and(|state| state == State::Applied.name());
        verified.applied += u64::from(is_applied);
        let record = Record::read(&self.transactions, document, self.fields())?;
        let by = self.by_settings_of(&record)?;
        by.participants(&record)?;
        if is_applied { by.lacking(&record).await } else { Ok(Vec::new()) }
    }

    pub(super) fn found_unreadable(&self, transaction: &Bson, what: String, verified: &mut Verified) {
        let (namespace, transaction) = (self.transactions.namespace().clone(), transaction.clone());
        verified.found_once(Finding::Unreadable { namespace, transaction, what });
    }

    /// Reports participants whose fields for ids of transactions are not lists: no update matches them, and no
    /// transaction is found in them.
    pub(super) async fn verify_lists(&self, page: u32, verified: &mut Verified) -> Result<()> {
        let lists = [&self.fields().pending, &self.fields().finished];
        let no_list = |field: &&String| doc! { *field: { "$exists": true, "$not": { "$type": "array" } } };
        let filter = doc! { "$or": lists.iter().map(no_list).collect::<Vec<_>>() };
        let is_no_list = |found: &Bson| found.as_array().is_none();
        for namespace in self.collections() {
            self.verify_fields(namespace, &filter, &lists, is_no_list, page, verified).await?;
        }
        Ok(())
    }

    /// Checks that accounts have the fields that the settings name, if transfers were made by these settings.
    pub(super) async fn verify_accounts(&self, page: u32, verified: &mut Verified) -> Result<()> {
        for (options, mut made) in self.revisions.with_claims() {
            let fields = self.fields();
            made.insert(&fields.state, doc! { "$in": [State::Applied.name(), State::Done.name()] });
            made.insert(&fields.source, doc! { "$exists": true });
            if self.transactions.find_one(&made).await?.is_none() {
                continue;
            }
            let Accounts { namespace, balance, pending, .. } = &options.accounts;
            let pending = pending.iter().map(|PendingFields { credits, debits }| vec![credits, debits]);
            for names in pending.chain([vec![balance]]) {
                self.verify_names(namespace, &names, verified).await?;
            }
            let no_integer = doc! { balance: { "$exists": true, "$not": { "$type": ["int", "long"] } } };
            let is_no_integer = |found: &Bson| integer(&doc! { "": found.clone() }, "").is_err();
            self.verify_fields(namespace, &no_integer, &[balance], is_no_integer, page, verified).await?;
        }
        Ok(())
    }

    /// Checks that an account has one of these fields, if there are accounts.
    async fn verify_names(&self, namespace: &Namespace, names: &[&String], verified: &mut Verified) -> Result<()> {
        let accounts = self.transactions.at(namespace.clone());
        let has: Vec<_> = names.iter().map(|name| doc! { *name: { "$exists": true } }).collect();
        if accounts.find_one(&doc! { "$or": has }).await?.is_none() && accounts.find_one(&doc! {}).await?.is_some() {
            let fields = names.iter().map(|name| (*name).clone()).collect();
            verified.found_once(Finding::NoSuchField { namespace: namespace.clone(), fields });
        }
        Ok(())
    }

    /// Reports documents with a value of a wrong type in one of these fields.
    async fn verify_fields(
        &self,
        namespace: &Namespace,
        filter: &Document,
        fields: &[&String],
        is_odd: impl Fn(&Bson) -> bool,
        page: u32,
        verified: &mut Verified,
    ) -> Result<()> {
        let documents = self.transactions.at(namespace.clone());
        let mut pages = documents.pages(filter, page).await?;
        while let Some(found) = pages.next().await? {
            for document in found {
                for field in fields {
                    let Some(value) = at_path(&document, field).filter(|value| is_odd(value)) else { continue };
                    verified.found_once(Finding::WrongType {
                        namespace: namespace.clone(),
                        participant: document.get("_id").cloned().unwrap_or(Bson::Null),
                        field: (*field).clone(),
                        found: value.clone(),
                    });
                }
            }
        }
        Ok(())
    }
}
