//! Answers that a part must give in time: one that does not answer holds up no request for long.

use std::future::Future;
use std::time::Duration;

use handfast_mql::Code;
use handfast_store::{Applied, Error as StoreError, ErrorClass};

use crate::{Error, Result};

/// Returns the answer of the buffer to a question, or the error of a buffer that does not answer in time.
pub(crate) async fn of_buffer<T>(time: Duration, answer: impl Future<Output = Result<T>>) -> Result<T> {
    let answer = tokio::time::timeout(time, answer).await;
    answer.unwrap_or_else(|_| Err(Error::Buffer { what: late(time), applied: Applied::No }))
}

/// Returns the answer of the store to a question, or the error of a store that does not answer in time.
pub(crate) async fn of_store<T>(time: Duration, answer: impl Future<Output = Result<T>>) -> Result<T> {
    let answer = tokio::time::timeout(time, answer).await;
    answer.unwrap_or_else(|_| Err(store_is_late(time)))
}

/// Makes the error of a store that has not answered a question within a time.
pub(crate) fn store_is_late(time: Duration) -> Error {
    StoreError::new(ErrorClass::Outage, Applied::No, Code::ExceededTimeLimit, late(time)).into()
}

fn late(time: Duration) -> String {
    format!("there was no answer within {} s", time.as_secs_f64())
}
