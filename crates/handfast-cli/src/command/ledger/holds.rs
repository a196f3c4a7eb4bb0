//! `handfast ledger holds`: the authorisations of a ledger with their states.
//!
//! The state of an authorisation is that of the entry that resolves it, if there is one: it is looked up for each authorisation.

use anyhow::Result;
use bson::{Bson, Document, doc};
use handfast_patterns::ledger::{Entry, HoldState, Link};
use handfast_store::{Find, StoreExt as _};
use serde_json::{Value, json};

use super::Books;
use super::arguments::HoldSelection;
use crate::command::pattern::raw;
use crate::console::Console;
use crate::exit::Exit;
use crate::id::{extended_json, shown as id};
use crate::listing::{Listing, age};

/// The authorisations that are read at once.
const BATCH: u32 = 200;

impl Books {
    pub(super) async fn holds(&self, selection: &HoldSelection, console: Console) -> Result<Exit> {
        let ledger = self.attach().await?;
        let limit = selection.limit;
        let wanted: Vec<HoldState> = selection.states.iter().map(|state| (*state).into()).collect();
        let mut listing = Listing::new(&["id", "age", "state", "payer", "payee", "value", "asset", "expires"]);
        let mut ids = Vec::new();
        let mut after = selection.after.as_ref().map(|id| id.0.clone());
        'pages: loop {
            let page = self.authorisations(selection.account.as_ref().map(|id| &id.0), after.take()).await?;
            let Some(last) = page.last().and_then(|last| last.get("_id")).cloned() else { break };
            for document in &page {
                let Some(entry) = ledger.show(document.get("_id").cloned().unwrap_or(Bson::Null)).await? else {
                    continue;
                };
                let Some(state) = ledger.hold_state(entry.id.clone()).await? else { continue };
                if !wanted.is_empty() && !wanted.contains(&state) {
                    continue;
                }
                self.push(&mut listing, &entry, state);
                ids.push(id(&entry.id));
                if listing.lines().len() > limit.limit as usize {
                    break 'pages;
                }
            }
            after = Some(last);
        }
        let listing = listing.bounded(limit.limit);
        console.list(&listing)?;
        let last = limit.limit.checked_sub(1).and_then(|last| ids.get(last as usize));
        if let Some(last) = last.filter(|_| listing.has_more()) {
            console.remark(&format!("further ones: --after '{last}'"));
        }
        Ok(Exit::Good)
    }

    /// Returns a part of the entries that are authorisations, in the order of their ids.
    async fn authorisations(&self, account: Option<&Bson>, after: Option<Bson>) -> Result<Vec<Document>> {
        let fields = &self.options.fields;
        let mut filter = doc! { &fields.authorises: { "$exists": true } };
        if let Some(account) = account {
            filter.insert(format!("{}.{}", fields.changes, fields.account), doc! { "$eq": account.clone() });
        }
        if let Some(after) = after {
            // An expression compares ids of all types.
            filter.insert("$expr", doc! { "$gt": ["$_id", { "$literal": after }] });
        }
        let mut find = Find::new(self.collection.namespace.clone(), raw(&filter)?);
        find.sort = raw(&doc! { "_id": 1 })?;
        find.limit = Some(BATCH.into());
        let found = self.collection.store.find_all(find).await?;
        found.iter().map(|document| Ok(Document::try_from(&**document)?)).collect()
    }

    fn push(&self, listing: &mut Listing, entry: &Entry, state: HoldState) {
        let Some(Link::Authorises { payee, value }) = &entry.link else { return };
        let change = entry.changes.first();
        let payer = change.map(|change| id(&change.account)).unwrap_or_default();
        let asset = change.map(|change| change.asset.clone()).unwrap_or_default();
        let expires = match entry.expires_at {
            Some(at) if state == HoldState::Open => self.collection.due(at),
            Some(_) | None => String::new(),
        };
        listing.push(
            [
                id(&entry.id),
                age(self.collection.since(entry.ts)),
                state.to_string(),
                payer,
                id(payee),
                value.to_string(),
                asset,
                expires,
            ],
            line(entry, payee, *value, state),
        );
    }
}

fn line(entry: &Entry, payee: &Bson, value: i64, state: HoldState) -> Value {
    let change = entry.changes.first();
    json!({
        "_id": extended_json(&entry.id),
        "ts": extended_json(&Bson::DateTime(entry.ts)),
        "holdState": state.to_string(),
        "payer": change.map(|change| extended_json(&change.account)),
        "payee": extended_json(payee),
        "value": value,
        "asset": change.map(|change| change.asset.clone()),
        "expiresAt": entry.expires_at.map(|at| extended_json(&Bson::DateTime(at))),
    })
}
