//! The calls. Endpoints are asked in turn, beginning with the one that answered last.

use crate::answer::{self, Fault};
use crate::request::{self, Compare, Op};
use crate::{Error, Outcome, Page};
use rustls::crypto::ring;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// The longest answer that is read.
const ANSWER_BYTES: u64 = 64 << 20;
/// Of gRPC: it is not possible at the time, but may be so later, or at another endpoint.
const UNAVAILABLE: [i64; 3] = [4, 8, 14];

/// Certificates, as PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Of those that sign etcd's.
    pub authorities: Vec<u8>,
    /// Our own, and its key, if etcd asks for one.
    pub own: Option<(Vec<u8>, Vec<u8>)>,
}

/// How long may be waited for an endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub connect: Duration,
    pub call: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { connect: Duration::from_secs(1), call: Duration::from_secs(3) }
    }
}

/// Where etcd is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `HOST:PORT` each.
    pub endpoints: Vec<String>,
    /// None: not encrypted.
    pub tls: Option<Tls>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("there is no endpoint")]
    NoEndpoint,
    #[error("{0} is no certificate in PEM")]
    Certificate(&'static str),
    #[error("the key of our certificate is no key in PEM")]
    Key,
}

/// Talks to one etcd.
pub struct Client {
    agent: Agent,
    bases: Vec<String>,
    /// The one that answered last.
    current: AtomicUsize,
}

fn certificates(pem: &[u8], of: &'static str) -> Result<Vec<Certificate<'static>>, ConfigError> {
    let items = parse_pem(pem).collect::<Result<Vec<_>, _>>();
    let items = items.map_err(|_| ConfigError::Certificate(of))?;
    let list = items.into_iter().filter_map(|item| match item {
        PemItem::Certificate(certificate) => Some(certificate),
        _ => None,
    });
    let list: Vec<_> = list.collect();
    if list.is_empty() { Err(ConfigError::Certificate(of)) } else { Ok(list) }
}

fn tls(from: &Tls) -> Result<TlsConfig, ConfigError> {
    let roots = certificates(&from.authorities, "what is to sign etcd's certificate")?;
    let own = from.own.as_ref().map(|(chain, key)| {
        let chain = certificates(chain, "our own certificate")?;
        let key = PrivateKey::from_pem(key).map_err(|_| ConfigError::Key)?;
        Ok(ClientCert::new_with_certs(&chain, key))
    });
    Ok(TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(own.transpose()?)
        .build())
}

impl Client {
    /// # Errors
    /// When the configuration is of no use; etcd is not asked.
    pub fn new(config: &Config, limits: Limits) -> Result<Client, ConfigError> {
        if config.endpoints.is_empty() {
            return Err(ConfigError::NoEndpoint);
        }
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let bases = config.endpoints.iter().map(|e| format!("{scheme}://{e}")).collect();
        let mut agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(limits.connect))
            .timeout_global(Some(limits.call));
        if let Some(from) = &config.tls {
            agent = agent.tls_config(tls(from)?);
        }
        let agent = agent.build().into();
        Ok(Client { agent, bases, current: AtomicUsize::new(0) })
    }

    /// At most `most` keys from `key` on, up to `end` (without: that key only); 0: all.
    ///
    /// # Errors
    /// As every call.
    pub fn range(&self, key: &[u8], end: Option<&[u8]>, most: u32) -> Result<Page, Error> {
        self.call("kv/range", &request::range(key, end, most), answer::page)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As every call.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.range(key.as_bytes(), None, 1)?.kvs.pop().map(|kv| kv.value))
    }

    /// Carries `then` out if all is as compared, else `otherwise`: whole, or not at all.
    ///
    /// # Errors
    /// As every call.
    pub fn txn(
        &self,
        compare: &[Compare],
        then: &[Op],
        otherwise: &[Op],
    ) -> Result<Outcome, Error> {
        let steps = (then.len(), otherwise.len());
        let asked = request::txn(compare, then, otherwise);
        self.call("kv/txn", &asked, |answer| answer::outcome(answer, steps))
    }

    /// A lease of so many seconds.
    ///
    /// # Errors
    /// As every call.
    pub fn grant(&self, seconds: i64) -> Result<i64, Error> {
        let asked = json!({ "TTL": seconds.to_string() });
        self.call("lease/grant", &asked, |answer| match answer::number(answer, "ID")? {
            0 => Err(String::from("a lease without a number")),
            lease => Ok(lease),
        })
    }

    /// Has a lease last as long as at its beginning. False: it is over.
    ///
    /// # Errors
    /// As every call.
    pub fn keep_alive(&self, lease: i64) -> Result<bool, Error> {
        let asked = json!({ "ID": lease.to_string() });
        self.call("lease/keepalive", &asked, |answer| {
            let result = &answer["result"];
            if !result.is_object() {
                return Err(String::from("no result"));
            }
            Ok(answer::number(result, "TTL")? > 0)
        })
    }

    /// Ends a lease, and the keys that go with it.
    ///
    /// # Errors
    /// As every call.
    pub fn revoke(&self, lease: i64) -> Result<(), Error> {
        let asked = json!({ "ID": lease.to_string() });
        self.call("lease/revoke", &asked, |_| Ok(()))
    }

    fn call<T>(
        &self,
        path: &str,
        asked: &Value,
        read: impl Fn(&Value) -> Result<T, Fault>,
    ) -> Result<T, Error> {
        let first = self.current.load(Ordering::Relaxed);
        let body = asked.to_string();
        let mut last = None;
        for n in 0..self.bases.len() {
            let at = (first + n) % self.bases.len();
            let base = &self.bases[at];
            let answered = self.ask(base, path, body.as_bytes());
            let answered = answered.and_then(|answer| {
                read(&answer).map_err(|fault| Error::Malformed(base.clone(), fault))
            });
            match answered {
                Err(error @ (Error::Unreachable(_) | Error::Malformed(..))) => {
                    last.get_or_insert(error);
                }
                answered => {
                    self.current.store(at, Ordering::Relaxed);
                    return answered;
                }
            }
        }
        Err(last.unwrap_or_else(|| Error::Unreachable(String::from("there is no endpoint"))))
    }

    fn ask(&self, base: &str, path: &str, body: &[u8]) -> Result<Value, Error> {
        let away = |error: ureq::Error| Error::Unreachable(format!("{base}: {error}"));
        let sent = self.agent.post(format!("{base}/v3/{path}")).content_type("application/json");
        let mut answer = sent.send(body).map_err(away)?;
        let status = answer.status().as_u16();
        let bytes = answer.body_mut().with_config().limit(ANSWER_BYTES).read_to_vec();
        let bytes = bytes.map_err(away)?;
        let malformed = |why: String| Error::Malformed(base.to_string(), why);
        let value: Result<Value, _> = serde_json::from_slice(&bytes);
        let failed = value.as_ref().ok().and_then(answer::error);
        match (value, failed) {
            (_, Some((code, words))) if UNAVAILABLE.contains(&code) => {
                Err(Error::Unreachable(format!("{base}: {words}")))
            }
            (_, Some((_, words))) => Err(Error::Refused(words)),
            (Ok(value), None) if status == 200 => Ok(value),
            (Err(error), None) if status == 200 => Err(malformed(error.to_string())),
            _ => Err(malformed(format!("status {status}"))),
        }
    }
}
