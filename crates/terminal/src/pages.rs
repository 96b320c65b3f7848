//! Completions for shells and manual pages, made of what `--help` says.

use crate::{Failure, exit, print, reference};
use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;
use std::path::PathBuf;

#[derive(Debug, Clone, Args)]
pub struct Completions {
    /// The shell that is to complete command lines
    pub shell: Shell,
}

#[derive(Debug, Clone, Args)]
pub struct Manual {
    /// Where the pages go, one for each command; it is made if it is not there
    pub folder: PathBuf,
    /// Write the reference of the documentation there in place of manual pages
    #[arg(long, hide = true)]
    pub markdown: bool,
}

impl Completions {
    /// Prints a script for the shell; `program` is how the command is called.
    pub fn print(&self, program: &str, command: &mut Command) -> Result<i32, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, command, program, &mut script);
        print(&String::from_utf8_lossy(&script));
        Ok(0)
    }
}

impl Manual {
    /// Writes `PROGRAM.1` and `PROGRAM-COMMAND.1` for each command that is shown.
    pub fn write(&self, command: Command) -> Result<i32, Failure> {
        let folder = || self.folder.display().to_string();
        std::fs::create_dir_all(&self.folder).with_context(folder)?;
        if self.markdown {
            let name = format!("{}.md", command.get_name());
            std::fs::write(self.folder.join(name), reference::page(command))
                .with_context(folder)?;
            let codes = self.folder.join("exit-codes.md");
            std::fs::write(codes, exit::table()).with_context(folder)?;
            return Ok(0);
        }
        clap_mangen::generate_to(command, &self.folder).with_context(folder)?;
        Ok(0)
    }
}
