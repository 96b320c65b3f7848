//! Shared file pointers over whole jobs, and ranks that come back.

use super::tests::{Folder, NEW, open};
use super::*;
use crate::consts::{COMM_SELF, COMM_WORLD, INFO_NULL};
use crate::datatype::predefined::{INT, SHORT};
use crate::error::class;
use crate::testing;

fn write_shared(m: &mut Machine, fh: Handle, data: &[i32]) -> Res<u64> {
    let (buf, count) = (data.as_ptr().cast(), data.len() as i64);
    // SAFETY: the data is as long as is said.
    unsafe { m.file_write_shared(fh, buf, count, INT) }.map(|status| status.bytes)
}

fn write_ordered(m: &mut Machine, fh: Handle, data: &[i32]) -> Res<u64> {
    let (buf, count) = (data.as_ptr().cast(), data.len() as i64);
    // SAFETY: the data is as long as is said.
    unsafe { m.file_write_ordered(fh, buf, count, INT) }.map(|status| status.bytes)
}

fn read_shared(m: &mut Machine, fh: Handle, count: usize) -> Res<Vec<i32>> {
    let mut data = vec![-1; count];
    // SAFETY: the data is as long as is said.
    let status = unsafe { m.file_read_shared(fh, data.as_mut_ptr().cast(), count as i64, INT) }?;
    data.truncate(status.bytes as usize / 4);
    Ok(data)
}

fn read_ordered(m: &mut Machine, fh: Handle, count: usize) -> Res<Vec<i32>> {
    let mut data = vec![-1; count];
    // SAFETY: the data is as long as is said.
    let status = unsafe { m.file_read_ordered(fh, data.as_mut_ptr().cast(), count as i64, INT) }?;
    data.truncate(status.bytes as usize / 4);
    Ok(data)
}

fn in_ints(m: &mut Machine, fh: Handle, disp: i64) {
    m.file_set_view(fh, disp, [INT, INT], Ok(b"native"), INFO_NULL).unwrap();
}

fn ints(path: &std::path::Path) -> Vec<i32> {
    let bytes = std::fs::read(path).unwrap();
    bytes.as_chunks().0.iter().map(|word| i32::from_ne_bytes(*word)).collect()
}

#[test]
fn each_record_stands_once_and_ordered_ones_in_order() {
    for ranks in [1, 4] {
        let folder = Folder::new();
        testing::run(ranks, |m| {
            let (me, n) = (m.world().0 as i32, ranks as usize);
            let mut fh = open(m, COMM_WORLD, &folder.file("shared"), NEW).unwrap();
            in_ints(m, fh, 4);
            for part in 0..5 {
                // Records of different sizes: a head with the number of what follows.
                let len = (me + part) as usize % 3;
                let mut record = vec![me * 100 + part; len + 1];
                record[0] = len as i32;
                assert_eq!(write_shared(m, fh, &record), Ok(4 * (len as u64 + 1)));
            }
            m.file_sync(fh).unwrap();
            assert_eq!(m.file_position(fh), Ok(0), "the other pointer stays");
            let from = m.file_position_shared(fh).unwrap();
            m.barrier(COMM_WORLD).unwrap();
            assert_eq!(write_ordered(m, fh, &vec![me; me as usize]), Ok(4 * me as u64));
            m.file_seek_shared(fh, from, SEEK_SET).unwrap();
            assert_eq!(read_ordered(m, fh, me as usize), Ok(vec![me; me as usize]));
            let end = from + (n * (n - 1) / 2) as i64;
            assert_eq!(m.file_position_shared(fh), Ok(end));
            m.barrier(COMM_WORLD).unwrap();
            m.file_seek_shared(fh, -end, SEEK_CUR).unwrap();
            assert_eq!(m.file_position_shared(fh), Ok(0));
            m.file_seek_shared(fh, 0, SEEK_END).unwrap();
            assert_eq!(m.file_position_shared(fh), Ok(end));
            m.file_close(&mut fh).unwrap();
        });
        let all = ints(&folder.file("shared"));
        let (mut at, mut seen): (usize, Vec<i32>) = (1, Vec::new());
        for _ in 0..5 * ranks {
            let len = all[at] as usize;
            let body = &all[at + 1..at + 1 + len];
            assert!(body.iter().all(|v| *v == body[0] && (v / 100 + v % 100) % 3 == len as i32));
            seen.extend(body.first());
            at += 1 + len;
        }
        seen.sort_unstable();
        let twice = seen.windows(2).any(|pair| pair[0] == pair[1]);
        assert!(!twice, "{seen:?}");
    }
}

