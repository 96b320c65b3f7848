//! Seeds without a fault of the protocols, and each mutation found by some of them.

use std::fmt::{Debug, Display};

use eyrie_sim::{
    Mutation, consensus, election, heartbeat, lease, links, real, returns, revocation, watchdog,
};
use real::{Report, steps};

/// Seeds of `make test`.
const SEEDS: u64 = 1000;
/// Of each kind of job.
const JOB_SEEDS: u64 = 100;
/// Of each kind of job with a fault at a step, and how many such steps.
const STEP_SEEDS: u64 = 2;
const STEPS: usize = 100;
/// Each mutation is found among so many.
const MUTATED_SEEDS: u64 = 6000;

/// All seeds of a kind, of which none may find a fault, added up.
fn total_of<R: Default + Display>(
    way: &str,
    one: impl Fn(u64) -> Result<R, String>,
    add: impl Fn(&mut R, &R),
) -> R {
    total_of_so_many(SEEDS, way, one, add)
}

fn total_of_so_many<R: Default + Display>(
    seeds: u64,
    way: &str,
    one: impl Fn(u64) -> Result<R, String>,
    add: impl Fn(&mut R, &R),
) -> R {
    let mut total = R::default();
    for seed in 0..seeds {
        match one(seed) {
            Ok(report) => add(&mut total, &report),
            Err(why) => panic!(
                "seed {seed}: {why}\n\
                 again, step by step: cargo run -p eyrie-sim -- {way} --trace {seed}"
            ),
        }
    }
    println!("{seeds} seeds: {total}");
    total
}

/// Each of these mistakes is found by some seed.
fn all_are_found<M: Copy + Debug>(
    mistakes: impl IntoIterator<Item = M>,
    is_found: impl Fn(M, u64) -> bool,
) {
    for mistake in mistakes {
        match (0..MUTATED_SEEDS).find(|seed| is_found(mistake, *seed)) {
            Some(seed) => println!("{mistake:?} is found by seed {seed}"),
            None => panic!("{mistake:?} is not found by any of {MUTATED_SEEDS} seeds"),
        }
    }
}

/// The real links, over connections that break at any byte.
#[test]
fn no_seed_of_links_finds_a_fault() {
    let total = total_of("links", |seed| links::run(seed, None, false), links::Report::add);
    assert!(total.broken > SEEDS && total.half_open > SEEDS / 4, "{total}");
    assert!(total.doubled > SEEDS / 2 && total.starved > SEEDS / 20, "{total}");
    assert!(total.restored > SEEDS && total.moved > SEEDS / 10, "{total}");
    assert!(total.cut_off > SEEDS / 10 && total.fenced > SEEDS / 10, "{total}");
}

#[test]
fn every_mistake_with_links_is_found() {
    all_are_found(links::Mistake::ALL, |mistake, seed| {
        links::run(seed, Some(mistake), false).is_err()
    });
}

/// The controller and a node, each slow or standing still, the connection cut in any direction.
#[test]
fn no_seed_of_heartbeats_finds_a_fault() {
    let total =
        total_of("heartbeat", |seed| heartbeat::run(seed, None, false), heartbeat::Report::add);
    assert!(total.declared > SEEDS / 5 && total.gave_up > SEEDS / 5, "{total}");
    assert!(total.back > SEEDS / 20 && total.slow > SEEDS / 20, "{total}");
    assert!(total.told > 0 && total.missed > 0, "{total}");
    assert!(total.held > SEEDS / 10 && total.returned > SEEDS / 20, "{total}");
}

#[test]
fn every_mistake_with_heartbeats_is_found() {
    all_are_found(heartbeat::Mistake::ALL, |mistake, seed| {
        heartbeat::run(seed, Some(mistake), false).is_err()
    });
}

/// Controllers of one job whose journal is in a store, which die, stand still and reach it badly.
#[test]
fn no_seed_of_terms_finds_a_fault() {
    let total =
        total_of("election", |seed| election::run(seed, None, false), election::Report::add);
    assert!(total.deaths > SEEDS && total.stood_still > SEEDS, "{total}");
    assert!(total.terms > 2 * SEEDS && total.deposed > SEEDS / 10, "{total}");
    assert!(total.late > SEEDS && total.lapses > SEEDS / 10, "{total}");
}

#[test]
fn every_mistake_with_terms_is_found() {
    all_are_found(election::Mistake::ALL, |mistake, seed| {
        election::run(seed, Some(mistake), false).is_err()
    });
}

/// Ranks that come back alone, and return together to a snapshot when one cannot.
#[test]
fn no_seed_of_snapshots_finds_a_fault() {
    let total = total_of("returns", |seed| returns::run(seed, None, false), returns::Report::add);
    assert!(total.snapshots > SEEDS && total.alone > 5 * SEEDS, "{total}");
    assert!(total.diverged > SEEDS / 2 && total.beyond > SEEDS / 10, "{total}");
    assert!(total.returns > SEEDS / 2 && total.beginnings > SEEDS / 10, "{total}");
    assert!(total.lost > SEEDS / 100, "{total}");
    assert!(total.vaulted > SEEDS && total.unvaulted > SEEDS / 20, "{total}");
    assert!(total.left > SEEDS / 4, "{total}");
}

