//! A thousand seeds without a fault of the protocols, and each mutation found by some of them.

use std::fmt::{Debug, Display};

use eyrie_sim::{Config, Mutation, Report, led, links, reigns, run, steps, ties, together, watch};

/// Seeds of `make test`.
const SEEDS: u64 = 1000;
/// Of those with a fault at every step of a set.
const SET_STEPS: u64 = 4;
/// Each mutation is found among so many.
const MUTATED_SEEDS: u64 = 6000;

/// What kind of job is simulated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Vault,
    Units,
    UnitsVault,
    Clusters,
    ClustersVault,
    /// Copies are in another cluster.
    Outside,
    /// Nodes leave.
    Leave,
    LeaveVault,
    /// Messages go by routers.
    Routed,
    LeaveRouted,
    /// Nodes leave whose ranks are units, or parts of them.
    LeaveUnits,
    LeaveClusters,
    LeaveUnitsVault,
    LeaveClustersVault,
    /// Jobs stand still now and then.
    Halts,
    HaltsUnits,
    HaltsLeave,
}

impl Kind {
    const ALL: [Kind; 18] = [
        Kind::Plain,
        Kind::Vault,
        Kind::Units,
        Kind::UnitsVault,
        Kind::Clusters,
        Kind::ClustersVault,
        Kind::Outside,
        Kind::Leave,
        Kind::LeaveVault,
        Kind::Routed,
        Kind::LeaveRouted,
        Kind::LeaveUnits,
        Kind::LeaveClusters,
        Kind::LeaveUnitsVault,
        Kind::LeaveClustersVault,
        Kind::Halts,
        Kind::HaltsUnits,
        Kind::HaltsLeave,
    ];

    fn config(self, seed: u64, mutation: Option<Mutation>) -> Config {
        Config::of(seed, |word| way(self).split(' ').any(|w| w == word), mutation)
    }
}

/// How such a job is run again from the command line.
fn way(kind: Kind) -> &'static str {
    match kind {
        Kind::Plain => "",
        Kind::Vault => "--vault",
        Kind::Units => "--units",
        Kind::UnitsVault => "--units --vault",
        Kind::Clusters => "--cluster-units",
        Kind::ClustersVault => "--cluster-units --vault",
        Kind::Outside => "--outside",
        Kind::Leave => "--drain",
        Kind::LeaveVault => "--vault --drain",
        Kind::Routed => "--routed",
        Kind::LeaveRouted => "--routed --drain",
        Kind::LeaveUnits => "--units --drain",
        Kind::LeaveClusters => "--cluster-units --drain",
        Kind::LeaveUnitsVault => "--units --vault --drain",
        Kind::LeaveClustersVault => "--cluster-units --vault --drain",
        Kind::Halts => "--halts",
        Kind::HaltsUnits => "--halts --cluster-units",
        Kind::HaltsLeave => "--halts --drain",
    }
}

