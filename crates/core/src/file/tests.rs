//! Files over whole jobs, and ranks that come back.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::consts::{COMM_SELF, COMM_WORLD, INFO_NULL};
use crate::datatype::predefined::{BYTE, INT};
use crate::testing;

/// A folder that goes with the test.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("eyrie-file-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) const NEW: i32 = MODE_RDWR | MODE_CREATE;

fn name(path: &Path) -> Res<&[u8]> {
    Ok(path.as_os_str().as_encoded_bytes())
}

pub(super) fn open(m: &mut Machine, comm: Handle, path: &Path, amode: i32) -> Res<Handle> {
    m.file_open(comm, name(path), amode, INFO_NULL)
}

fn write(m: &mut Machine, fh: Handle, offset: Option<i64>, data: &[i32]) -> Res<u64> {
    let (buf, count) = (data.as_ptr().cast(), data.len() as i64);
    // SAFETY: the data is as long as is said.
    unsafe { m.file_write(fh, offset, buf, count, INT) }.map(|status| status.bytes)
}

fn read(m: &mut Machine, fh: Handle, offset: Option<i64>, count: usize) -> Res<Vec<i32>> {
    let mut data = vec![-1; count];
    // SAFETY: the data is as long as is said.
    let status = unsafe { m.file_read(fh, offset, data.as_mut_ptr().cast(), count as i64, INT) }?;
    data.truncate(status.bytes as usize / 4);
    Ok(data)
}

#[test]
fn ranks_share_a_file_through_their_views() {
    for ranks in [1, 3] {
        let folder = Folder::new();
        testing::run(ranks, |m| {
            let path = folder.file("shared");
            let me = m.world().0 as i32;
            let mut fh = open(m, COMM_WORLD, &path, NEW).unwrap();
            let int = m.types.contiguous(1, INT).unwrap();
            let mut shape = m.types.resized(int, 0, 4 * i64::from(ranks)).unwrap();
            m.types.commit(shape).unwrap();
            let disp = 4 * i64::from(me);
            m.file_set_view(fh, disp, [INT, shape], Ok(b"native"), INFO_NULL).unwrap();
            m.types.free(&mut shape).unwrap();
            for part in 0..3 {
                assert_eq!(write(m, fh, None, &[me * 10 + part]), Ok(4));
                assert_eq!(m.file_position(fh), Ok(i64::from(part) + 1));
            }
            m.file_sync(fh).unwrap();
            m.file_set_view(fh, 0, [BYTE, BYTE], Ok(b"internal"), INFO_NULL).unwrap();
            let all = read(m, fh, Some(0), 4 * ranks as usize).unwrap();
            let n = ranks as usize;
            assert_eq!(all.len(), 3 * n);
            assert!((0..3 * n).all(|i| all[i] == (i % n * 10 + i / n) as i32));
            assert_eq!(m.file_size(fh), Ok(12 * i64::from(ranks)));
            m.file_seek(fh, -4, SEEK_END).unwrap();
            assert_eq!(read(m, fh, None, 4).map(|data| data.len()), Ok(1));
            assert_eq!(m.file_position(fh), Ok(12 * i64::from(ranks)));
            m.file_close(&mut fh).unwrap();
            assert_eq!(fh, FILE_NULL);
        });
    }
}

#[test]
fn memory_with_gaps() {
    let folder = Folder::new();
    testing::run(1, |m| {
        let fh = open(m, COMM_SELF, &folder.file("gaps"), NEW).unwrap();
        let every = m.types.vector(4, 1, 2, INT).unwrap();
        m.types.commit(every).unwrap();
        m.file_set_view(fh, 8, [INT, every], Ok(b"native"), INFO_NULL).unwrap();
        let data: Vec<i32> = (0..8).collect();
        let mut back = [-1; 8];
        // SAFETY: four ints, every other one of eight.
        let (wrote, got) = unsafe {
            (
                m.file_write(fh, Some(1), data.as_ptr().cast(), 1, every),
                m.file_read(fh, Some(1), back.as_mut_ptr().cast(), 1, every),
            )
        };
        assert_eq!((wrote.map(|s| s.bytes), got.map(|s| s.bytes)), (Ok(16), Ok(16)));
        assert_eq!(back, [0, -1, 2, -1, 4, -1, 6, -1]);
        // The last two elements are there, and nothing behind them.
        m.file_seek(fh, -2, SEEK_END).unwrap();
        assert_eq!(read(m, fh, None, 8), Ok(vec![4, 6]));
        assert_eq!(m.file_position(fh), Ok(5));
        let (_, types, _) = m.file_get_view(fh).unwrap();
        assert!(types[0] == INT && types[1].is_dynamic() && types[1] != every);
    });
}

