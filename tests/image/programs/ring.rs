//! A Rust program that calls MPI through its C ABI, declared by hand: a ring of messages, a
//! reduction, and a thread that works meanwhile.

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

type Handle = *mut c_void;

// What the standard's ABI gives these handles as values.
const COMM_WORLD: usize = 0x101;
const UINT64: usize = 0x259;
const BXOR: usize = 0x2a;

#[link(name = "mpi_abi")]
unsafe extern "C" {
    fn MPI_Init(argc: *mut c_int, argv: *mut c_void) -> c_int;
    fn MPI_Finalize() -> c_int;
    fn MPI_Comm_rank(comm: Handle, rank: *mut c_int) -> c_int;
    fn MPI_Comm_size(comm: Handle, size: *mut c_int) -> c_int;
    fn MPI_Sendrecv(
        out: *const c_void,
        out_count: c_int,
        out_type: Handle,
        to: c_int,
        out_tag: c_int,
        into: *mut c_void,
        in_count: c_int,
        in_type: Handle,
        from: c_int,
        in_tag: c_int,
        comm: Handle,
        status: *mut c_void,
    ) -> c_int;
    fn MPI_Allreduce(
        give: *const c_void,
        take: *mut c_void,
        count: c_int,
        of: Handle,
        op: Handle,
        comm: Handle,
    ) -> c_int;
}

fn must(code: c_int, what: &str) {
    assert_eq!(code, 0, "{what}");
}

fn swap(give: &[u64; 8], to: c_int, from: c_int) -> [u64; 8] {
    let mut take = [0u64; 8];
    // SAFETY: both buffers are live and hold as many elements of that type as said.
    let code = unsafe {
        MPI_Sendrecv(
            give.as_ptr().cast(),
            8,
            UINT64 as Handle,
            to,
            7,
            take.as_mut_ptr().cast(),
            8,
            UINT64 as Handle,
            from,
            7,
            COMM_WORLD as Handle,
            std::ptr::null_mut(),
        )
    };
    must(code, "MPI_Sendrecv");
    take
}

fn reduce(value: u64) -> u64 {
    let mut all = 0u64;
    let (give, take) = ((&raw const value).cast(), (&raw mut all).cast());
    // SAFETY: one element each.
    let code = unsafe {
        MPI_Allreduce(give, take, 1, UINT64 as Handle, BXOR as Handle, COMM_WORLD as Handle)
    };
    must(code, "MPI_Allreduce");
    all
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(4000);
    let (mut rank, mut size) = (0, 0);
    // SAFETY: null arguments are allowed; the numbers are live.
    unsafe {
        must(MPI_Init(std::ptr::null_mut(), std::ptr::null_mut()), "MPI_Init");
        must(MPI_Comm_rank(COMM_WORLD as Handle, &raw mut rank), "MPI_Comm_rank");
        must(MPI_Comm_size(COMM_WORLD as Handle, &raw mut size), "MPI_Comm_size");
    }
    let (to_worker, jobs) = mpsc::channel::<u64>();
    let (from_worker, results) = mpsc::channel();
    let worker = thread::spawn(move || {
        for seed in jobs {
            let step = |x: u64, i| x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i);
            from_worker.send((0..40_000).fold(seed, step)).unwrap();
        }
    });
    // Half-way it waits until there is such a file.
    let gate = std::env::args().nth(2).map(PathBuf::from);
    let mut sum = rank as u64 + 1;
    for round in 0..rounds {
        while round == rounds / 2 && gate.as_ref().is_some_and(|gate| !gate.exists()) {
            thread::sleep(Duration::from_millis(1));
        }
        to_worker.send(sum).unwrap();
        let give = std::array::from_fn(|i| sum + i as u64);
        let take = swap(&give, (rank + 1) % size, (rank + size - 1) % size);
        sum = sum.wrapping_mul(31).wrapping_add(results.recv().unwrap());
        sum = take.iter().fold(sum, |s, v| (s ^ v).wrapping_mul(1_099_511_628_211));
        if round % 100 == 0 {
            sum ^= reduce(sum);
        }
    }
    drop(to_worker);
    worker.join().unwrap();
    let all = reduce(sum);
    if rank == 0 {
        println!("checksum {all:016x}");
    }
    // SAFETY: nothing is under way.
    must(unsafe { MPI_Finalize() }, "MPI_Finalize");
}
