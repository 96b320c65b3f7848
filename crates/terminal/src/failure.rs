//! How a command ends: with an exit code, and an error that is told once.

use crate::say;
use std::process::ExitCode;

/// Exit code when we could not do our part.
pub const FAILED: i32 = 1;

/// An error with the exit code it ends the command with.
#[derive(Debug)]
pub struct Failure {
    code: i32,
    error: anyhow::Error,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure { code: FAILED, error: error.into() }
    }
}

impl Failure {
    /// One that ends the command with `code`.
    pub fn new(code: i32, error: impl Into<anyhow::Error>) -> Self {
        Failure { code, error: error.into() }
    }

    /// Tells what went wrong, with what it is about, as the command goes on. Returns the exit code.
    pub fn tell(&self, program: &str, about: &str) -> i32 {
        say(program, &format!("{about}: {}", told(&self.error)));
        self.code
    }
}

/// Ends `program`: what went wrong is told on standard error.
pub fn finish(program: &str, result: Result<i32, Failure>) -> ExitCode {
    let code = result.unwrap_or_else(|failure| {
        say(program, &told(&failure.error));
        failure.code
    });
    ExitCode::from((code & 0xff) as u8)
}

/// An error with its causes, each told once: some tell theirs themselves.
pub fn told(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| match cause.to_string() {
        cause if text.contains(&cause) => text,
        cause if text.is_empty() => cause,
        cause => format!("{text}: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn each_cause_is_told_once() {
        let error = anyhow!("no such file").context("cannot open a: no such file");
        assert_eq!(
            told(&error.context("no checkpoint")),
            "no checkpoint: cannot open a: no such file"
        );
    }

    #[test]
    fn an_error_without_a_code_of_its_own_is_a_failure() {
        let failure = Failure::from(anyhow!("x"));
        assert_eq!((failure.code, Failure::new(127, anyhow!("x")).code), (FAILED, 127));
    }
}