#[test]
fn reads_share_out_what_there_is() {
    let folder = Folder::new();
    let path = folder.file("tasks");
    std::fs::write(&path, (0..90i32).flat_map(i32::to_ne_bytes).collect::<Vec<_>>()).unwrap();
    let taken = std::sync::Mutex::new(Vec::<i32>::new());
    testing::run(3, |m| {
        let fh = open(m, COMM_WORLD, &path, MODE_RDONLY | MODE_SEQUENTIAL).unwrap();
        let sequence = m.file_set_view(fh, 0, [INT, INT], Ok(b"native"), INFO_NULL);
        assert_eq!(sequence, Err(class::ARG));
        let current = DISPLACEMENT_CURRENT;
        m.file_set_view(fh, current, [INT, INT], Ok(b"native"), INFO_NULL).unwrap();
        assert_eq!(m.file_seek_shared(fh, 0, SEEK_SET), Err(class::UNSUPPORTED_OPERATION));
        loop {
            let some = read_shared(m, fh, 4).unwrap();
            taken.lock().unwrap().extend(&some);
            if some.len() < 4 {
                break;
            }
        }
        m.barrier(COMM_WORLD).unwrap();
        let mut fh = fh;
        m.file_close(&mut fh).unwrap();
    });
    let mut taken = taken.into_inner().unwrap();
    taken.sort_unstable();
    // Two jobs, on one node and on several, each took all.
    let expected: Vec<i32> = (0..90).flat_map(|i| [i, i]).collect();
    assert_eq!(taken, expected);
}

#[test]
fn modes_types_and_hints() {
    let folder = Folder::new();
    testing::run(2, |m| {
        let (me, path) = (m.world().0, folder.file("modes"));
        let mut out = open(m, COMM_WORLD, &path, MODE_WRONLY | MODE_CREATE).unwrap();
        assert_eq!(read_shared(m, out, 1), Err(class::ACCESS));
        in_ints(m, out, 0);
        // SAFETY: no more than two bytes are looked at.
        let odd = unsafe { m.file_write_shared(out, [0u8; 2].as_ptr(), 1, SHORT) };
        assert_eq!(odd.map(drop), Err(class::IO));
        // One rank's mistake is its own; the others' data is where it would be without.
        let mine = if me == 0 { -1 } else { 1 };
        // SAFETY: one number, or none.
        let ordered = unsafe { m.file_write_ordered(out, (&raw const me).cast(), mine, INT) };
        assert_eq!(ordered.is_ok(), me == 1);
        assert_eq!(m.file_position_shared(out), Ok(1));
        let other = m.file_seek_shared(out, i64::from(me), SEEK_SET);
        assert_eq!(other, Err(class::NOT_SAME));
        assert_eq!(m.file_seek_shared(out, -2, SEEK_CUR), Err(class::ARG));
        assert_eq!(m.file_seek_shared(out, 0, 7), Err(class::ARG));
        m.file_close(&mut out).unwrap();
        let mut end = open(m, COMM_WORLD, &path, MODE_RDWR | MODE_APPEND).unwrap();
        assert_eq!(m.file_position_shared(end), Ok(4));
        m.file_close(&mut end).unwrap();
        let info = m.info_create().unwrap();
        m.infos.get_mut(info).unwrap().set(b"eyrie_shared_pointer", b"false");
        let hint = if me == 0 { info } else { INFO_NULL };
        let name: Res<&[u8]> = Ok(path.as_os_str().as_encoded_bytes());
        let differs = m.file_open(COMM_WORLD, name, MODE_RDWR, hint);
        assert_eq!(differs, Err(class::NOT_SAME));
        let without = m.file_open(COMM_WORLD, name, MODE_RDWR, info).unwrap();
        assert!(!m.files.keeps_pointers());
        assert_eq!(write_shared(m, without, &[1]), Err(class::UNSUPPORTED_OPERATION));
        assert_eq!(write_ordered(m, without, &[1]), Err(class::UNSUPPORTED_OPERATION));
        let sought = m.file_seek_shared(without, 0, SEEK_SET);
        assert_eq!(sought, Err(class::UNSUPPORTED_OPERATION));
        let alone = open(m, COMM_SELF, &folder.file(&format!("own{me}")), NEW).unwrap();
        assert_eq!(write_shared(m, alone, &[1, 2]), Ok(8));
        assert_eq!(m.file_position_shared(alone), Ok(8));
    });
}

