//! `eyrie __look`: what `eyrie doctor --hosts` asks a host, through its remote shell.
//!
//! The order comes as a line of JSON through standard input, the report goes as one through
//! standard output; then come the addresses at which the other hosts listen, and which of them are
//! not reached.

use crate::commands::doctor::finding::Finding;
use crate::commands::doctor::here::here;
use eyrie_control::PROTOCOL;
use eyrie_state::home;
use eyrie_state::local;
use eyrie_terminal::Failure;
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufRead, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest wait for somebody to answer.
pub const REACH: Duration = Duration::from_secs(3);

/// What is compared of two machines.
pub fn version() -> String {
    format!("{}, protocol {PROTOCOL}, {}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH)
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub fn look() -> Result<i32, Failure> {
    let mut orders = io::stdin().lock().lines();
    let mut next = || -> io::Result<Option<Value>> {
        let Some(line) = orders.next().transpose()? else { return Ok(None) };
        serde_json::from_str(&line).map(Some).map_err(io::Error::other)
    };
    let Some(order) = next()? else { return Ok(0) };
    for (key, name) in [("home", home::HOME_OF_JOB), ("local", local::LOCAL_OF_JOB)] {
        if let Some(folder) = order[key].as_str() {
            // SAFETY: this process has one thread.
            unsafe { std::env::set_var(name, folder) };
        }
    }
    let (listener, reached) = match order["controller"].as_str() {
        Some(controller) => reach(controller),
        // It has no way there; the others know where it is.
        None => (TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).ok(), Ok(())),
    };
    let listener = listener.or_else(|| {
        let here = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).ok();
        order["controller"].is_null().then(here).flatten()
    });
    let at = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    if let Some(listener) = listener {
        std::thread::spawn(move || listener.incoming().for_each(drop));
    }
    let folder = order["folder"].as_str().unwrap_or("/");
    let findings: Vec<Value> =
        here(&std::env::current_exe()?).iter().map(Finding::to_json).collect();
    let probe = order["probe"].as_str().map(std::fs::read_to_string).and_then(Result::ok);
    answer(&json!({
        "version": version(),
        "at": at.map(|at| at.to_string()),
        "unreached": reached.err().map(|error| error.to_string()),
        "sees_home": probe.as_deref() == order["word"].as_str(),
        "has_folder": Path::new(folder).is_dir(),
        "findings": findings,
        "has_program": order["program"].as_str().map(|program| is_there(folder, program)),
        "build": build(),
        "now_ms": now_ms(),
    }))?;
    if let Some(others) = next()? {
        answer(&json!({ "unreached": unreached(&others["others"]) }))?;
    }
    // The others may be about to call.
    while next()?.is_some() {}
    Ok(0)
}

/// What tells two builds of one version apart.
pub fn build() -> Option<String> {
    let own = std::fs::read("/proc/self/exe").ok()?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&own);
    Some(format!("{:016x}", hasher.finish()))
}

/// Whether a program can be executed, as it is named from that folder.
fn is_there(folder: &str, program: &str) -> bool {
    match program.contains('/') {
        true => eyrie_process::program::find(Path::new(folder).join(program).as_os_str()).is_ok(),
        false => eyrie_process::program::find(program.as_ref()).is_ok(),
    }
}

/// Says a line of JSON.
pub fn answer(value: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()
}

/// Calls the controller, and listens at the address that this has been from, as nodes do.
pub fn reach(controller: &str) -> (Option<TcpListener>, io::Result<()>) {
    let called = controller.parse::<SocketAddr>().map_err(io::Error::other);
    let called = called.and_then(|at| TcpStream::connect_timeout(&at, REACH));
    match called.and_then(|stream| TcpListener::bind((stream.local_addr()?.ip(), 0))) {
        Ok(listener) => (Some(listener), Ok(())),
        Err(error) => (None, Err(error)),
    }
}

/// The others that are not reached, and why.
fn unreached(others: &Value) -> Vec<Value> {
    let others = others.as_array().map(Vec::as_slice).unwrap_or_default();
    let call = |other: &Value| {
        let at = other["at"].as_str()?;
        // A name that only its remote shell knows says nothing.
        let at_all = at.to_socket_addrs().ok()?.next()?;
        let called = TcpStream::connect_timeout(&at_all, REACH);
        let why = called.err()?.to_string();
        Some(json!({ "host": other["host"], "at": at, "why": why }))
    };
    std::thread::scope(|scope| {
        let calls: Vec<_> = others.iter().map(|other| scope.spawn(move || call(other))).collect();
        calls.into_iter().filter_map(|call| call.join().ok().flatten()).collect()
    })
}