#[test]
fn errors_are_those_of_all() {
    let folder = Folder::new();
    testing::run(3, |m| {
        let (me, path) = (m.world().0, folder.file("errors"));
        let fails = |m: &mut Machine, amode| open(m, COMM_WORLD, &path, amode).map(drop);
        assert_eq!(fails(m, MODE_RDONLY), Err(class::NO_SUCH_FILE));
        assert_eq!(fails(m, MODE_RDONLY | MODE_CREATE), Err(class::AMODE));
        assert_eq!(fails(m, MODE_RDONLY | MODE_RDWR), Err(class::AMODE));
        let other = if me == 1 { MODE_WRONLY } else { MODE_RDWR };
        assert_eq!(fails(m, other | MODE_CREATE), Err(class::NOT_SAME));
        let bad = m.file_open(COMM_WORLD, name(&folder.0), MODE_RDONLY, INFO_NULL);
        assert_eq!(bad, Err(class::BAD_FILE));
        let amode = NEW | MODE_EXCL | MODE_DELETE_ON_CLOSE;
        let mut fh = open(m, COMM_WORLD, &path, amode).unwrap();
        assert_eq!(fails(m, amode), Err(class::FILE_EXISTS));
        assert!(m.file_set_size(fh, if me == 2 { -1 } else { 5 }).is_err());
        assert_eq!(m.file_set_size(fh, i64::from(me)), Err(class::NOT_SAME));
        m.file_preallocate(fh, 3 << 20).unwrap();
        assert_eq!(m.file_size(fh), Ok(3 << 20));
        m.file_set_size(fh, 5).unwrap();
        assert_eq!(m.file_size(fh), Ok(5));
        let rep: Res<&[u8]> = Ok(if me == 0 { b"of nobody" } else { b"native" });
        let viewed = m.file_set_view(fh, 0, [BYTE, BYTE], rep, INFO_NULL);
        assert_eq!(viewed, Err(class::UNSUPPORTED_DATAREP));
        let rep: Res<&[u8]> = Ok(if me == 0 { b"external32" } else { b"native" });
        let viewed = m.file_set_view(fh, 0, [BYTE, BYTE], rep, INFO_NULL);
        assert_eq!(viewed, Err(class::NOT_SAME));
        m.file_close(&mut fh).unwrap();
        assert!(!path.exists());
        assert_eq!(m.file_size(fh), Err(class::FILE));
    });
}

#[test]
fn modes_are_kept_to() {
    let folder = Folder::new();
    testing::run(1, |m| {
        let path = folder.file("modes");
        let out = open(m, COMM_SELF, &path, MODE_WRONLY | MODE_CREATE).unwrap();
        assert_eq!(write(m, out, None, &[1, 2]), Ok(8));
        assert_eq!(read(m, out, Some(0), 1), Err(class::ACCESS));
        let inn = open(m, COMM_SELF, &path, MODE_RDONLY).unwrap();
        assert_eq!(write(m, inn, None, &[1, 2]), Err(class::READ_ONLY));
        assert_eq!(m.file_set_size(inn, 0), Err(class::READ_ONLY));
        assert_eq!(read(m, inn, Some(-1), 1), Err(class::ARG));
        assert_eq!(read(m, inn, Some(4), 1), Ok(vec![2]));
        let end = open(m, COMM_SELF, &path, MODE_RDWR | MODE_APPEND).unwrap();
        assert_eq!(m.file_position(end), Ok(8));
        let shared = open(m, COMM_SELF, &path, MODE_RDONLY | MODE_SEQUENTIAL).unwrap();
        assert_eq!(read(m, shared, None, 1), Err(class::UNSUPPORTED_OPERATION));
        m.file_set_atomicity(end, true).unwrap();
        assert_eq!(write(m, end, None, &[3]), Ok(4));
        assert_eq!(read(m, end, Some(0), 9), Ok(vec![1, 2, 3]));
        assert_eq!(m.file_ended(end, Split::ReadAll), Err(class::IO));
        m.file_begun(end, Split::ReadAll, Status::EMPTY).unwrap();
        assert_eq!(m.file_may_begin(end), Err(class::IO));
        assert_eq!(m.file_ended(end, Split::WriteAll), Err(class::IO));
        assert_eq!(m.file_ended(end, Split::ReadAll), Ok(Status::EMPTY));
    });
}

