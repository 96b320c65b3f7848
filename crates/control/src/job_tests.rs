//! The bytes of a job, which saved jobs and journals hold.

use super::*;
use std::net::{IpAddr, Ipv4Addr};

fn placement() -> Placement {
    let host = crate::message::Host {
        name: "h".into(),
        controller: IpAddr::V4(Ipv4Addr::LOCALHOST),
        gateway: None,
    };
    Placement {
        nodes: 5,
        spares: 6,
        routers: 2,
        router_share: 4,
        netns: false,
        hosts: Some(Box::new(Hosts {
            list: vec![host],
            rsh: vec![b"ssh".to_vec()],
            shell: true,
            binary: b"/e".to_vec(),
            join_ms: 300,
            outlive: true,
        })),
        cyclic: true,
        homes: vec![1, 0, 2],
        bind: Bind::Core,
        slots: vec![vec![Slot { socket: Some(1), first: 2, last: 3 }]],
        clusters: Clusters { names: vec!["c".into()], of: vec![0; 2], ..Clusters::default() },
        transport: Transport::Tcp,
        ignore_features: vec!["fma".into()],
        topology: String::new(),
    }
}

/// One in which each field differs from those beside it.
fn spec() -> JobSpec {
    JobSpec {
        program: Program {
            path: b"/p".to_vec(),
            argv: vec![b"p".to_vec(), b"-x".to_vec()],
            size: 3,
            name: Some("job".into()),
            input_is_file: true,
            verbose: true,
        },
        placement: placement(),
        protection: Protection {
            ft: Ft::Cluster { outside: true },
            checkpoint_policy: CheckpointPolicy::Timer,
            incremental: true,
            freeze: Freeze::Sync,
            dedup: Dedup::Off,
            log_limit_bytes: 1 << 20,
            log_replicas: 7,
            clocks: Wtime::Mpi,
            strict_output: false,
            appended: Appended::Cut,
            orphans: Orphans::Leave,
            files: Files::Restore,
            files_limit_bytes: 9,
            fallback: Fallback::Every(8),
        },
        storage: Storage {
            vault: Scheme::Rs { k: 4, m: 2 },
            manner: Manner { rate: 10, domains: vec!["d".into()], ..Manner::default() },
            keep: false,
            save_to: Some("s3://b".into()),
            save_rate_bytes: 11,
            ha: Some(Box::new(Ha::parse("etcd://e:1/p").unwrap().0)),
        },
        security: Security {
            tls: true,
            at_rest: AtRest::Keyed { file: "k".into(), mark: [13; 16] },
            save_key: Some("s".into()),
        },
        timing: Timing {
            checkpoint_every_ms: 20,
            checkpoint_first_ms: 21,
            save_every_ms: 22,
            save_every_generations: 23,
            controller_limit_ms: 24,
            grace_ms: 25,
            intervals: Intervals::default(),
        },
    }
}

/// As it was encoded when all fields were in one struct, and with durations, of which it has none.
const GOLDEN: [u8; 151] = [
    0x03, 0x05, 0x01, 0x14, 0x15, 0x02, 0x01, 0x03, 0x02, 0x80, 0x80, 0x40, 0x01, 0x03, 0x6a, 0x6f,
    0x62, 0x00, 0x01, 0x05, 0x06, 0x02, 0x04, 0x00, 0x01, 0x01, 0x01, 0x68, 0x00, 0x7f, 0x00, 0x00,
    0x01, 0x00, 0x01, 0x03, 0x73, 0x73, 0x68, 0x01, 0x02, 0x2f, 0x65, 0xac, 0x02, 0x01, 0x01, 0x03,
    0x01, 0x00, 0x02, 0x03, 0x01, 0x01, 0x01, 0x01, 0x02, 0x03, 0x07, 0x02, 0x00, 0x00, 0x04, 0x02,
    0x00, 0x0a, 0x00, 0x01, 0x01, 0x64, 0x00, 0x02, 0x2f, 0x70, 0x02, 0x01, 0x70, 0x02, 0x2d, 0x78,
    0x01, 0x18, 0x01, 0x00, 0x16, 0x17, 0x01, 0x01, 0x63, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x19, 0x01, 0x06, 0x73, 0x33, 0x3a, 0x2f, 0x2f, 0x62, 0x0b, 0x01, 0x01, 0x73, 0x03,
    0x01, 0x6b, 0x0d, 0x0d, 0x0d, 0x0d, 0x0d, 0x0d, 0x0d, 0x0d, 0x0d, 0x0d, 0x0d, 0x0d, 0x0d, 0x0d,
    0x0d, 0x0d, 0x01, 0x03, 0x66, 0x6d, 0x61, 0x01, 0x01, 0x03, 0x65, 0x3a, 0x31, 0x01, 0x70, 0x00,
    0x01, 0x01, 0x03, 0x09, 0x02, 0x08, 0x00,
];

#[test]
fn what_was_saved_before_the_parts_were_is_read_and_written_the_same() {
    let golden: &[u8] = &GOLDEN;
    let (older, rest) = postcard::take_from_bytes::<Older>(golden).unwrap();
    assert_eq!((older.0, rest), (spec(), &[][..]));
    // What stands behind it is not taken for a part of it.
    let longer = [golden, &[7]].concat();
    let (older, rest) = postcard::take_from_bytes::<Older>(&longer).unwrap();
    assert_eq!((older.0, rest), (spec(), &[7][..]));
    for length in 0..golden.len() {
        assert!(postcard::from_bytes::<Older>(&golden[..length]).is_err(), "{length}");
    }
    same_bytes(&spec(), &[golden, &[0]].concat());
}

fn same_bytes(spec: &JobSpec, golden: &[u8]) {
    assert_eq!(postcard::to_stdvec(spec).unwrap(), golden);
    assert_eq!(postcard::from_bytes::<JobSpec>(golden).unwrap(), *spec);
    for length in 0..golden.len() {
        assert!(postcard::from_bytes::<JobSpec>(&golden[..length]).is_err(), "{length}");
    }
}

#[test]
fn durations_that_are_no_defaults_stand_behind_all_else() {
    let mut spec = spec();
    spec.timing.intervals.set("end", 300).unwrap();
    same_bytes(&spec, &[&GOLDEN[..150], b"\x01\x03end\xac\x02\x00"].concat());
    let nonsense = [&GOLDEN[..150], b"\x01\x03end\x00\x00"].concat();
    assert!(postcard::from_bytes::<JobSpec>(&nonsense).is_err());
}

#[test]
fn a_network_stands_behind_all_else() {
    let mut spec = spec();
    spec.placement.topology = String::from("torus 2x2");
    same_bytes(&spec, &[&GOLDEN[..], b"\x09torus 2x2"].concat());
}

#[test]
fn a_job_without_journal_leaves_no_nodes_waiting() {
    let mut spec = spec();
    assert!(spec.is_journaled() && spec.is_vaulted() && spec.saves());
    assert_eq!(spec.router_nodes(), 9..11);
    spec.placement.nodes = 0;
    assert!(!spec.is_journaled() && !spec.is_vaulted());
    assert_eq!(spec.controller_limit(), Duration::ZERO);
}
