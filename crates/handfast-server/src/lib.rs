//! A MongoDB-compatible server over a document store.
