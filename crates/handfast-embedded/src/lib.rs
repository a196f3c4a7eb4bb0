//! The embedded document store: indexes, planner, snapshots, group commit, check and repair.
