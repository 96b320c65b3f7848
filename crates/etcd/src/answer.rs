//! What etcd answers, as JSON: numbers of 64 bits are strings there, and what is zero, false or
//! empty is left out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kv {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// It goes with this lease; 0: with none.
    pub lease: i64,
}

/// Some of the keys that were asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    pub kvs: Vec<Kv>,
    /// There are others behind these.
    pub more: bool,
}

/// How a transaction came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// All that was compared was so.
    pub held: bool,
    /// What each step brought; nothing, but of a `Range`.
    pub pages: Vec<Page>,
}

/// What is wrong with an answer.
pub type Fault = String;

fn bytes(of: &Value, name: &str) -> Result<Vec<u8>, Fault> {
    match &of[name] {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => STANDARD.decode(text).map_err(|e| format!("{name}: {e}")),
        other => Err(format!("{name}: {other}")),
    }
}

fn flag(of: &Value, name: &str) -> Result<bool, Fault> {
    match &of[name] {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        other => Err(format!("{name}: {other}")),
    }
}

fn list<'a>(of: &'a Value, name: &str) -> Result<&'a [Value], Fault> {
    match &of[name] {
        Value::Null => Ok(&[]),
        Value::Array(list) => Ok(list),
        other => Err(format!("{name}: {other}")),
    }
}

/// A number of 64 bits.
pub fn number(of: &Value, name: &str) -> Result<i64, Fault> {
    match &of[name] {
        Value::Null => Ok(0),
        Value::String(text) => text.parse().map_err(|_| format!("{name}: {text:?}")),
        other => other.as_i64().ok_or_else(|| format!("{name}: {other}")),
    }
}

/// The answer to a question for keys.
pub fn page(of: &Value) -> Result<Page, Fault> {
    // Whatever answers has a header.
    if !of.is_object() {
        return Err(String::from("no object"));
    }
    let kv = |kv: &Value| {
        let (key, value) = (bytes(kv, "key")?, bytes(kv, "value")?);
        Ok(Kv { key, value, lease: number(kv, "lease")? })
    };
    let kvs = list(of, "kvs")?.iter().map(kv).collect::<Result<_, Fault>>()?;
    Ok(Page { kvs, more: flag(of, "more")? })
}

/// The answer to a transaction of which each branch has so many steps.
pub fn outcome(of: &Value, (then, otherwise): (usize, usize)) -> Result<Outcome, Fault> {
    if !of["header"].is_object() {
        return Err(String::from("no header"));
    }
    let held = flag(of, "succeeded")?;
    let answers = list(of, "responses")?;
    let due = if held { then } else { otherwise };
    if answers.len() != due {
        return Err(format!("{} answers to {due} steps", answers.len()));
    }
    let step = |answer: &Value| match &answer["response_range"] {
        Value::Null => match &answer["responseRange"] {
            Value::Null => Ok(Page::default()),
            range => page(range),
        },
        range => page(range),
    };
    Ok(Outcome { held, pages: answers.iter().map(step).collect::<Result<_, Fault>>()? })
}

/// What went wrong, in etcd's words.
pub fn error(of: &Value) -> Option<(i64, String)> {
    // A stream's answers are wrapped, and so is its error.
    let of = if of["error"].is_object() { &of["error"] } else { of };
    let words = of["message"].as_str().or_else(|| of["error"].as_str())?;
    let code = of["code"].as_i64().or_else(|| of["grpc_code"].as_i64());
    Some((code.unwrap_or(0), words.chars().take(200).collect()))
}
