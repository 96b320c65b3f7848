//! How requests of `object_store` are sent: with `ureq`, on the thread that waits for them, at a
//! pace, as long as they are wanted.
//!
//! Kept true: whatever an answer was, its status and text are known until the next request, so what
//! failed can be told by what the store said of it; what broke off or was too slow is tried again
//! by `object_store`, unless it is given up.

use crate::error::{Answer, StoreError};
use crate::rate_limit::RateLimit;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use std::io::{self, Read};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use ureq::http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};
use ureq::http::{Method, Request, StatusCode, Uri, response};
use ureq::{Agent, BodyReader, SendBody};

/// How often one request is tried.
pub(crate) const TRIES: u32 = 4;
/// The first pause between two tries.
pub(crate) const PAUSE: Duration = Duration::from_millis(250);
const MOST_PAUSE: Duration = Duration::from_secs(8);
/// What is begun longer ago is not tried again.
const MOST_TRYING: Duration = Duration::from_secs(3600);
const CONNECT: Duration = Duration::from_secs(10);
/// Longest answer that is read into memory, and longest text of a failure.
const MOST_BYTES: u64 = 1 << 30;
const MOST_TEXT_BYTES: u64 = 1 << 20;
const COPY_BYTES: usize = 256 << 10;
/// Said of an answer whose length is not known: more than there is.
const UNKNOWN_BYTES: u64 = u64::MAX >> 1;

/// An extension of requests whose answers are read piece by piece. All others are whole, or failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InPieces;

/// Sends requests. All clones are one.
#[derive(Debug, Clone)]
pub(crate) struct Transport(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    agent: Agent,
    pace: RateLimit,
    bucket: String,
    variables: &'static str,
    /// Any of these.
    given_up: Mutex<Vec<Arc<AtomicBool>>>,
    last: Mutex<Outcome>,
    /// Since the last operation began.
    requests: AtomicU32,
}

/// What came of a request.
#[derive(Debug, Default)]
enum Outcome {
    #[default]
    None,
    /// An answer, not always all of it.
    Answered(StatusCode),
    /// An answer other than what was asked for.
    Refused {
        status: u16,
        code: Option<String>,
        text: String,
        endpoint: String,
    },
    Broke {
        endpoint: String,
        why: String,
    },
}

/// How often what fails for a moment is tried again.
pub(crate) fn retries(tries: u32) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { init_backoff: PAUSE, max_backoff: MOST_PAUSE, base: 3. },
        max_retries: tries as usize - 1,
        retry_timeout: MOST_TRYING,
    }
}

/// Who calls, and takes a connection on which nothing moves for so long for one that broke.
fn agent(silence: Duration) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_resolve(Some(CONNECT))
        .timeout_connect(Some(CONNECT))
        .timeout_recv_response(Some(silence))
        .timeout_per_read(Some(silence))
        .timeout_per_write(Some(silence));
    config.build().into()
}

fn locked<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

fn endpoint(uri: &Uri) -> String {
    let host = uri.authority().map_or("", |it| it.as_str());
    format!("{}://{host}", uri.scheme_str().unwrap_or("https"))
}

fn number(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// A body of a request is in memory, so it never has to be waited for.
fn collected(body: HttpRequestBody) -> Result<Bytes, HttpError> {
    if let Some(bytes) = body.as_bytes() {
        return Ok(bytes.clone());
    }
    let (mut body, mut all) = (pin!(body), BytesMut::new());
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut context) {
        if let Ok(piece) = frame?.into_data() {
            if all.is_empty() && body.is_end_stream() {
                return Ok(piece);
            }
            all.extend_from_slice(&piece);
        }
    }
    Ok(all.freeze())
}

impl Transport {
    pub fn new(
        bucket: &str,
        variables: &'static str,
        pace: RateLimit,
        silence: Duration,
    ) -> Transport {
        Transport(Arc::new(Shared {
            agent: agent(silence),
            pace,
            bucket: bucket.to_string(),
            variables,
            given_up: Mutex::default(),
            last: Mutex::default(),
            requests: AtomicU32::new(0),
        }))
    }

