//! Two-phase transactions of a collection.

use std::sync::Arc;

use handfast_patterns::{TwoPhase, TwoPhaseOptions};
use handfast_store::{DocumentStore, Namespace};

use super::{Kept, OpenPatterns, Pattern, check_usable, store_of};
use crate::error::CommandResult;
use crate::state::Shared;

/// The collection of the accounts, if no settings are recorded.
pub(crate) const ACCOUNTS: &str = "accounts";
/// The application of a kept pattern, by which no transaction is carried out: each command has the name of its client's application.
const APPLICATION: &str = "handfast serve";

impl Pattern for TwoPhase {
    async fn open(shared: &Shared, namespace: Namespace) -> CommandResult<Self> {
        let recorded = TwoPhaseOptions::recorded(store_of(shared), &namespace, APPLICATION).await?;
        let options = match recorded {
            Some(recorded) => recorded,
            None => defaults(&namespace)?,
        };
        open(shared, namespace, options).await
    }

    fn on(&self, store: Arc<dyn DocumentStore>) -> Self {
        self.within(store)
    }

    fn kept(patterns: &OpenPatterns) -> &Kept<Self> {
        &patterns.two_phase
    }
}

/// Returns the settings of transactions for which none are recorded.
pub(crate) fn defaults(transactions: &Namespace) -> CommandResult<TwoPhaseOptions> {
    Ok(TwoPhaseOptions::new(APPLICATION, Namespace::new(transactions.database(), ACCOUNTS)?))
}

/// Opens transactions with these settings, which are recorded if none are.
pub(crate) async fn open(
    shared: &Shared,
    transactions: Namespace,
    options: TwoPhaseOptions,
) -> CommandResult<TwoPhase> {
    let (store, sources) = (store_of(shared), shared.sources.clone());
    // The collections of earlier settings are known only when the pattern is open, which creates indexes there.
    let read = TwoPhase::attach(Arc::clone(&store), transactions.clone(), sources.clone(), options.clone()).await?;
    check(&read, &transactions)?;
    let open = TwoPhase::open_with(store, transactions.clone(), sources, options).await?;
    // Another client may have changed the record in between.
    check(&open, &transactions)?;
    Ok(open)
}

fn check(two_phase: &TwoPhase, transactions: &Namespace) -> CommandResult<()> {
    two_phase.collections().try_for_each(|collection| check_usable(transactions, collection))
}
