//! Main documents of a collection, and the copies of their fields.

use std::sync::Arc;

use handfast_mql::Code;
use handfast_patterns::{SyncFlag, SyncFlagOptions};
use handfast_store::{DocumentStore, Namespace};

use super::{Kept, OpenPatterns, Pattern, ReadPattern, check_usable, store_of};
use crate::error::{CommandError, CommandResult};
use crate::state::Shared;

impl Pattern for SyncFlag {
    async fn open(shared: &Shared, namespace: Namespace) -> CommandResult<Self> {
        let options = recorded(shared, &namespace).await?;
        open(shared, namespace, options).await
    }

    fn on(&self, store: Arc<dyn DocumentStore>) -> Self {
        self.on_store(store)
    }

    fn kept(patterns: &OpenPatterns) -> &Kept<Self> {
        &patterns.flags
    }
}

impl ReadPattern for SyncFlag {
    async fn attach(shared: &Shared, namespace: Namespace) -> CommandResult<Self> {
        let options = recorded(shared, &namespace).await?;
        check(&options, &namespace)?;
        Ok(SyncFlag::attach(store_of(shared), namespace, shared.sources.clone(), options)?)
    }
}

/// Opens main documents with these settings, which are recorded if none are.
pub(crate) async fn open(shared: &Shared, mains: Namespace, options: SyncFlagOptions) -> CommandResult<SyncFlag> {
    check(&options, &mains)?;
    Ok(SyncFlag::open_with(store_of(shared), mains, shared.sources.clone(), options).await?)
}

/// Returns the recorded settings.
///
/// # Errors
/// `NoSuchKey` (4) if none are recorded: there is no default for links.
async fn recorded(shared: &Shared, mains: &Namespace) -> CommandResult<SyncFlagOptions> {
    SyncFlagOptions::recorded(store_of(shared), mains).await?.ok_or_else(|| {
        let text = format!("no links of {mains} are recorded: declare them with handfastOpenSyncFlag");
        CommandError::new(Code::NoSuchKey, text)
    })
}

fn check(options: &SyncFlagOptions, mains: &Namespace) -> CommandResult<()> {
    options.links.iter().try_for_each(|link| check_usable(mains, link.target()))
}
