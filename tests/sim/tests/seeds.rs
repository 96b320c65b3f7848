//! A thousand seeds without a fault of the protocols, and each mutation found by some of them.

use eyrie_sim::{Config, Mutation, Report, run, together};

/// Seeds of `make test`.
const SEEDS: u64 = 1000;
/// Each mutation is found among so many.
const MUTATED_SEEDS: u64 = 1000;

fn again(config: Config, why: &str) -> String {
    let Config { seed, vault, drain, .. } = config;
    let vault = if vault { " --vault" } else { "" };
    let drain = if drain { " --drain" } else { "" };
    let options = format!("--trace{vault}{drain}");
    format!("seed {seed}: {why}\nagain, step by step: cargo run -p eyrie-sim -- {options} {seed}")
}

fn config(seed: u64, vault: bool, drain: bool) -> Config {
    Config { seed, vault, drain, mutation: None, trace: false }
}

/// All seeds of a kind.
fn run_all(vault: bool, drain: bool) -> Report {
    let mut total = Report::default();
    for seed in 0..SEEDS {
        match run(config(seed, vault, drain)) {
            Ok(report) => total.add(&report),
            Err(why) => panic!("{}", again(config(seed, vault, drain), &why)),
        }
    }
    println!("{SEEDS} seeds: {total}");
    total
}

#[test]
fn no_seed_finds_a_fault() {
    none_finds_a_fault(false);
}

/// The same with images in a vault that bears two losses.
#[test]
fn no_seed_finds_a_fault_with_a_vault() {
    none_finds_a_fault(true);
}

fn none_finds_a_fault(vault: bool) {
    let total = run_all(vault, false);
    // The seeds must not be harmless.
    assert!(total.faults > SEEDS && total.node_deaths > SEEDS / 2, "{total}");
    let checkpoints = if vault { SEEDS / 2 } else { SEEDS };
    assert!(total.recoveries > SEEDS && total.checkpoints > checkpoints, "{total}");
    assert_eq!(total.unvaulted > SEEDS / 50, vault, "{total}");
    assert!(total.controllers > SEEDS / 10, "{total}");
    assert!(total.roll_backs > 0 && total.roll_backs < SEEDS / 2, "{total}");
}

/// Nodes leave at any time, half of the runs without anything else, half with faults in each step.
#[test]
fn no_seed_finds_a_fault_while_nodes_leave() {
    nodes_leave(false);
}

#[test]
fn no_seed_finds_a_fault_while_nodes_leave_with_a_vault() {
    nodes_leave(true);
}

fn nodes_leave(vault: bool) {
    let total = run_all(vault, true);
    assert!(total.left > SEEDS / 2 && total.faults > SEEDS / 2, "{total}");
    assert!(total.recoveries > SEEDS && total.controllers > SEEDS / 20, "{total}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..50 {
        let (vault, drain) = (seed % 2 == 1, seed % 3 == 1);
        let once = || run(config(seed, vault, drain));
        assert_eq!(format!("{:?}", once()), format!("{:?}", once()), "seed {seed}");
    }
}

#[test]
fn every_mutation_is_found() {
    for mutation in Mutation::ALL {
        let wrong = |seed: &u64| {
            let vault = mutation == Mutation::VaultedEarly;
            let drain = mutation.leaves();
            run(Config { mutation: Some(mutation), ..config(*seed, vault, drain) }).is_err()
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
