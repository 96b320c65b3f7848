//! Tests with a server that breaks off.

use super::*;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;

/// How long it waits for a server that says nothing; one of a test may be run late.
const PATIENCE: Duration = Duration::from_secs(20);

fn store(endpoint: &str) -> Store {
    store_with(endpoint, PATIENCE)
}

fn store_with(endpoint: &str, patience: Duration) -> Store {
    let mut access = Access::default();
    let options =
        [("endpoint_url", endpoint), ("access_key_id", "key"), ("secret_access_key", "secret")];
    options.iter().for_each(|(name, value)| access.set(&format!("aws_{name}"), (*value).into()));
    let place = StoreUrl::parse("s3://states").unwrap();
    Store::heard(&place, &access, RateLimit::new(None), patience).unwrap()
}

/// Answers one call each with these bytes, then hangs up. Tells what was called: the first lines.
fn answers(all: Vec<String>) -> (String, impl FnOnce() -> Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let mut called = Vec::new();
        for answer in all {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut line, mut first, mut bytes) = (String::new(), String::new(), 0);
            while reader.read_line(&mut line).unwrap() > 2 {
                if first.is_empty() {
                    first.clone_from(&line);
                }
                if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
                    bytes = length.trim().parse().unwrap();
                }
                line.clear();
            }
            reader.read_exact(&mut vec![0; bytes]).unwrap();
            called.push(first);
            stream.write_all(answer.as_bytes()).unwrap();
        }
        called
    });
    (endpoint, move || serving.join().unwrap())
}

fn answer(status: &str, body: &str) -> String {
    let length = body.len();
    let about = "ETag: \"tag\"\r\nConnection: close";
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{about}\r\n\r\n{body}")
}

/// One that breaks off in the middle of its body.
fn broken(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 9999\r\n\r\n{body}")
}

fn listed(key: &str, bytes: u64) -> String {
    format!(
        "<?xml version=\"1.0\"?><ListBucketResult><Name>states</Name><Prefix></Prefix>\
         <KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated><Contents>\
         <Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
         <ETag>&quot;x&quot;</ETag><Size>{bytes}</Size><StorageClass>STANDARD</StorageClass>\
         </Contents></ListBucketResult>"
    )
}

const NO_UPLOAD: &str = "<Error><Code>NoSuchUpload</Code><Message>gone</Message></Error>";

const BEGUN: &str = "<InitiateMultipartUploadResult><Bucket>states</Bucket><Key>object</Key>\
                     <UploadId>u</UploadId></InitiateMultipartUploadResult>";

/// An answer to who asks about an object only.
fn about(bytes: u64) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n")
}

/// Brings 70 bytes in one part.
fn in_one_part(store: &mut Store) -> Result<u64, StoreError> {
    let mut parts = [vec![7; 70], Vec::new()].into_iter();
    store.put_next("object", 70, &mut || Ok(parts.next().unwrap_or_default()))
}

/// The store makes the object, and its answer is lost: to be asked again it knows no such upload.
#[test]
fn an_object_whose_answer_was_lost_is_there() {
    let lost = [String::new(), broken("200 OK", "<Complete"), answer("500 Odd", "")];
    for lost in lost {
        for (bytes, there) in [(70, true), (69, false)] {
            let mut all = vec![
                answer("200 OK", BEGUN),
                answer("200 OK", ""),
                lost.clone(),
                answer("404 Not Found", NO_UPLOAD),
                about(bytes),
            ];
            if !there {
                // It is given up.
                all.push(answer("204 No Content", ""));
            }
            let calls = all.len();
            let (endpoint, join) = answers(all);
            let done = in_one_part(&mut store(&endpoint));
            assert_eq!(done.is_ok(), there, "{done:?}");
            assert_eq!(join().len(), calls);
        }
    }
    // Who was not asked before cannot have done it.
    let all = [("200 OK", BEGUN), ("200 OK", ""), ("404 Not Found", NO_UPLOAD), ("204 Gone", "")];
    let (endpoint, join) = answers(all.map(|(status, body)| answer(status, body)).to_vec());
    let done = in_one_part(&mut store(&endpoint));
    assert!(matches!(done, Err(StoreError::Refused { status: 404, .. })), "{done:?}");
    join();
}

