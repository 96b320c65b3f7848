//! `MPI_Dims_create` (MPI 5.0 section 8.5.2). The standard wants dimensions as close to each other
//! as possible and leaves open what that is; programs that lay out their data by it want what MPICH
//! gives. So this is MPICH's choice: the least difference between the greatest and the smallest
//! dimension, and its order of trying decides between equals.

use crate::error::{Res, class};

/// Dimensions that MPICH takes at most; more of them are spread without a search.
const SEARCHED: usize = 20;

/// Fills the zeros of `dims`, in non-increasing order, so that the product is `nodes`. Where there
/// are none it is enough that `nodes` is a multiple of the product, as the standard has it.
pub fn dims_create(nodes: i32, dims: &mut [i32]) -> Res<()> {
    if nodes <= 0 || dims.iter().any(|&d| d < 0) {
        return Err(if nodes <= 0 { class::ARG } else { class::DIMS });
    }
    let fixed = dims.iter().filter(|&&d| d > 0).try_fold(1i32, |n, &d| n.checked_mul(d));
    let fixed = fixed.filter(|f| nodes % f == 0).ok_or(class::DIMS)?;
    let free = dims.iter().filter(|&&d| d == 0).count();
    let rest = nodes / fixed;
    if free == 0 {
        return Ok(());
    }
    let chosen = balanced(rest, free);
    for (slot, factor) in dims.iter_mut().filter(|d| **d == 0).zip(chosen) {
        *slot = factor;
    }
    Ok(())
}

/// A prime factor and how often it occurs.
type Power = (i32, usize);

/// The prime factors of `n`, the smallest first.
fn factored(n: i32) -> Vec<Power> {
    let (mut left, mut factors) = (n, Vec::new());
    for prime in (2..).take_while(|&p| i64::from(p) * i64::from(p) <= i64::from(n)) {
        let mut times = 0;
        while left % prime == 0 {
            left /= prime;
            times += 1;
        }
        if times > 0 {
            factors.push((prime, times));
        }
        if left == 1 {
            break;
        }
    }
    if left > 1 {
        factors.push((left, 1));
    }
    factors
}

/// `n` as a product of `parts` factors, non-increasing.
fn balanced(n: i32, parts: usize) -> Vec<i32> {
    let (mut left, mut factors, mut chosen) = (n, factored(n), Vec::with_capacity(parts));
    // A prime above the root of what is left is a dimension of its own.
    while let Some(&(prime, 1)) = factors.last() {
        let alone = i64::from(prime) * i64::from(prime) > i64::from(left);
        if !alone || factors.len() == 1 || chosen.len() + 1 >= parts {
            break;
        }
        chosen.push(prime);
        factors.pop();
        left /= prime;
    }
    let rest = spread(left, &factors, parts - chosen.len(), chosen.first().copied());
    chosen.extend(rest);
    chosen
}

/// The same for what is left beside dimensions of which the greatest is `above`.
fn spread(n: i32, factors: &[Power], parts: usize, above: Option<i32>) -> Vec<i32> {
    let primes: usize = factors.iter().map(|f| f.1).sum();
    let mut dims = dealt(factors, parts);
    if parts < 2 || primes <= parts {
        return dims;
    }
    if let [(prime, times)] = *factors {
        // The first ones get one more where the powers do not come out even.
        let power = |i| times / parts + usize::from(i < times % parts);
        return (0..parts).map(|i| prime.pow(power(i) as u32)).collect();
    }
    if factors.iter().all(|f| f.1 % parts == 0) {
        let root = factors.iter().map(|&(prime, times)| prime.pow((times / parts) as u32));
        return vec![root.product(); parts];
    }
    if parts <= SEARCHED {
        let divisors = divisors(n, factors);
        let least = above.unwrap_or(dims[0]) - dims[parts - 1];
        let mut search = Search { tried: vec![0; parts], least, best: &mut dims };
        search.tried[parts - 1] = divisors[0];
        search.step(n, parts - 1, &divisors);
    }
    dims
}

/// A first guess: one prime for each dimension, the greatest first, and each of the others to the
/// last dimension that it leaves no greater than the one before.
fn dealt(factors: &[Power], parts: usize) -> Vec<i32> {
    let mut dims = vec![1; parts];
    let primes = factors.iter().rev().flat_map(|&(prime, times)| vec![prime; times]);
    for (i, prime) in primes.enumerate() {
        let fits =
            |k: &usize| *k == 0 || i64::from(dims[*k]) * i64::from(prime) <= dims[k - 1].into();
        let at = if i < parts { i } else { (0..parts).rev().find(fits).unwrap_or(0) };
        dims[at] *= prime;
    }
    dims
}

/// All divisors of `n` but 1 and `n`, the smallest first.
fn divisors(n: i32, factors: &[Power]) -> Vec<i32> {
    let mut found = vec![1];
    for &(prime, times) in factors {
        let powers = (0..=times as u32).map(|k| prime.pow(k));
        found = powers.flat_map(|p| found.iter().map(move |d| d * p).collect::<Vec<_>>()).collect();
    }
    found.sort_unstable();
    found.retain(|&d| d != 1 && d != n);
    found
}

