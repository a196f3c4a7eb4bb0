//! The errors of a Redis and a store that do not belong to each other: they name both, and say what to do.

use super::RedisBuffer;
use super::mark::{Mark, STORE};
use crate::Error;

impl RedisBuffer {
    /// Makes the error of a Redis whose queue is that of the store `other`; `own` is that of this process, if it has an id.
    pub(super) fn of_another_store(&self, other: &str, own: Option<&str>) -> Error {
        let (url, database) = (&self.url, self.storage.database_name());
        let own = own.map_or_else(|| "has no id".to_owned(), |own| format!("is {own}"));
        Error::WrongQueue {
            what: format!(
                "{url} has the queue of another store: its keys name the store {other}, and the database {database} of this store {own}. Give this \
                 store another Redis, or another database of it. If this Redis is to have the queue of this store instead, stop all services that use \
                 it, which saves their queues, and delete all of its keys that begin with hf:, with which views that still wait there are lost"
            ),
        }
    }

    pub(super) fn second_candidate(&self, other: &str) -> Error {
        let (url, database) = (&self.url, self.storage.database_name());
        Error::WrongQueue {
            what: format!(
                "two of Redis are empty, and both would get the queue of the database {database} of the store: {url}, and one that names itself {other}. \
                 Give all services the same one"
            ),
        }
    }

    pub(super) fn in_another_redis(&self, queue: &str, mark: &Mark) -> Error {
        let (url, database) = (&self.url, self.storage.database_name());
        Error::WrongQueue {
            what: format!(
                "the database {database} of the store has its queue in another Redis: it names the queue {queue}, and the key {STORE} of {url} names {}. \
                 Give the Redis that has the queue. If this one is to have it instead, stop all services that use the store, which saves their queues, \
                 and delete all keys of this one that begin with hf:, with which views that still wait there are lost",
                mark.queue
            ),
        }
    }

    pub(super) fn used_elsewhere(&self, queue: &str) -> Error {
        let (url, database) = (&self.url, self.storage.database_name());
        Error::WrongQueue {
            what: format!(
                "instances that run have the queue of the database {database} of the store in another Redis: it names the queue {queue}, and {url} has \
                 no queue of it. Give the Redis that the instances have. If this one is to have the queue instead, stop all of them, which saves it"
            ),
        }
    }

    pub(super) fn without_mark(&self, queue: &str) -> Error {
        let (url, database) = (&self.url, self.storage.database_name());
        Error::WrongQueue {
            what: format!(
                "{url} does not have the queue of the database {database} of the store, which names the queue {queue}: it is another Redis, or has lost \
                 everything. Give the Redis of the instances, or start an instance with this one first, which gets the queue if no other one uses \
                 another Redis"
            ),
        }
    }
}
