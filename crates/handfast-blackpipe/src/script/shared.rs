//! A script that several connections follow.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bson::{RawDocument, RawDocumentBuf};

use super::{Answer, Matcher, ReceivedRequest, Script};
use crate::Result;

/// A script that several connections follow.
#[derive(Clone)]
pub(super) struct SharedScript(Arc<Mutex<Script>>);

impl SharedScript {
    pub(super) fn new(script: Script) -> Self {
        SharedScript(Arc::new(Mutex::new(script)))
    }

    fn lock(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn answer(&self, request: ReceivedRequest) -> Answer {
        self.lock().answer(request)
    }

    /// Returns the reply to a handshake with the compressors that both sides have.
    pub(super) fn with_compression(&self, handshake: &RawDocument, hello: RawDocumentBuf) -> RawDocumentBuf {
        self.lock().with_compression(handshake, hello)
    }

    pub(super) fn autorespond(&self, matcher: Matcher, answer: Answer) -> Autoresponder {
        let number = self.lock().add_response(matcher, answer);
        Autoresponder { number, script: self.clone() }
    }

    /// Takes the script away; see [`Script::finish`].
    pub(super) fn finish(&self) -> Result<Vec<ReceivedRequest>> {
        std::mem::replace(&mut *self.lock(), Script::in_order()).finish()
    }
}

/// Answers of a scripted server to requests that its script does not expect. They go on when this is dropped.
pub struct Autoresponder {
    number: u64,
    script: SharedScript,
}

impl Autoresponder {
    /// Ends the answers. Requests that arrive later are answered as before it was added.
    pub fn cancel(self) {
        self.script.lock().remove_response(self.number);
    }
}
