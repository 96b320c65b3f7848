//! What etcd is asked, as JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// What a transaction begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// A key has this value.
    Value { key: Vec<u8>, value: Vec<u8> },
    /// There is no such key.
    Absent { key: Vec<u8> },
}

/// A step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// `lease`: the key goes with it; 0: it stays.
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        lease: i64,
    },
    /// One key, or all up to `end`.
    Range {
        key: Vec<u8>,
        end: Option<Vec<u8>>,
    },
    Delete {
        key: Vec<u8>,
        end: Option<Vec<u8>>,
    },
}

impl Op {
    /// A key that stays.
    pub fn put(key: &str, value: impl Into<Vec<u8>>) -> Op {
        Op::Put { key: key.as_bytes().to_vec(), value: value.into(), lease: 0 }
    }

    pub fn get(key: &str) -> Op {
        Op::Range { key: key.as_bytes().to_vec(), end: None }
    }

    /// All keys that begin so.
    pub fn delete_all(prefix: &str) -> Op {
        Op::Delete { key: prefix.as_bytes().to_vec(), end: Some(after(prefix.as_bytes())) }
    }
}

impl Compare {
    pub fn value(key: &str, value: impl Into<Vec<u8>>) -> Compare {
        Compare::Value { key: key.as_bytes().to_vec(), value: value.into() }
    }

    pub fn absent(key: &str) -> Compare {
        Compare::Absent { key: key.as_bytes().to_vec() }
    }
}

/// The first key behind all that begin so.
pub fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // All keys, as etcd writes it.
    vec![0]
}

fn text(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub fn range(key: &[u8], end: Option<&[u8]>, most: u32) -> Value {
    let mut asked = json!({ "key": text(key), "limit": most.to_string() });
    if let Some(end) = end {
        asked["range_end"] = text(end).into();
    }
    asked
}

pub fn txn(compare: &[Compare], then: &[Op], otherwise: &[Op]) -> Value {
    let steps = |ops: &[Op]| ops.iter().map(step).collect::<Vec<_>>();
    json!({
        "compare": compare.iter().map(condition).collect::<Vec<_>>(),
        "success": steps(then),
        "failure": steps(otherwise),
    })
}

fn condition(compare: &Compare) -> Value {
    match compare {
        Compare::Value { key, value } => json!({
            "key": text(key), "target": "VALUE", "result": "EQUAL", "value": text(value),
        }),
        Compare::Absent { key } => json!({
            "key": text(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0",
        }),
    }
}

fn step(op: &Op) -> Value {
    match op {
        Op::Put { key, value, lease } => json!({ "requestPut": {
            "key": text(key), "value": text(value), "lease": lease.to_string(),
        }}),
        Op::Range { key, end } => json!({ "requestRange": range(key, end.as_deref(), 0) }),
        Op::Delete { key, end } => {
            let mut asked = json!({ "key": text(key) });
            if let Some(end) = end {
                asked["range_end"] = text(end).into();
            }
            json!({ "requestDeleteRange": asked })
        }
    }
}