    pub fn bucket(&self) -> &str {
        &self.0.bucket
    }

    /// Once this, too, is true nothing is sent any more, and nothing is tried again.
    pub fn heed(&self, given_up: Arc<AtomicBool>) {
        locked(&self.0.given_up).push(given_up);
    }

    pub fn is_given_up(&self) -> bool {
        locked(&self.0.given_up).iter().any(|it| it.load(Ordering::Relaxed))
    }

    /// Another operation begins.
    pub fn begin(&self) {
        self.0.requests.store(0, Ordering::Relaxed);
        *locked(&self.0.last) = Outcome::None;
    }

    /// There was more than one request in this operation: one before may have done what it was to.
    pub fn tried_again(&self) -> bool {
        self.0.requests.load(Ordering::Relaxed) > 1
    }

    /// The last answer was all of an object, whatever was asked for.
    pub fn was_whole(&self) -> bool {
        matches!(*locked(&self.0.last), Outcome::Answered(StatusCode::OK))
    }

    /// What it means that this operation failed.
    pub fn failed(&self, error: &object_store::Error, key: &str) -> StoreError {
        if self.is_given_up() {
            return StoreError::GivenUp;
        }
        match &*locked(&self.0.last) {
            Outcome::Refused { status, code, text, endpoint } => StoreError::of(&Answer {
                status: *status,
                code: code.as_deref(),
                body: text,
                bucket: &self.0.bucket,
                key,
                endpoint,
                variables: self.0.variables,
            }),
            Outcome::Broke { endpoint, why } => {
                StoreError::Unreachable(endpoint.clone(), why.clone())
            }
            Outcome::None | Outcome::Answered(_) => StoreError::without_answer(error, key),
        }
    }

    /// Whether the same may do in a moment.
    pub fn may_pass(&self, error: &StoreError) -> bool {
        match error {
            StoreError::Unreachable(..) => true,
            StoreError::Refused { status, .. } => *status >= 500 || *status == 429,
            _ => false,
        }
    }

    /// A request for what is at this address.
    pub fn get(&self, url: &str) -> object_store::Result<HttpRequest> {
        let request = Request::get(url).body(HttpRequestBody::empty());
        request.map_err(|e| object_store::Error::Generic { store: "S3", source: Box::new(e) })
    }

