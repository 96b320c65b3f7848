//! `eyrie __reach TABLE HOST EYRIE WORD`: becomes what starts Eyrie on a host of a grid job, whose
//! clusters are reached in different ways. It stands for a remote shell.

use anyhow::{Context, anyhow};
use eyrie_launcher::remote_node::{DEFAULT_SHELL, is_here};
use eyrie_terminal::{FAILED, Failure};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The hidden command.
pub const REACH: &str = "__reach";

/// What starts a process on some hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub hosts: Vec<String>,
    /// What the name of a host, and then a command, follow.
    pub words: Vec<String>,
    /// A remote shell in which that is called, with the machine that it leads to.
    pub via: Vec<String>,
    /// A shell of the host reads the command.
    pub shell: bool,
    /// Where Eyrie is there.
    pub binary: String,
}

impl Start {
    /// Whether it is a remote shell, called from here.
    pub fn is_plain(&self) -> bool {
        self.via.is_empty() && self.shell
    }

    /// The same way, whichever hosts it leads to.
    pub fn like(&self, other: &Start) -> bool {
        (&self.words, &self.via, self.shell, &self.binary)
            == (&other.words, &other.via, other.shell, &other.binary)
    }

    /// For people.
    pub fn shown(&self) -> String {
        let default = self.words.join(" ") == DEFAULT_SHELL;
        let words = if default { "ssh".into() } else { self.words.join(" ") };
        match self.shell {
            true => words,
            // What srun is told about tasks is always the same.
            false => {
                let first = self.words.iter().take(2).cloned().collect::<Vec<_>>().join(" ");
                [self.via.join(" "), first].join(" ").trim_start().to_string()
            }
        }
    }

    /// The words that carry a command out on a host.
    fn all(&self, host: &str, command: &[String]) -> Vec<String> {
        if self.is_plain() && self.words.join(" ") == DEFAULT_SHELL && is_here(host) {
            return [&[self.binary.clone()], command].concat();
        }
        let own = [&[self.binary.clone()], command].concat();
        let own: Vec<String> =
            if self.shell { own.iter().map(|w| quoted(w)).collect() } else { own };
        let whole: Vec<String> = [&self.words[..], &[host.to_string()], &own].concat();
        match self.via.is_empty() {
            true => whole,
            false => [self.via.clone(), whole.iter().map(|word| quoted(word)).collect()].concat(),
        }
    }
}

/// A word as a shell is to read it.
fn quoted(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+,:@%=".contains(&b);
    match !word.is_empty() && word.bytes().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Becomes what leads to the host.
pub fn reach(table: &str, host: &str, words: &[OsString]) -> Result<i32, Failure> {
    let starts: Vec<Start> = serde_json::from_str(table).context("the table of hosts")?;
    let start = starts.iter().find(|start| start.hosts.iter().any(|name| name == host));
    let start = start.ok_or_else(|| {
        anyhow!("host {host} is not in the grid file that the job was started with")
    })?;
    // The first one is where Eyrie is here.
    let command: Vec<String> =
        words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let all = start.all(host, &command);
    let mut becomes = Command::new(&all[0]);
    becomes.args(&all[1..]);
    let error = anyhow::Error::from(becomes.exec());
    Err(Failure::new(FAILED, error.context(all[0].clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(words: &str, via: &str, shell: bool) -> Start {
        let split = |text: &str| text.split_whitespace().map(String::from).collect();
        let (words, via) = (split(words), split(via));
        Start { hosts: vec!["n1".into()], words, via, shell, binary: "/opt/my eyrie/e".into() }
    }

    fn all(start: &Start) -> String {
        start.all("n1", &["__host".into()]).join(" ")
    }

    #[test]
    fn each_shell_on_the_way_reads_words_as_they_are() {
        assert_eq!(all(&start("ssh -p 22", "", true)), "ssh -p 22 n1 '/opt/my eyrie/e' __host");
        assert_eq!(all(&start("srun -w", "", false)), "srun -w n1 /opt/my eyrie/e __host");
        let far = start("srun --jobid=7 -w", "ssh login", false);
        assert_eq!(all(&far), "ssh login srun --jobid=7 -w n1 '/opt/my eyrie/e' __host");
        assert_eq!(far.shown(), "ssh login srun --jobid=7");
        let here = start(DEFAULT_SHELL, "", true);
        assert_eq!(here.all("localhost", &["__host".into()]), ["/opt/my eyrie/e", "__host"]);
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }

    #[test]
    fn a_host_that_is_in_no_cluster_is_not_reached() {
        let table = serde_json::to_string(&[start("ssh", "", true)]).unwrap();
        let error = reach(&table, "n2", &["eyrie".into()]).unwrap_err();
        assert!(format!("{error:?}").contains("n2 is not in the grid file"), "{error:?}");
    }
}
