//! Every command explains itself, with an example.

use crate::support::{Cli, cli::Run};

/// Deeper than any command is; a loop in the help would otherwise never end.
const DEEPEST: usize = 6;

fn help(command: &[String]) -> Run {
    Cli::new(command.iter().map(String::as_str).chain(["--help"])).run()
}

/// The names under `Commands:`, up to the next blank line; `help` only repeats what is asked here.
fn subcommands(help: &str) -> Vec<String> {
    let Some((_, listed)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    listed
        .lines()
        .take_while(|line| !line.is_empty())
        // a description that goes on in the next line stands deeper
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// Every visible command with its help, the top one first.
fn all() -> Vec<(Vec<String>, Run)> {
    let mut found = Vec::new();
    let mut open = vec![Vec::new()];
    while let Some(command) = open.pop() {
        let run = help(&command);
        assert!(command.len() < DEEPEST, "{command:?}");
        for name in subcommands(&run.stdout) {
            let mut deeper = command.clone();
            deeper.push(name);
            open.push(deeper);
        }
        found.push((command, run));
    }
    found
}

#[test]
fn every_command_has_help_with_an_example() {
    let commands = all();
    assert!(commands.len() > 8, "only {} commands were found", commands.len());
    let mut wrong = Vec::new();
    for (command, run) in &commands {
        let name = format!("podlink {}", command.join(" "));
        if run.code != Some(0) || !run.stderr.is_empty() {
            wrong.push(format!("{name} --help ends with {:?} and says {:?} on stderr", run.code, run.stderr));
        }
        let examples = run.stdout.split_once("\nExamples:\n").map_or("", |(_, examples)| examples);
        if !examples.lines().any(|line| line.trim_start().starts_with(name.trim_end())) {
            wrong.push(format!("{name} --help has no example of it under `Examples:`"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_commands_of_a_help_text_are_read() {
    let text = "Do it\n\nUsage: podlink <COMMAND>\n\nCommands:\n  setup  Write\n         and more\n  pod    Use\n  help   Print\n\n\
                Options:\n  -h, --help  Print help\n";
    assert_eq!(subcommands(text), ["setup", "pod"]);
    assert!(subcommands("Usage: podlink\n\nOptions:\n  -h  Print\n").is_empty());
}
