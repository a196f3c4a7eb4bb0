#![doc = include_str!("../README.md")]

mod accept;
pub mod error;
pub mod exploration;
pub mod fault;
mod frame;
mod hello;
pub mod operation;
pub mod playback;
pub mod proxy;
pub mod recording;
mod request;
pub mod rules;
pub mod script;

pub use error::{Error, Result};
pub use exploration::{Exploration, Explored, PairOutcome};
pub use fault::{Direction, ErrorReply, Fault, Injection};
pub use handfast_wire::Compressor;
pub use operation::{Operation, OperationNumber, Pair};
pub use playback::{Playback, PlaybackHandle, PlaybackServer};
pub use proxy::{Handle, Proxy, UndeliveredRequest, Upstream, Warning};
pub use recording::RecordedMessage;
pub use rules::{Condition, Decision, ObservedOperation, Probability, Rule, Rules, WrittenRule};
pub use script::{
    Answer, Autoresponder, FailedWrite, Matcher, ReceivedRequest, Role, Script, ScriptedReplicaSet, ScriptedServer,
};
