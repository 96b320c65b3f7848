//! The client against a server of a few lines, which answers what it is told to.

use crate::{Client, Compare, Config, Error, Limits, Op, after};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Reads a request; returns its path and its body.
fn request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let length =
                lower.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                let path = head.split(' ').nth(1)?.to_string();
                return Some((path, body.to_string()));
            }
        }
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => bytes.extend_from_slice(&buffer[..count]),
            _ => return None,
        }
    }
}

/// A server that gives these answers, one a connection; returns where it is, and what it is asked.
fn server(answers: Vec<Vec<u8>>) -> (String, Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let (tell, told) = channel();
    thread::spawn(move || {
        for answer in answers {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let asked = request(&mut stream);
            asked.into_iter().for_each(|asked| drop(tell.send(asked)));
            let _ = stream.write_all(&answer);
        }
    });
    (at, told)
}

fn http(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .into()
}

fn client(endpoints: &[&str]) -> Client {
    patient(endpoints, Duration::from_secs(60))
}

/// One that waits so long for an answer.
fn patient(endpoints: &[&str], call: Duration) -> Client {
    let endpoints = endpoints.iter().map(|e| e.to_string()).collect();
    let limits = Limits { connect: Duration::from_secs(60), call };
    Client::new(&Config { endpoints, tls: None }, limits).unwrap()
}

/// What a client makes of one answer.
fn answered(body: &str) -> Client {
    let (at, _) = server(vec![http("200 OK", body)]);
    client(&[&at])
}

#[test]
fn keys_are_read_as_etcd_writes_them() {
    let body = r#"{"header":{"revision":"7"},"kvs":[{"key":"YQ==","create_revision":"3",
        "value":"AP8="},{"key":"Yg=="}],"more":true,"count":"5"}"#;
    let (at, told) = server(vec![http("200 OK", body)]);
    let page = client(&[&at]).range(b"a", Some(b"c"), 2).unwrap();
    assert_eq!(
        (page.kvs[0].key.as_slice(), page.kvs[0].value.as_slice()),
        (&b"a"[..], &[0, 255][..])
    );
    assert!(page.kvs[1].value.is_empty() && page.more);
    let (path, asked) = told.recv().unwrap();
    assert_eq!(path, "/v3/kv/range");
    assert_eq!(asked, r#"{"key":"YQ==","limit":"2","range_end":"Yw=="}"#);
    assert_eq!(answered(r#"{"header":{}}"#).get("a"), Ok(None));
}

#[test]
fn a_transaction_says_which_branch_was_taken() {
    let held = r#"{"header":{},"succeeded":true,"responses":[{"response_put":{"header":{}}}]}"#;
    let not = r#"{"header":{},"responses":[{"response_range":{"header":{},
        "kvs":[{"key":"YQ==","value":"Yg=="}],"count":"1"}}]}"#;
    let (at, told) = server(vec![http("200 OK", held), http("200 OK", not)]);
    let client = client(&[&at]);
    let compare = [Compare::value("a", "x"), Compare::absent("c")];
    let ask = || client.txn(&compare, &[Op::put("a", "b")], &[Op::get("a")]);
    assert!(ask().unwrap().held);
    let outcome = ask().unwrap();
    assert_eq!((outcome.held, outcome.pages[0].kvs[0].value.as_slice()), (false, &b"b"[..]));
    let asked: serde_json::Value = serde_json::from_str(&told.recv().unwrap().1).unwrap();
    assert_eq!(asked["compare"][0]["value"], "eA==");
    assert_eq!(asked["compare"][1]["create_revision"], "0");
    assert_eq!(asked["success"][0]["requestPut"]["lease"], "0");
    // An answer that lacks a step's is none.
    let short = answered(r#"{"header":{},"succeeded":true}"#);
    let short = short.txn(&compare, &[Op::put("a", "b")], &[]);
    assert!(matches!(short, Err(Error::Malformed(..))), "{short:?}");
}

