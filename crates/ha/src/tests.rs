//! The lead and the journal against a model of etcd that loses answers, is away, and ends leases:
//! what one leader was told to be durable the next one finds, and nothing else gets in between.

use super::lease::Health;
use super::{HaError, Lead, News, Place, Writer};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use eyrie_control::Ha;
use eyrie_protocol::testing::Random;
use eyrie_protocol::timing::Lease;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Bound::{Excluded, Included};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Key = Vec<u8>;

#[derive(Default)]
struct Model {
    /// With the lease.
    keys: BTreeMap<Key, (Vec<u8>, i64)>,
    leases: i64,
    /// Of ten requests so many fail, half of them after they were carried out.
    faults: u64,
    random: Option<Random>,
}

fn bytes(of: &Value) -> Vec<u8> {
    STANDARD.decode(of.as_str().unwrap_or_default()).unwrap()
}

fn number(of: &Value) -> i64 {
    of.as_str().map_or(0, |t| t.parse().unwrap())
}

impl Model {
    fn within(&self, asked: &Value) -> Vec<Key> {
        let key = bytes(&asked["key"]);
        match asked["range_end"].is_string() {
            false => self.keys.contains_key(&key).then_some(key).into_iter().collect(),
            true => {
                let range = (Included(key), Excluded(bytes(&asked["range_end"])));
                self.keys.range(range).map(|(k, _)| k.clone()).collect()
            }
        }
    }

    fn range(&self, asked: &Value) -> Value {
        let found = self.within(asked);
        let limit = number(&asked["limit"]) as usize;
        let most = if limit == 0 { found.len() } else { limit };
        let kv =
            |k: &Key| json!({"key": STANDARD.encode(k), "value": STANDARD.encode(&self.keys[k].0)});
        let kvs: Vec<Value> = found.iter().take(most).map(kv).collect();
        json!({"header": {}, "kvs": kvs, "more": found.len() > most})
    }

    fn holds(&self, compare: &Value) -> bool {
        let there = self.keys.get(&bytes(&compare["key"]));
        match compare["target"].as_str() {
            Some("VALUE") => there.is_some_and(|(value, _)| *value == bytes(&compare["value"])),
            _ => there.is_none(),
        }
    }

    fn step(&mut self, step: &Value) -> Value {
        if step["requestPut"].is_object() {
            let put = &step["requestPut"];
            self.keys.insert(bytes(&put["key"]), (bytes(&put["value"]), number(&put["lease"])));
            return json!({"response_put": {}});
        }
        if step["requestDeleteRange"].is_object() {
            for key in self.within(&step["requestDeleteRange"]) {
                self.keys.remove(&key);
            }
            return json!({"response_delete_range": {}});
        }
        json!({"response_range": self.range(&step["requestRange"])})
    }

    fn answer(&mut self, path: &str, asked: &Value) -> Value {
        match path {
            "/v3/kv/range" => self.range(asked),
            "/v3/kv/txn" => {
                let held = asked["compare"].as_array().unwrap().iter().all(|c| self.holds(c));
                let branch = &asked[if held { "success" } else { "failure" }];
                let steps = branch.as_array().unwrap().iter().map(|s| self.step(s));
                let responses: Vec<Value> = steps.collect();
                json!({"header": {}, "succeeded": held, "responses": responses})
            }
            "/v3/lease/grant" => {
                self.leases += 1;
                json!({"header": {}, "ID": self.leases.to_string()})
            }
            _ => json!({"header": {}, "result": {"TTL": "5"}}),
        }
    }

    fn fails(&mut self) -> bool {
        let faults = self.faults;
        self.random.as_mut().is_some_and(|r| r.below(10) < faults)
    }

    /// Keys that go with a lease go.
    fn expire(&mut self) {
        self.keys.retain(|_, (_, lease)| *lease == 0);
    }
}

fn serve(mut stream: TcpStream, model: &Mutex<Model>) -> Option<()> {
    let (mut read, mut buffer) = (Vec::new(), [0; 65536]);
    let (head, body) = loop {
        let count = stream.read(&mut buffer).ok().filter(|n| *n > 0)?;
        read.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&read).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let lower = head.to_ascii_lowercase();
        let length = lower.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0usize) {
            break (head.to_string(), body.to_string());
        }
    };
    let mut model = model.lock().unwrap();
    let before = model.fails();
    if before {
        return None;
    }
    let answer = model.answer(head.split(' ').nth(1)?, &serde_json::from_str(&body).ok()?);
    if model.fails() {
        return None;
    }
    drop(model);
    let (text, end) = (answer.to_string(), "\r\nConnection: close\r\n\r\n");
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}{end}{text}", text.len()).ok()
}

/// A model that is served, and where.
fn model(seed: u64, faults: u64) -> (Arc<Mutex<Model>>, Ha) {
    let random = Some(Random::new(seed));
    let model = Arc::new(Mutex::new(Model { faults, random, ..Model::default() }));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let served = Arc::clone(&model);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(stream, &served);
        }
    });
    (model, Ha::parse(&format!("etcd://{at}/x")).unwrap().0)
}