#[test]
fn a_list_that_breaks_off_is_asked_for_again() {
    let whole = listed("object", 7);
    let all = vec![broken("200 OK", &whole[..40]), answer("200 OK", &whole)];
    let (endpoint, join) = answers(all);
    let found = store(&endpoint).list("").unwrap();
    assert_eq!(found, [Object { key: "object".into(), bytes: 7 }]);
    assert_eq!(join().len(), 2);
}

/// An answer of unknown length that breaks off where the object ends: nothing is behind that.
#[test]
fn a_break_behind_the_last_byte_is_the_end() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\ncontent\r\n";
    let none = answer("416 Range Not Satisfiable", "<Error><Code>InvalidRange</Code></Error>");
    let path = std::env::temp_dir().join(format!("eyrie-end-{}", std::process::id()));
    let (endpoint, join) = answers(vec![chunked.into(), none.clone()]);
    assert_eq!(store(&endpoint).get_file("object", &path).unwrap(), 7);
    assert_eq!(std::fs::read(&path).unwrap(), b"content");
    join();
    // With nothing had it is no end.
    let (endpoint, join) = answers(vec![none]);
    let found = store(&endpoint).get_file("object", &path).unwrap_err();
    assert!(matches!(found, StoreError::Refused { status: 416, .. }), "{found}");
    join();
    std::fs::remove_file(&path).unwrap();
}

/// Where the request wants an object from.
fn asked(stream: &TcpStream) -> usize {
    let (mut from, mut line) = (0, String::new());
    let mut reader = BufReader::new(stream);
    while reader.read_line(&mut line).unwrap() > 2 {
        if let Some(range) = line.to_lowercase().strip_prefix("range: bytes=") {
            from = range.trim().split('-').next().unwrap().parse().unwrap();
        }
        line.clear();
    }
    from
}

/// What stands before the rest of an object.
fn head(partial: bool, from: usize, all: usize, tag: &str) -> String {
    let length = format!("Content-Length: {}\r\n{tag}\r\n", all - from);
    match partial {
        true => {
            let range = format!("Content-Range: bytes {from}-{}/{all}", all - 1);
            format!("HTTP/1.1 206 Partial Content\r\n{range}\r\n{length}")
        }
        false => format!("HTTP/1.1 200 OK\r\n{length}"),
    }
}

/// Serves one object: of each call so many bytes, then the connection breaks. With `ranges` it
/// knows them. Ends after as many calls.
fn serve(
    content: Vec<u8>,
    pieces: Vec<usize>,
    ranges: bool,
    tag: &'static str,
) -> (String, impl FnOnce()) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        for piece in pieces {
            let (mut stream, _) = listener.accept().unwrap();
            let from = asked(&stream);
            let partial = ranges && from > 0;
            let from = if partial { from } else { 0 };
            let (left, head) = (&content[from..], head(partial, from, content.len(), tag));
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
            let (left, head) = (&content[from..], head(from > 0, from, content.len(), ""));
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&left[..piece.min(left.len())]).unwrap();
            let _ = stream.read(&mut [0]);
        }
        wanted
    });
    (endpoint, move || serving.join().unwrap())
}

/// Takes calls that bring something, until no more come; then says which there were.
fn serve_uploads() -> (String, impl FnOnce() -> Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let (mut calls, mut line, mut reader) =
            (Vec::new(), String::new(), BufReader::new(&stream));
        let (mut method, mut bytes) = (String::new(), 0);
        while reader.read_line(&mut line).unwrap_or(0) > 0 {
            if method.is_empty() {
                method = line.split(' ').next().unwrap().to_string();
            }
            if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
                bytes = length.trim().parse().unwrap();
            }
            if line == "\r\n" {
                reader.read_exact(&mut vec![0; bytes]).unwrap();
                let body = if method == "POST" { BEGUN } else { "" };
                let head = format!("Content-Length: {}\r\nETag: \"x\"", body.len());
                let answer = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}");
                (&stream).write_all(answer.as_bytes()).unwrap();
                calls.push(std::mem::take(&mut method));
                bytes = 0;
            }
            line.clear();
        }
        calls
    });
    (endpoint, move || serving.join().unwrap())
}

