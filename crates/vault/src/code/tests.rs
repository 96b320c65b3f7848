//! Codes against a plain reference, all kernels against each other and against ISA-L's own output.

use super::field::{Matrix, multiply};
use super::{BLOCK_BYTES, Code, Kind, Linear, kernel};
use proptest::prelude::*;

/// Bytes that depend on the seed and on nothing else.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// The sum of the sources times their factors, byte by byte.
fn plainly(factors: &Matrix, sources: &[Vec<u8>], bytes: usize) -> Vec<Vec<u8>> {
    let byte = |row: usize, at: usize| {
        let term = |(i, s): (usize, &Vec<u8>)| {
            multiply(factors.at(row, i), s.get(at).copied().unwrap_or(0))
        };
        sources.iter().enumerate().map(term).fold(0, |sum, term| sum ^ term)
    };
    (0..factors.rows).map(|row| (0..bytes).map(|at| byte(row, at)).collect()).collect()
}

fn views(blocks: &[Vec<u8>]) -> Vec<&[u8]> {
    blocks.iter().map(Vec::as_slice).collect()
}

fn views_mut(blocks: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    blocks.iter_mut().map(Vec::as_mut_slice).collect()
}

fn encoded(code: &Code, kernel: &dyn kernel::Kernel, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let longest = data.iter().map(Vec::len).max().unwrap_or(0);
    let mut parity = vec![vec![0xAA; longest]; code.m()];
    code.encode(kernel, &views(data), &mut views_mut(&mut parity));
    parity
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn every_kernel_gives_what_the_reference_gives(
        rows in 1usize..5,
        lengths in prop::collection::vec(0usize..3000, 1..7),
        factors in prop::collection::vec(any::<u8>(), 28),
        seed in any::<u64>(),
    ) {
        let factors = Matrix::new(rows, lengths.len(), |r, c| factors[r * 7 + c]);
        let sources: Vec<Vec<u8>> =
            lengths.iter().zip(seed..=u64::MAX).map(|(n, seed)| noise(seed, *n)).collect();
        let bytes = lengths.iter().max().copied().unwrap_or(0);
        let expected = plainly(&factors, &sources, bytes);
        for kernel in kernel::all() {
            let mut sums = vec![vec![0x55; bytes]; rows];
            let linear = Linear::new(kernel, factors.clone());
            linear.set(&views(&sources), &mut views_mut(&mut sums));
            prop_assert_eq!(&sums, &expected, "{}", kernel.name());
            // The same, source by source, begun with what is there.
            linear.add(0, &sources[0], &mut views_mut(&mut sums));
            linear.add(0, &sources[0], &mut views_mut(&mut sums));
            prop_assert_eq!(&sums, &expected, "{}", kernel.name());
        }
    }

    #[test]
    fn parity_follows_differences(
        k in 1usize..9,
        m in 1usize..4,
        index in any::<prop::sample::Index>(),
        seed in any::<u64>(),
    ) {
        let code = Code::new(Kind::Cauchy, k, m).unwrap();
        let mut data: Vec<Vec<u8>> = (0..k as u64).map(|i| noise(seed ^ i, 700)).collect();
        let mut parity = encoded(&code, kernel::best(), &data);
        let (index, new) = (index.index(k), noise(!seed, 700));
        let difference: Vec<u8> = data[index].iter().zip(&new).map(|(a, b)| a ^ b).collect();
        code.update(kernel::best(), index, &difference, &mut views_mut(&mut parity));
        data[index] = new;
        prop_assert_eq!(parity, encoded(&code, kernel::best(), &data));
    }
}

/// All ways to choose `count` of `of`.
fn choices(of: usize, count: usize) -> Vec<Vec<usize>> {
    let all = 0u32..1 << of;
    let members = |set: u32| (0..of).filter(|i| set >> i & 1 == 1).collect::<Vec<_>>();
    all.filter(|set| set.count_ones() as usize == count).map(members).collect()
}

#[test]
fn every_choice_of_m_lost_members_comes_back_up_to_6_and_3() {
    let mut tried = 0;
    for (k, m) in (1..=6).flat_map(|k| (1..=3).map(move |m| (k, m))) {
        let code = Code::new(Kind::Cauchy, k, m).unwrap();
        // Of unequal lengths, one of them empty.
        let data: Vec<Vec<u8>> = (0..k).map(|i| noise(i as u64 + 1, 37 * i)).collect();
        let longest = 37 * (k - 1);
        let mut members = data.clone();
        members.extend(encoded(&code, kernel::best(), &data));
        for lost in choices(k + m, m) {
            let kept = (0..k + m).filter(|i| !lost.contains(i));
            let have: Vec<(usize, &[u8])> = kept.map(|i| (i, members[i].as_slice())).collect();
            let mut back = vec![vec![0xEE; longest]; m];
            assert!(code.recover(kernel::best(), &have, &lost, &mut views_mut(&mut back)));
            for (lost, back) in lost.iter().zip(&back) {
                let bytes = members[*lost].len();
                assert_eq!(back[..bytes], members[*lost], "{k}+{m}: member {lost}");
                assert!(back[bytes..].iter().all(|b| *b == 0), "{k}+{m}: behind {lost}");
            }
            tried += 1;
        }
    }
    assert_eq!(tried, 319);
}

