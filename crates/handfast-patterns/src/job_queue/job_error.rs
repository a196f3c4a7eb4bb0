//! The errors of handlers.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The reason why a handler did not finish its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobError {
    /// The job is tried again after a while.
    Retry(String),
    /// The job will never succeed.
    GiveUp(String),
    /// This worker cannot read the job's details; one of another version may be able to:
    /// [`JobQueue::cannot_read`](super::JobQueue::cannot_read).
    CannotRead(String),
    /// The job is put off, which does not count as a failure.
    Snooze(Duration),
}

/// A [`JobError`] within an error of another type. [`JobError`] itself is none of the standard library's, so that `?`
/// converts all those.
#[derive(Debug)]
struct Wrapped(Reason);

/// The source of [`Wrapped`]: some libraries hide the type of an error, and none the type of its source.
#[derive(Clone, Debug)]
struct Reason(JobError);

impl JobError {
    /// Returns an error for handlers whose errors are of another type, such as `anyhow`'s:
    /// `return Err(JobError::GiveUp(text).into_error().into())`. More context may be added to it.
    pub fn into_error(self) -> impl Error + Send + Sync + 'static {
        Wrapped(Reason(self))
    }

    /// Returns what an error of a handler means for its job.
    pub(super) fn of(error: &(dyn Error + 'static)) -> Self {
        let mut text = error.to_string();
        let mut source = Some(error);
        while let Some(error) = source {
            if let Some(Reason(reason)) = error.downcast_ref() {
                return reason.clone();
            }
            // Some errors have the text of their source in their own.
            let of_source = error.to_string();
            if !text.ends_with(&of_source) {
                text = format!("{text}: {of_source}");
            }
            source = error.source();
        }
        JobError::Retry(text)
    }
}

/// Converts an error of any type into [`JobError::Retry`], or into the [`JobError`] that is within it.
impl<E: Error + 'static> From<E> for JobError {
    fn from(error: E) -> Self {
        JobError::of(&error)
    }
}

impl From<JobError> for Box<dyn Error + Send + Sync> {
    fn from(error: JobError) -> Self {
        Box::new(Wrapped(Reason(error)))
    }
}

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            JobError::Retry(error) | JobError::GiveUp(error) | JobError::CannotRead(error) => f.write_str(error),
            JobError::Snooze(wait) => write!(f, "the job is put off for {wait:?}"),
        }
    }
}

impl Error for Wrapped {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

impl Error for Reason {}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::{Duration, Error, JobError};

    type BoxError = Box<dyn Error + Send + Sync>;

    #[test]
    fn a_reason_is_found_within_other_errors() {
        let give_up = JobError::GiveUp("no such address".to_owned());
        let snooze = JobError::Snooze(Duration::from_secs(3));
        let with_context: Result<(), _> = Err(give_up.clone().into_error());
        let with_context = with_context.context("mail 7").context("a batch of mails").unwrap_err();
        let errors: [(BoxError, &JobError); 4] = [
            (give_up.clone().into(), &give_up),
            (anyhow::Error::new(snooze.clone().into_error()).into(), &snooze),
            (with_context.into(), &give_up),
            (Box::new(std::io::Error::other(give_up.clone().into_error())), &give_up),
        ];
        for (error, expected) in errors {
            assert_eq!(JobError::of(&*error), *expected, "{error}");
        }
        let handler = || -> Result<(), JobError> { Err(std::io::Error::other(give_up.clone().into_error()))? };
        assert_eq!(handler(), Err(give_up.clone()));
    }

    #[test]
    fn after_another_error_the_job_is_tried_again() {
        let retry = |text: &str| JobError::Retry(text.to_owned());
        let lost = || std::io::Error::other("the line is dead");
        assert_eq!(JobError::of(&lost()), retry("the line is dead"));
        let text: BoxError = "a text".into();
        assert_eq!(JobError::of(&*text), retry("a text"));
        let with_context: Result<(), _> = Err(lost());
        let with_context: BoxError = with_context.context("mail 7").unwrap_err().into();
        assert_eq!(JobError::of(&*with_context), retry("mail 7: the line is dead"));
    }
}