fn fetched(pieces: &[usize], ranges: bool, tag: &'static str) -> Result<bool, StoreError> {
    let content: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
    let (endpoint, join) = serve(content.clone(), pieces.to_vec(), ranges, tag);
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
    for tag in ["", "ETag: \"x\"\r\n"] {
        assert!(fetched(&[40_000, 30_000, 10_000, 10_000, 5_000, 100_000], true, tag).unwrap());
    }
    // Who gives all of it whatever was asked for is asked for all of it.
    assert!(fetched(&[40_000, 0, 100_000], false, "").unwrap());
}

#[test]
fn a_server_that_gives_nothing_is_away() {
    let error = fetched(&[40_000, 0, 0, 0, 0], true, "").unwrap_err();
    assert!(matches!(error, StoreError::Unreachable(..)), "{error}");
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
    let mut left = 4;
    let mut next = || {
        left -= 1;
        given_up.store(left == 0, Ordering::Relaxed);
        Ok(vec![7; 10])
    };
    let error = it.put_next("object", 10, &mut next).unwrap_err();
    assert!(matches!(error, StoreError::GivenUp), "{error}");
    drop(it);
    assert_eq!(
        (left, serving()),
        (0, ["POST", "PUT", "PUT", "PUT", "DELETE"].map(String::from).to_vec())
    );
}

#[test]
fn a_long_object_has_longer_parts() {
    assert_eq!(part_bytes(100), 16 << 20);
    for length in [1 << 30, 156 << 30, 157 << 30, 1 << 40, 5 << 40] {
        assert!(length / part_bytes(length) < 10_000, "{length}");
    }
}

#[test]
fn what_is_in_memory_is_brought_in_parts_if_it_is_long() {
    let last = "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>";
    let all = [BEGUN, "", "", last].map(|body| answer("200 OK", body)).to_vec();
    let (endpoint, join) = answers(all);
    let bytes = vec![7; usize::try_from(PART_BYTES).unwrap() + 9];
    assert_eq!(store(&endpoint).put_bytes("object", &bytes).unwrap(), PART_BYTES + 9);
    let called = join();
    let is = |number: usize, method: &str, word: &str| {
        called[number].starts_with(method) && called[number].contains(word)
    };
    assert!(is(1, "PUT", "partNumber=1&") && is(2, "PUT", "partNumber=2&"), "{called:?}");
    assert!(is(0, "POST", "uploads") && is(3, "POST", "uploadId=u"), "{called:?}");
    let (endpoint, join) = answers(vec![answer("200 OK", "")]);
    assert_eq!(store(&endpoint).put_bytes("object", b"short").unwrap(), 5);
    assert!(join()[0].starts_with("PUT"));
}

#[test]
fn a_folder_is_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("file://{}/states", folder.path().display());
    let place = StoreUrl::parse(&place).unwrap();
    let mut store = Store::open(&place, None).unwrap();
    assert!(matches!(store.reach(&place.key("")), Err(StoreError::File(..))), "nothing is there");
    assert!(store.list(&place.key("")).unwrap().is_empty());
    store.put(&place.key("list"), b"it").unwrap();
    let long = vec![7; usize::try_from(PART_BYTES).unwrap() + 9];
    assert_eq!(store.put_bytes(&place.key("data/x y%z"), &long).unwrap(), PART_BYTES + 9);
    store.reach(&place.key("")).unwrap();
    let mut all = store.list(&place.key("")).unwrap();
    all.sort_by(|a, b| a.key.cmp(&b.key));
    let found: Vec<_> = all.iter().map(|it| (it.key.as_str(), it.bytes)).collect();
    let want = [(place.key("data/x y%z"), PART_BYTES + 9), (place.key("list"), 2)];
    assert_eq!(found, want.each_ref().map(|(key, bytes)| (key.as_str(), *bytes)));
    let private =
        std::os::unix::fs::MetadataExt::mode(&place.folder().unwrap().metadata().unwrap());
    assert_eq!(private & 0o777, 0o700);
    let to = folder.path().join("to");
    assert_eq!(store.get_file(&want[0].0, &to).unwrap(), PART_BYTES + 9);
    assert!(std::fs::read(&to).unwrap() == long && store.get(&want[1].0).unwrap() == b"it");
    assert!(matches!(store.get(&place.key("no")), Err(StoreError::Missing(_))));
    for (key, _) in &want {
        store.delete(key).unwrap();
        store.delete(key).unwrap();
    }
    store.cleared();
    assert!(!place.folder().unwrap().exists());
}
