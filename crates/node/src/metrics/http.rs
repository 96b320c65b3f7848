//! HTTP for scrapers: one request a connection, `GET /metrics`, and an answer.
//!
//! Kept true: a request is read up to a size and a time, connections are bounded in number; what is
//! asked for in any other way has no effect on the job.

use super::Source;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

/// Most bytes of a request.
const REQUEST_BYTES: usize = 8 << 10;
/// Longest time for a request and its answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Most connections at a time.
const CONNECTIONS: usize = 16;
const PAUSE: Duration = Duration::from_millis(100);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Where scrapers connect.
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// A descriptor that listens, of either kind.
    pub fn of(fd: OwnedFd) -> io::Result<Listener> {
        let tcp = std::net::TcpListener::from(fd);
        if tcp.local_addr().is_ok() {
            tcp.set_nonblocking(true)?;
            return Ok(Listener::Tcp(TcpListener::from_std(tcp)?));
        }
        let unix = std::os::unix::net::UnixListener::from(OwnedFd::from(tcp));
        unix.set_nonblocking(true)?;
        Ok(Listener::Unix(UnixListener::from_std(unix)?))
    }

    async fn accept(&self) -> io::Result<Box<dyn Connection>> {
        Ok(match self {
            Listener::Tcp(listener) => Box::new(listener.accept().await?.0),
            Listener::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

trait Connection: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Connection for T {}

/// Answers as long as the job lives.
pub async fn serve(listener: Listener, source: Rc<Source>) {
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(held) = Arc::clone(&free).acquire_owned().await else { return };
        match listener.accept().await {
            Ok(connection) => {
                let source = Rc::clone(&source);
                tokio::task::spawn_local(async move {
                    // Who does not read is not waited for.
                    let _ = tokio::time::timeout(LIMIT, answer(connection, &source)).await;
                    drop(held);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "metrics");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(mut connection: Box<dyn Connection>, source: &Source) -> io::Result<()> {
    let mut request = Vec::new();
    let whole = loop {
        if let Some(end) = end_of(&request) {
            request.truncate(end);
            break true;
        }
        let mut buffer = [0; 1024];
        let count = connection.read(&mut buffer).await?;
        if count == 0 || request.len() + count > REQUEST_BYTES {
            break false;
        }
        request.extend_from_slice(&buffer[..count]);
    };
    let asked = if whole { parse(&request) } else { Err(400) };
    let (status, kind, body) = match &asked {
        Ok(asked) => {
            let texts = source.texts().await;
            match asked.open_metrics {
                true => (200, OPEN_METRICS, texts.open_metrics.clone()),
                false => (200, PLAIN, texts.plain.clone()),
            }
        }
        Err(status) => (*status, PLAIN, String::from(advice(*status))),
    };
    let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    let mut text = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Connection: \
         close\r\n\r\n",
        reason(status),
        body.len()
    );
    if !asked.is_ok_and(|asked| asked.head) {
        text += &body;
    }
    connection.write_all(text.as_bytes()).await?;
    connection.shutdown().await
}

fn end_of(request: &[u8]) -> Option<usize> {
    request.windows(4).position(|four| four == b"\r\n\r\n")
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    head: bool,
    open_metrics: bool,
}

/// Understands a request's head. An error is the status of the answer.
fn parse(head: &[u8]) -> Result<Asked, u16> {
    let text = std::str::from_utf8(head).map_err(|_| 400u16)?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    if !version.is_some_and(|v| v.starts_with("HTTP/1.")) || words.next().is_some() {
        return Err(400);
    }
    let target = target.unwrap_or_default();
    if !["/metrics", "/"].contains(&target.split('?').next().unwrap_or_default()) {
        return Err(404);
    }
    let head = match method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(405),
    };
    let accepts = |line: &str| {
        let (name, value) = line.split_once(':').unwrap_or_default();
        name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
    };
    Ok(Asked { head, open_metrics: lines.any(accepts) })
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        404 => "Not Found",
        405 => "Method Not Allowed",
        _ => "Bad Request",
    }
}

fn advice(status: u16) -> &'static str {
    match status {
        404 => "the metrics are at /metrics\n",
        405 => "metrics are read with GET\n",
        _ => "this is no request that can be understood\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metrics_are_to_be_had() {
        let asked = |head, open_metrics| Ok(Asked { head, open_metrics });
        assert_eq!(parse(b"GET /metrics HTTP/1.1\r\nHost: x"), asked(false, false));
        assert_eq!(parse(b"GET /metrics?x=1 HTTP/1.0"), asked(false, false));
        assert_eq!(parse(b"HEAD / HTTP/1.1"), asked(true, false));
        let accept =
            b"GET /metrics HTTP/1.1\r\naccept: text/html, application/openmetrics-text;v=1";
        assert_eq!(parse(accept), asked(false, true));
        assert_eq!(parse(b"GET /other HTTP/1.1"), Err(404));
        assert_eq!(parse(b"POST /metrics HTTP/1.1"), Err(405));
        for bad in [&b""[..], b"GET", b"GET /metrics", b"\xff\xfe", b"GET /metrics HTTP/1.1 x"] {
            assert_eq!(parse(bad), Err(400), "{bad:?}");
        }
        assert_eq!(end_of(b"GET / HTTP/1.1\r\n\r\nmore"), Some(14));
    }
}
