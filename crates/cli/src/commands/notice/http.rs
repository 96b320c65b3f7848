//! Questions to a machine's metadata service: short ones, never through a proxy.

use anyhow::{Context, anyhow};
use std::time::Duration;
use ureq::Agent;

/// Longest wait for an answer that is not told to wait.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// The longest answer that is read.
const ANSWER_BYTES: u64 = 1 << 20;

/// The service at a place.
pub struct Service {
    agent: Agent,
    base: String,
}

/// What it says.
pub struct Answer {
    pub code: u16,
    pub body: String,
    /// Of which state of the answer it is.
    pub etag: Option<String>,
}

impl Service {
    pub fn at(base: &str) -> Service {
        let config = Agent::config_builder()
            .timeout_global(Some(ANSWER_LIMIT))
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .build();
        Service { agent: config.into(), base: base.trim_end_matches('/').to_string() }
    }

    /// Asks for what is at a path. `waits`: so long it may wait for a change before it answers.
    pub fn get(
        &self,
        path: &str,
        (name, value): (&str, &str),
        waits: Duration,
    ) -> anyhow::Result<Answer> {
        let url = format!("{}{path}", self.base);
        let request = self.agent.get(&url).header(name, value);
        let request = request.config().timeout_global(Some(waits + ANSWER_LIMIT)).build();
        let answer = request.call().with_context(|| url.clone())?;
        read(answer).with_context(|| url)
    }

    /// Asks for a token.
    pub fn put(&self, path: &str, (name, value): (&str, &str)) -> anyhow::Result<Answer> {
        let url = format!("{}{path}", self.base);
        let answer = self.agent.put(&url).header(name, value).send_empty();
        read(answer.with_context(|| url.clone())?).with_context(|| url)
    }
}

fn read(mut answer: ureq::http::Response<ureq::Body>) -> anyhow::Result<Answer> {
    let code = answer.status().as_u16();
    let etag = answer.headers().get("etag").and_then(|value| value.to_str().ok());
    let etag = etag.map(str::to_string);
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES).read_to_string()?;
    Ok(Answer { code, body, etag })
}

impl Answer {
    /// The body of a good answer; None: there is no such thing.
    pub fn good(self, what: &str) -> anyhow::Result<Option<String>> {
        match self.code {
            200 => Ok(Some(self.body)),
            404 => Ok(None),
            code => Err(anyhow!("{what} answers with {code}")),
        }
    }
}
