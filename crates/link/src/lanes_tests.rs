//! Lanes over real sockets.

use super::*;
use std::io::Write as _;
use std::net::TcpListener;

const SILENCE: Duration = Duration::from_secs(10);

fn pairs(count: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let pair = |_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0);
    (0..count).map(pair).unzip()
}

fn chunk(number: u64, bytes: &[u8]) -> Vec<u8> {
    [&number.to_le_bytes()[..], &(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

#[test]
fn what_is_written_over_all_lanes_is_read_in_order() {
    let (here, there) = pairs(3);
    let (mut leash, _) = pairs(1);
    let leash = leash.remove(0);
    let mut sending = Sending::new(here, SILENCE).unwrap();
    let mut receiving = Receiving::new(there, SILENCE).unwrap();
    let all: Vec<u8> = (0..40 * CHUNK_BYTES + 17).map(|at| (at * 7 / 5) as u8).collect();
    let mut queue = Queue::default();
    queue.own(|out| out.extend_from_slice(&all));
    let (mut read, mut shares) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while sending.flush(&mut queue).unwrap().1 == Flushed::Blocked {
                let blocked: Vec<BorrowedFd<'_>> = sending.blocked().collect();
                let wanted = |fd: &BorrowedFd<'_>| PollFd::from_borrowed_fd(*fd, PollFlags::OUT);
                poll(&mut blocked.iter().map(wanted).collect::<Vec<_>>(), None).unwrap();
            }
            shares = sending.shares();
        });
        while read.len() < all.len() {
            assert!(receiving.read_to(&mut read, 100_000, &leash).unwrap() > 0);
        }
    });
    assert_eq!(read, all);
    assert!(shares.iter().all(|sent| *sent > 0), "{shares:?}");
}

#[test]
fn a_chunk_that_is_ahead_waits() {
    let (mut here, there) = pairs(2);
    let (leashes, ends) = pairs(1);
    let mut receiving = Receiving::new(there, SILENCE).unwrap();
    here[1].write_all(&chunk(1, b"behind")).unwrap();
    here[0].write_all(&chunk(0, b"first, ")).unwrap();
    let mut read = Vec::new();
    while read.len() < 13 {
        receiving.read_to(&mut read, 5, &leashes[0]).unwrap();
    }
    assert_eq!(read, b"first, behind");
    drop(ends);
    assert_eq!(receiving.read_to(&mut read, 5, &leashes[0]).unwrap(), 0);
}

#[test]
fn what_no_node_writes_ends_it() {
    let wrong = [chunk(0, b""), chunk(0, &vec![0; CHUNK_BYTES + 1])];
    let before = [chunk(0, b"x"), chunk(0, b"x")].concat();
    for bytes in wrong.into_iter().chain([before]) {
        let (mut here, there) = pairs(1);
        let (leashes, _ends) = pairs(1);
        let mut receiving = Receiving::new(there, SILENCE).unwrap();
        here[0].write_all(&bytes[..bytes.len().min(100)]).unwrap();
        let mut read = Vec::new();
        let mut ended = false;
        for _ in 0..2 {
            ended |= receiving.read_to(&mut read, 9, &leashes[0]).is_err();
        }
        assert!(ended, "{}", bytes.len());
    }
    let (here, there) = pairs(1);
    let (leashes, _ends) = pairs(1);
    drop(here);
    let mut receiving = Receiving::new(there, SILENCE).unwrap();
    assert!(receiving.read_to(&mut Vec::new(), 9, &leashes[0]).is_err());
}
