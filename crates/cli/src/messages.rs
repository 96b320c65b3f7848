//! How lines of Eyrie's own begin, and where they go: to standard error, with the command's name.

/// How the program is called in its messages.
pub const NAME: &str = "eyrie";

/// A line of Eyrie's own.
pub fn say(text: &str) {
    eyrie_terminal::say(NAME, text);
}
