//! The short help is short, the long one whole.

use crate::command_line;
use crate::command_line::headings::{EXPERT, HEADINGS};

fn help(long: bool) -> String {
    let mut all = command_line::command();
    let run = all.find_subcommand_mut("run").unwrap();
    if long { run.render_long_help() } else { run.render_help() }.to_string()
}

#[test]
fn the_short_help_is_one_screen_and_the_long_one_hides_nothing() {
    let (short, long) = (help(false), help(true));
    assert!(short.lines().count() <= 34, "{} lines: {short}", short.lines().count());
    let all = command_line::command();
    let run = all.find_subcommand("run").unwrap();
    for arg in run.get_arguments().filter_map(|arg| arg.get_long()) {
        assert!(long.contains(&format!("--{arg}")), "--{arg} is not told");
    }
    let mut at = 0;
    for (heading, names) in HEADINGS.iter().chain([&(EXPERT, &["clocks"][..])]) {
        let found = long[at..].find(&format!("\n{heading}:\n"));
        at += found.unwrap_or_else(|| panic!("{heading} is not in its place: {long}"));
        assert!(long[at..].contains(&format!("--{}", names[0])), "{heading}");
    }
    assert!(short.contains("--ckpt-every") && !short.contains("--wan-rate"), "{short}");
}
