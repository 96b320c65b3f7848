//! Hosts that are asked something through the remote shell, as nodes are started: each by a hidden
//! command of Eyrie there, which reads orders and says what it finds, a line of JSON each.

use crate::launch::grid::GridHosts;
use crate::launch::hosts::{self, HostRequest};
use crate::options::hosts::HostOptions;
use anyhow::{Context, anyhow};
use eyrie_control::message::Hosts;
use eyrie_launcher::remote_node::command as remote_command;
use eyrie_protocol::placement::Map;
use eyrie_state::wall_clock::now_unix_ms;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Longest wait for a remote shell that is not needed any more.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// A host that is asked.
pub struct Asked {
    pub name: String,
    /// When it was, in ms since 1970.
    pub since_ms: u64,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Receiver<String>,
}

/// How hosts are reached, as asked for.
pub struct Reach<'a> {
    pub rsh: &'a Option<String>,
    pub prefix: &'a Option<PathBuf>,
    pub address: &'a Option<String>,
}

/// The hosts of a list or a file, and the remote shell that leads there.
pub fn plan(reach: &Reach, list: &str) -> anyhow::Result<Hosts> {
    let options = HostOptions {
        rsh: reach.rsh.clone(),
        prefix: reach.prefix.clone(),
        address: reach.address.clone(),
        join_limit: None,
        oversubscribe: true,
    };
    planned(&options, Some(list), None)?.ok_or_else(|| anyhow!("--hosts names no host"))
}

/// The hosts of a grid job, and what leads there.
pub fn plan_grid(grid: &GridHosts, address: Option<&str>) -> anyhow::Result<Hosts> {
    let address = address.map(String::from);
    let options =
        HostOptions { rsh: None, prefix: None, address, join_limit: None, oversubscribe: true };
    planned(&options, None, Some(grid))?.ok_or_else(|| anyhow!("the file names no host"))
}

/// The hosts of a list or of a grid job; nothing if there is none.
fn planned(
    host_options: &HostOptions,
    hosts: Option<&str>,
    grid: Option<&GridHosts>,
) -> anyhow::Result<Option<Hosts>> {
    let wish = HostRequest {
        hosts,
        grid,
        here: false,
        host_options,
        ranks: 1,
        ppn: None,
        spares: 0,
        map: Map::Block,
        file: None,
    };
    Ok(hosts::plan(&wish)?.map(|plan| plan.hosts))
}

/// Where hosts call this machine.
pub fn listen(plan: &Hosts) -> anyhow::Result<Vec<SocketAddr>> {
    let mut places: Vec<IpAddr> = plan.list.iter().map(|host| host.controller).collect();
    places.sort_unstable();
    places.dedup();
    let listen = |place: IpAddr| {
        let listener = TcpListener::bind((place, 0));
        let listener = listener.with_context(|| format!("cannot listen at {place}"))?;
        let at = listener.local_addr()?;
        std::thread::spawn(move || listener.incoming().for_each(drop));
        Ok(at)
    };
    places.into_iter().map(listen).collect()
}

/// Starts the command of Eyrie that is called `word` on a host, and gives it its first order.
pub fn ask(plan: &Hosts, number: usize, word: &str, order: &Value) -> anyhow::Result<Asked> {
    let since_ms = now_unix_ms();
    let mut command = remote_command(plan, number)?;
    command.arg(word);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot be started")?;
    let stdin = child.stdin.take();
    let (tell, lines) = mpsc::channel();
    let (say, said) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.take_while(|line| tell.send(line.clone()).is_ok()).for_each(drop);
        });
    }
    if let Some(stderr) = child.stderr.take() {
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.take(1 << 16).read_to_string(&mut text);
            let _ = say.send(text);
        });
    }
    let name = plan.list[number].name.clone();
    let mut asked = Asked { name, since_ms, child, stdin, lines, said };
    asked.order(order);
    Ok(asked)
}

impl Asked {
    /// Sends it a line.
    pub fn order(&mut self, order: &Value) {
        // Who does not read it has ended, and is heard of by that.
        self.stdin.iter_mut().for_each(|stdin| drop(writeln!(stdin, "{order}")));
    }

    /// The next line that is JSON: a login may print what it likes before.
    pub fn hear(&mut self, end: Instant) -> Result<Value, String> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => match serde_json::from_str(&line) {
                    Ok(value @ Value::Object(_)) => return Ok(value),
                    _ => continue,
                },
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return Err(String::from("does not answer in time (--limit)"));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(self.why()),
            }
        }
    }

    /// Why it has ended.
    fn why(&mut self) -> String {
        let code = wait(&mut self.child).and_then(|status| status.code());
        let said = self.said.recv_timeout(LAST_MOMENT).unwrap_or_default();
        let words = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
        let words = words.map(|words| format!(" ({words})")).unwrap_or_default();
        match code {
            Some(127) => format!("eyrie was not found there{words}"),
            Some(126) => format!("eyrie cannot be executed there{words}"),
            Some(2) => format!("the eyrie there is of another release{words}"),
            Some(code) => format!("failed with code {code}{words}"),
            None => format!("failed{words}"),
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.stdin.take();
        if wait(&mut self.child).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Waits a moment for the end of a process.
fn wait(child: &mut Child) -> Option<std::process::ExitStatus> {
    let end = Instant::now() + LAST_MOMENT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            _ => return None,
        }
    }
}
