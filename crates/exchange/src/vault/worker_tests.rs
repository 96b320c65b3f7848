//! Nodes of one process that make a generation over loopback: what they make bears the losses that
//! it is to bear. With `EYRIE_VAULT_MIB=N` it also tells what the parity of N MiB a node costs.

use super::*;
use crate::image_store::{StoreServices, serve};
use crate::store_protocol::Members;
use crate::vault::VaultHandle;
use eyrie_control::auth::Key;
use eyrie_tls::{Routes, Secret};
use eyrie_vault::layout::Place;
use eyrie_vault::record::{Commit, Made, Summary};
use eyrie_vault::{Encoder, Vault};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Mutex, mpsc};

const VAULT: [u8; 16] = [7; 16];
const LIMIT: Duration = Duration::from_secs(60);

/// What a node's image has.
fn image(node: u32, bytes: usize) -> Vec<u8> {
    let mut word = u64::from(node) + 1;
    let mut next = || {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (word >> 32) as u32
    };
    (0..bytes.div_ceil(4)).flat_map(|_| next().to_le_bytes()).take(bytes).collect()
}

/// A way to tell a node, who it is, and what it offers.
type Node = (Sender<Work>, Identity, Summary);

/// A generation whose payload is offered.
fn current() -> Current {
    let (begun, told) = (Instant::now(), Instant::now());
    Current {
        generation: 1,
        group: Vec::new(),
        lines: None,
        prepared: false,
        pace: Pace::new(0),
        begun,
        sent: 0,
        told,
    }
}

fn setup(
    dir: &Path,
    node: u32,
    members: &Members,
    say: Arc<dyn Fn(FromNode) + Send + Sync>,
) -> Setup {
    Setup {
        folder: dir.join(node.to_string()),
        images: dir.join("images"),
        job: "j".into(),
        ranks: 0,
        members: Arc::clone(members),
        say,
    }
}

/// Starts a node that has written its payload.
fn start(
    dir: &Path,
    (node, places): (u32, &[Place]),
    bytes: usize,
    members: &Members,
    say: Arc<dyn Fn(FromNode) + Send + Sync>,
) -> Node {
    let folder = dir.join(node.to_string());
    let (own, (tell, told)) = (own(node), mpsc::channel());
    let setup = setup(dir, node, members, say);
    let identity = record::Identity {
        vault: VAULT,
        node,
        scheme: "rs:4+2".parse().unwrap(),
        places: places.to_vec(),
    };
    let (to, offered) = mpsc::channel();
    let worker = (setup, tell.clone(), Some(own.clone()));
    let begin = move || {
        let (setup, tell, own) = worker;
        let mut member = Member::create(Folder::create(&setup.folder).unwrap(), identity).unwrap();
        member.begin(1, 1).unwrap();
        member.add("image", &mut &image(node, bytes)[..]).unwrap();
        to.send(member.offer().unwrap()).unwrap();
        let (member, current) = (Some(member), Some(current()));
        Worker { setup, tell, member, own, current, scrubber: None }.work(&told);
    };
    std::thread::Builder::new().name("eyrie-vault".into()).spawn(begin).unwrap();
    let summary = offered.recv().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    members.lock().unwrap().push((node, 1, listener.local_addr().unwrap()));
    let services = StoreServices {
        vault: Some(VaultHandle { folder, work: tell.clone() }),
        ..StoreServices::default()
    };
    let images = dir.join("images");
    serve(listener, own.clone(), images, Arc::clone(members), Arc::default(), services).unwrap();
    (tell, own, summary)
}

fn own(node: u32) -> Identity {
    let secret = Secret::plain(Key([1; 32]));
    Identity { job: "j".into(), node, epoch: 1, secret, routes: Routes::default(), silence: LIMIT }
}

/// Processor time of this process, for itself and in the kernel, in seconds, and its faults.
fn spent() -> (f64, f64, i64) {
    // SAFETY: all zeros are a `rusage`, and the kernel writes no more than one.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage
    };
    let time = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    (time(usage.ru_utime), time(usage.ru_stime), usage.ru_minflt)
}

