//! Speed of the codes beside memcpy, by kernel: `cargo bench -p eyrie-vault`. Prints, and judges
//! nothing. GB/s of data, one thread, best of five rounds.

use eyrie_vault::code::{Code, Kind, kernel};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 5;
const BYTES_A_ROUND: usize = 256 << 20;

/// Runs `work`, which treats `bytes`, for a while; GB/s of the best round.
fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    let times = (BYTES_A_ROUND / bytes).max(1);
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        (0..times).for_each(|_| work());
        best = best.min(begun.elapsed().as_secs_f64());
    }
    (bytes * times) as f64 / best / 1e9
}

fn main() {
    if let Some(why) = kernel::why_not_isal() {
        println!("NOT RUN: isa-l: {why}");
    }
    let mut kernels = vec![kernel::rust()];
    kernels.extend(kernel::all().into_iter().filter(|kernel| kernel.name() == "isa-l"));
    println!("{:>6} {:>10} {:>10} {:>9} {:>9}", "code", "member", "kernel", "encode", "recover");
    for bytes in [64 << 10, 1 << 20, 8 << 20] {
        for (k, m) in [(4, 2), (8, 3)] {
            let Some(code) = Code::new(Kind::Cauchy, k, m) else { continue };
            let data: Vec<Vec<u8>> = (0..k).map(|i| vec![i as u8 + 1; bytes]).collect();
            let from: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let mut parity = vec![vec![0; bytes]; m];
            let mut back = vec![vec![0; bytes]; m];
            for kernel in &kernels {
                let encode = rate(k * bytes, || {
                    let mut to: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
                    code.encode(*kernel, black_box(&from), &mut to);
                });
                let all = from.iter().copied().chain(parity.iter().map(Vec::as_slice));
                let have: Vec<(usize, &[u8])> = all.enumerate().skip(m).collect();
                let lost: Vec<usize> = (0..m).collect();
                let recover = rate(k * bytes, || {
                    let mut to: Vec<&mut [u8]> = back.iter_mut().map(Vec::as_mut_slice).collect();
                    assert!(code.recover(*kernel, black_box(&have), &lost, &mut to));
                });
                let (name, member) = (kernel.name(), format!("{} KiB", bytes >> 10));
                println!("{k:>4}+{m} {member:>10} {name:>10} {encode:>9.1} {recover:>9.1}");
            }
            let mut copy = vec![0u8; bytes];
            let copied = rate(k * bytes, || {
                from.iter().for_each(|source| black_box(&mut copy).copy_from_slice(source));
            });
            println!("{k:>4}+{m} {:>10} {:>10} {copied:>9.1}", "", "memcpy");
        }
    }
}