/// Without the thread that keeps the lease: the test says when it ends.
fn begin(lead: &Lead, folder: &std::path::Path) -> (Writer, Receiver<News>) {
    let (tell, told) = channel();
    let health = Health::new(lead, move |news| drop(tell.send(news)));
    (Writer::new(lead, folder, &health).unwrap(), told)
}

fn record(leader: u64, n: u64) -> Vec<u8> {
    format!("<{leader}.{n}>").into_bytes()
}

/// Waits for what matters: up to which number all is durable, or that it was deposed.
fn committed(told: &Receiver<News>, number: u64) -> bool {
    loop {
        match told.recv_timeout(Duration::from_secs(60)).unwrap() {
            News::Committed(at) if at >= number => return true,
            News::Deposed(_) => return false,
            _ => {}
        }
    }
}

/// As often as it takes: the model fails often.
fn insist<T>(mut ask: impl FnMut() -> Result<T, HaError>) -> T {
    loop {
        match ask() {
            Ok(done) => return done,
            Err(HaError::Etcd(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn the_next_leader_finds_what_was_durable_and_nothing_comes_behind() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..12 {
        let (model, ha) = model(seed, seed % 4);
        let mut random = Random::new(seed ^ 0xabcd);
        let first = insist(|| {
            Lead::found(&ha, "j", Lease::default()).map_err(|error| {
                // It may have been carried out, by the attempt before.
                model.lock().unwrap().keys.clear();
                match error {
                    HaError::Taken(_) => {
                        HaError::Etcd(eyrie_etcd::Error::Unreachable(String::new()))
                    }
                    other => other,
                }
            })
        });
        let (mut old, told) = begin(&first, folder.path());
        let mut number = old.renew(b"[1]".to_vec());
        let many = 1 + random.below(20);
        for n in 0..many {
            number = match random.below(6) {
                0 => old.renew(
                    [b"[1]".to_vec(), (0..=n).flat_map(|n| record(1, n)).collect()].concat(),
                ),
                _ => old.append(record(1, n)),
            };
        }
        assert!(committed(&told, number), "seed {seed}");
        // More is on its way when the lease ends and another one leads.
        let later = old.append(record(1, many));
        model.lock().unwrap().expire();
        let place = Arc::new(Place::new(&ha, "j").unwrap());
        let next = insist(|| match Lead::succeed(Arc::clone(&place), None, Duration::ZERO) {
            // By an attempt of which the answer was lost.
            Err(HaError::Held) => {
                model.lock().unwrap().expire();
                Err(HaError::Etcd(eyrie_etcd::Error::Unreachable(String::new())))
            }
            other => other,
        });
        assert!(next.term >= 2);
        let found = String::from_utf8(insist(|| next.place.journal())).unwrap();
        let durable: String = (0..many).map(|n| format!("<1.{n}>")).collect();
        let also = format!("[1]{durable}<1.{many}>");
        assert!(found == format!("[1]{durable}") || found == also, "seed {seed}: {found}");
        let (mut new, news) = begin(&next, folder.path());
        let renewed = new.renew(format!("{found}[2]").into_bytes());
        // It was written before, or never.
        let whole = committed(&told, later);
        assert!(!whole || found == also, "seed {seed}: {found}");
        assert!(
            !whole
                || !{
                    let n = old.append(record(1, 99));
                    committed(&told, n)
                }
        );
        let last = new.append(record(2, 0));
        assert!(committed(&news, renewed) || renewed < last);
        assert!(last == renewed + 1);
        new.end(0, || ());
        while model.lock().unwrap().keys.len() > 1 {
            std::thread::yield_now();
        }
        assert!(model.lock().unwrap().keys.contains_key(&b"x/j/ended"[..]));
    }
}

#[test]
fn input_is_read_up_to_the_first_gap() {
    let folder = tempfile::tempdir().unwrap();
    let (_model, ha) = model(1, 0);
    let lead = Lead::found(&ha, "j", Lease::default()).unwrap();
    assert!(matches!(Lead::found(&ha, "j", Lease::default()), Err(HaError::Taken(_))));
    let (mut writer, told) = begin(&lead, folder.path());
    for (at, piece) in [(0, "one "), (4, "xx"), (6, "y"), (4, "two "), (8, "three"), (20, "z")] {
        writer.input(at, piece.as_bytes());
    }
    std::fs::write(folder.path().join(eyrie_state::home::PRINTED), [7; 16]).unwrap();
    let number = writer.append(vec![1; 3 << 20]);
    assert!(committed(&told, number));
    assert_eq!(lead.place.input().unwrap(), b"one two three");
    assert_eq!(lead.place.printed().unwrap(), [7; 16]);
    let held = Lead::succeed(Arc::clone(&lead.place), None, Duration::ZERO);
    assert!(matches!(held, Err(HaError::Held)));
    // Who knows that the leader is dead does not wait for its lease.
    let next = Lead::succeed(Arc::clone(&lead.place), Some(&lead.token), Duration::ZERO).unwrap();
    assert_eq!(next.term, 2);
    let number = writer.append(vec![1]);
    assert!(!committed(&told, number));
    next.remove();
    let gone = Lead::succeed(Arc::clone(&lead.place), None, Duration::ZERO);
    assert!(matches!(gone, Err(HaError::NoJob(_))));
}
