use clap::CommandFactory;

use super::*;

#[test]
fn the_definition_is_sound() {
    Arguments::command().debug_assert();
}

#[test]
fn every_command_shows_an_example() {
    let root = Arguments::command();
    for command in root.get_subcommands().chain([&root]) {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(after.contains("Example"), "{} has no example", command.get_name());
        assert!(after.contains(&format!("handfast {}", command.get_name())) || command.get_name() == "handfast");
    }
}
