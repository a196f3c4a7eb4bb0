//! What the server says of the storage under its database in `serverStatus`. The server does not know the backend; the program that starts it does.

use std::fmt::Debug;

use handfast_store::{CommitTimestamp, Durations};

/// The storage of a database on this machine.
pub trait Storage: Debug + Send + Sync {
    /// Returns the durations of syncs to the disk.
    fn sync_durations(&self) -> &Durations;

    /// Returns the timestamp of the newest commit that readers see.
    fn newest_commit(&self) -> CommitTimestamp;

    /// Returns the timestamp of the oldest snapshot in use, which is the safe point: what was replaced before it is kept for nobody. Without
    /// an older one it is that of the newest commit.
    fn oldest_snapshot(&self) -> CommitTimestamp;
}
