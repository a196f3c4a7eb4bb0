//! Finds names in links that no document has. By a wrong name, which may be misspelt or from old settings, no copy is
//! found, or every copy differs and a repair would empty them all.

use std::fmt;

use bson::{Bson, Document, doc};
use handfast_store::Namespace;

use super::record::{Copy, FINAL_VERSION};
use super::{Link, SyncFlag};
use crate::Result;
use crate::steps::Steps;
use crate::value::{key_of, one_of};

/// A name in a link that no document has.
#[derive(Clone, Debug, PartialEq)]
pub enum UnknownName {
    /// No document has the key that finds the copies.
    Key {
        /// The collection of the copies.
        target: Namespace,
        /// The key.
        key: String,
    },
    /// By the key, no document names a main document that exists.
    Mains {
        /// The collection of the copies.
        target: Namespace,
        /// The key.
        key: String,
        /// The collection of the main documents.
        mains: Namespace,
    },
    /// No main document has the field that a field of the copies is made from.
    Field {
        /// The collection of the copies.
        target: Namespace,
        /// The field of the copies.
        copy: String,
        /// The field of the main documents.
        from: String,
        /// The collection of the main documents.
        mains: Namespace,
    },
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnknownName::Key { target, key } => {
                write!(f, "no document of {target} has {key}, by which copies are found")
            }
            UnknownName::Mains { target, key, mains } => {
                write!(f, "no document of {target} has in {key} the _id of a document of {mains}")
            }
            UnknownName::Field { target, copy, from, mains } => {
                write!(f, "no document of {mains} has {from}, from which {copy} of {target} is copied")
            }
        }
    }
}

impl SyncFlag {
    /// Returns the first name in the links that no document has. The caller must not compare or change copies by them.
    ///
    /// If links are declared, documents must already have copies for a name to count as unknown: the first users with
    /// a nickname, and the first comments with an editor, may be still to come. If nothing is declared, a new name
    /// cannot be told from a wrong one, and it counts as unknown.
    pub async fn unknown_name(&self, declared: bool, page: u32) -> Result<Option<UnknownName>> {
        for link in &self.options.links {
            if let Some(unknown) = self.unknown_name_of(link, declared, page).await? {
                return Ok(Some(unknown));
            }
        }
        Ok(None)
    }

    async fn unknown_name_of(&self, link: &Link, declared: bool, page: u32) -> Result<Option<UnknownName>> {
        let (copies, target, key) = (self.copies(link), link.target.clone(), link.foreign_key.clone());
        let mains = self.mains.namespace().clone();
        if copies.find_one(&doc! {}).await?.is_none() {
            return Ok(None);
        }
        if !has(&copies, &key).await? {
            let mut made = !declared;
            for field in link.copied_fields().chain([link.version.as_str()]) {
                made = made || has(&copies, field).await?;
            }
            return Ok(made.then_some(UnknownName::Key { target, key }));
        }
        if !self.leads_to_mains(link, page).await? {
            return Ok(Some(UnknownName::Mains { target, key, mains }));
        }
        if self.mains.find_one(&doc! {}).await?.is_none() {
            return Ok(None);
        }
        for (copy, from) in link.copied_from() {
            let is_there = match &from {
                Some(field) => has(&self.mains, field).await?,
                None => self.gives(link, copy, page).await?,
            };
            if !is_there && (!declared || has(&copies, copy).await?) {
                let from = from.unwrap_or_else(|| "what is computed".to_owned());
                return Ok(Some(UnknownName::Field { target, copy: copy.to_owned(), from, mains }));
            }
        }
        Ok(None)
    }

    /// Returns whether a copy names a main document that exists. Copies that are marked as those of a deleted main
    /// document do not count; if there are no others, it returns true.
    async fn leads_to_mains(&self, link: &Link, page: u32) -> Result<bool> {
        let (copies, mut is_any) = (self.copies(link), false);
        let of_mains = doc! { &link.foreign_key: { "$exists": true }, &link.version: { "$ne": FINAL_VERSION } };
        let mut pages = copies.pages(&of_mains, page).await?;
        while let Some(found) = pages.next().await? {
            is_any |= !found.is_empty();
            let mut ids: Vec<(Vec<u8>, Bson)> = Vec::with_capacity(found.len());
            for copy in found.into_iter().filter_map(|document| Copy::read(document, link)) {
                ids.push((key_of(&copy.main)?, copy.main));
            }
            ids.sort_by(|(one, _), (other, _)| one.cmp(other));
            ids.dedup_by(|(one, _), (other, _)| one == other);
            let ids = ids.into_iter().map(|(_, id)| id);
            if self.mains.find_one(&doc! { "_id": one_of(ids) }).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(!is_any)
    }

    /// Returns whether any main document has a value for a field of copies.
    async fn gives(&self, link: &Link, copy: &str, page: u32) -> Result<bool> {
        let gives = |main: &Document| link.values(main).iter().any(|(path, value)| path == copy && value.is_some());
        let mut pages = self.mains.pages(&doc! {}, page).await?;
        while let Some(found) = pages.next().await? {
            if found.iter().any(gives) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

async fn has(steps: &Steps, field: &str) -> Result<bool> {
    Ok(steps.find_one(&doc! { field: { "$exists": true } }).await?.is_some())
}
