//! PMI 1.1, the lines that a program and the launcher that has started it (hydra, Slurm's `srun
//! --mpi=pmi2`) say to each other: a client for what `eyrie join` needs.
//!
//! Generic over the connection. Kept true: a line is at most `LINE_BYTES` long, and what is not an
//! answer to what was asked is an error; nothing from outside is taken for a number or a name that
//! was not checked.

use std::io::{self, Read, Write};

/// Longest line that is taken. The protocol says 1024, some launchers say more.
pub const LINE_BYTES: usize = 16 * 1024;
/// Longest line that is sent.
const SENT_BYTES: usize = 1024;

/// Why there is no talking with the launcher.
#[derive(Debug, thiserror::Error)]
pub enum PmiError {
    #[error("its launcher sends a line that is no answer of PMI 1.1 ({0})")]
    Malformed(String),
    #[error("its launcher answers {found} where {wanted} is due")]
    Unexpected { found: String, wanted: &'static str },
    #[error("its launcher refuses {what}: {why}")]
    Refused { what: &'static str, why: String },
    #[error("its launcher takes no value of {0} bytes")]
    TooLong(usize),
    #[error("its launcher has hung up")]
    Over,
    #[error("the connection to its launcher: {0}")]
    Io(#[from] io::Error),
}

/// One line: a command, and values by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub command: String,
    values: Vec<(String, String)>,
}

impl Line {
    /// # Errors
    /// When it does not begin with a command, or is no text.
    pub fn parse(line: &[u8]) -> Result<Line, PmiError> {
        let wrong = || {
            let shown = line.escape_ascii().to_string();
            PmiError::Malformed(shown.chars().take(60).collect())
        };
        let text = std::str::from_utf8(line).map_err(|_| wrong())?;
        if text.chars().any(|c| c.is_control() && c != '\t') {
            return Err(wrong());
        }
        let mut command = None;
        let mut values: Vec<(String, String)> = Vec::new();
        for word in text.split_ascii_whitespace() {
            match word.split_once('=') {
                Some(("cmd", name)) if command.is_none() && values.is_empty() => {
                    command = Some(name.to_string());
                }
                Some((key, value)) if command.is_some() && !key.is_empty() => {
                    values.push((key.to_string(), value.to_string()));
                }
                // Messages for people have blanks.
                None if !values.is_empty() => {
                    if let Some((_, value)) = values.last_mut() {
                        value.push(' ');
                        value.push_str(word);
                    }
                }
                _ => return Err(wrong()),
            }
        }
        let command = command.filter(|c| !c.is_empty()).ok_or_else(wrong)?;
        Ok(Line { command, values })
    }

    /// The first value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }
}

/// A connection to the launcher.
#[derive(Debug)]
pub struct Pmi<S> {
    stream: S,
    /// What came behind the last line.
    rest: Vec<u8>,
    space: String,
    longest: usize,
}

impl<S: Read + Write> Pmi<S> {
    /// Introduces this process.
    ///
    /// # Errors
    /// When the other end is no launcher that speaks PMI 1.1.
    pub fn new(stream: S) -> Result<Pmi<S>, PmiError> {
        let mut pmi = Pmi { stream, rest: Vec::new(), space: String::new(), longest: 0 };
        let init = "cmd=init pmi_version=1 pmi_subversion=1";
        let answer = pmi.ask(init, "response_to_init")?;
        check(&answer, "the protocol")?;
        let most = pmi.ask("cmd=get_maxes", "maxes")?;
        let longest = most.get("vallen_max").and_then(|n| n.parse().ok()).unwrap_or(0);
        pmi.longest = SENT_BYTES.min(longest);
        let name = pmi.ask("cmd=get_my_kvsname", "my_kvsname")?;
        pmi.space = name.get("kvsname").unwrap_or_default().to_string();
        if pmi.space.is_empty() {
            return Err(PmiError::Malformed(String::from("no kvsname")));
        }
        Ok(pmi)
    }

    /// Gives all processes of the job a value (no blanks), after the next barrier.
    ///
    /// # Errors
    /// When it is too long, or refused.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), PmiError> {
        let line = format!("cmd=put kvsname={} key={key} value={value}", self.space);
        if value.len() >= self.longest || line.len() >= SENT_BYTES {
            return Err(PmiError::TooLong(value.len()));
        }
        let answer = self.ask(&line, "put_result")?;
        check(&answer, "a value")
    }

    /// The value of a key, if somebody has put one.
    ///
    /// # Errors
    /// When the connection is over, or what comes is no answer.
    pub fn get(&mut self, key: &str) -> Result<Option<String>, PmiError> {
        let line = format!("cmd=get kvsname={} key={key}", self.space);
        let answer = self.ask(&line, "get_result")?;
        let found = check(&answer, "").is_ok();
        Ok(answer.get("value").filter(|_| found).map(str::to_string))
    }

    /// Waits for all processes of the job.
    ///
    /// # Errors
    /// When the launcher does not let it.
    pub fn barrier(&mut self) -> Result<(), PmiError> {
        let answer = self.ask("cmd=barrier_in", "barrier_out")?;
        check(&answer, "a barrier")
    }

    /// This process is done.
    ///
    /// # Errors
    /// When the connection is over.
    pub fn finalize(mut self) -> Result<(), PmiError> {
        self.ask("cmd=finalize", "finalize_ack").map(drop)
    }

    fn ask(&mut self, line: &str, wanted: &'static str) -> Result<Line, PmiError> {
        // Slurm takes what comes at once for a whole line.
        self.stream.write_all(format!("{line}\n").as_bytes())?;
        self.stream.flush()?;
        let answer = self.line()?;
        if answer.command == wanted {
            return Ok(answer);
        }
        Err(PmiError::Unexpected { found: answer.command.chars().take(40).collect(), wanted })
    }

    fn line(&mut self) -> Result<Line, PmiError> {
        let mut buffer = [0; 1024];
        loop {
            if let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Line::parse(&line[..end]);
            }
            if self.rest.len() > LINE_BYTES {
                return Err(PmiError::Malformed(format!("over {LINE_BYTES} bytes")));
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(PmiError::Over),
                Ok(count) => self.rest.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn check(answer: &Line, what: &'static str) -> Result<(), PmiError> {
    match answer.get("rc") {
        None | Some("0") => Ok(()),
        Some(code) => {
            let why = answer.get("msg").unwrap_or(code).chars().take(60).collect();
            Err(PmiError::Refused { what, why })
        }
    }
}

#[cfg(test)]
#[path = "pmi_tests.rs"]
mod tests;
