//! Tests of stores: files that go to other nodes and come back, and callers that are refused.

use super::*;
use crate::image_stream;
use crate::store_client::Client;
use eyrie_control::auth::Key;
use eyrie_tls::{Routes, Secret};
use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

pub fn node(members: &Members, node: u32, secret: &Secret) -> (tempfile::TempDir, Identity) {
    let (dir, own, ..) = node_with(members, node, secret);
    (dir, own)
}

pub type Started = (tempfile::TempDir, Identity, Arc<ExpectedImages>, Arc<TurnedAway>);

pub fn node_with(members: &Members, node: u32, secret: &Secret) -> Started {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (job, secret, routes) = ("jobs".into(), secret.clone(), Routes::default());
    let silence = Duration::from_secs(20);
    let own = Identity { job, node, epoch: 7, secret, routes, silence };
    members.lock().unwrap().push((node, 7, listener.local_addr().unwrap()));
    let (services, count) = (StoreServices::default(), Arc::new(TurnedAway::default()));
    let invited = Arc::clone(&services.invited);
    let (folder, members) = (dir.path().into(), Arc::clone(members));
    serve(listener, own.clone(), folder, members, Arc::clone(&count), services).unwrap();
    (dir, own, invited, count)
}

#[test]
fn images_go_to_another_node_and_come_back() {
    [false, true].into_iter().for_each(images_go);
}

pub fn secret(encrypted: bool) -> Secret {
    Secret::new(Key::new().unwrap(), encrypted).unwrap()
}

fn images_go(encrypted: bool) {
    let (members, secret) = (Members::default(), secret(encrypted));
    let (here, own) = node(&members, 0, &secret);
    let (there, _) = node(&members, 1, &secret);
    let bytes: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
    std::fs::write(here.path().join("rank-3.gen-2"), &bytes).unwrap();
    let mut client = Client::connect(&own, &members, 1).unwrap();
    client.put(here.path(), "rank-3.gen-2").unwrap();
    client.put(here.path(), "rank-3.gen-2").unwrap();
    assert_eq!(std::fs::read(there.path().join("rank-3.gen-2")).unwrap(), bytes);
    std::fs::write(there.path().join("rank-3.gen-2.log"), b"log").unwrap();
    client.get(here.path(), "rank-3.gen-2.log").unwrap();
    assert_eq!(std::fs::read(here.path().join("rank-3.gen-2.log")).unwrap(), b"log");
    let missing = client.get(here.path(), "rank-3.gen-9").unwrap_err();
    assert!(matches!(missing, StoreError::Refused(_)));
    assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 2);
}

#[test]
fn an_image_comes_while_it_is_written_or_not_at_all() {
    [false, true].into_iter().for_each(image_comes);
}

