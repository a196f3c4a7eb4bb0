//! Ctrl-C and SIGTERM: the first asks to stop cleanly, the second stops at once.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::exit::Exit;

/// What is said when somebody asks to stop.
pub(crate) const STOPPING: &str = "stopping; once more stops at once";

/// Says when to stop.
#[derive(Clone, Debug)]
pub(crate) struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// From here on signals no longer end the process by themselves. The first one is told at once, also if
    /// nobody looks for it yet.
    ///
    /// # Errors
    /// The system has no room for signal handlers.
    pub(crate) fn listen(tell: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let mut signals = Signals::new()?;
        let (sender, receiver) = watch::channel(false);
        tokio::spawn(async move {
            signals.next().await;
            tell();
            // Nobody may be waiting any more; then the process ends anyway.
            let _ = sender.send(true);
            signals.next().await;
            // What is acknowledged is on disk, and the store is made to be killed: nothing needs a destructor.
            std::process::exit(Exit::Failed as i32);
        });
        Ok(Shutdown(receiver))
    }

    /// Ready once somebody asked to stop.
    pub(crate) async fn requested(mut self) {
        // The sender lives as long as the process listens; without it nobody can ask.
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
