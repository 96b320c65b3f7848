//! Files in other representations than memory's.

use super::tests::{Folder, NEW, open};
use super::*;
use crate::consts::{COMM_SELF, INFO_NULL};
use crate::datatype::predefined::{DOUBLE, INT, LONG, SHORT};
use crate::error::class;
use crate::testing;

unsafe fn write<T>(m: &mut Machine, fh: Handle, data: &[T], dt: Handle) -> Res<u64> {
    let (buf, count) = (data.as_ptr().cast(), data.len() as i64);
    // SAFETY: the caller says that this is the data's type.
    unsafe { m.file_write(fh, None, buf, count, dt) }.map(|status| status.bytes)
}

unsafe fn read<T>(m: &mut Machine, fh: Handle, at: i64, to: &mut [T], dt: Handle) -> Res<u64> {
    let (buf, count) = (to.as_mut_ptr().cast(), to.len() as i64);
    // SAFETY: the caller says that this is the data's type.
    unsafe { m.file_read(fh, Some(at), buf, count, dt) }.map(|status| status.bytes)
}

#[test]
fn external32_has_sizes_of_its_own_and_views_follow_them() {
    let folder = Folder::new();
    testing::run(1, |m| {
        let path = folder.file("external");
        let fh = open(m, COMM_SELF, &path, NEW).unwrap();
        // Every other long from the eighth byte on: in the file every other four bytes.
        let one = m.types.contiguous(1, LONG).unwrap();
        let shape = m.types.subarray(&[2], &[1], &[0], crate::datatype::ORDER_C, one).unwrap();
        m.types.commit(shape).unwrap();
        m.file_set_view(fh, 8, [LONG, shape], Ok(b"external32"), INFO_NULL).unwrap();
        // SAFETY: longs.
        unsafe {
            assert_eq!(write(m, fh, &[1i64, -2, 3], LONG), Ok(24));
            assert_eq!(m.file_position(fh), Ok(3));
            assert_eq!(m.file_byte_offset(fh, 2), Ok(24));
            assert_eq!(m.file_type_extent(fh, LONG), Ok(4));
            let mut back = [9i64; 4];
            assert_eq!(read(m, fh, 1, &mut back, LONG), Ok(16));
            assert_eq!(back, [-2, 3, 9, 9]);
        }
        let file = std::fs::read(&path).unwrap();
        let expected = [
            &[0; 8][..],
            &[0, 0, 0, 1, 0, 0, 0, 0],
            &[255, 255, 255, 254, 0, 0, 0, 0],
            &[0, 0, 0, 3],
        ];
        assert_eq!(file, expected.concat());
        let (_, types, name) = m.file_get_view(fh).unwrap();
        assert_eq!((types[0], &name[..]), (LONG, &b"external32"[..]));
        // An element that is there in part does not come.
        std::fs::write(&path, [0, 0, 1, 0, 0, 7]).unwrap();
        m.file_set_view(fh, 0, [SHORT, SHORT], Ok(b"external32"), INFO_NULL).unwrap();
        let mixed = m.types.structure(&[1, 1], &[0, 8], &[SHORT, DOUBLE]).unwrap();
        m.types.commit(mixed).unwrap();
        let mut back = [[0u8; 16]; 1];
        // SAFETY: one of these types.
        let bytes = unsafe { read(m, fh, 1, &mut back, mixed) };
        assert_eq!((bytes, back[0][..2].to_vec()), (Ok(2), vec![0, 1]));
    });
}

/// Three bytes for an int, so that sizes differ, each with a mark; all else as it is.
fn odd(name: &[u8], fails: bool) -> Datarep {
    let outcome = move || if fails { Err(class::CONVERSION) } else { Ok(()) };
    Datarep {
        name: name.to_vec(),
        write: Some(Box::new(move |user, dt, n, file| {
            assert_eq!(dt, INT);
            for i in 0..n as usize {
                // SAFETY: ints in memory, three bytes each in the file.
                unsafe {
                    let value = user.cast::<i32>().add(i).read_unaligned().to_be_bytes();
                    file.add(3 * i).copy_from_nonoverlapping(value[1..].as_ptr(), 3);
                    *file.add(3 * i) ^= 0x80;
                }
            }
            outcome()
        })),
        read: Some(Box::new(|user, _, n, file| {
            for i in 0..n as usize {
                // SAFETY: as above.
                unsafe {
                    let at = file.add(3 * i);
                    let value = i32::from_be_bytes([0, *at ^ 0x80, *at.add(1), *at.add(2)]);
                    user.cast::<i32>().add(i).write_unaligned(value);
                }
            }
            Ok(())
        })),
        extent: Box::new(|dt| if dt == INT { Ok(3) } else { Err(class::CONVERSION) }),
    }
}

#[test]
fn what_the_program_registers_converts_its_data() {
    let folder = Folder::new();
    testing::run(1, |m| {
        m.register_datarep(odd(b"odd", false)).unwrap();
        m.register_datarep(odd(b"fails", true)).unwrap();
        for known in [&b"odd"[..], b"native", b"internal", b"external32"] {
            assert_eq!(m.register_datarep(odd(known, false)), Err(class::DUP_DATAREP));
        }
        for bad in [&b""[..], &[b'x'; 128]] {
            assert_eq!(m.register_datarep(odd(bad, false)), Err(class::ARG));
        }
        let path = folder.file("odd");
        let fh = open(m, COMM_SELF, &path, NEW).unwrap();
        let wrong = m.file_set_view(fh, 0, [DOUBLE, DOUBLE], Ok(b"odd"), INFO_NULL);
        assert_eq!(wrong, Err(class::CONVERSION));
        m.file_set_view(fh, 1, [INT, INT], Ok(b"odd"), INFO_NULL).unwrap();
        // SAFETY: ints.
        unsafe {
            assert_eq!(write(m, fh, &[1, 0x8234, 70000], INT), Ok(12));
            assert_eq!(m.file_position(fh), Ok(3));
            let mut back = [9; 4];
            assert_eq!(read(m, fh, 1, &mut back, INT), Ok(8));
            assert_eq!(back, [0x8234, 70000, 9, 9]);
        }
        assert_eq!(std::fs::read(&path).unwrap().len(), 10);
        assert_eq!(m.file_type_extent(fh, INT), Ok(3));
        m.file_set_view(fh, 0, [INT, INT], Ok(b"fails"), INFO_NULL).unwrap();
        // SAFETY: ints.
        assert_eq!(unsafe { write(m, fh, &[1], INT) }, Err(class::CONVERSION));
        // Without functions, data is as in memory, and has to be as long as there.
        let plain = Datarep { read: None, write: None, ..odd(b"plain", false) };
        m.register_datarep(Datarep { extent: Box::new(|_| Ok(4)), ..plain }).unwrap();
        m.file_set_view(fh, 0, [INT, INT], Ok(b"plain"), INFO_NULL).unwrap();
        // SAFETY: ints.
        unsafe {
            assert_eq!(write(m, fh, &[5, 6], INT), Ok(8));
            let mut back = [0; 2];
            assert_eq!(read(m, fh, 0, &mut back, INT), Ok(8));
            assert_eq!(back, [5, 6]);
        }
    });
}
