//! What is in flight is taken as the program would have read it, however late it was sent.

use super::*;

/// A terminal by lines, without echo, in which `E` erases.
fn pair() -> (OwnedFd, OwnedFd) {
    let master = new_master(0).unwrap();
    set(&master, libc::TIOCSPTLCK, &0i32).unwrap();
    let slave = peer(&master).unwrap();
    let mut termios: Termios = ioctl(&master, TCGETS2).unwrap();
    termios[LOCAL..LOCAL + 4].copy_from_slice(&libc::ICANON.to_le_bytes());
    termios[CHARACTERS + libc::VERASE] = b'E';
    set(&master, TCSETS2, &termios).unwrap();
    (master, slave)
}

fn write(to: &OwnedFd, text: &[u8]) {
    File::from(to.try_clone().unwrap()).write_all(text).unwrap();
}

fn read(from: &OwnedFd) -> Vec<u8> {
    let mut text = [0; 100];
    let count = File::from(from.try_clone().unwrap()).read(&mut text).unwrap();
    text[..count].to_vec()
}

#[test]
fn what_is_on_its_way_is_treated_as_the_program_has_asked() {
    let (master, slave) = pair();
    write(&master, b"part");
    for round in 0..2000 {
        write(&master, b"EEEE");
        write(&master, b"first\nother");
        write(&master, b"EEEEEsecond\npart");
        let (input, output) = flight(&master, 0).unwrap();
        let text = String::from_utf8_lossy(&input);
        assert_eq!((&text[..], &output[..]), ("first\nsecond\npart", &[][..]), "round {round}");
        assert_eq!([read(&slave), read(&slave)], [&b"first\n"[..], b"second\n"], "round {round}");
    }
}

#[test]
fn output_is_there_once_and_in_order() {
    let (master, slave) = pair();
    for round in 0..500 {
        write(&slave, b"one ");
        write(&master, b"line\n");
        write(&slave, b"two");
        let (input, output) = flight(&master, 0).unwrap();
        assert_eq!((&input[..], &output[..]), (&b"line\n"[..], &b"one two"[..]), "round {round}");
        assert_eq!(take(&master).unwrap(), b"one two", "round {round}");
        assert_eq!(read(&slave), b"line\n", "round {round}");
    }
}
