//! The instances of the service: the announcements of this one, and the list of all.
//!
//! Instances share their buffer, and each announces itself there ([`Buffer::announce`](handfast_counters::Buffer::announce)). Counting does not depend on
//! it: an announcement that fails is made again with the next one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use handfast_counters::{Counters, Instance, InstanceReport, Owner};
use tokio_util::sync::CancellationToken;

use super::metrics::ViewMetrics;

/// The shortest time between two announcements: passes that save views may follow each other within milliseconds.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// The longest time between two announcements: passes may be hours apart, and the list shows what is now.
const INTERVAL_MAX: Duration = Duration::from_secs(5);
/// The lifetime of an announcement, in intervals: some may be lost or late.
const LIFETIME_INTERVALS: u32 = 4;
/// The shortest lifetime of an announcement: a machine may be busy.
const LIFETIME_MIN: Duration = Duration::from_secs(10);
/// The time that a stop waits for the withdrawal. Without it, the instance leaves the list when its last announcement expires.
const WITHDRAWAL_TIME_MAX: Duration = Duration::from_secs(2);

/// The instance that this process is.
#[derive(Clone)]
pub(super) struct ThisInstance {
    counters: Counters,
    addresses: Vec<SocketAddr>,
    views: Arc<ViewMetrics>,
    /// The time of the start, by the steady clock.
    started: Duration,
}

/// The time that a reader of the list waits for it.
const LIST_TIME_MAX: Duration = Duration::from_secs(2);

impl ThisInstance {
    /// Creates the instance, which starts now and counts these views.
    pub(super) fn new(counters: Counters, addresses: Vec<SocketAddr>, views: Arc<ViewMetrics>) -> Self {
        let started = counters.sources().clock.elapsed();
        ThisInstance { counters, addresses, views, started }
    }

    pub(super) fn name(&self) -> &Owner {
        self.counters.owner()
    }

    /// Returns the state of this instance at this moment.
    pub(super) fn report(&self) -> InstanceReport {
        InstanceReport {
            name: self.name().clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            addresses: self.addresses.clone(),
            uptime: self.counters.sources().clock.elapsed().saturating_sub(self.started),
            views: self.views.total(),
            saved: self.counters.saved().views,
        }
    }

    /// Returns all instances, in the order of their addresses. This one is as it is now; it is alone if the buffer does not answer.
    pub(super) async fn all(&self) -> Vec<Instance> {
        let mut instances = match tokio::time::timeout(LIST_TIME_MAX, self.counters.buffer().instances()).await {
            Ok(Ok(instances)) => instances,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the instances could not be read");
                Vec::new()
            }
            Err(_) => {
                tracing::debug!("the instances were not read in time");
                Vec::new()
            }
        };
        instances.retain(|instance| instance.report.name != *self.name());
        instances.push(Instance { report: self.report(), seen: Duration::ZERO });
        instances.sort_by(|one, other| {
            (&one.report.addresses, &one.report.name).cmp(&(&other.report.addresses, &other.report.name))
        });
        instances
    }

    /// Announces this instance again and again until `stop` is canceled, then withdraws it.
    pub(super) async fn announce_until(&self, stop: CancellationToken) {
        stop.run_until_cancelled(self.announce()).await;
        let withdrawal = self.counters.buffer().withdraw(self.name());
        match tokio::time::timeout(WITHDRAWAL_TIME_MAX, withdrawal).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "this instance could not be withdrawn, and expires"),
            Err(_) => tracing::debug!("this instance was not withdrawn in time, and expires"),
        }
    }

    async fn announce(&self) {
        let interval = self.counters.options().flush_interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
        let lifetime = LIFETIME_MIN.max(interval * LIFETIME_INTERVALS);
        let buffer = self.counters.buffer();
        let mut is_first = true;
        loop {
            let announced = match buffer.announce(self.report(), lifetime).await {
                // A list removes what is left of instances that have died: so it grows by no more than those of a lifetime, also if nobody reads it.
                Ok(()) if is_first => buffer.instances().await.map(drop),
                announced => announced,
            };
            match announced {
                Ok(()) => is_first = false,
                Err(error) => tracing::debug!(%error, "this instance could not be announced"),
            }
            tokio::time::sleep(interval).await;
        }
    }
}
