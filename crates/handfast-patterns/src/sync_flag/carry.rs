//! Steps 2 and 3, which carry a version to the copies and remove the flag.

use bson::Bson;

use super::requests::{self, Step};
use super::{Main, MainState, SyncFlag, SyncOutcome, ensure_key};
use crate::Result;
use crate::metrics::{self, Event, Span};
use crate::steps::{Request, Steps};

impl SyncFlag {
    /// Carries the change that is under way in a main document to its copies. Call it after
    /// [`SyncFlagWithin::begin`](super::SyncFlagWithin::begin), or after [`SyncOutcome::Later`].
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) if the store fails: call again, or leave it to the sweeper.
    ///
    /// # Cancellation
    /// The change may have been carried to some copies: call again, or leave it to the sweeper.
    pub async fn sync(&self, id: impl Into<Bson>) -> Result<SyncOutcome> {
        match self.main(&id.into()).await? {
            Some(main) => {
                self.carry(&main).await?;
                Ok(SyncOutcome::Synced { version: main.version })
            }
            None => Ok(SyncOutcome::Missing),
        }
    }

    pub(super) async fn carry_or_later(&self, main: Main) -> SyncOutcome {
        let version = main.version;
        match self.carry(&main).await {
            Ok(_) => SyncOutcome::Synced { version },
            Err(error) => {
                tracing::warn!(id = %main.id, %error, "copies could not be brought up to date, the sweeper will try again");
                self.count(Event::MainLeft, 1);
                SyncOutcome::Later { version, error }
            }
        }
    }

    /// Brings every copy to this version, and then removes the flag unless a newer change has set it. Returns whether
    /// this call removed it.
    pub(super) async fn carry(&self, main: &Main) -> Result<bool> {
        ensure_key(&main.id)?;
        let clock = &*self.sources.clock;
        let begun = clock.elapsed();
        match main.state {
            MainState::Settled | MainState::Gone => return Ok(false),
            MainState::Syncing => self.carry_version(main).await?,
            MainState::Deleting => self.carry_delete(&main.id).await?,
        }
        metrics::took_since(Span::Carry, self.mains.namespace(), clock, begun);
        let Some(step) = requests::finish(self.fields(), main) else { return Ok(false) };
        let ended = take(&self.mains, &step).await?;
        self.count(Event::FlagRemoved, u64::from(ended));
        Ok(ended)
    }

    /// Brings every older copy to this version.
    pub(super) async fn carry_version(&self, main: &Main) -> Result<()> {
        for link in &self.options.links {
            let Request { filter, update } = requests::carry(link, main);
            let copied = self.copies(link).update_many(&filter, &update).await?;
            self.count(Event::CopyWritten, copied);
        }
        Ok(())
    }

    async fn carry_delete(&self, main: &Bson) -> Result<()> {
        for link in &self.options.links {
            let copies = self.copies(link);
            let copied = match requests::leave(link, main) {
                Step::Update(Request { filter, update }) => copies.update_many(&filter, &update).await?,
                Step::Remove(filter) => copies.delete_many(&filter).await?,
            };
            self.count(Event::CopyWritten, copied);
        }
        Ok(())
    }

    /// Sets the flag of a main document that has never been changed, so that its copies get their first version.
    pub(super) async fn begin_first(&self, id: &Bson) -> Result<Option<Main>> {
        ensure_key(id)?;
        let Request { filter, update } = requests::begin_first(self.fields(), id);
        self.mains.update_one(&filter, &update).await?;
        self.main(id).await
    }
}

/// Takes a step on one document; returns whether its filter matched.
pub(super) async fn take(steps: &Steps, step: &Step) -> Result<bool> {
    match step {
        Step::Update(Request { filter, update }) => steps.update_one(filter, update).await,
        Step::Remove(filter) => steps.delete_one(filter).await,
    }
}
