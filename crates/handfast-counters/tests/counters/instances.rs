//! Several instances over one Redis and one store.
