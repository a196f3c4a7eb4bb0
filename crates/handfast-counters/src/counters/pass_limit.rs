//! The time that a pass gives the store to answer a small question.
//!
//! A store may answer everything, and each question later than a reader waits for. With the limit of readers, no pass over it would ever end. So each pass that is given
//! up doubles the limit of the next one, until a pass succeeds that did not need more than the limit of readers.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Counters;
use crate::{Result, time_limit};

/// How often the limit is doubled: to 16 seconds with the default of readers. A stop of a service waits for as long for a store that is stopped.
const DOUBLINGS_MAX: u32 = 3;

/// The limit of the next pass.
#[derive(Debug, Default)]
pub(super) struct PassLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    doublings: u32,
    /// Whether an answer of this pass has taken longer than a reader waits.
    was_needed: bool,
}

impl PassLimit {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the limit; `normal` is that of readers.
    fn get(&self, normal: Duration) -> Duration {
        normal * 2_u32.pow(self.state().doublings)
    }

    fn set_needed(&self) {
        self.state().was_needed = true;
    }

    /// Records a pass that was given up.
    fn given_up(&self) {
        let mut state = self.state();
        *state = State { doublings: (state.doublings + 1).min(DOUBLINGS_MAX), was_needed: false };
    }

    /// Records a pass that has succeeded.
    pub(super) fn succeeded(&self) {
        let mut state = self.state();
        if !std::mem::take(&mut state.was_needed) {
            state.doublings = 0;
        }
    }
}

impl Counters {
    /// Returns what the store answers to a pass, however long that takes, unless it does not answer a small question meanwhile.
    pub(super) fn in_pass<T>(&self, answer: impl Future<Output = Result<T>>) -> impl Future<Output = Result<T>> {
        self.while_answered(answer, || self.ask_store_in_pass())
    }

    async fn ask_store_in_pass(&self) -> Result<()> {
        let normal = self.part_time_max();
        let limit = self.pass_limit.get(normal);
        let question = async {
            let mut question = pin!(self.question());
            if let Ok(answer) = tokio::time::timeout(normal, question.as_mut()).await {
                return answer;
            }
            self.pass_limit.set_needed();
            question.await
        };
        tokio::time::timeout(limit, question).await.unwrap_or_else(|_| {
            self.pass_limit.given_up();
            Err(time_limit::store_is_late(limit))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{DOUBLINGS_MAX, PassLimit};

    const NORMAL: Duration = Duration::from_secs(2);

    #[test]
    fn the_limit_is_doubled_up_to_a_bound_and_normal_again_after_a_success() {
        let limit = PassLimit::default();
        let limits = [(); 6].map(|()| {
            let seconds = limit.get(NORMAL).as_secs();
            limit.set_needed();
            limit.given_up();
            seconds
        });
        assert_eq!(limits, [2, 4, 8, 16, 16, 16]);
        assert_eq!(limit.get(NORMAL), NORMAL * 2_u32.pow(DOUBLINGS_MAX));
        limit.succeeded();
        assert_eq!(limit.get(NORMAL), NORMAL);
    }

    #[test]
    fn a_limit_that_was_needed_stays() {
        let limit = PassLimit::default();
        limit.given_up();
        limit.set_needed();
        limit.succeeded();
        assert_eq!(limit.get(NORMAL), NORMAL * 2, "the next pass will need it, too");
        limit.succeeded();
        assert_eq!(limit.get(NORMAL), NORMAL);
    }
}