/// What every rank does: records of its own between what all do, and a step after each.
fn course(m: &mut Machine, folder: &Folder, step: &mut dyn FnMut() -> bool) -> Option<()> {
    let mut next = || if step() { None } else { Some(()) };
    let me = m.world().0 as i32;
    let mut fh = open(m, COMM_WORLD, &folder.file("course"), NEW).unwrap();
    in_ints(m, fh, 0);
    for round in 0..4 {
        next()?;
        let record = [me * 100 + round; 3];
        assert_eq!(write_shared(m, fh, &record), Ok(12));
        next()?;
        if round % 2 == 0 {
            assert_eq!(write_ordered(m, fh, &[-1 - me]), Ok(4));
            next()?;
        }
        assert_eq!(write_shared(m, fh, &[me * 100 + 50 + round; 3]), Ok(12));
    }
    m.barrier(COMM_WORLD).unwrap();
    let end = m.file_position_shared(fh).unwrap();
    m.barrier(COMM_WORLD).unwrap();
    next()?;
    m.file_seek_shared(fh, 0, SEEK_SET).unwrap();
    next()?;
    while !read_shared(m, fh, 3).unwrap().is_empty() {
        next()?;
    }
    assert_eq!(end, i64::from(m.world().1) * 26);
    m.barrier(COMM_WORLD).unwrap();
    m.file_close(&mut fh).unwrap();
    Some(())
}

fn check(folder: &Folder, ranks: i32) {
    let all = ints(&folder.file("course"));
    assert_eq!(all.len(), ranks as usize * 26);
    let mut records: Vec<i32> = all.iter().copied().filter(|v| *v >= 0).collect();
    records.sort_unstable();
    let one = |rank: i32| {
        (0..4).map(move |r| rank * 100 + r).chain((0..4).map(move |r| rank * 100 + 50 + r))
    };
    let expected: Vec<i32> = (0..ranks).flat_map(one).flat_map(|v| [v; 3]).collect();
    assert_eq!(records, expected);
    let ordered: Vec<i32> = all.into_iter().filter(|v| *v < 0).collect();
    let expected: Vec<i32> = (0..2).flat_map(|_| (0..ranks).map(|rank| -1 - rank)).collect();
    assert_eq!(ordered, expected);
}

#[test]
fn records_stand_once_whoever_dies() {
    for victim in [0, 2] {
        for after in 0..14 {
            let folder = Folder::new();
            testing::run_killing(3, victim, after, |m, step| {
                course(m, &folder, step);
            });
            check(&folder, 3);
        }
    }
}

#[test]
fn records_stand_once_when_a_node_is_lost() {
    for victim in [0, 2] {
        for after in 0..14 {
            let folder = Folder::new();
            testing::run_killing_node(3, victim, after, |m, step| {
                course(m, &folder, step);
            });
            check(&folder, 3);
        }
    }
}
