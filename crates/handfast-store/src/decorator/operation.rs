//! The operations of the contract by name, for metrics and for plans of faults.

use crate::contract::operations::operations;

macro_rules! operation {
    ($($variant:ident $method:ident($($argument:ident: $type:ty),*) -> $result:ty, $effect:ident;)*) => {
        operation! {
            $($variant $method $effect;)*
            Snapshot snapshot read;
            Commit commit write;
            SnapshotGet snapshot_get read;
            SnapshotFind snapshot_find read;
            NextPage next_page read;
        }
    };
    ($($variant:ident $name:ident $effect:ident;)*) => {
        /// An operation of [`DocumentStore`](crate::DocumentStore), [`AtomicStore`](crate::AtomicStore),
        /// [`Snapshot`](crate::Snapshot) or [`Cursor`](crate::Cursor).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "the names of the methods")]
        pub enum Operation {
            $($variant,)*
        }

        impl Operation {
            /// Every operation, each at the index that is its discriminant.
            pub const ALL: [Operation; [$(Operation::$variant),*].len()] = [$(Operation::$variant),*];

            /// Returns the name of the operation's method; those of snapshots begin with `snapshot_`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Operation::$variant => stringify!($name),)*
                }
            }

            /// Returns whether the operation may change something, so that a lost answer leaves the outcome unknown.
            pub fn is_write(self) -> bool {
                match self {
                    $(Operation::$variant => is_write!($effect),)*
                }
            }
        }
    };
}

macro_rules! is_write {
    (read) => {
        false
    };
    (write) => {
        true
    };
    (idempotent) => {
        true
    };
}

operations!(operation);

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
