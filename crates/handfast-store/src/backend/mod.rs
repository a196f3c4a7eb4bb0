//! The toolkit for backends: what every backend does in the same way, as functions.
//!
//! | module | for |
//! | --- | --- |
//! | [`insertion`] | checking a document, and giving it an `_id`, before it is stored |
//! | [`change`] | updates and find-and-modifies: from the stored document to the new one and the outcome |
//! | [`change_stream`] | change streams over a log of changes: the records of the log, resume tokens and events |
//! | [`selection`] | finds: from the documents that may match to the pages of a cursor |
//! | [`page`] | cutting documents into pages |
//! | [`index`] | definitions of indexes, the keys of a document, and the error of a duplicate key |
//! | [`default_collation`] | the default collation of a collection |
//! | [`distinct`] | the distinct values of a field |
//! | [`validation`] | the validator of a collection, and the error of a document that does not fulfil it |
//! | [`aggregation`] | pipelines over any store |
//! | [`view`] | views: what a request to one means, and the check of a definition |

pub mod aggregation;
pub(crate) mod blocking;
pub mod change;
pub mod change_stream;
pub mod default_collation;
pub mod distinct;
pub mod index;
pub mod insertion;
pub mod page;
pub mod selection;
pub mod validation;
pub mod view;