fn image_comes(encrypted: bool) {
    use eyrie_image::Tap;
    let (members, secret) = (Members::default(), secret(encrypted));
    let (_here, own) = node(&members, 0, &secret);
    let (there, _, invited, count) = node_with(&members, 1, &secret);
    let name = "rank-1.gen-4";
    let invite = |name: &str| {
        let key = Key::new().unwrap().0;
        let named = image_files::parse(name).unwrap();
        invited.invite(named.rank, named.generation, key);
        key
    };
    let begin = || {
        let client = Client::connect(&own, &members, 1).unwrap();
        image_stream::ImageStream::begin(client, name, invite(name), Arc::default())
    };
    let bytes = image_stream::tests::image_of_a_process();
    let middle = bytes.len() / 2;
    // One that breaks off.
    begin().unwrap().unwrap().put(&bytes[..100], 4096);
    let mut pour = begin().unwrap().unwrap();
    pour.put(&bytes[middle..], middle as u64);
    pour.put(&bytes[4096..middle], 4096);
    assert!(!there.path().join(name).exists());
    pour.finish(&bytes[..4096]);
    assert!(std::fs::read(there.path().join(name)).unwrap() == bytes);
    assert!(begin().unwrap().is_none(), "it is there");
    // One with a hole is as long as was said, one with too little is not.
    let connect = || Client::connect(&own, &members, 1).unwrap();
    let pour = |name: &str, key| connect().begin_stream(name, key).map(|begun| begun.map(|b| b.0));
    let mut stream = pour("rank-1.gen-5", invite("rank-1.gen-5")).unwrap().unwrap();
    stream.write_all(&[&7u64.to_le_bytes()[..], &0u32.to_le_bytes()[..]].concat()).unwrap();
    assert!(receive::<Answer>(&mut stream).is_err());
    let mut stream = pour("rank-1.gen-5", invite("rank-1.gen-5")).unwrap().unwrap();
    stream.write_all(&[&u64::MAX.to_le_bytes()[..], &9u32.to_le_bytes()[..]].concat()).unwrap();
    assert!(receive::<Answer>(&mut stream).is_err());
    let left = |name: &str| {
        std::fs::read_dir(there.path())
            .unwrap()
            .flatten()
            .any(|e| e.file_name().to_string_lossy().contains(name))
    };
    assert!(!left("gen-5"), "nothing is left of what did not come");
    // One that the other node cannot keep: that says nothing of its process.
    let (client, poured) =
        (Client::connect(&own, &members, 1).unwrap(), image_stream::SharedOutcome::default());
    let key = invite("rank-1.gen-7");
    let mut kept =
        image_stream::ImageStream::begin(client, "rank-1.gen-7", key, Arc::clone(&poured));
    std::fs::create_dir(there.path().join("rank-1.gen-7")).unwrap();
    let kept = kept.as_mut().unwrap().as_mut().unwrap();
    kept.put(&bytes[4096..], 4096);
    kept.finish(&bytes[..4096]);
    let outcome = poured.lock().unwrap();
    assert!(outcome.unfit.is_none() && outcome.client.is_none());
    // Keys of others, and those that were used.
    let key = invite("rank-1.gen-6");
    assert!(matches!(pour("rank-1.gen-6", [0; 32]), Err(StoreError::Refused(_))));
    assert!(pour("rank-1.gen-6", key).unwrap().is_some());
    assert!(matches!(pour("rank-1.gen-6", key), Err(StoreError::Refused(_))));
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while count.now().uninvited < 2 && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(count.now().uninvited, 2);
}

#[test]
fn a_node_that_is_fenced_in_a_conversation_brings_and_gets_nothing_more() {
    let (members, secret) = (Members::default(), secret(false));
    let (here, own) = node(&members, 0, &secret);
    // Who serves hears of it first.
    let known = Arc::new(Mutex::new(members.lock().unwrap().clone()));
    let (there, _, _, count) = node_with(&known, 1, &secret);
    members.lock().unwrap().extend(known.lock().unwrap().last());
    let name = |n: u32| format!("rank-0.gen-{n}");
    (1..4).for_each(|n| std::fs::write(here.path().join(name(n)), b"image").unwrap());
    let connect = || Client::connect(&own, &members, 1).unwrap();
    let [mut brings, mut asks, mut sends] = [(); 3].map(|()| connect());
    for client in [&mut brings, &mut asks] {
        client.put(here.path(), &name(1)).unwrap();
    }
    // In the middle of a file.
    send(sends.talk().get_mut(), &Ask::Put { name: name(3), bytes: 5 }).unwrap();
    assert!(matches!(receive(sends.talk()), Ok(Answer::Go(5))));
    known.lock().unwrap().retain(|(node, ..)| *node != 0);
    assert!(brings.put(here.path(), &name(2)).is_err());
    std::fs::remove_file(here.path().join(name(1))).unwrap();
    assert!(asks.get(here.path(), &name(1)).is_err());
    sends.talk().get_mut().write_all(b"image").unwrap();
    let answer = receive(sends.talk());
    assert!(!matches!(answer, Ok(Answer::Done)), "{answer:?}");
    let there = |n| there.path().join(name(n)).exists();
    assert_eq!([1, 2, 3].map(there), [true, false, false]);
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while count.now().fenced < 3 && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(count.now().fenced, 3);
}

#[test]
fn strangers_and_strange_names_are_refused() {
    let (members, known) = (Members::default(), secret(false));
    let (here, own) = node(&members, 0, &known);
    let (_there, _) = node(&members, 1, &known);
    let stranger = Identity { secret: secret(false), ..own.clone() };
    assert!(Client::connect(&stranger, &members, 1).is_err());
    let fenced = Identity { epoch: 6, ..own.clone() };
    let mut client = Client::connect(&fenced, &members, 1).unwrap();
    assert!(client.get(here.path(), "rank-0.gen-1").is_err());
    for name in ["../rank-0.gen-1", "rank-0", "rank-0.gen-1.1.log", "rank-0.gen-1/../y"] {
        let mut client = Client::connect(&own, &members, 1).unwrap();
        assert!(client.get(here.path(), name).is_err(), "{name}");
    }
}
