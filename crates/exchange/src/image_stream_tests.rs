//! What comes damaged is no copy.

use super::*;
use crate::image_store::tests::{node, node_with, secret};
use crate::store_protocol::Members;
use eyrie_control::auth::Key;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The image of some process.
pub fn image_of_a_process() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("sleep");
    command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // What whoever runs the tests has open is none of its own.
    // SAFETY: a system call on numbers.
    unsafe {
        command.pre_exec(|| {
            let flags = libc::CLOSE_RANGE_CLOEXEC as libc::c_int;
            libc::syscall(libc::SYS_close_range, 3, u32::MAX, flags);
            Ok(())
        })
    };
    let child = Killed(command.spawn().unwrap());
    let pid = child.0.id() as i32;
    // It is itself, not a copy of this program any more.
    let comm = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    while comm() != "sleep\n" {
        std::thread::yield_now();
    }
    let path = dir.path().join("image");
    let mut frozen = eyrie_image::Frozen::stop(pid).unwrap();
    frozen.twin().unwrap().write_image(&path, b"").unwrap();
    frozen.release().unwrap();
    std::fs::read(path).unwrap()
}

/// Ends with the test, however that ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_image_that_is_damaged_on_its_way_is_to_be_brought_again() {
    let (members, secret) = (Members::default(), secret(false));
    let (_here, own) = node(&members, 0, &secret);
    let (there, _, invited, _) = node_with(&members, 1, &secret);
    let (name, bytes) = ("rank-1.gen-4", image_of_a_process());
    // Returns whether it was taken.
    let send = |bytes: &[u8]| {
        let (key, poured) = (Key::new().unwrap().0, SharedOutcome::default());
        invited.invite(1, 4, key);
        let client = Client::connect(&own, &members, 1).unwrap();
        let mut pour = ImageStream::begin(client, name, key, Arc::clone(&poured)).unwrap().unwrap();
        pour.put(&bytes[4096..], 4096);
        pour.finish(&bytes[..4096]);
        let outcome = poured.lock().unwrap();
        assert_eq!(outcome.unfit, None, "it says nothing of its process");
        assert_eq!(outcome.client.is_some(), there.path().join(name).exists());
        outcome.client.is_some()
    };
    // In the header, the section table, and a section before it.
    for at in [0, 20, bytes.len() - 1, bytes.len() - 6 * 40 - 300] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(!send(&damaged), "{at}");
    }
    assert!(send(&bytes));
}
