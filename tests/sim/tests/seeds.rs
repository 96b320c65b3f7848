//! A thousand seeds without a fault of the protocols, and each mutation found by some of them.

use eyrie_sim::{Config, Mutation, Report, run, together};

/// Seeds of `make test`.
const SEEDS: u64 = 1000;
/// Each mutation is found among so many.
const MUTATED_SEEDS: u64 = 1000;

fn again(seed: u64, why: &str) -> String {
    format!("seed {seed}: {why}\nagain, step by step: cargo run -p eyrie-sim -- --trace {seed}")
}

#[test]
fn no_seed_finds_a_fault() {
    let mut total = Report::default();
    for seed in 0..SEEDS {
        match run(Config { seed, mutation: None, trace: false }) {
            Ok(report) => total.add(&report),
            Err(why) => panic!("{}", again(seed, &why)),
        }
    }
    println!("{SEEDS} seeds: {total}");
    // The seeds must not be harmless.
    assert!(total.faults > SEEDS && total.node_deaths > SEEDS / 2, "{total}");
    assert!(total.recoveries > SEEDS && total.checkpoints > SEEDS, "{total}");
    assert!(total.controllers > SEEDS / 10, "{total}");
    assert!(total.roll_backs > 0 && total.roll_backs < SEEDS / 2, "{total}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..50 {
        let once = || run(Config { seed, mutation: None, trace: false });
        assert_eq!(format!("{:?}", once()), format!("{:?}", once()), "seed {seed}");
    }
}

#[test]
fn every_mutation_is_found() {
    for mutation in Mutation::ALL {
        let wrong = |seed: &u64| {
            run(Config { seed: *seed, mutation: Some(mutation), trace: false }).is_err()
        };
        match (0..MUTATED_SEEDS).find(wrong) {
            Some(seed) => println!("{mutation:?} is found by seed {seed}"),
            None => panic!("{mutation:?} is not found by any of {MUTATED_SEEDS} seeds"),
        }
    }
}

#[test]
fn no_seed_of_ranks_that_go_back_together_finds_a_fault() {
    let mut total = together::Report::default();
    for seed in 0..SEEDS {
        match together::run(seed, None, false) {
            Ok(report) => total.add(&report),
            Err(why) => panic!(
                "seed {seed}: {why}\nagain: cargo run -p eyrie-sim -- --together --trace {seed}"
            ),
        }
    }
    println!("{SEEDS} seeds: {total}");
    assert!(total.faults > SEEDS && total.node_deaths > SEEDS / 2, "{total}");
    assert!(total.sets > SEEDS && total.void > SEEDS / 20, "{total}");
    assert!(total.roll_backs > SEEDS && total.beginnings < total.roll_backs, "{total}");
}

#[test]
fn every_mistake_with_a_set_is_found() {
    for mistake in together::Mistake::ALL {
        let wrong = |seed: &u64| together::run(*seed, Some(mistake), false).is_err();
        match (0..MUTATED_SEEDS).find(wrong) {
            Some(seed) => println!("{mistake:?} is found by seed {seed}"),
            None => panic!("{mistake:?} is not found by any of {MUTATED_SEEDS} seeds"),
        }
    }
}