/// One generation by that encoder, of images of about so many bytes; two of its nodes are lost.
fn generation(encoder: Encoder, bytes: usize) {
    let dir = tempfile::tempdir().unwrap();
    let (members, places) = (Members::default(), (0..6).map(Place::of).collect::<Vec<_>>());
    let (say, said) = mpsc::channel();
    let say = Arc::new(Mutex::new(say));
    let bytes_of = |node: u32| bytes - 1000 * node as usize;
    let nodes: Vec<Node> = (0..6)
        .map(|node| {
            let say = Arc::clone(&say);
            let say = move |step| drop(say.lock().unwrap().send((node, step)));
            start(dir.path(), (node, &places), bytes_of(node), &members, Arc::new(say))
        })
        .collect();
    let all = |order: &VaultOrder| {
        for (tell, own, _) in &nodes {
            tell.send(Work::Order(Box::new(order.clone()), own.clone())).unwrap();
        }
    };
    let before = (spent(), Instant::now());
    let payloads = nodes.iter().map(|(.., summary)| summary.payload).collect();
    all(&VaultOrder::Encode { generation: 1, group: (0..6).collect(), payloads, encoder });
    let (mut prepared, mut sent) = (vec![None; 6], 0);
    while prepared.iter().any(Option::is_none) {
        match said.recv_timeout(LIMIT).unwrap() {
            (node, FromNode::Vault { step: VaultStep::Prepared { summary, spent }, .. }) => {
                prepared[node as usize] = Some(summary);
                sent += spent.bytes;
            }
            (_, FromNode::Vault { step: VaultStep::Underway { .. }, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    if std::env::var_os("EYRIE_VAULT_MIB").is_some() {
        let (after, took) = (spent(), before.1.elapsed().as_secs_f64());
        let (user, system) = (after.0 - before.0.0, after.1 - before.0.1);
        let per = |seconds: f64| seconds * 1e9 / sent as f64;
        let (all, user, system, took) = (per(user + system), per(user), per(system), took * 1e3);
        let faults = after.2 - before.0.2;
        eprintln!(
            "{encoder}: {all:.3} ns/byte sent (user {user:.3}, system {system:.3}), \
             {faults} faults, {took:.0} ms for {sent} bytes"
        );
    }
    let group = prepared.into_iter().flatten().collect();
    let (scheme, made, why) = ("rs:4+2".parse().unwrap(), Made::Anew, String::new());
    let (generation, term, groups) = (1, 1, vec![group]);
    let commit = Commit { vault: VAULT, generation, term, scheme, made, why, groups };
    all(&VaultOrder::Commit(Box::new(commit)));
    for _ in 0..6 {
        let (_, step) = said.recv_timeout(LIMIT).unwrap();
        assert!(matches!(step, FromNode::Vault { step: VaultStep::Committed, .. }), "{step:?}");
    }
    let left = [0, 2, 3, 5].map(|node| Folder::open(&dir.path().join(node.to_string())).unwrap());
    let left = left.map(|disk| Member::open(disk).unwrap().unwrap());
    let (mut vault, _) = Vault::open(left.into()).unwrap();
    for node in 0..6 {
        let mut found = Vec::new();
        vault.read(1, node, "image", &mut found).unwrap();
        assert!(found == image(node, bytes_of(node)), "{encoder}: the image of node {node}");
    }
}

#[test]
fn a_generation_over_loopback_bears_its_losses() {
    let mib = std::env::var("EYRIE_VAULT_MIB").ok().and_then(|mib| mib.parse().ok());
    let bytes = mib.map_or(1_500_000, |mib: usize| mib << 20);
    Encoder::ALL.into_iter().for_each(|encoder| generation(encoder, bytes));
}

/// The next node answers only when the payload is offered already.
#[test]
fn a_round_does_not_wait_for_what_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (members, folder) = (Members::default(), dir.path().join("1"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    members.lock().unwrap().extend([(0, 1, address), (1, 1, address)]);
    let ((to, said), (tell, told)) = (mpsc::channel(), mpsc::channel());
    let to = Mutex::new(to);
    let say = Arc::new(move |step| drop(to.lock().unwrap().send(step)));
    let (setup, work) = (setup(dir.path(), 0, &members, say), tell.clone());
    std::thread::spawn(move || run(setup, work, &told));
    let begin = VaultOrder::Begin {
        vault: VAULT,
        scheme: "rs:1+1".parse().unwrap(),
        places: (0..2).map(Place::of).collect(),
        generation: 1,
        term: 1,
        rate: 0,
        measure: true,
        images: Vec::new(),
        files: Vec::new(),
    };
    tell.send(Work::Order(Box::new(begin), own(0))).unwrap();
    let step = || match said.recv_timeout(LIMIT).unwrap() {
        FromNode::Vault { generation: 1, step } => step,
        other => panic!("{other:?}"),
    };
    let offered = step();
    assert!(matches!(offered, VaultStep::Offered { .. }), "{offered:?}");
    let services = StoreServices {
        vault: Some(VaultHandle { folder, work: tell }),
        ..StoreServices::default()
    };
    let images = dir.path().join("images");
    serve(listener, own(1), images, members, Arc::default(), services).unwrap();
    let measured = step();
    assert!(matches!(measured, VaultStep::Measured(link) if link.rate > 0), "{measured:?}");
}