#[test]
fn every_mistake_with_snapshots_is_found() {
    all_are_found(returns::Mistake::ALL, |mistake, seed| {
        returns::run(seed, Some(mistake), false).is_err()
    });
}

/// Controllers, the store and a node, each two of which may be cut off from each other.
#[test]
fn no_seed_of_leased_nodes_finds_a_fault() {
    let total = total_of("lease", |seed| lease::run(seed, None, false), lease::Report::add);
    assert!(total.terms > 2 * SEEDS && total.retaken > SEEDS / 10, "{total}");
    assert!(total.stood > SEEDS / 50 && total.went_on > 0, "{total}");
    assert!(total.elsewhere > SEEDS / 2 && total.followed > SEEDS / 10, "{total}");
}

#[test]
fn every_mistake_with_leased_nodes_is_found() {
    all_are_found(lease::Mistake::ALL, |mistake, seed| {
        lease::run(seed, Some(mistake), false).is_err()
    });
}

/// A controller and several nodes, whose machines die or sleep, whose daemons are slow or stopped.
#[test]
fn no_seed_of_watched_nodes_finds_a_fault() {
    let total =
        total_of("watchdog", |seed| watchdog::run(seed, None, false), watchdog::Report::add);
    assert!(total.gone > SEEDS / 10 && total.silent > SEEDS / 20, "{total}");
    assert!(total.gave_up > SEEDS / 10 && total.borne > SEEDS / 2, "{total}");
    assert!(total.died > SEEDS / 20 && total.slowest_ms < 1_000, "{total}");
    assert!(total.missed > SEEDS / 10 && total.slowest_missed_ms < 1_500, "{total}");
}

#[test]
fn every_mistake_with_watched_nodes_is_found() {
    all_are_found(watchdog::Mistake::ALL, |mistake, seed| {
        watchdog::run(seed, Some(mistake), false).is_err()
    });
}

/// Members that agree, any number of which die meanwhile.
#[test]
fn no_seed_of_agreements_finds_a_fault() {
    let total =
        total_of("consensus", |seed| consensus::run(seed, None, false), consensus::Report::add);
    assert!(total.deaths > SEEDS && total.first_died > SEEDS / 10, "{total}");
    assert!(total.after_return > SEEDS / 50, "{total}");
}

#[test]
fn every_mistake_with_agreements_is_found() {
    all_are_found(consensus::MISTAKES, |mistake, seed| {
        consensus::run(seed, Some(mistake), false).is_err()
    });
}

/// Members that revoke, any number of which die meanwhile.
#[test]
fn no_seed_of_revocations_finds_a_fault() {
    let run = |seed| revocation::run(seed, None, false);
    let total = total_of("revocation", run, revocation::Report::add);
    assert!(total.deaths > SEEDS && total.cut_short > SEEDS / 10, "{total}");
    assert!(total.passed_on > SEEDS / 10, "{total}");
}

#[test]
fn every_mistake_with_revocations_is_found() {
    all_are_found(revocation::MISTAKES, |mistake, seed| {
        revocation::run(seed, Some(mistake), false).is_err()
    });
}

/// A run of the controller that daemons run.
fn job(seed: u64, way: &str, mutation: Option<Mutation>) -> Result<Report, String> {
    real::run(real::Setup { mutation, ..setup_of(seed, way) })
}

fn setup_of(seed: u64, way: &str) -> real::Setup {
    real::Setup::of(seed, |word| way.split(' ').any(|w| w == word))
}

/// The controller that daemons run, with its journal, over simulated nodes, in jobs of these kinds.
fn none_finds_a_fault(ways: &[&str], seeds: u64) -> Report {
    let mut total = Report::default();
    for way in ways {
        total.add(&total_of_so_many(seeds, way, |seed| job(seed, way, None), Report::add));
    }
    let seeds = seeds * ways.len() as u64;
    let has = |word: &str| ways.iter().any(|way| way.contains(word));
    // The seeds must not be harmless. While nodes leave half of the runs are not disturbed.
    let half = if has("--drain") { 2 } else { 1 };
    assert!(total.recoveries > seeds / 2 && total.checkpoints > seeds / 2, "{total}");
    assert!(total.node_deaths > seeds / 2 / half, "{total}");
    assert!(total.controllers > seeds / 4 / half, "{total}");
    assert_eq!(total.left + total.called_off > 0, has("--drain"), "{total}");
    assert_eq!(total.unvaulted > 0, has("--vault"), "{total}");
    assert_eq!(total.suspends > 0, has("--halts"), "{total}");
    assert_eq!(total.unfit > 0, has("--unfit"), "{total}");
    total
}

#[test]
fn no_seed_finds_a_fault() {
    let total = none_finds_a_fault(&[""], 3 * JOB_SEEDS);
    assert!(total.roll_backs > JOB_SEEDS / 5, "{total}");
}