#[test]
fn leases_are_granted_and_end() {
    assert_eq!(answered(r#"{"header":{},"ID":"7587","TTL":"5"}"#).grant(5), Ok(7587));
    assert!(matches!(answered(r#"{"header":{}}"#).grant(5), Err(Error::Malformed(..))));
    let alive = |body| answered(body).keep_alive(7587);
    assert_eq!(alive(r#"{"result":{"header":{},"ID":"7587","TTL":"5"}}"#), Ok(true));
    assert_eq!(alive(r#"{"result":{"header":{},"ID":"7587"}}"#), Ok(false));
    assert!(matches!(alive("{}"), Err(Error::Malformed(..))));
}

#[test]
fn a_refusal_is_told_from_what_may_pass() {
    let body = |code, words| format!(r#"{{"error":"{words}","code":{code},"message":"{words}"}}"#);
    let (at, _) = server(vec![
        http("400 Bad Request", &body(3, "etcdserver: user name is empty")),
        http("503 Service Unavailable", &body(14, "etcdserver: leader changed")),
        http("429 Too Many Requests", &body(8, "etcdserver: mvcc: database space exceeded")),
        http("404 Not Found", "404 page not found\n"),
    ]);
    let client = client(&[&at]);
    let words = |error: Error| error.to_string();
    assert_eq!(
        client.get("a").map_err(words),
        Err(String::from("etcd refuses it: etcdserver: user name is empty"))
    );
    assert!(matches!(client.get("a"), Err(Error::Unreachable(w)) if w.contains("leader changed")));
    assert!(matches!(client.get("a"), Err(Error::Unreachable(w)) if w.contains("space exceeded")));
    assert!(matches!(client.get("a"), Err(Error::Malformed(_, w)) if w == "status 404"));
}

#[test]
fn the_next_endpoint_is_asked_and_stayed_with() {
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    deaf.set_nonblocking(true).unwrap();
    let calls = || std::iter::from_fn(|| deaf.accept().ok()).count();
    let silent = deaf.local_addr().unwrap().to_string();
    // At an address of its own: another test may get the number of a port that is free again.
    let none = TcpListener::bind("127.86.1.1:0").unwrap().local_addr().unwrap().to_string();
    let body = r#"{"header":{}}"#;
    let (at, told) = server(vec![http("200 OK", body), http("200 OK", body)]);
    let client = patient(&[&none, &silent, &at], Duration::from_secs(5));
    assert_eq!(client.get("a"), Ok(None));
    assert!(calls() > 0);
    assert_eq!(client.get("a"), Ok(None));
    assert_eq!(calls(), 0);
    assert_eq!(told.iter().count(), 2);
    let alone = patient(&[&silent], Duration::from_millis(500));
    let begun = Instant::now();
    assert!(matches!(alone.get("a"), Err(Error::Unreachable(_))));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn what_is_behind_a_prefix() {
    assert_eq!(after(b"a/"), b"a0");
    assert_eq!(after(&[b'a', 255, 255]), b"b");
    assert_eq!(after(&[255]), [0]);
}

#[test]
fn certificates_that_are_none_are_refused() {
    let tls = Some(crate::Tls { authorities: b"nonsense".to_vec(), own: None });
    let config = Config { endpoints: vec![String::from("localhost:1")], tls };
    assert!(Client::new(&config, Limits::default()).is_err());
    let none = Config { endpoints: Vec::new(), tls: None };
    assert!(Client::new(&none, Limits::default()).is_err());
}

/// JSON that is near to what etcd says.
fn near() -> impl Strategy<Value = String> {
    let names = [
        "header",
        "kvs",
        "key",
        "value",
        "more",
        "succeeded",
        "responses",
        "result",
        "ID",
        "TTL",
        "response_range",
        "error",
        "code",
        "message",
    ];
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        "[A-Za-z0-9=+/ ]{0,8}".prop_map(Into::into),
    ];
    let tree = leaf.prop_recursive(4, 24, 4, move |inner| {
        let name = proptest::sample::select(names.to_vec());
        let object = proptest::collection::vec((name, inner.clone()), 0..4).prop_map(|list| {
            let list = list.into_iter().map(|(n, v)| (n.to_string(), v));
            serde_json::Value::Object(list.collect())
        });
        prop_oneof![object, proptest::collection::vec(inner, 0..4).prop_map(Into::into)]
    });
    tree.prop_map(|v| v.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever comes is an answer or an error.
    #[test]
    fn nonsense_is_borne(body in near(), cut in 0usize..400) {
        let cut = cut.min(body.len());
        let value: Result<serde_json::Value, _> = serde_json::from_str(&body);
        if let Ok(value) = value {
            let _ = crate::answer::page(&value);
            let _ = crate::answer::outcome(&value, (1, 2));
            let _ = crate::answer::error(&value);
            let _ = crate::answer::number(&value, "TTL");
        }
        if cut % 8 == 0 {
            let (at, _) = server(vec![http("200 OK", &body)[..].to_vec()]);
            let _ = client(&[&at]).txn(&[], &[Op::get("a")], &[]);
        }
    }

    /// And what is not even HTTP.
    #[test]
    fn noise_is_borne(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if bytes.len() % 8 == 0 {
            let (at, _) = server(vec![bytes]);
            prop_assert!(client(&[&at]).get("a").is_err());
        }
    }
}
