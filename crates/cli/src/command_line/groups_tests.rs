//! Each command is told under one heading.

use crate::command_line;
use crate::command_line::GROUPS;
use clap::Command;
use std::collections::BTreeSet;

#[test]
fn each_command_is_in_one_group() {
    let all = command_line::command();
    let shown = all.get_subcommands().filter(|c| !c.is_hide_set()).map(Command::get_name);
    let shown: BTreeSet<&str> = shown.chain(["help"]).collect();
    let told: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
    assert_eq!(told.len(), shown.len());
    assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), shown);
    let help = all.clone().render_help().to_string();
    for name in shown {
        assert!(help.lines().any(|line| line.starts_with(&format!("  {name} "))), "{name}");
    }
    assert!(!help.contains('{'), "{help}");
    let long = help.lines().find(|line| line.chars().count() > 80);
    assert!(long.is_none(), "{long:?}");
}
