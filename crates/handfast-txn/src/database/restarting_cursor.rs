//! A cursor outside of transactions that begins again on a newer snapshot, as long as it has returned nothing.
//!
//! A snapshot cannot be read to its end if a document changes many times meanwhile: the store keeps a bounded number of old versions. Inside of
//! a transaction that is a conflict. Outside of one, the reader has asked for no particular snapshot, so another one serves as well, until
//! documents of the first one were returned.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use handfast_mql::Code;
use handfast_store::{
    Aggregate, BatchLimit, Cursor, Error as StoreError, Find, Page, Result as StoreResult, aggregation,
};

use super::Database;
use crate::options::RETRY_TIME_MAX;

/// A request that reads and changes nothing.
pub(super) enum Read {
    Find(Find),
    Aggregate(Aggregate),
}

/// The attempts at one page.
struct Attempts {
    made: u32,
    /// The time of the clock after which there is no other attempt.
    give_up: Duration,
}

struct RestartingCursor {
    database: Database,
    read: Read,
    cursor: Box<dyn Cursor>,
    has_returned: bool,
}

/// Opens a cursor over a new snapshot.
pub(super) async fn open(database: Database, read: Read) -> StoreResult<Box<dyn Cursor>> {
    let cursor = read.open(&database, &mut Attempts::at(&database)).await?;
    Ok(Box::new(RestartingCursor { database, read, cursor, has_returned: false }))
}

impl Attempts {
    fn at(database: &Database) -> Self {
        let now = database.shared.sources.clock.elapsed();
        Attempts { made: 0, give_up: now.saturating_add(RETRY_TIME_MAX) }
    }

    /// Waits before another attempt if this error allows one; otherwise returns it.
    async fn another(&mut self, database: &Database, error: StoreError) -> StoreResult<()> {
        let is_over = database.shared.sources.clock.elapsed() >= self.give_up;
        if error.code() != Code::SnapshotTooOld || is_over {
            return Err(error);
        }
        tokio::time::sleep(database.backoff(self.made)).await;
        self.made += 1;
        Ok(())
    }
}

impl Read {
    async fn open(&self, database: &Database, attempts: &mut Attempts) -> StoreResult<Box<dyn Cursor>> {
        loop {
            let opened = match self {
                Read::Find(request) => database.find_at_new_snapshot(request.clone()).await,
                Read::Aggregate(request) => {
                    let sources = &database.shared.sources;
                    aggregation::open(Arc::new(database.clone()), sources, request.clone()).await
                }
            };
            match opened {
                Ok(cursor) => return Ok(cursor),
                Err(error) => attempts.another(database, error).await?,
            }
        }
    }
}

#[async_trait]
impl Cursor for RestartingCursor {
    /// Returns the next page, and starts the query again if its snapshot is too old.
    ///
    /// # Errors
    /// Returns `SnapshotTooOld` (239) after documents were returned, and the errors of the cursor.
    async fn next_page(&mut self, limit: BatchLimit) -> StoreResult<Page> {
        let mut attempts = Attempts::at(&self.database);
        loop {
            match self.cursor.next_page(limit).await {
                Ok(page) => {
                    self.has_returned |= !page.documents.is_empty();
                    return Ok(page);
                }
                Err(error) if self.has_returned => return Err(error),
                Err(error) => attempts.another(&self.database, error).await?,
            }
            self.cursor = self.read.open(&self.database, &mut attempts).await?;
        }
    }
}
