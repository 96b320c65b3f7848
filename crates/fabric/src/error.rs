//! Why something of libfabric is not there or did not work.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("libfabric is not installed here (libfabric.so.1; Debian: libfabric1)")]
    Missing,
    #[error("libfabric.so.1 lacks the function {0}")]
    Lacks(&'static str),
    /// What there is instead stands behind it.
    #[error("libfabric has no provider '{name}' for connections (FI_EP_MSG) here; {others}")]
    NoProvider { name: String, others: String },
    #[error("libfabric has no provider for connections (FI_EP_MSG) here")]
    NoProviders,
    #[error("{0} is no name of a libfabric provider")]
    Name(String),
    #[error("{call}: {text}")]
    Call { call: &'static str, code: i32, text: String },
    #[error("{0} was answered by another event")]
    Event(&'static str),
    #[error("no answer in time")]
    Silent,
    #[error("the connection has ended")]
    Ended,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error {
            Error::Io(error) => error,
            Error::Silent => io::Error::new(io::ErrorKind::TimedOut, error),
            Error::Ended => io::Error::new(io::ErrorKind::UnexpectedEof, error),
            other => io::Error::other(other),
        }
    }
}
