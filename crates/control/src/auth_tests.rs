//! Two ends of a connection, and ends that should not get on.

use super::*;
use proptest::prelude::*;
use std::os::unix::net::UnixStream;

fn hello(role: Role, job: &str, node: u32) -> Hello {
    Hello::new(role, job, (node, 7), (1 - node, 8)).unwrap()
}

/// What caller and called come to.
fn meet(caller: (Hello, Key), called: (Hello, Key)) -> [Result<Hello, AuthError>; 2] {
    let (mut a, mut b) = UnixStream::pair().unwrap();
    let wanted = Role::LinkSender;
    let thread = std::thread::spawn(move || {
        answer(&mut b, &called.1, &called.0.job.clone(), wanted, |_| Ok(called.0))
    });
    let first = call(&mut a, &caller.1, &caller.0, Role::LinkReceiver);
    drop(a);
    [first, thread.join().unwrap()]
}

#[test]
fn ends_of_one_job_know_each_other() {
    let key = Key::new().unwrap();
    let (a, b) = (hello(Role::LinkSender, "brook", 0), hello(Role::LinkReceiver, "brook", 1));
    let [first, second] = meet((a.clone(), key.clone()), (b.clone(), key));
    assert_eq!((first.unwrap(), second.unwrap()), (b, a));
}

#[test]
fn another_key_job_or_role_is_refused() {
    let (key, other) = (Key::new().unwrap(), Key::new().unwrap());
    let (a, b) = (hello(Role::LinkSender, "brook", 0), hello(Role::LinkReceiver, "brook", 1));
    let [_, second] = meet((a.clone(), other.clone()), (b.clone(), key.clone()));
    assert!(matches!(second, Err(AuthError::Key)));
    let foreign = hello(Role::LinkSender, "other", 0);
    let [_, second] = meet((foreign, key.clone()), (b.clone(), key.clone()));
    assert!(matches!(second, Err(AuthError::Job(job)) if job == "other"));
    let [_, second] = meet((hello(Role::Node, "brook", 0), key.clone()), (b, key));
    assert!(matches!(second, Err(AuthError::Role { .. })));
}

#[test]
fn a_proof_is_good_for_one_connection_and_one_end() {
    let key = Key::new().unwrap();
    let (a, b) = (hello(Role::LinkSender, "brook", 0), hello(Role::LinkReceiver, "brook", 1));
    let sound = proof(&key, &a, &b);
    assert!(proves(&key, &b, &a, &sound));
    assert!(!proves(&key, &a, &b, &sound), "reflected");
    let later = hello(Role::LinkReceiver, "brook", 1);
    assert!(!proves(&key, &later, &a, &sound), "replayed");
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::array::uniform32(any::<u8>())) {
        let mut whole = hello(Role::Node, "brook", 0).encode();
        whole[8..40].copy_from_slice(&bytes);
        let _ = Hello::decode(&whole);
        whole[8..12].copy_from_slice(&1u32.to_le_bytes());
        if let Ok(hello) = Hello::decode(&whole) {
            prop_assert_eq!(hello.encode(), whole);
        }
    }
}

/// The bytes of `docs/formats/link.md`: a change here is a change of the protocol.
#[test]
fn golden_hello() {
    let hello = Hello {
        role: Role::LinkSender,
        job: "brook".into(),
        node: 2,
        epoch: 0x0102,
        to: (3, 4),
        nonce: [9; 16],
    };
    let mut want = b"EYRIENET\x01\0\0\0\x03\0\0\0brook\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    want.extend([2, 0, 0, 0, 3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
    want.extend([9; 16]);
    want.extend([0; 8]);
    assert_eq!(hello.encode()[..], want);
}