#[test]
fn a_full_device_and_a_file_that_went() {
    let folder = Folder::new();
    testing::run(1, |m| {
        let full = open(m, COMM_SELF, Path::new("/dev/full"), MODE_WRONLY).unwrap();
        assert_eq!(write(m, full, None, &[1]), Err(class::NO_SPACE));
        assert_eq!(m.file_position(full), Ok(0));
        let path = folder.file("went");
        let fh = open(m, COMM_SELF, &path, NEW).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(write(m, fh, None, &[1]), Err(class::NO_SUCH_FILE));
        assert_eq!(m.file_size(fh), Err(class::NO_SUCH_FILE));
        assert_eq!(read(m, fh, None, 0), Ok(vec![]));
    });
}

#[test]
fn handlers_of_files() {
    let folder = Folder::new();
    testing::run(1, |m| {
        let is_return = |m: &Machine, fh| matches!(m.raise(fh, class::IO), Action::Return);
        assert!(is_return(m, FILE_NULL));
        let fatal = crate::consts::ERRORS_ARE_FATAL;
        m.file_set_errhandler(FILE_NULL, fatal).unwrap();
        let fh = open(m, COMM_SELF, &folder.file("handlers"), NEW).unwrap();
        assert_eq!(m.file_get_errhandler(fh), Ok(fatal));
        m.file_set_errhandler(fh, ERRORS_RETURN).unwrap();
        assert!(is_return(m, fh) && !is_return(m, FILE_NULL));
        let own = m.errhandler_create(ErrKind::Comm, Rc::new(|_, code| code)).unwrap();
        assert_eq!(m.file_set_errhandler(fh, own), Err(class::ERRHANDLER));
    });
}

/// What a rank does with files, as it sees it.
fn life(m: &mut Machine, folder: &Folder) -> Vec<Res<i64>> {
    let (scratch, kept) = (folder.file("scratch"), folder.file("kept"));
    let amode = NEW | MODE_EXCL;
    let mut seen = Vec::new();
    let mut fh = open(m, COMM_SELF, &scratch, amode).unwrap();
    seen.push(open(m, COMM_SELF, &scratch, amode).map(|_| 0));
    seen.push(write(m, fh, None, &[1, 2, 3]).map(|n| n as i64));
    seen.push(m.file_size(fh));
    seen.push(read(m, fh, Some(4), 9).map(|data| i64::from(data[0]) * 10 + data.len() as i64));
    m.file_close(&mut fh).unwrap();
    seen.push(m.file_delete(name(&scratch), INFO_NULL).map(|()| 0));
    seen.push(m.file_delete(name(&scratch), INFO_NULL).map(|()| 0));
    let mut fh = open(m, COMM_SELF, &kept, amode).unwrap();
    seen.push(write(m, fh, Some(2), &[7]).map(|n| n as i64));
    m.file_set_size(fh, 400).unwrap();
    m.file_close(&mut fh).unwrap();
    seen
}

fn replayed(disturb: impl Fn(&Folder)) -> Result<Vec<Res<i64>>, ()> {
    let folder = Folder::new();
    let seg = testing::segment(1);
    let first = life(&mut testing::machine(seg, 0, 1), &folder);
    disturb(&folder);
    let again = life(&mut testing::machine(seg, 0, 2), &folder);
    if first == again { Ok(first) } else { Err(()) }
}

#[test]
fn a_rank_that_comes_back_finds_what_it_found() {
    // A file that was read and is gone cannot be read again: see below. This one is put back.
    let put_back = |folder: &Folder| {
        std::fs::write(folder.file("scratch"), [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]).unwrap();
        std::fs::write(folder.file("kept"), b"of another").unwrap();
    };
    let seen = replayed(put_back).unwrap();
    let expected =
        [Err(class::FILE_EXISTS), Ok(12), Ok(12), Ok(22), Ok(0), Err(class::NO_SUCH_FILE), Ok(4)];
    assert_eq!(seen, expected);
}

