//! Compares the fields for amounts under way of accounts with the transactions that are under way in them.
//!
//! These fields change in the same steps as the ids of the transactions. So at any moment they are the sums over the
//! transfers whose ids the document has, and the comparison needs no pause of other processes.

use std::collections::BTreeMap;

use bson::{Bson, Document, doc};
use handfast_store::Namespace;

use super::options::PendingFields;
use super::unread::unreadable;
use super::verify::{Finding, Verified};
use super::{Plan, TwoPhase};
use crate::Result;
use crate::steps::Steps;
use crate::value::{at_path, integer, same_id};

impl TwoPhase {
    /// Compares all accounts with a field that is not 0, or with transactions under way, `page` at a time.
    pub(super) async fn verify_pending(
        &self,
        page: u32,
        tell: &impl Fn(&Verified),
        verified: &mut Verified,
    ) -> Result<()> {
        for (namespace, fields) in self.pending_fields() {
            let documents = self.transactions.at(namespace.clone());
            let not_zero = |field: &String| doc! { field: { "$exists": true, "$ne": 0 } };
            let any: Vec<_> = fields.iter().map(not_zero).chain([self.under_way()]).collect();
            let mut pages = documents.pages(&doc! { "$or": any }, page).await?;
            while let Some(found) = pages.next().await? {
                for account in found {
                    verified.accounts += 1;
                    self.verify_account(&documents, &account, &fields, verified).await?;
                }
                tell(verified);
            }
        }
        Ok(())
    }

    /// Returns the fields for amounts under way by collection, including those of earlier settings.
    fn pending_fields(&self) -> BTreeMap<Namespace, Vec<String>> {
        let mut all: BTreeMap<Namespace, Vec<String>> = BTreeMap::new();
        for accounts in self.revisions.all().map(|options| &options.accounts) {
            let Some(PendingFields { credits, debits }) = &accounts.pending else { continue };
            let known = all.entry(accounts.namespace.clone()).or_default();
            for field in [credits, debits] {
                if !known.contains(field) {
                    known.push(field.clone());
                }
            }
        }
        all
    }

    async fn verify_account(
        &self,
        documents: &Steps,
        account: &Document,
        fields: &[String],
        verified: &mut Verified,
    ) -> Result<()> {
        let id = account.get("_id").cloned().unwrap_or(Bson::Null);
        let mut expected = BTreeMap::new();
        for transaction in self.pending(account) {
            // A transaction that is missing or cannot be read is a finding of its own.
            let Some((field, value)) = self.share(&id, transaction).await? else { return Ok(()) };
            if let Some(field) = field {
                *expected.entry(field).or_insert(0_i64) += value;
            }
        }
        for field in fields {
            let expected = expected.get(field).copied().unwrap_or(0);
            if integer(account, field).ok() != Some(expected) {
                verified.found(Finding::Pending {
                    namespace: documents.namespace().clone(),
                    account: id.clone(),
                    field: field.clone(),
                    found: at_path(account, field).cloned(),
                    expected,
                });
            }
        }
        Ok(())
    }

    /// Returns the field of an account that a transaction under way has added to, and the amount; `None` if that is
    /// unknown.
    async fn share(&self, account: &Bson, transaction: &Bson) -> Result<Option<(Option<String>, i64)>> {
        let Some(record) = unreadable(self.show(transaction.clone()).await)?.unwrap_or_default() else {
            return Ok(None);
        };
        let Ok(by) = self.by_settings_of(&record) else { return Ok(None) };
        let transfer = match &record.plan {
            Ok(Plan::Transfer(transfer)) => transfer,
            Ok(Plan::General(_)) => return Ok(Some((None, 0))),
            Err(_) => return Ok(None),
        };
        let field = by.options.accounts.pending.as_ref().map(|PendingFields { credits, debits }| {
            if same_id(&transfer.source, account) { debits.clone() } else { credits.clone() }
        });
        Ok(Some((field, transfer.value)))
    }
}