/// All seeds of a kind, of which none may find a fault, added up.
fn total_of<R: Default + Display>(
    way: &str,
    one: impl Fn(u64) -> Result<R, String>,
    add: impl Fn(&mut R, &R),
) -> R {
    let mut total = R::default();
    for seed in 0..SEEDS {
        match one(seed) {
            Ok(report) => add(&mut total, &report),
            Err(why) => panic!(
                "seed {seed}: {why}\n\
                 again, step by step: cargo run -p eyrie-sim -- {way} --trace {seed}"
            ),
        }
    }
    println!("{SEEDS} seeds: {total}");
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

fn run_all(kind: Kind) -> Report {
    total_of(way(kind), |seed| run(kind.config(seed, None)), Report::add)
}

#[test]
fn no_seed_finds_a_fault() {
    none_finds_a_fault(Kind::Plain);
}

/// The same with images in a vault that bears two losses.
#[test]
fn no_seed_finds_a_fault_with_a_vault() {
    none_finds_a_fault(Kind::Vault);
}

/// The same where the ranks that begin on one node are one recovery unit.
#[test]
fn no_seed_finds_a_fault_with_units() {
    none_finds_a_fault(Kind::Units);
}

/// The same with their sets in a vault that bears two losses.
#[test]
fn no_seed_finds_a_fault_with_units_and_a_vault() {
    none_finds_a_fault(Kind::UnitsVault);
}

/// The same where those that begin in one cluster of nodes are.
#[test]
fn no_seed_finds_a_fault_with_units_over_several_nodes() {
    none_finds_a_fault(Kind::Clusters);
}

/// The same with their sets in a vault.
#[test]
fn no_seed_finds_a_fault_with_units_over_several_nodes_and_a_vault() {
    none_finds_a_fault(Kind::ClustersVault);
}

/// The same where copies are in the other of two clusters, which are lost as a whole.
#[test]
fn no_seed_finds_a_fault_with_copies_outside() {
    none_finds_a_fault(Kind::Outside);
}

/// The same where messages between nodes go by routers, which die like all nodes.
#[test]
fn no_seed_finds_a_fault_with_routers() {
    none_finds_a_fault(Kind::Routed);
}

fn none_finds_a_fault(kind: Kind) {
    let total = run_all(kind);
    // The seeds must not be harmless.
    assert!(total.faults > SEEDS && total.node_deaths > SEEDS / 2, "{total}");
    let vault = matches!(kind, Kind::Vault | Kind::UnitsVault | Kind::ClustersVault);
    let checkpoints = if vault { SEEDS / 2 } else { SEEDS };
    assert!(total.recoveries > SEEDS && total.checkpoints > checkpoints, "{total}");
    assert_eq!(total.unvaulted > SEEDS / 100, vault, "{total}");
    assert!(total.controllers > SEEDS / 10, "{total}");
    assert!(total.roll_backs > 0 && total.roll_backs < SEEDS / 2, "{total}");
}

/// Nodes leave at any time, half of the runs without anything else, half with faults in each step.
#[test]
fn no_seed_finds_a_fault_while_nodes_leave() {
    nodes_leave(Kind::Leave);
}

#[test]
fn no_seed_finds_a_fault_while_nodes_leave_with_a_vault() {
    nodes_leave(Kind::LeaveVault);
}

#[test]
fn no_seed_finds_a_fault_while_nodes_leave_with_routers() {
    nodes_leave(Kind::LeaveRouted);
}

#[test]
fn no_seed_finds_a_fault_while_nodes_of_units_leave() {
    nodes_leave(Kind::LeaveUnits);
}

#[test]
fn no_seed_finds_a_fault_while_nodes_of_clusters_leave() {
    nodes_leave(Kind::LeaveClusters);
}

#[test]
fn no_seed_finds_a_fault_while_nodes_of_units_leave_with_a_vault() {
    nodes_leave(Kind::LeaveUnitsVault);
    nodes_leave(Kind::LeaveClustersVault);
}

/// The user and clients have jobs stand still, and go on, in the midst of all that.
#[test]
fn no_seed_finds_a_fault_while_jobs_stand_still() {
    for kind in [Kind::Halts, Kind::HaltsUnits, Kind::HaltsLeave] {
        let total = run_all(kind);
        assert!(total.halts > SEEDS && total.stood > SEEDS / 2, "{total}");
        assert!(total.recoveries > SEEDS && total.controllers > SEEDS / 20, "{total}");
    }
}

fn nodes_leave(kind: Kind) {
    let total = run_all(kind);
    assert!(total.left > SEEDS / 2 && total.emptied > SEEDS / 10, "{total}");
    assert!(total.faults > SEEDS / 2, "{total}");
    assert!(total.recoveries > SEEDS && total.controllers > SEEDS / 20, "{total}");
}

/// Somebody who takes part in a step dies, or is cut off, right before or after it: at every step.
#[test]
fn no_step_is_one_that_a_fault_must_not_come_at() {
    no_step_of(Kind::Plain, 5);
    no_step_of(Kind::Halts, 5);
}

#[test]
fn no_step_of_leaving_is_one_that_a_fault_must_not_come_at() {
    no_step_of(Kind::Leave, 8);
    no_step_of(Kind::LeaveVault, 4);
    no_step_of(Kind::LeaveRouted, 4);
}

#[test]
fn no_step_of_units_is_one_that_a_fault_must_not_come_at() {
    no_step_of(Kind::Units, 4);
    no_step_of(Kind::LeaveUnits, 6);
    no_step_of(Kind::LeaveClusters, 4);
    no_step_of(Kind::LeaveUnitsVault, 2);
    no_step_of(Kind::LeaveClustersVault, 2);
}

fn no_step_of(kind: Kind, seeds: u64) {
    let mut total = steps::Report::default();
    for seed in 0..seeds {
        match steps::run(kind.config(seed, None)) {
            Ok(report) => total.add(&report),
            Err((at, why)) => {
                let with = at.map_or_else(|| String::from("--small"), |at| format!("--fault {at}"));
                let again = format!("cargo run -p eyrie-sim -- {} {with} --trace", way(kind));
                panic!("seed {seed}: {why}\nagain, step by step: {again} {seed}");
            }
        }
    }
    println!("{seeds} seeds: {total}");
    let sum = &total.sum;
    assert!(total.steps > 100 * seeds && total.runs > 5 * total.steps, "{total}");
    assert!(sum.node_deaths > total.runs / 10 && sum.controllers > total.runs / 10, "{total}");
    let leaves = way(kind).contains("--drain");
    assert_eq!(sum.left > total.runs / 4, leaves, "{total}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..50 {
        let kind = Kind::ALL[seed as usize % Kind::ALL.len()];
        let once = || run(kind.config(seed, None));
        assert_eq!(format!("{:?}", once()), format!("{:?}", once()), "seed {seed}");
    }
}

#[test]
fn every_mutation_is_found() {
    let all = Mutation::ALL.into_iter().chain(Mutation::UNITS);
    let all = all.chain(Mutation::CLUSTERS).chain(Mutation::ROUTED).chain(Mutation::SITES);
    let all = all.chain(Mutation::HALTS);
    all_are_found(all, |mutation, seed| {
        let kind = match mutation {
            Mutation::VaultedEarly | Mutation::LeftThin | Mutation::LateImages => Kind::Vault,
            Mutation::MatesGoOn | Mutation::VoidHeld | Mutation::HeldLater => Kind::LeaveClusters,
            leave if leave.leaves() => Kind::Leave,
            unit if Mutation::UNITS.contains(&unit) => Kind::Units,
            several if Mutation::CLUSTERS.contains(&several) => Kind::Clusters,
            routed if Mutation::ROUTED.contains(&routed) => Kind::Routed,
            site if Mutation::SITES.contains(&site) => Kind::Outside,
            halt if Mutation::HALTS.contains(&halt) => Kind::Halts,
            _ => Kind::Plain,
        };
        run(kind.config(seed, Some(mutation))).is_err()
    });
}

#[test]
fn no_seed_of_ranks_that_go_back_together_finds_a_fault() {
    none_of_sets_finds_a_fault("--together", together::Kind::Copies, false);
}

/// The same where nodes leave, all ranks with them.
#[test]
fn no_seed_of_sets_with_nodes_that_leave_finds_a_fault() {
    let kind = together::Kind::Copies;
    let total = none_of_sets_finds_a_fault("--together --drain", kind, true);
    assert!(total.left > SEEDS, "{total}");
}

/// The same with the sets in a vault that bears one loss, or two.
#[test]
fn no_seed_of_sets_in_a_vault_finds_a_fault() {
    none_of_sets_finds_a_fault("--together --vault", together::Kind::Vault, false);
}

/// The same where nodes leave.
#[test]
fn no_seed_of_sets_in_a_vault_with_nodes_that_leave_finds_a_fault() {
    let kind = together::Kind::Vault;
    let total = none_of_sets_finds_a_fault("--together --vault --drain", kind, true);
    assert!(total.left > SEEDS && total.emptied > SEEDS / 2, "{total}");
}

fn none_of_sets_finds_a_fault(way: &str, kind: together::Kind, drains: bool) -> together::Report {
    let one = |seed| together::run(together::Job { drains, ..together::Job::of(seed, kind) });
    let total = total_of(way, one, together::Report::add);
    assert!(total.controllers > SEEDS / 4, "{total}");
    assert!(total.faults > SEEDS && total.node_deaths > SEEDS / 2, "{total}");
    assert!(total.sets > SEEDS && total.void > SEEDS / 20, "{total}");
    assert!(total.roll_backs > SEEDS && total.beginnings < total.roll_backs, "{total}");
    let vault = kind == together::Kind::Vault;
    assert_eq!((total.rounds > SEEDS, total.unvaulted > SEEDS / 20), (vault, vault), "{total}");
    total
}

#[test]
fn every_mistake_with_a_set_is_found() {
    use together::{Job, Kind, Mistake, run};
    let wrong = |kind, drains, mistake, seed| {
        let mistake = Some(mistake);
        run(Job { drains, mistake, ..Job::of(seed, kind) }).is_err()
    };
    all_are_found(Mistake::ALL, |m, seed| wrong(Kind::Copies, false, m, seed));
    all_are_found(Mistake::VAULT, |m, seed| wrong(Kind::Vault, false, m, seed));
    all_are_found(Mistake::DRAIN, |m, seed| wrong(Kind::Copies, true, m, seed));
    all_are_found(Mistake::DRAIN_VAULT, |m, seed| wrong(Kind::Vault, true, m, seed));
    all_are_found(Mistake::REIGNS, |m, seed| wrong(Kind::Copies, false, m, seed));
}

/// Small jobs whose ranks go back together, with one fault at every step: of a set, and of a
/// roll-back.
#[test]
fn no_fault_at_any_step_of_a_set_is_too_many() {
    use together::{Job, Kind, Steps, run_every_step};
    for (kind, drains, way) in [
        (Kind::Copies, false, ""),
        (Kind::Vault, false, " --vault"),
        (Kind::Copies, true, " --drain"),
        (Kind::Vault, true, " --vault --drain"),
    ] {
        let mut total = Steps::default();
        for seed in 0..SET_STEPS {
            match run_every_step(Job { drains, ..Job::of(seed, kind) }) {
                Ok(steps) => total.add(&steps),
                Err((at, why)) => {
                    let with = at.map_or(String::from("--small"), |at| format!("--fault {at}"));
                    let again = "cargo run -p eyrie-sim -- --trace --together";
                    panic!("seed {seed}: {why}\nagain, step by step: {again}{way} {with} {seed}");
                }
            }
        }
        println!("{SET_STEPS} seeds{way}: {total}");
        let sum = &total.sum;
        assert!(total.steps > 100 * SET_STEPS && total.runs > total.steps, "{total}");
        assert!(sum.controllers > total.runs / 10 && sum.node_deaths > total.runs / 10, "{total}");
        assert!(sum.roll_backs > total.runs / 2, "{total}");
    }
}

/// The real links, over connections that break at any byte.
#[test]
fn no_seed_of_links_finds_a_fault() {
    let total = total_of("--links", |seed| links::run(seed, None, false), links::Report::add);
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
fn no_seed_of_ties_finds_a_fault() {
    let total = total_of("--ties", |seed| ties::run(seed, None, false), ties::Report::add);
    assert!(total.declared > SEEDS / 5 && total.gave_up > SEEDS / 5, "{total}");
    assert!(total.back > SEEDS / 20 && total.slow > SEEDS / 20, "{total}");
    assert!(total.told > 0 && total.missed > 0, "{total}");
    assert!(total.held > SEEDS / 10 && total.returned > SEEDS / 20, "{total}");
}

#[test]
fn every_mistake_with_ties_is_found() {
    all_are_found(ties::Mistake::ALL, |mistake, seed| {
        ties::run(seed, Some(mistake), false).is_err()
    });
}

/// Controllers of one job whose journal is in a store, which die, stand still and reach it badly.
#[test]
fn no_seed_of_reigns_finds_a_fault() {
    let total = total_of("--reigns", |seed| reigns::run(seed, None, false), reigns::Report::add);
    assert!(total.deaths > SEEDS && total.stood_still > SEEDS, "{total}");
    assert!(total.reigns > 2 * SEEDS && total.deposed > SEEDS / 10, "{total}");
    assert!(total.late > SEEDS && total.lapses > SEEDS / 10, "{total}");
}

#[test]
fn every_mistake_with_reigns_is_found() {
    all_are_found(reigns::Mistake::ALL, |mistake, seed| {
        reigns::run(seed, Some(mistake), false).is_err()
    });
}

/// Controllers, the store and a node, each two of which may be cut off from each other.
#[test]
fn no_seed_of_led_nodes_finds_a_fault() {
    let total = total_of("--led", |seed| led::run(seed, None, false), led::Report::add);
    assert!(total.reigns > 2 * SEEDS && total.retaken > SEEDS / 10, "{total}");
    assert!(total.stood > SEEDS / 50 && total.went_on > 0, "{total}");
    assert!(total.elsewhere > SEEDS / 2 && total.followed > SEEDS / 10, "{total}");
}

#[test]
fn every_mistake_with_led_nodes_is_found() {
    all_are_found(led::Mistake::ALL, |mistake, seed| led::run(seed, Some(mistake), false).is_err());
}

/// A controller and several nodes, whose machines die or sleep, whose daemons are slow or stopped.
#[test]
fn no_seed_of_watched_nodes_finds_a_fault() {
    let total = total_of("--watch", |seed| watch::run(seed, None, false), watch::Report::add);
    assert!(total.gone > SEEDS / 10 && total.silent > SEEDS / 20, "{total}");
    assert!(total.gave_up > SEEDS / 10 && total.borne > SEEDS / 2, "{total}");
    assert!(total.died > SEEDS / 20 && total.slowest_ms < 1_000, "{total}");
    assert!(total.missed > SEEDS / 10 && total.slowest_missed_ms < 1_500, "{total}");
}

#[test]
fn every_mistake_with_watched_nodes_is_found() {
    all_are_found(watch::Mistake::ALL, |mistake, seed| {
        watch::run(seed, Some(mistake), false).is_err()
    });
}
