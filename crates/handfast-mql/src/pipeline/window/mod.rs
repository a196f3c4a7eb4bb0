//! `$setWindowFields`: each document gets fields that are computed from the documents around it.
//!
//! The stage sorts its input by the partition and by `sortBy`, as `$sort` does and within the same memory, and then goes through
//! one partition at a time. A window is a range of places in the sorted partition. Both its ends only move forward as the
//! current document does, so each function keeps a state, into which documents enter and from which they leave:
//!
//! ```text
//! {$sum: "$v", window: {documents: [-1, 1]}}
//! v:       1   2   3   4
//! window  [1   2]               3
//!         [1   2   3]           6
//!             [2   3   4]       9
//!                 [3   4]       7
//! ```
//!
//! The fields are put into the document as `$addFields` does. Source: MongoDB's manual, "$setWindowFields (aggregation)".

mod bounds;
mod compile;
mod function;
mod moving;
mod operator;
mod ordered;

use bson::RawDocumentBuf;

use self::{function::Function, operator::Windowing};
use super::operator::Operator;
use crate::{context::Context, expression::Expression, projection::Projection, sort::Sort};

/// A compiled `$setWindowFields`.
#[derive(Debug)]
pub struct SetWindowFields {
    partition: Option<Expression>,
    sort: Sort,
    /// The field by which the documents are sorted, if it is only one.
    position: Option<Expression>,
    outputs: Vec<Output>,
    /// The projection that puts the results into a document, from the variables of [`result_name`]. Not needed if all fields are
    /// at the top of the document.
    fields: Option<Projection>,
}

/// A field of the output.
#[derive(Debug)]
struct Output {
    path: Vec<String>,
    function: Function,
}

/// Returns the name of the variable that has the result of an output field.
fn result_name(index: usize) -> String {
    format!("result{index}")
}

impl SetWindowFields {
    pub(super) fn operator<'p>(&'p self, context: &'p Context) -> Box<dyn Operator + 'p> {
        Box::new(Windowing::new(self, context))
    }
}

/// The documents of a partition, in order.
#[derive(Debug, Default)]
struct Partition {
    documents: Vec<RawDocumentBuf>,
    /// The value of the `sortBy` field of each document, if a function needs it.
    positions: Vec<bson::RawBson>,
}