#[test]
fn one_member_too_few_is_refused() {
    let code = Code::new(Kind::Cauchy, 3, 2).unwrap();
    let block = [1u8; 8];
    let mut to = [0u8; 8];
    let have = [(0, &block[..]), (4, &block[..])];
    assert!(!code.recover(kernel::best(), &have, &[1], &mut [&mut to]));
    let twice = [(0, &block[..]), (0, &block[..]), (4, &block[..])];
    assert!(!code.recover(kernel::best(), &twice, &[1], &mut [&mut to]));
    for (kind, k, m) in [(Kind::Cauchy, 0, 1), (Kind::Cauchy, 1, 0), (Kind::Cauchy, 250, 6)] {
        assert_eq!(Code::new(kind, k, m), None);
    }
    assert_eq!(Code::new(Kind::Sum, 4, 2), None);
}

#[test]
fn a_plain_sum_is_a_code_for_one_loss() {
    let code = Code::new(Kind::Sum, 3, 1).unwrap();
    let data = [noise(1, 50), noise(2, 70), noise(3, 60)];
    let parity = encoded(&code, kernel::best(), &data);
    let at = |data: &[u8], i: usize| data.get(i).copied().unwrap_or(0);
    let sum = |i: usize| data.iter().fold(0, |sum, d| sum ^ at(d, i));
    assert_eq!(parity[0], (0..70).map(sum).collect::<Vec<u8>>());
    let copy = Code::new(Kind::Sum, 1, 1).unwrap();
    assert_eq!(encoded(&copy, kernel::best(), &data[..1])[0], data[0]);
}

#[test]
fn lengths_beyond_a_block_are_worked_whole() {
    let code = Code::new(Kind::Cauchy, 3, 2).unwrap();
    let longest = 2 * BLOCK_BYTES + 77;
    let data = [noise(1, BLOCK_BYTES + 1), noise(2, longest), noise(3, 5)];
    let expected = encoded(&code, kernel::rust(), &data);
    let factors = code.matrix.select(&[3, 4]);
    let plain = plainly(&factors, &data, longest);
    assert_eq!(expected, plain);
    for kernel in kernel::all() {
        assert_eq!(encoded(&code, kernel, &data), expected, "{}", kernel.name());
    }
}

/// What ISA-L 2.30 gave: the matrix of 6+3, and the checksum of the parity of `noise`.
#[test]
fn bytes_are_those_of_isal() {
    const MATRIX: [[u8; 6]; 3] = [
        [122, 186, 71, 167, 142, 244],
        [186, 122, 167, 71, 244, 142],
        [173, 157, 221, 152, 61, 170],
    ];
    const PARITY: u128 = 0x4065_ed80_581e_f91b_991b_1531_8358_7192;
    let code = Code::new(Kind::Cauchy, 6, 3).unwrap();
    let data: Vec<Vec<u8>> = (1..=6).map(|seed| noise(seed, 5000)).collect();
    for kernel in kernel::all() {
        let parity = encoded(&code, kernel, &data).concat();
        let hash = xxhash_rust::xxh3::xxh3_128(&parity);
        assert_eq!(hash, PARITY, "{}: {hash:#x}", kernel.name());
    }
    for (row, factors) in MATRIX.iter().enumerate() {
        let own: Vec<u8> = (0..6).map(|column| code.factor(row, column)).collect();
        assert_eq!(own, factors, "row {row}");
    }
}

#[test]
fn the_matrix_is_that_of_the_installed_isal() {
    if let Some(why) = kernel::why_not_isal() {
        println!("isal: 1 not run\nNOT RUN: {why}");
        return;
    }
    for (k, m) in [(1, 1), (4, 2), (6, 3), (8, 3), (10, 4), (32, 3), (128, 8)] {
        let code = Code::new(Kind::Cauchy, k, m).unwrap();
        assert_eq!(kernel::isal_matrix(k + m, k).unwrap(), code.matrix, "{k}+{m}");
    }
}
