//! `--metrics` and `--metrics-file`: where a job's metrics are asked for, and written to.
//!
//! Kept true: what is wrong with either is told before anything begins; the place is taken here,
//! so that it stays the same when a controller dies and another one goes on.

use anyhow::{Context, anyhow};
use clap::Args;
use eyrie_terminal::{FAILED, Failure};
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Default, Args)]
pub struct MetricsArgs {
    /// Answer Prometheus there with the job's metrics (http://ADDR:PORT/metrics, without a
    /// password). A port alone is one of 127.0.0.1, 0 any free one, which is told; unix:PATH is a
    /// socket for this user alone
    #[arg(long, value_name = "[ADDR:]PORT|unix:PATH", value_parser = parse_place)]
    pub metrics: Option<MetricsAddress>,
    /// Write the job's metrics to this file every 10 s and at the end, for the textfile collector
    /// of node_exporter (*.prom in its folder)
    #[arg(long, value_name = "FILE")]
    pub metrics_file: Option<PathBuf>,
}

/// Where metrics are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsAddress {
    Tcp(Vec<SocketAddr>),
    Unix(PathBuf),
}

fn parse_place(text: &str) -> Result<MetricsAddress, String> {
    let wrong = |why: &str| format!("'{text}': {why}; write for example 9464 or 10.0.0.7:9464");
    if let Some(path) = text.strip_prefix("unix:") {
        return match path.is_empty() {
            true => Err(wrong("it names no socket")),
            false => Ok(MetricsAddress::Unix(path.into())),
        };
    }
    if let Ok(port) = text.parse::<u16>() {
        return Ok(MetricsAddress::Tcp(vec![(Ipv4Addr::LOCALHOST, port).into()]));
    }
    if !text.contains(':') {
        return Err(wrong("it has no port"));
    }
    match text.to_socket_addrs() {
        Ok(all) => Ok(MetricsAddress::Tcp(all.collect())),
        Err(error) => Err(wrong(&error.to_string())),
    }
}

/// What a controller is handed.
#[derive(Debug, Default)]
pub struct Metrics {
    pub listener: Option<OwnedFd>,
    pub file: Option<PathBuf>,
    /// Of the place: removed at the end.
    socket: Option<PathBuf>,
}

impl Drop for Metrics {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = fs::remove_file(socket);
        }
    }
}

impl MetricsArgs {
    /// Takes the place, and sees that the file can be written.
    pub fn open(&self, quiet: bool) -> Result<Metrics, Failure> {
        let refuse = |error: anyhow::Error| Failure::new(FAILED, error);
        let mut metrics = Metrics::default();
        if let Some(file) = &self.metrics_file {
            let named = || format!("--metrics-file {}", file.display());
            let path = std::path::absolute(file).with_context(named).map_err(refuse)?;
            eyrie_node::metrics::try_file(&path).with_context(named).map_err(refuse)?;
            metrics.file = Some(path);
        }
        match &self.metrics {
            None => {}
            Some(MetricsAddress::Tcp(all)) => {
                let listener = TcpListener::bind(&all[..]);
                let at = all.first().map(SocketAddr::to_string).unwrap_or_default();
                let listener = listener.with_context(|| format!("--metrics {at}"));
                let listener = listener.map_err(|e| refuse(taken(e)))?;
                if let Some(at) = listener.local_addr().ok().filter(|_| !quiet) {
                    crate::messages::say(&format!("metrics: http://{at}/metrics"));
                }
                metrics.listener = Some(listener.into());
            }
            Some(MetricsAddress::Unix(path)) => {
                let path = std::path::absolute(path).map_err(|e| refuse(e.into()))?;
                let listener = bind(&path);
                let listener =
                    listener.with_context(|| format!("--metrics unix:{}", path.display()));
                metrics.listener = Some(listener.map_err(refuse)?.into());
                metrics.socket = Some(path);
            }
        }
        Ok(metrics)
    }
}

/// Says what helps where somebody else has the place.
fn taken(error: anyhow::Error) -> anyhow::Error {
    let used = error.root_cause().downcast_ref::<std::io::Error>();
    match used.is_some_and(|e| e.kind() == ErrorKind::AddrInUse) {
        true => anyhow!("{error:#}: another job may have it; --metrics 0 takes a free port"),
        false => error,
    }
}

/// A socket that this user alone connects to, in the place of one that nobody listens at any more.
fn bind(path: &Path) -> anyhow::Result<UnixListener> {
    let is_socket = |path: &Path| fs::symlink_metadata(path).map(|m| m.file_type().is_socket());
    match is_socket(path) {
        Ok(true) => match UnixStream::connect(path) {
            Ok(_) => return Err(anyhow!("another job listens there")),
            Err(_) => fs::remove_file(path)?,
        },
        Ok(false) => return Err(anyhow!("the file is there, and no socket")),
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

impl Metrics {
    /// How a controller is told: words of its command line.
    pub fn words(&self) -> Vec<std::ffi::OsString> {
        let mut words = Vec::new();
        if let Some(fd) = &self.listener {
            words.extend(["--metrics-fd".into(), fd.as_raw_fd().to_string().into()]);
        }
        if let Some(file) = &self.file {
            words.extend(["--metrics-file".into(), file.into()]);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_of_this_machine() {
        let at = |text: &str| match parse_place(text) {
            Ok(MetricsAddress::Tcp(all)) => all[0].to_string(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(at("9464"), "127.0.0.1:9464");
        assert_eq!(at("0"), "127.0.0.1:0");
        assert_eq!(at("10.0.0.7:9464"), "10.0.0.7:9464");
        assert_eq!(at("[::1]:9464"), "[::1]:9464");
        assert_eq!(parse_place("unix:/tmp/x"), Ok(MetricsAddress::Unix("/tmp/x".into())));
        for bad in ["", "x", "unix:", "127.0.0.1", "127.0.0.1:x", "70000", "[::1]"] {
            assert!(parse_place(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_socket_that_nobody_listens_at_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.sock");
        let args =
            MetricsArgs { metrics: Some(MetricsAddress::Unix(path.clone())), metrics_file: None };
        drop(UnixListener::bind(&path).unwrap());
        let metrics = args.open(true).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(args.open(true).is_err() && metrics.words().len() == 2);
        drop(metrics);
        assert!(!path.exists());
        fs::write(&path, "x").unwrap();
        assert!(args.open(true).is_err() && path.exists());
    }
}
