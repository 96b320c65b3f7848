//! Images that go by several connections are whole at the other end, or not there.

use super::*;
use crate::expected_images::Token;
use crate::image_files::parse;
use crate::image_store::tests::{node, node_with, secret};
use crate::image_stream::tests::image_of_a_process;
use crate::store_client::Client;
use crate::store_protocol::Members;
use eyrie_control::auth::Key;
use std::net::Shutdown;

const NAME: &str = "rank-1.gen-4";

#[test]
fn several_connections_go_far_and_not_with_many_images() {
    let ms = Duration::from_millis;
    let counts = [(0, 1), (4, 1), (5, 1), (20, 3), (20, 5), (20, 8), (20, 40), (20, 0)];
    let found = counts.map(|(trip, together)| count(ms(trip), together));
    assert_eq!(found, [1, 1, 4, 4, 3, 2, 1, 4]);
}

/// Brings an image by three connections from the first byte on, or does `harm` when all are there
/// and half of it has gone. Returns what the other node then has, and whether it took the image.
fn bring(encrypted: bool, bytes: &[u8], harm: impl FnOnce(&Lanes)) -> (Option<Vec<u8>>, bool) {
    let (members, secret) = (Members::default(), secret(encrypted));
    let (_here, own) = node(&members, 0, &secret);
    let (there, _, invited, _) = node_with(&members, 1, &secret);
    let key = Key::new().unwrap().0;
    invited.invite(1, 4, key);
    let connect = move || Client::connect(&own, &members, 1);
    let first = connect().unwrap().begin_stream(NAME, key).unwrap().unwrap();
    let mut lanes = Lanes::new(first).unwrap();
    lanes.widen_to(3, 1, Duration::ZERO, Box::new(move || connect()?.beside(NAME, key)));
    let parts: Vec<(usize, &[u8])> = bytes.chunks(4096).enumerate().collect();
    let put = |(n, part): &(usize, &[u8])| lanes.put(part, 4096 * *n as u64);
    let (some, rest) = parts.split_at(parts.len() / 2);
    some.iter().for_each(put);
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while lanes.count() < 3 && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(lanes.count(), 3);
    harm(&lanes);
    rest.iter().for_each(put);
    let first = lanes.finish(bytes.len() as u64);
    let done = first.is_some_and(|mut s| matches!(receive::<Answer>(&mut s.0), Ok(Answer::Done)));
    (std::fs::read(there.path().join(NAME)).ok(), done)
}

#[test]
fn an_image_is_put_together_from_what_came_by_several_connections() {
    let bytes = image_of_a_process();
    for encrypted in [false, true] {
        let (found, done) = bring(encrypted, &bytes, |_| ());
        assert!(done && found.as_ref() == Some(&bytes), "encrypted: {encrypted}");
    }
}

#[test]
fn an_image_of_which_one_connection_broke_is_not_there() {
    let bytes = image_of_a_process();
    for broken in 0..3 {
        let harm = |lanes: &Lanes| {
            lanes.all.lanes()[broken].socket.shutdown(Shutdown::Both).unwrap();
        };
        let (found, done) = bring(false, &bytes, harm);
        assert!(!done && found.is_none(), "{broken}");
    }
}

#[test]
fn an_image_to_which_somebody_still_adds_is_not_whole() {
    let (members, secret) = (Members::default(), secret(false));
    let (_here, own) = node(&members, 0, &secret);
    let (there, _, invited, _) = node_with(&members, 1, &secret);
    let key: Token = Key::new().unwrap().0;
    let connect = || Client::connect(&own, &members, 1).unwrap();
    let refused = |key| matches!(connect().beside(NAME, key), Err(StoreError::Refused(_)));
    invited.invite(1, 4, key);
    assert!(refused(key), "it does not come yet");
    let bytes = image_of_a_process();
    let (mut first, _) = connect().begin_stream(NAME, key).unwrap().unwrap();
    assert!(refused([0; 32]), "another key");
    let (mut beside, _) = connect().beside(NAME, key).unwrap();
    first.write_all(&head(0, bytes.len())).unwrap();
    first.write_all(&bytes).unwrap();
    first.write_all(&head(bytes.len() as u64, 0)).unwrap();
    assert!(receive::<Answer>(&mut first).is_err());
    beside.write_all(&head(0, 0)).unwrap();
    assert!(matches!(receive(&mut beside), Ok(Answer::Done)), "that is of no use");
    assert!(!there.path().join(NAME).exists() && parse(NAME).is_some());
    assert!(refused(key), "it does not come any more");
}
