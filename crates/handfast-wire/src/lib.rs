//! The MongoDB wire protocol as values: headers, OP_MSG, OP_COMPRESSED, the legacy handshake, limits.
