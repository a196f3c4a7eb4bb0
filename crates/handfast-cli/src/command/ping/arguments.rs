//! The arguments of `handfast ping`.

use clap::Args;

use crate::configuration::{ConnectionString, Span};
use crate::flags::OutputFlags;

/// `handfast ping`.
#[derive(Args, Debug)]
pub(crate) struct PingArguments {
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// The server (mongodb://..). It answers without a login, too [default: mongodb://127.0.0.1:27017] [env: HANDFAST_URI]
    #[arg(long, value_name = "URI")]
    pub(crate) uri: Option<ConnectionString>,
    /// Time to wait for an answer; until then the command tries again
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(crate) timeout: Span,
}
