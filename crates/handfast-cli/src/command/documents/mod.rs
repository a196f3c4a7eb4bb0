//! `handfast completions` and `handfast man`: completion scripts and manual pages from the definition of the command line.

use std::path::Path;

use anyhow::Context;

use crate::command::arguments;
use crate::console::write_out;
use crate::exit::Exit;

pub(super) fn completions(shell: clap_complete::Shell) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut arguments::definition(), "handfast", &mut script);
    write_out(&script)?;
    Ok(Exit::Good)
}

pub(super) fn manual_pages(directory: &Path) -> anyhow::Result<Exit> {
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(arguments::definition(), directory))
        .with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
    Ok(Exit::Good)
}