/// Each rank writes, all read what the next one wrote, and the file goes; a rank dies in between.
#[test]
fn a_rank_that_dies_anywhere_is_brought_up_to_date() {
    for victim in [0, 2] {
        for after in 0..12 {
            let folder = Folder::new();
            testing::run_killing(3, victim, after, |m, step| {
                let me = m.world().0 as i32;
                let path = folder.file("shared");
                for round in 0..2 {
                    let name = folder.file(&format!("round{round}"));
                    let mut fh = open(m, COMM_WORLD, &name, NEW | MODE_EXCL).unwrap();
                    if step() {
                        return;
                    }
                    let mine = [round * 10 + me];
                    assert_eq!(write(m, fh, Some(4 * i64::from(me)), &mine), Ok(4));
                    if step() {
                        return;
                    }
                    m.file_sync(fh).unwrap();
                    let next = (me + 1) % 3;
                    assert_eq!(
                        read(m, fh, Some(4 * i64::from(next)), 1),
                        Ok(vec![round * 10 + next])
                    );
                    if step() {
                        return;
                    }
                    m.file_close(&mut fh).unwrap();
                    // One name for all rounds: what is made and removed again stays removed.
                    let amode = NEW | MODE_EXCL | MODE_DELETE_ON_CLOSE;
                    let mut fh = open(m, COMM_WORLD, &path, amode).unwrap();
                    if step() {
                        return;
                    }
                    m.file_set_size(fh, i64::from(round)).unwrap();
                    assert_eq!(m.file_size(fh), Ok(i64::from(round)));
                    m.file_sync(fh).unwrap();
                    if step() {
                        return;
                    }
                    m.file_close(&mut fh).unwrap();
                    if step() {
                        return;
                    }
                }
            });
            assert!(!folder.file("shared").exists());
        }
    }
}

#[test]
fn what_was_written_over_since_stays() {
    let folder = Folder::new();
    let path = folder.file("over");
    let seg = testing::segment(1);
    let once = |m: &mut Machine| {
        let mut fh = open(m, COMM_SELF, &path, NEW | MODE_EXCL).unwrap();
        write(m, fh, None, &[1, 1]).unwrap();
        m.file_set_size(fh, 4).unwrap();
        m.file_close(&mut fh).unwrap();
    };
    once(&mut testing::machine(seg, 0, 1));
    std::fs::write(&path, b"of somebody else").unwrap();
    once(&mut testing::machine(seg, 0, 2));
    assert_eq!(std::fs::read(&path).unwrap(), b"of somebody else");
}

#[test]
fn on_another_machine_it_is_written_again() {
    let folder = Folder::new();
    let path = folder.file("again");
    let seg = testing::segment(1);
    let once = |m: &mut Machine| {
        let mut fh = open(m, COMM_SELF, &path, NEW | MODE_EXCL).unwrap();
        assert_eq!(write(m, fh, None, &[1, 2]), Ok(8));
        m.file_set_size(fh, 400).unwrap();
        m.file_sync(fh).unwrap();
        assert_eq!(read(m, fh, Some(4), 1), Ok(vec![2]));
        m.file_close(&mut fh).unwrap();
    };
    once(&mut testing::machine(seg, 0, 1));
    std::fs::write(&path, b"lost").unwrap();
    disk::ELSEWHERE.set(true);
    once(&mut testing::machine(seg, 0, 2));
    disk::ELSEWHERE.set(false);
    assert_eq!(std::fs::read(&path).unwrap(), [1, 0, 0, 0, 2, 0, 0, 0]);
}

/// Killed after its deed and before its record.
#[test]
fn a_rank_knows_its_own_deeds() {
    let folder = Folder::new();
    let path = folder.file("own");
    let make = |m: &mut Machine| open(m, COMM_SELF, &path, NEW | MODE_EXCL).map(drop);
    // The first life ends behind the question whether it is there.
    let seg = testing::segment(1);
    let mut first = testing::machine(seg, 0, 1);
    let place = Place::new(name(&path).unwrap(), true, true).unwrap();
    assert_eq!(first.is_there(&place), Ok((false, true)));
    std::fs::write(&path, b"").unwrap();
    assert_eq!(make(&mut testing::machine(seg, 0, 2)), Ok(()));
    let mut stranger = testing::machine(testing::segment(1), 0, 1);
    assert_eq!(make(&mut stranger), Err(class::FILE_EXISTS));
    // And so does one that has removed it.
    let seg = testing::segment(1);
    assert_eq!(testing::machine(seg, 0, 1).is_there(&place), Ok((true, true)));
    std::fs::remove_file(&path).unwrap();
    let mut again = testing::machine(seg, 0, 2);
    assert_eq!(again.file_delete(name(&path), INFO_NULL), Ok(()));
    assert_eq!(again.file_delete(name(&path), INFO_NULL), Err(class::NO_SUCH_FILE));
}
