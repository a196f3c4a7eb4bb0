//! What becomes of views when Redis is away, is killed, or comes back with less than it had.
