//! The instances that run on one buffer, as they announce themselves.
//!
//! An instance announces itself again and again. One that does not for the lifetime of its last announcement is taken for dead and is not listed, so
//! nobody has to notice a death. Lifetimes are measured by one clock, that of the buffer: no clocks of two machines are compared.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::buffer::Owner;

/// The state of an instance, as it announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceReport {
    /// The name of the instance.
    pub name: Owner,
    /// The version of the program.
    pub version: String,
    /// The addresses that the instance listens on.
    pub addresses: Vec<SocketAddr>,
    /// The time since its start.
    pub uptime: Duration,
    /// The views that it has counted since its start.
    pub views: u64,
    /// The views that it has saved since its start.
    pub saved: u64,
}

/// An instance that has announced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its last announcement.
    pub report: InstanceReport,
    /// The time since then.
    pub seen: Duration,
}

/// The instances of a buffer that is in one process.
#[derive(Default)]
pub(crate) struct LocalInstances(Mutex<BTreeMap<Owner, Announcement>>);

struct Announcement {
    report: InstanceReport,
    at: Duration,
    lifetime: Duration,
}

impl LocalInstances {
    pub(crate) fn announce(&self, report: InstanceReport, lifetime: Duration, now: Duration) {
        self.lock().insert(report.name.clone(), Announcement { report, at: now, lifetime });
    }

    pub(crate) fn withdraw(&self, name: &Owner) {
        self.lock().remove(name);
    }

    /// Returns the instances that live, in the order of their names, and forgets the others.
    pub(crate) fn list(&self, now: Duration) -> Vec<Instance> {
        let mut by_name = self.lock();
        by_name.retain(|_, announced| now.saturating_sub(announced.at) < announced.lifetime);
        let living = by_name.values();
        living
            .map(|Announcement { report, at, .. }| Instance { report: report.clone(), seen: now.saturating_sub(*at) })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Owner, Announcement>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
