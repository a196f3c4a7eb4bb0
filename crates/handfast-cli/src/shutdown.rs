//! Ctrl-C and SIGTERM: the first asks to stop cleanly, the second stops at once.

use std::io;

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::console::Console;
use crate::exit::Exit;
use crate::service_manager::{ServiceState, notify};

/// The message at the first signal.
pub(crate) const STOPPING: &str = "stopping; a second signal stops at once";

/// Receives the request to stop.
#[derive(Clone, Debug)]
pub(crate) struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// Takes over the signals, and calls `tell` at the first one.
    ///
    /// # Errors
    /// Fails if the system refuses the signal handlers.
    pub(crate) fn listen(tell: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let mut signals = Signals::new()?;
        let (sender, receiver) = watch::channel(false);
        tokio::spawn(async move {
            signals.next().await;
            tell();
            // The receiver may be gone; then the process ends anyway.
            let _ = sender.send(true);
            signals.next().await;
            // Acknowledged writes are on disk, and the store survives a kill: no destructor is needed.
            std::process::exit(Exit::Failed as i32);
        });
        Ok(Shutdown(receiver))
    }

    /// Takes over the signals, and reports the first one, also to the service manager.
    ///
    /// # Errors
    /// Returns the errors of [`Shutdown::listen`].
    pub(crate) fn reported_on(console: Console) -> Result<Self> {
        let tell = move || {
            notify(ServiceState::Stopping);
            // A closed output must not keep the service from stopping.
            let _ = console.report(|| STOPPING.to_owned(), &json!({ "event": "stopping" }));
        };
        Shutdown::listen(tell).context("cannot listen for signals")
    }

    /// Returns after the first signal.
    pub(crate) async fn requested(mut self) {
        // Without the sender there is no signal to wait for.
        if self.0.wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