    /// Sends a request once. The text of its answer.
    pub fn text(&self, request: HttpRequest) -> Result<String, StoreError> {
        match self.exchange(request).map(response::Response::into_parts) {
            Ok((parts, Part::Whole(bytes))) if parts.status.is_success() => {
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            _ => {
                let source = "no answer".into();
                Err(self.failed(&object_store::Error::Generic { store: "S3", source }, ""))
            }
        }
    }

    fn broke(&self, endpoint: &str, error: &dyn std::error::Error) -> HttpError {
        let why = error.to_string();
        let kind = match self.is_given_up() {
            true => HttpErrorKind::Unknown,
            false => HttpErrorKind::Request,
        };
        let endpoint = endpoint.to_string();
        *locked(&self.0.last) = Outcome::Broke { endpoint, why: why.clone() };
        HttpError::new(kind, io::Error::other(why))
    }

    fn exchange(&self, request: HttpRequest) -> Result<response::Response<Part>, HttpError> {
        let (parts, body) = request.into_parts();
        let endpoint = endpoint(&parts.uri);
        // What is given up ends with one request, as what was begun has to be.
        if self.0.requests.fetch_add(1, Ordering::Relaxed) > 0 && self.is_given_up() {
            return Err(self.broke(&endpoint, &StoreError::GivenUp));
        }
        let in_pieces = parts.extensions.get::<InPieces>().is_some();
        let method = parts.method.clone();
        let answer = self.send(Request::from_parts(parts, collected(body)?));
        let (mut parts, body) = answer.map_err(|e| self.broke(&endpoint, &e))?.into_parts();
        *locked(&self.0.last) = Outcome::Answered(parts.status);
        let length = number(&parts.headers);
        if in_pieces && parts.status.is_success() {
            parts.headers.entry(CONTENT_LENGTH).or_insert(HeaderValue::from(UNKNOWN_BYTES));
            let (reader, transport) = (Mutex::new(body.into_reader()), self.clone());
            let pieces = Pieces { reader, left: length, transport, endpoint };
            return Ok(response::Response::from_parts(parts, Part::Pieces(pieces)));
        }
        let most = if parts.status.is_success() { MOST_BYTES } else { MOST_TEXT_BYTES };
        let read = body.into_with_config().limit(most).read_to_vec();
        let bytes = match read {
            // What a failure says is not worth another one.
            Err(_) if !parts.status.is_success() => Vec::new(),
            Err(error @ ureq::Error::BodyExceedsLimit(_)) => {
                let source = self.broke(&endpoint, &error).to_string();
                return Err(HttpError::new(HttpErrorKind::Decode, io::Error::other(source)));
            }
            read => read.map_err(|e| self.broke(&endpoint, &e))?,
        };
        if length.is_none() && method != Method::HEAD {
            parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        }
        self.note(&parts, &method, &bytes, endpoint);
        Ok(response::Response::from_parts(parts, Part::Whole(bytes.into())))
    }

    /// An answer may begin well before the store knows: so it may fail with a good status.
    fn note(&self, parts: &response::Parts, method: &Method, bytes: &[u8], endpoint: String) {
        let text = String::from_utf8_lossy(bytes);
        let fails = !parts.status.is_success();
        if fails || *method == Method::POST && text.contains("<Error>") {
            let code = parts.headers.get("x-ms-error-code").and_then(|it| it.to_str().ok());
            let (code, text) = (code.map(String::from), text.into_owned());
            let status = parts.status.as_u16();
            *locked(&self.0.last) = Outcome::Refused { status, code, text, endpoint };
        }
    }

    fn send(&self, request: Request<Bytes>) -> Result<response::Response<ureq::Body>, ureq::Error> {
        let (mut parts, bytes) = request.into_parts();
        let has_body = matches!(parts.method, Method::PUT | Method::POST) || !bytes.is_empty();
        parts.extensions.clear();
        if !has_body {
            parts.headers.remove(CONTENT_LENGTH);
            return self.0.agent.run(Request::from_parts(parts, ()));
        }
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        let given_up = locked(&self.0.given_up).clone();
        let mut reader = self.0.pace.reader(&bytes, &given_up);
        self.0.agent.run(Request::from_parts(parts, SendBody::from_reader(&mut reader)))
    }
}

#[async_trait]
impl HttpService for Transport {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        Ok(self.exchange(request)?.map(|part| match part {
            Part::Whole(bytes) => bytes.into(),
            Part::Pieces(pieces) => HttpResponseBody::new(pieces),
        }))
    }
}

impl HttpConnector for Transport {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

enum Part {
    Whole(Bytes),
    Pieces(Pieces),
}

/// An answer that is read as it comes.
struct Pieces {
    reader: Mutex<BodyReader<'static>>,
    /// None: nobody knows.
    left: Option<u64>,
    transport: Transport,
    endpoint: String,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let mut buffer = vec![0; COPY_BYTES];
        let read = self.reader.get_mut().unwrap_or_else(PoisonError::into_inner).read(&mut buffer);
        let broke = |e: io::Error| Some(Err(self.transport.broke(&self.endpoint, &e)));
        Poll::Ready(match read {
            Ok(0) if self.left.is_some_and(|left| left > 0) => {
                broke(io::Error::from(io::ErrorKind::UnexpectedEof))
            }
            Ok(0) => None,
            Ok(count) => {
                buffer.truncate(count);
                self.left = self.left.map(|left| left.saturating_sub(count as u64));
                Some(Ok(Frame::data(buffer.into())))
            }
            Err(error) => broke(error),
        })
    }
}
