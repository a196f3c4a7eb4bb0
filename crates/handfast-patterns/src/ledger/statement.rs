//! Statements: an account's history, a page at a time.

use bson::{Bson, doc};

use super::account::Cache;
use super::balance::Line;
use super::{Ledger, PAGE};
use crate::Result;

/// A part of an account's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// The changes after a place; 0 is before the first one.
    After(i64),
    /// The changes before a place.
    Before(i64),
    /// The last changes.
    Last,
}

/// A page of an account's history.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// The changes in the order of their places, including those that do not count.
    pub lines: Vec<Line>,
    /// The page before this one; `None` if there is none.
    pub earlier: Option<Page>,
    /// The page after this one; `None` if there is none yet.
    pub later: Option<Page>,
}

impl Ledger {
    /// Returns a page of an account's history, of `places` places (at most 500). Places that were drawn and have no
    /// entry yet have no line. The page of an unknown account is empty.
    pub async fn statement(&self, account: impl Into<Bson>, page: Page, places: u32) -> Result<Statement> {
        let places = places.clamp(1, PAGE);
        let Some(account) = self.known(account.into()).await? else {
            return Ok(Statement { lines: Vec::new(), earlier: None, later: None });
        };
        let anchor = self.anchor(&account).await?;
        let (standing, _) = self.counted(&account.id, anchor, doc! { "$gt": anchor.seq_id }).await?;
        let after = match page {
            Page::After(place) => place,
            Page::Before(place) => place - 1 - i64::from(places),
            Page::Last => standing.last - i64::from(places),
        };
        // The last page backwards has the places that are left.
        let places = match page {
            Page::Before(place) if after < 0 => u32::try_from(place - 1).unwrap_or(0),
            Page::After(_) | Page::Before(_) | Page::Last => places,
        };
        let after = after.clamp(0, standing.last);
        let start = self.account_state_at(&account, after).await?;
        let mut at =
            Cache { balance: start.anchor.balance.saturating_add(start.pending), held: start.held(), seq_id: after };
        let lines = self.lines(&account.id, &mut at, after, places).await?;
        let end = after + i64::from(places);
        Ok(Statement {
            lines,
            earlier: (after > 0).then_some(Page::Before(after + 1)),
            later: (end < standing.last).then_some(Page::After(end)),
        })
    }
}