/// The search for the least difference of the greatest and the smallest dimension.
struct Search<'a> {
    /// Dimensions from the last one on, as far as they are chosen.
    tried: Vec<i32>,
    least: i32,
    best: &'a mut [i32],
}

impl Search<'_> {
    /// Chooses dimension `at` and those in front of it, whose product is `n`.
    fn step(&mut self, n: i32, at: usize, divisors: &[i32]) {
        if at <= 1 {
            return self.last_two(n, divisors);
        }
        let (smallest, least, last) = (self.smallest(), self.least, self.tried.len() - 1);
        for (k, &chosen) in divisors.iter().enumerate() {
            let quotient = n / chosen;
            let again = quotient % chosen == 0;
            let Some(next) = again.then_some(chosen).or(divisors.get(k + 1).copied()) else {
                break;
            };
            // All others are at least as great as the next one.
            if at < last && (chosen - smallest > least || next - smallest > least) {
                break;
            }
            if i64::from(next).checked_pow(at as u32).is_none_or(|p| p > quotient.into()) {
                break;
            }
            self.tried[at] = chosen;
            let beyond = divisors[k + 1..].iter().copied();
            let fitting = beyond.take_while(|&d| i64::from(d) * i64::from(d) <= quotient.into());
            let mut others: Vec<i32> = if again { vec![chosen] } else { Vec::new() };
            others.extend(fitting.filter(|d| quotient % d == 0));
            if !others.is_empty() {
                self.step(quotient, at - 1, &others);
            }
        }
    }

    /// The first two dimensions: the pair that is closest. Of equals the later one counts.
    fn last_two(&mut self, n: i32, divisors: &[i32]) {
        let (smallest, parts) = (self.smallest(), self.tried.len());
        let pairs = divisors[1..].iter().take_while(|&&d| n / d >= d);
        let second = pairs.last().copied().unwrap_or(divisors[0]);
        let first = n / second;
        if first < second {
            return;
        }
        let difference = first - if parts == 2 { second } else { smallest };
        if difference <= self.least {
            self.best.copy_from_slice(&self.tried);
            self.best[0] = first;
            self.best[1] = second;
            self.least = first - smallest;
        }
    }

    fn smallest(&self) -> i32 {
        self.tried[self.tried.len() - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn created(nodes: i32, dims: &[i32]) -> Res<Vec<i32>> {
        let mut dims = dims.to_vec();
        dims_create(nodes, &mut dims).map(|()| dims)
    }

    #[test]
    fn the_standards_examples() {
        assert_eq!(created(6, &[0, 0]), Ok(vec![3, 2]));
        assert_eq!(created(7, &[0, 0]), Ok(vec![7, 1]));
        assert_eq!(created(6, &[0, 3, 0]), Ok(vec![2, 3, 1]));
        assert_eq!(created(7, &[0, 3, 0]), Err(class::DIMS));
    }

    #[test]
    fn balance_is_as_good_as_possible() {
        assert_eq!(created(16, &[0, 0, 0]), Ok(vec![4, 2, 2]));
        assert_eq!(created(36, &[0, 0]), Ok(vec![6, 6]));
        assert_eq!(created(2 * 3 * 5 * 7, &[0, 0]), Ok(vec![15, 14]));
        assert_eq!(created(1 << 30, &[0; 30]), Ok(vec![2; 30]));
        assert_eq!(created(1, &[0, 0]), Ok(vec![1, 1]));
        assert_eq!(created(i32::MAX, &[0, 0]), Ok(vec![i32::MAX, 1]));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        assert_eq!(created(0, &[0]), Err(class::ARG));
        assert_eq!(created(4, &[-1, 0]), Err(class::DIMS));
        assert_eq!(created(4, &[3, 1]), Err(class::DIMS));
    }

    #[test]
    fn where_all_are_given_a_multiple_is_enough() {
        assert_eq!(created(4, &[2, 1]), Ok(vec![2, 1]));
        assert_eq!(created(1, &[]), Ok(vec![]));
        assert_eq!(created(2, &[]), Ok(vec![]));
    }

    /// What MPICH 5.0.2 gave for each number of nodes.
    #[test]
    fn mpichs_choice_among_equals() {
        assert_eq!(created(5040, &[0; 3]), Ok(vec![21, 16, 15]));
        assert_eq!(created(6240, &[0; 3]), Ok(vec![26, 16, 15]));
        assert_eq!(created(10800, &[0; 3]), Ok(vec![27, 20, 20]));
        assert_eq!(created(34425, &[0; 3]), Ok(vec![51, 27, 25]));
    }

    proptest! {
        #[test]
        fn dims_multiply_to_the_nodes(nodes in 1..5000i32, ndims in 1..25usize) {
            let dims = created(nodes, &vec![0; ndims]).unwrap();
            prop_assert_eq!(dims.iter().product::<i32>(), nodes);
            prop_assert!(dims.is_sorted_by(|a, b| a >= b));
        }
    }
}
