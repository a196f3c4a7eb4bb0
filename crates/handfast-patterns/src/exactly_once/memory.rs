//! The list of applied tokens in each document.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use handfast_store::IndexSpec;

use super::fence::Mark;
use crate::steps::{Steps, raw};
use crate::value::equal;
use crate::{Error, Result, Round};

/// Options for the list of applied tokens in each document.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The field of the list.
    pub tokens_field: String,
    /// The field of the date of the last update, by the store's clock.
    pub date_field: String,
    /// The largest number of tokens in a document. Each takes 12 bytes and a few more, that of a step of a job about
    /// 80. The [module's documentation](super) says which number is safe.
    pub tokens_max: u32,
}

impl Default for Memory {
    fn default() -> Self {
        Memory { tokens_field: "applied".to_owned(), date_field: "appliedAt".to_owned(), tokens_max: 1000 }
    }
}

impl Memory {
    /// Returns a filter for the document if it has not applied the update and no later holder has written to it.
    pub(super) fn unless_applied<'a>(&self, id: &Bson, mark: impl Into<Mark<'a>>) -> Document {
        let mark = mark.into();
        match mark.fenced() {
            None => doc! { "_id": equal(id), &self.tokens_field: { "$ne": mark.made() } },
            Some(fenced) => doc! {
                "_id": equal(id),
                "$nor": [{ &self.tokens_field: mark.made() }, { &self.tokens_field: fenced }],
            },
        }
    }

    /// Returns a filter for the document if it has applied the update.
    pub(super) fn if_applied<'a>(&self, id: &Bson, mark: impl Into<Mark<'a>>) -> Document {
        doc! { "_id": equal(id), &self.tokens_field: mark.into().made() }
    }

    /// Returns a filter for the document if a later holder has written to it; `None` for a token.
    pub(super) fn if_fenced(&self, id: &Bson, mark: Mark<'_>) -> Option<Document> {
        Some(doc! { "_id": equal(id), &self.tokens_field: mark.fenced()? })
    }

    /// Returns the part of an update that adds the mark to the list.
    pub(super) fn remember<'a>(&self, mark: impl Into<Mark<'a>>) -> Document {
        let last = doc! { "$each": [mark.into().written()], "$slice": -i64::from(self.tokens_max) };
        doc! { "$push": { &self.tokens_field: last }, "$currentDate": { &self.date_field: true } }
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.tokens_max == 0 {
            return Err(Error::invalid(
                "tokens_max must be at least 1: an update whose token is not kept can be applied twice",
            ));
        }
        Ok(())
    }

    /// Returns the index on the date, which leaves out documents without it.
    pub(super) fn index(&self) -> Result<IndexSpec> {
        let key = raw(&doc! { &self.date_field: 1 })?;
        Ok(IndexSpec { sparse: true, ..IndexSpec::new(key) })
    }

    /// Removes the lists of at most `batch` documents whose last update is older than `age`.
    pub(super) async fn forget(&self, steps: &Steps, now: DateTime, age: Duration, batch: u32) -> Result<Round> {
        let old = doc! { &self.date_field: { "$lt": crate::value::before(now, age) } };
        let found = steps.find(&old, &doc! { &self.date_field: 1 }, batch).await?;
        let mut round = Round { more: found.len() as u64 >= u64::from(batch), ..Round::default() };
        let unset = doc! { "$unset": { &self.tokens_field: "", &self.date_field: "" } };
        for document in found {
            let mut filter = old.clone();
            filter.insert("_id", document.get("_id").cloned().unwrap_or(Bson::Null));
            // A document that was updated meanwhile keeps its list.
            round.done += u64::from(steps.update_one(&filter, &unset).await?);
        }
        Ok(round)
    }
}