/// Nodes leave at any time, half of the runs without anything else, or are not to after all.
#[test]
fn no_seed_finds_a_fault_while_nodes_leave() {
    none_finds_a_fault(&["--drain"], 2 * JOB_SEEDS);
}

/// The same where all ranks go back together.
#[test]
fn no_seed_finds_a_fault_where_all_ranks_go_back() {
    let total = none_finds_a_fault(
        &["coordinated", "coordinated --drain", "coordinated --halts"],
        JOB_SEEDS,
    );
    assert!(total.roll_backs > JOB_SEEDS / 2, "{total}");
}

/// The same with the snapshots in a vault.
#[test]
fn no_seed_finds_a_fault_where_all_ranks_go_back_with_a_vault() {
    none_finds_a_fault(&["coordinated --vault", "coordinated --vault --drain"], JOB_SEEDS);
}

/// The same where the ranks of a node do.
#[test]
fn no_seed_finds_a_fault_with_units() {
    none_finds_a_fault(
        &["--units", "--units --drain", "--units --vault", "--units --vault --drain"],
        JOB_SEEDS,
    );
}

/// The same where those of a cluster do.
#[test]
fn no_seed_finds_a_fault_with_units_over_several_nodes() {
    none_finds_a_fault(
        &[
            "--cluster-units",
            "--cluster-units --drain",
            "--cluster-units --vault",
            "--cluster-units --halts",
        ],
        JOB_SEEDS,
    );
}

/// The same where messages go by routers, which die like all nodes.
#[test]
fn no_seed_finds_a_fault_with_routers() {
    none_finds_a_fault(&["--routed", "--routed --drain"], JOB_SEEDS);
}

/// The same with images in a vault that bears two losses.
#[test]
fn no_seed_finds_a_fault_with_a_vault() {
    none_finds_a_fault(&["--vault", "--vault --drain"], JOB_SEEDS);
}

/// The same with copies in another cluster or domain, whose nodes die together.
#[test]
fn no_seed_finds_a_fault_with_copies_outside() {
    none_finds_a_fault(&["--outside"], JOB_SEEDS);
}

/// The same with the user and clients who have the job stand still, vanish, or lose their
/// controller.
#[test]
fn no_seed_finds_a_fault_while_jobs_stand_still() {
    none_finds_a_fault(&["--halts", "--halts --drain"], JOB_SEEDS);
}

/// The same where ranks that come back alone stand for a checkpoint of all now and then.
#[test]
fn no_seed_finds_a_fault_with_snapshots_to_fall_back_to() {
    none_finds_a_fault(&["--fallback"], JOB_SEEDS);
}

/// The same where nodes cannot have ranks for a while.
#[test]
fn no_seed_finds_a_fault_where_nodes_are_unfit() {
    none_finds_a_fault(&["--unfit"], JOB_SEEDS);
}

/// Somebody who takes part in a step dies, or is cut off, right before or after it.
#[test]
fn no_step_is_one_that_a_fault_must_not_come_at() {
    for way in ["", "--drain", "--units --drain", "--cluster-units", "--vault", "--routed"] {
        no_step_of(way);
    }
}

/// The same where all ranks go back together.
#[test]
fn no_step_of_a_snapshot_is_one_that_a_fault_must_not_come_at() {
    for way in ["coordinated", "coordinated --drain", "coordinated --vault"] {
        no_step_of(way);
    }
}

/// A part of the steps, spread over each run.
fn no_step_of(way: &str) {
    let mut total = steps::Report::default();
    for seed in 0..STEP_SEEDS {
        match steps::run(setup_of(seed, way), Some(STEPS)) {
            Ok(report) => total.add(&report),
            Err((at, why)) => {
                let with = at.map_or_else(|| String::from("--small"), |at| format!("--fault {at}"));
                let again = format!("cargo run -p eyrie-sim -- {way} {with} --trace");
                panic!("seed {seed}: {why}\nagain, step by step: {again} {seed}");
            }
        }
    }
    println!("{STEP_SEEDS} seeds{way}: {total}");
    assert!(total.steps > 100 * STEP_SEEDS, "{total}");
    assert!(total.runs > STEP_SEEDS * STEPS as u64 / 2, "{total}");
    assert!(total.sum.node_deaths > 0 && total.sum.controllers > 0, "{total}");
}

/// The same where the network between the nodes is known.
#[test]
fn no_seed_finds_a_fault_with_a_network() {
    none_finds_a_fault(&["--topology", "--topology --drain"], JOB_SEEDS);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let ways = ["", "--vault --drain", "--cluster-units --halts", "coordinated", "--routed"];
    for (seed, way) in (0..20).zip(ways.into_iter().cycle()) {
        let once = || job(seed, way, None);
        assert_eq!(format!("{:?}", once()), format!("{:?}", once()), "seed {seed} {way}");
    }
}

#[test]
fn every_mutation_is_found() {
    all_are_found(real::MUTATIONS, |(mutation, way), seed| job(seed, way, Some(mutation)).is_err());
}
