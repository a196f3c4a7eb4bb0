use clap::{CommandFactory as _, Parser as _};

use super::{Arguments, SHORT_FORM, definition, is_one_of};
use crate::configuration;

#[test]
fn the_definition_is_sound() {
    definition().debug_assert();
}

#[test]
fn every_command_shows_an_example() {
    check_examples(&definition(), "handfast");
}

/// Checks that a command and its subcommands have an example.
fn check_examples(command: &clap::Command, called: &str) {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    assert!(after.contains("Example") && after.contains(called), "`{called}` has no example");
    command.get_subcommands().for_each(|inner| check_examples(inner, &format!("{called} {}", inner.get_name())));
}

/// The length of the longest line that the help does not wrap: a wrapped line cannot be pasted.
const EXAMPLE_CHARACTERS_MAX: usize = 100;

#[test]
fn no_line_of_an_example_is_wrapped() {
    check_lines(&definition(), "handfast");
}

/// Checks the examples, which are the indented lines, of a command and its subcommands.
fn check_lines(command: &clap::Command, called: &str) {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    for line in after.lines().filter(|line| line.starts_with("  ")) {
        assert!(line.chars().count() <= EXAMPLE_CHARACTERS_MAX, "`{called}`: {line}");
    }
    command.get_subcommands().for_each(|inner| check_lines(inner, &format!("{called} {}", inner.get_name())));
}

#[test]
fn help_shows_the_defaults() {
    let definition = definition();
    let serve = definition.find_subcommand("config").unwrap();
    let help = |key: &str| {
        let flag = serve.get_arguments().find(|argument| argument.get_long() == Some(key)).unwrap();
        flag.get_help().unwrap().to_string()
    };
    assert!(help("listen").ends_with("[default: 127.0.0.1:27017] [env: HANDFAST_LISTEN]"), "{}", help("listen"));
    assert!(help("max-connections").contains("[default: 10000]"));
    assert!(!help("unix-socket").contains("default"));
    assert!(!help("port").contains("env"));
    let add = definition.find_subcommand("user").unwrap().find_subcommand("add").unwrap();
    let data = add.get_arguments().find(|argument| argument.get_long() == Some("data")).unwrap();
    assert!(data.get_help().unwrap().to_string().ends_with("[default: handfast-data] [env: HANDFAST_DATA]"));
}

#[test]
fn under_the_headings_of_settings_are_settings_alone() {
    check_headings(&definition());
}

/// Checks that only settings are under headings: clap shows all later flags of a definition under the last heading.
fn check_headings(command: &clap::Command) {
    let keys = configuration::keys();
    for argument in command.get_arguments().filter(|argument| argument.get_help_heading().is_some()) {
        let name = argument.get_long().unwrap_or(argument.get_id().as_str());
        assert!(is_one_of(name, &keys) || name == SHORT_FORM, "{}: {name} is no setting", command.get_name());
    }
    command.get_subcommands().for_each(check_headings);
}

#[test]
fn no_flag_has_two_defaults() {
    check_defaults(&definition());
}

/// Checks that no flag has a default in its help text and another one of clap.
fn check_defaults(command: &clap::Command) {
    for argument in command.get_arguments() {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let shown = argument.get_default_values().len() + help.matches("[default").count();
        // A switch has a default that is not shown.
        assert!(shown <= 1 || !argument.get_action().takes_values(), "{} --{}", command.get_name(), argument.get_id());
    }
    command.get_subcommands().for_each(check_defaults);
}

/// Compares the table in docs/configuration.md with the settings. `HANDFAST_WRITE_DOCS=1 cargo test -p handfast-cli` writes it.
#[test]
fn the_documentation_lists_every_setting() {
    let configuration = crate::configuration::Configuration::load(None, Default::default()).unwrap();
    let command = Arguments::command();
    let config = command.find_subcommand("config").unwrap();
    let mut rows =
        vec!["| key | environment | default | what it is |".to_owned(), "| --- | --- | --- | --- |".to_owned()];
    for (key, value, _) in configuration.entries() {
        let flag = config.get_arguments().find(|argument| argument.get_long() == Some(&key)).unwrap();
        let help = flag.get_help().unwrap().to_string();
        let variable = crate::configuration::variable(&key);
        let shown = !flag.is_hide_possible_values_set();
        let values: Vec<String> = flag
            .get_possible_values()
            .into_iter()
            .filter(|_| shown)
            .collect::<Vec<_>>()
            .iter()
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        let values = if values.is_empty() { String::new() } else { format!(": {}", values.join(", ")) };
        let default = value.map_or("none".to_owned(), |value| format!("`{}`", value.to_string().trim_matches('"')));
        rows.push(format!("| `{key}` | `{variable}` | {default} | {help}{values} |"));
    }
    let table = rows.join("\n");

    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("<!-- settings: begin -->\n").unwrap();
    let (found, after) = rest.split_once("\n<!-- settings: end -->").unwrap();
    if std::env::var_os("HANDFAST_WRITE_DOCS").is_some() {
        let written = format!("{before}<!-- settings: begin -->\n{table}\n<!-- settings: end -->{after}");
        std::fs::write(&path, written).unwrap();
    } else {
        assert_eq!(
            found, table,
            "docs/configuration.md differs from the program: set HANDFAST_WRITE_DOCS=1 to write it"
        );
    }
}

/// The number of lines of a screen, with some reserve for commands with many flags of their own.
const SCREEN_LINES_MAX: usize = 50;

#[test]
fn short_help_fits_a_screen() {
    check_short_help(&definition(), "handfast");
}

/// Checks the short help of a command and of its subcommands.
fn check_short_help(command: &clap::Command, called: &str) {
    let lines = command.clone().render_help().to_string().lines().count();
    assert!(lines <= SCREEN_LINES_MAX, "`{called} -h` has {lines} lines");
    command.get_subcommands().for_each(|inner| check_short_help(inner, &format!("{called} {}", inner.get_name())));
}

#[test]
fn settings_without_effect_on_a_command_are_not_in_its_help() {
    let definition = definition();
    let help = |path: &[&str]| {
        let command = path.iter().fold(&definition, |command, name| command.find_subcommand(name).unwrap());
        command.clone().render_long_help().to_string()
    };
    for path in [&["check"][..], &["dump"], &["backup"], &["user", "add"], &["user", "list"]] {
        assert!(help(path).contains("--data") && !help(path).contains("--durability"), "{path:?}");
    }
    assert!(help(&["serve"]).contains("--durability"));
    assert!(help(&["jobs", "recover"]).contains("--lease") && !help(&["jobs", "retry"]).contains("--lease"));
    assert!(Arguments::try_parse_from(["handfast", "check", "--durability", "memory"]).is_ok());
}
