//! `handfast blackpipe`: how a program behaves when the network or the server does not work as it should.

pub(super) mod arguments;
mod checks;
mod explore;
mod junit;
mod lines;
mod output;
mod play;
mod program;
mod proxy;
mod remarks;
mod report;
mod rules;
mod selection;
mod server;
mod shell_word;
mod tls;
mod upstream;

use self::arguments::BlackpipeArguments;
use crate::exit::Exit;
use crate::setup::block_on;

/// Runs the command that was asked for.
pub(super) fn run(arguments: BlackpipeArguments) -> anyhow::Result<Exit> {
    match arguments {
        BlackpipeArguments::Explore(arguments) => block_on(explore::run(*arguments)),
        BlackpipeArguments::Proxy(arguments) => block_on(proxy::run(*arguments)),
        BlackpipeArguments::Play(arguments) => block_on(play::run(*arguments)),
        BlackpipeArguments::Rules(arguments) => rules::run(arguments),
    }
}
