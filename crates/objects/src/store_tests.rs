//! Tests with a server that breaks off.

use super::*;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};

/// How long it waits for a server that says nothing; one of a test may be run late.
const PATIENCE: Duration = Duration::from_secs(20);

fn store(endpoint: &str) -> Store {
    store_with(endpoint, PATIENCE)
}

fn store_with(endpoint: &str, patience: Duration) -> Store {
    let url = endpoint.parse().unwrap();
    let bucket = Bucket::new(url, UrlStyle::Path, "states", "us-east-1").unwrap();
    Store {
        agent: agent(patience),
        bucket,
        keys: Credentials::new("key", "secret"),
        endpoint: endpoint.to_string(),
        pace: Pace::new(None),
        given_up: Vec::new(),
    }
}

/// Where the request wants an object from.
fn asked(stream: &TcpStream) -> usize {
    let (mut from, mut line) = (0, String::new());
    let mut reader = BufReader::new(stream);
    while reader.read_line(&mut line).unwrap() > 2 {
        if let Some(range) = line.to_lowercase().strip_prefix("range: bytes=") {
            from = range.trim().trim_end_matches('-').parse().unwrap();
        }
        line.clear();
    }
    from
}

/// Serves one object: of each call so many bytes, then the connection breaks. With `ranges` it
/// knows them. Ends after as many calls.
fn serve(content: Vec<u8>, pieces: Vec<usize>, ranges: bool) -> (String, impl FnOnce()) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        for piece in pieces {
            let (mut stream, _) = listener.accept().unwrap();
            let from = asked(&stream);
            let (status, from) = match ranges && from > 0 {
                true => ("206 Partial Content", from),
                false => ("200 OK", 0),
            };
            let left = &content[from..];
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", left.len());
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&left[..piece.min(left.len())]).unwrap();
        }
    });
    (endpoint, move || serving.join().unwrap())
}

/// Serves one object as `serve` does with ranges, but instead of breaking off falls silent, until
/// the caller has hung up.
fn serve_silently(content: Vec<u8>, pieces: Vec<usize>) -> (String, impl FnOnce() -> Vec<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let mut wanted = Vec::new();
        for piece in pieces {
            let (mut stream, _) = listener.accept().unwrap();
            let from = asked(&stream);
            wanted.push(from);
            let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
            let left = &content[from..];
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", left.len());
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&left[..piece.min(left.len())]).unwrap();
            let _ = stream.read(&mut [0]);
        }
        wanted
    });
    (endpoint, move || serving.join().unwrap())
}

/// Takes calls that bring something, until no more come; then says how many there were.
fn serve_uploads() -> (String, impl FnOnce() -> usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let (mut calls, mut line, mut reader) = (0, String::new(), BufReader::new(&stream));
        // Heads of requests; their bodies have ten bytes.
        while reader.read_line(&mut line).unwrap_or(0) > 0 {
            if line == "\r\n" {
                reader.read_exact(&mut [0; 10]).unwrap();
                (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                calls += 1;
            }
            line.clear();
        }
        calls
    });
    (endpoint, move || serving.join().unwrap())
}

fn fetched(pieces: &[usize], ranges: bool) -> Result<bool, StoreError> {
    let content: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
    let (endpoint, join) = serve(content.clone(), pieces.to_vec(), ranges);
    let port = endpoint.rsplit(':').next().unwrap();
    let path = std::env::temp_dir().join(format!("eyrie-objects-{port}"));
    let got = store(&endpoint).get_file("object", &path);
    let found = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    join();
    got.map(|bytes| bytes == 100_000 && found == content)
}

#[test]
fn what_breaks_off_is_gone_on_with() {
    assert!(fetched(&[40_000, 30_000, 10_000, 10_000, 5_000, 100_000], true).unwrap());
    assert!(fetched(&[40_000, 100_000], false).unwrap());
}

#[test]
fn a_server_that_gives_nothing_is_away() {
    let error = fetched(&[40_000, 0, 0, 0, 0], true).unwrap_err();
    assert!(matches!(error, StoreError::Away(..)), "{error}");
}

#[test]
fn silence_in_the_middle_is_a_break() {
    let content: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
    let (endpoint, join) = serve_silently(content.clone(), vec![40_000, 0, 30_000, 100_000]);
    let path = std::env::temp_dir().join(format!("eyrie-silent-{}", std::process::id()));
    let patience = Duration::from_millis(300);
    let got = store_with(&endpoint, patience).get_file("object", &path);
    let found = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((got.unwrap(), found == content), (100_000, true));
    assert_eq!(join(), [0, 40_000, 40_000, 70_000], "it goes on where it was");
    let (endpoint, join) = serve_silently(content.clone(), vec![40_000, 100_000]);
    assert!(store_with(&endpoint, patience).get("object").unwrap() == content);
    assert_eq!(join(), [0, 0]);
}

#[test]
fn what_is_given_up_is_brought_no_further() {
    let (endpoint, serving) = serve_uploads();
    let (given_up, mut it) = (Arc::new(AtomicBool::new(false)), store(&endpoint));
    it.heed(Arc::clone(&given_up));
    let mut left = 3;
    let mut next = || {
        left -= 1;
        given_up.store(left == 0, Ordering::Relaxed);
        Ok(vec![7; 10])
    };
    let error = it.put_parts("object", "upload", vec![7; 10], &mut next).unwrap_err();
    assert!(matches!(error, StoreError::GivenUp), "{error}");
    drop(it);
    assert_eq!((left, serving()), (0, 3));
}

#[test]
fn a_long_object_has_longer_parts() {
    assert_eq!(part_bytes(100), 16 << 20);
    for length in [1 << 30, 156 << 30, 157 << 30, 1 << 40, 5 << 40] {
        assert!(length / part_bytes(length) < 10_000, "{length}");
    }
}
