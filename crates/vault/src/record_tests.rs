//! Records: written and read, damaged, and such as contradict themselves.

use super::*;
use crate::layout::Place;

fn summary(node: u32) -> Summary {
    let none = [3; 16];
    let (manifest_hash, parity_hash) = (none, none);
    Summary { node, payload: 100, manifest_bytes: 60, manifest_hash, parity_hash, needs: vec![1] }
}

fn commit() -> Commit {
    let groups = vec![vec![summary(0), summary(1), summary(2)]];
    Commit {
        vault: [1; 16],
        generation: 2,
        term: 7,
        scheme: "rs:2+1".parse().unwrap(),
        made: Made::Updated { base: 1, laid: 0, bytes: 9 },
        why: "it is less".into(),
        groups,
    }
}

fn object() -> Object {
    let extents = vec![
        Extent { at: 0, bytes: 30, generation: 2, from: 10 },
        Extent { at: 30, bytes: 5, generation: 1, from: 0 },
    ];
    Object { name: "rank-0.gen-1".into(), bytes: 35, hash: None, extents }
}

fn manifest() -> Manifest {
    let (chunks, objects) = (vec![[1; 16]], vec![object()]);
    Manifest { generation: 2, bytes: 40, chunks, objects, seal: None }
}

#[test]
fn every_flipped_bit_and_every_length_is_noticed() {
    let bytes = encode(&commit()).unwrap();
    assert_eq!(decode::<Commit>(&bytes).unwrap(), commit());
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode::<Commit>(&damaged).is_err(), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(decode::<Commit>(&bytes[..length]).is_err(), "{length} bytes");
    }
    assert!(decode::<Commit>(&[&bytes[..], b"x"].concat()).is_err());
    assert_eq!(decode::<Prepared>(&bytes), Err(RecordError::Magic(Prepared::NAME)));
}

fn refused<R: Record>(record: &R) -> bool {
    matches!(decode::<R>(&encode(record).unwrap()), Err(RecordError::Contradiction(_)))
}

#[test]
fn contradictions_are_refused() {
    let commits: [fn(&mut Commit); 9] = [
        |c| c.groups.clear(),
        |c| c.groups[0][1].node = 0,
        |c| c.groups[0].truncate(1),
        |c| c.groups[0][0].manifest_bytes = 101,
        |c| c.groups[0][0].payload = u64::MAX,
        |c| c.groups[0][0].needs = vec![2],
        |c| c.made = Made::Updated { base: 2, laid: 0, bytes: 0 },
        |c| c.made = Made::Updated { base: 0, laid: 1, bytes: 0 },
        |c| c.why = "x".repeat(MAX_WHY_BYTES + 1),
    ];
    for change in commits {
        let mut changed = commit();
        change(&mut changed);
        assert!(refused(&changed), "{changed:?}");
    }
    let manifests: [fn(&mut Manifest); 8] = [
        |m| m.chunks.clear(),
        |m| m.bytes = 39,
        |m| m.objects.push(object()),
        |m| m.objects[0].bytes = 36,
        |m| m.objects[0].extents[1].at = 31,
        |m| m.objects[0].extents[1].generation = 3,
        |m| m.objects[0].extents[1].from = u64::MAX,
        |m| m.objects[0].name = "../x".into(),
    ];
    assert_eq!(decode::<Manifest>(&encode(&manifest()).unwrap()).unwrap(), manifest());
    for change in manifests {
        let mut changed = manifest();
        change(&mut changed);
        assert!(refused(&changed), "{changed:?}");
    }
    let places = vec![Place::of(0), Place::of(1)];
    let identity = Identity { vault: [1; 16], node: 1, scheme: Scheme::Partner, places };
    assert!(!refused(&identity));
    assert!(refused(&Identity { node: 2, ..identity }));
    let dropped = |runs: &[(u64, u64)]| Dropped {
        runs: runs.iter().copied().collect(),
        ..Dropped::default()
    };
    assert!(!refused(&dropped(&[(1, 2), (4, 9)])));
    for runs in [&[(2, 1)][..], &[(1, 2), (3, 4)], &[(1, 5), (3, 9)], &[(1, u64::MAX), (5, 6)]] {
        assert!(refused(&dropped(runs)), "{runs:?}");
    }
}

#[test]
fn runs_of_dropped_generations_grow_together() {
    let mut dropped = Dropped::default();
    for generation in [5, 1, 2, 9, 3, 2, 8, 4] {
        dropped.add(generation);
        assert!(dropped.contains(generation));
    }
    assert_eq!(dropped.runs, BTreeMap::from([(1, 5), (8, 9)]));
    assert!(!dropped.contains(0) && !dropped.contains(6) && !dropped.contains(10));
    dropped.add_run(6, 20);
    assert_eq!(dropped.runs, BTreeMap::from([(1, 20)]));
    dropped.add_run(u64::MAX - 1, u64::MAX);
    dropped.add(u64::MAX);
    assert_eq!(dropped.runs.len(), 2);
    assert_eq!(dropped.check(), Ok(()));
}
