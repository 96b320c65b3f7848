//! What jobs may be called: `--name`, `--continue`.

use clap::Args;

/// Most characters of a name.
const NAME_CHARS: usize = 64;

/// A name for a job, which stands for it wherever an id does.
pub fn parse_name(text: &str) -> Result<String, String> {
    let refuse = |why: &str| Err(format!("'{}': {why}", crate::show::text::cut(text, NAME_CHARS)));
    if text.trim().is_empty() {
        return refuse("a name is not empty");
    }
    if ["last", "all"].contains(&text) {
        return refuse("that word stands for other jobs: take another name");
    }
    if text.starts_with(['-', '.']) || text.contains('/') || text.chars().any(char::is_control) {
        return refuse("a name does not begin with - or ., and has no / and no line ends in it");
    }
    if crate::show::text::plain(text) != text {
        return refuse("a name has no letters that are not seen, or that turn the line around");
    }
    if text.chars().count() > NAME_CHARS {
        return refuse("a name has 64 characters at most");
    }
    Ok(text.to_string())
}

/// What a job is called, and whether it goes on under that name.
#[derive(Debug, Args)]
pub struct NamingOptions {
    /// A name for the job, which stands for it where its id does; of several jobs with one name
    /// the newest is meant
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
    /// Go on with the newest saved job of this --name, or start it if none was saved. For batch
    /// scripts: the same command in each allocation
    #[arg(long = "continue", requires = "name")]
    pub go_on: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_stand_for_something_else_are_refused() {
        for good in ["heat-1", "Heat", "heat2026", "a b", "one", "größe", "0123", "heat"] {
            assert_eq!(parse_name(good), Ok(good.to_string()));
        }
        let long = "x".repeat(65);
        for bad in
            ["", " ", "last", "all", "-x", ".x", "a/b", "a\nb", "\x1b[2J", "a\u{202e}b", "\u{200b}"]
        {
            let why = parse_name(bad).unwrap_err();
            assert!(!why.contains('\x1b') && !why.contains('\n'), "{why}");
        }
        assert!(parse_name(&long).is_err());
    }
}
