//! How a command ends: with an exit code, and an error that is told once.

use crate::exit::FAILED;
use crate::say_error;
use std::process::ExitCode;

/// An error with the exit code it ends the command with.
#[derive(Debug)]
pub struct Failure {
    code: i32,
    error: anyhow::Error,
    remedy: Option<String>,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::new(FAILED, error)
    }
}

impl Failure {
    /// One that ends the command with `code`.
    pub fn new(code: i32, error: impl Into<anyhow::Error>) -> Self {
        Failure { code, error: error.into(), remedy: None }
    }

    /// With what to do about it.
    #[must_use]
    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        Failure { remedy: Some(remedy.into()), ..self }
    }

    /// What it is, where that is of this kind.
    pub fn cause<E: std::error::Error + Send + Sync + 'static>(&self) -> Option<&E> {
        self.error.downcast_ref()
    }

    /// Tells what went wrong; returns the exit code.
    pub fn end(&self, program: &str) -> i32 {
        say_error(program, &told(&self.error), self.remedy.as_deref());
        self.code
    }

    /// What went wrong, for who tells it elsewhere.
    pub fn into_error(self) -> anyhow::Error {
        self.error
    }

    /// Tells what went wrong, with what it is about, as the command goes on. Returns the exit code.
    pub fn tell(&self, program: &str, about: &str) -> i32 {
        let text = format!("{about}: {}", told(&self.error));
        say_error(program, &text, self.remedy.as_deref());
        self.code
    }
}

/// Ends `program`: what went wrong is told on standard error.
pub fn finish(program: &str, result: Result<i32, Failure>) -> ExitCode {
    let code = result.unwrap_or_else(|failure| failure.end(program));
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
