//! A thousand seeds without a fault of the protocols, and each mutation found by some of them.

use std::fmt::{Debug, Display};

use eyrie_sim::{
    Config, Mutation, Report, consensus, coordinated, election, heartbeat, lease, links, real,
    returns, run, steps, watchdog,
};

/// Seeds of `make test`.
const SEEDS: u64 = 1000;
/// Of those with a fault at every step of a set.
const SET_STEPS: u64 = 4;
/// Of each kind of job of the real controller but the first.
const REAL_SEEDS: u64 = 30;
/// So many tell whether all that may happen does.
const TELLING_SEEDS: u64 = 100;
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
    Suspends,
    SuspendsUnits,
    SuspendsLeave,
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
        Kind::Suspends,
        Kind::SuspendsUnits,
        Kind::SuspendsLeave,
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
        Kind::Suspends => "--halts",
        Kind::SuspendsUnits => "--halts --cluster-units",
        Kind::SuspendsLeave => "--halts --drain",
    }
}

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

/// The same with their snapshots in a vault that bears two losses.
#[test]
fn no_seed_finds_a_fault_with_units_and_a_vault() {
    none_finds_a_fault(Kind::UnitsVault);
}

/// The same where those that begin in one cluster of nodes are.
#[test]
fn no_seed_finds_a_fault_with_units_over_several_nodes() {
    none_finds_a_fault(Kind::Clusters);
}

/// The same with their snapshots in a vault.
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
    for kind in [Kind::Suspends, Kind::SuspendsUnits, Kind::SuspendsLeave] {
        let total = run_all(kind);
        assert!(total.suspends > SEEDS && total.stood > SEEDS / 2, "{total}");
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
    no_step_of(Kind::Suspends, 5);
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
    let all = all.chain(Mutation::SUSPENDS);
    all_are_found(all, |mutation, seed| {
        let kind = match mutation {
            Mutation::VaultedEarly | Mutation::LeftThin | Mutation::LateImages => Kind::Vault,
            Mutation::MatesGoOn | Mutation::VoidHeld | Mutation::HeldLater => Kind::LeaveClusters,
            leave if leave.leaves() => Kind::Leave,
            unit if Mutation::UNITS.contains(&unit) => Kind::Units,
            several if Mutation::CLUSTERS.contains(&several) => Kind::Clusters,
            routed if Mutation::ROUTED.contains(&routed) => Kind::Routed,
            site if Mutation::SITES.contains(&site) => Kind::Outside,
            suspend if Mutation::SUSPENDS.contains(&suspend) => Kind::Suspends,
            _ => Kind::Plain,
        };
        run(kind.config(seed, Some(mutation))).is_err()
    });
}

#[test]
fn no_seed_of_ranks_that_go_back_together_finds_a_fault() {
    none_of_snapshots_finds_a_fault("coordinated", coordinated::Kind::Copies, false);
}

/// The same where nodes leave, all ranks with them.
#[test]
fn no_seed_of_coordinated_snapshots_with_nodes_that_leave_finds_a_fault() {
    let kind = coordinated::Kind::Copies;
    let total = none_of_snapshots_finds_a_fault("coordinated --drain", kind, true);
    assert!(total.left > SEEDS, "{total}");
}

/// The same with the snapshots in a vault that bears one loss, or two.
#[test]
fn no_seed_of_coordinated_snapshots_in_a_vault_finds_a_fault() {
    none_of_snapshots_finds_a_fault("coordinated --vault", coordinated::Kind::Vault, false);
}

/// The same where nodes leave.
#[test]
fn no_seed_of_coordinated_snapshots_in_a_vault_with_nodes_that_leave_finds_a_fault() {
    let kind = coordinated::Kind::Vault;
    let total = none_of_snapshots_finds_a_fault("coordinated --vault --drain", kind, true);
    assert!(total.left > SEEDS && total.emptied > SEEDS / 2, "{total}");
}

fn none_of_snapshots_finds_a_fault(
    way: &str,
    kind: coordinated::Kind,
    drains: bool,
) -> coordinated::Report {
    let one =
        |seed| coordinated::run(coordinated::Job { drains, ..coordinated::Job::of(seed, kind) });
    let total = total_of(way, one, coordinated::Report::add);
    assert!(total.controllers > SEEDS / 4, "{total}");
    assert!(total.faults > SEEDS && total.node_deaths > SEEDS / 2, "{total}");
    assert!(total.snapshots > SEEDS && total.void > SEEDS / 20, "{total}");
    assert!(total.roll_backs > SEEDS && total.beginnings < total.roll_backs, "{total}");
    let vault = kind == coordinated::Kind::Vault;
    assert_eq!((total.rounds > SEEDS, total.unvaulted > SEEDS / 20), (vault, vault), "{total}");
    total
}

#[test]
fn every_mistake_with_a_set_is_found() {
    use coordinated::{Job, Kind, Mistake, run};
    let wrong = |kind, drains, mistake, seed| {
        let mistake = Some(mistake);
        run(Job { drains, mistake, ..Job::of(seed, kind) }).is_err()
    };
    all_are_found(Mistake::ALL, |m, seed| wrong(Kind::Copies, false, m, seed));
    all_are_found(Mistake::VAULT, |m, seed| wrong(Kind::Vault, false, m, seed));
    all_are_found(Mistake::DRAIN, |m, seed| wrong(Kind::Copies, true, m, seed));
    all_are_found(Mistake::DRAIN_VAULT, |m, seed| wrong(Kind::Vault, true, m, seed));
    all_are_found(Mistake::TERMS, |m, seed| wrong(Kind::Copies, false, m, seed));
}

/// Small jobs whose ranks go back together, with one fault at every step: of a set, and of a
/// roll-back.
#[test]
fn no_fault_at_any_step_of_a_set_is_too_many() {
    use coordinated::{Job, Kind, Steps, run_every_step};
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
                    let again = "cargo run -p eyrie-sim -- coordinated --trace";
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

/// A run of the real controller.
fn really(seed: u64, way: &str, mutation: Option<Mutation>) -> Result<Report, String> {
    real::run(real::Setup { mutation, ..setup_of(seed, way) })
}

fn setup_of(seed: u64, way: &str) -> real::Setup {
    real::Setup::of(seed, |word| way.split(' ').any(|w| w == word))
}

/// The controller that daemons run, with its journal, over simulated nodes.
fn none_finds_a_fault_of_the_real_controller(way: &str, seeds: u64) -> Report {
    let kind = format!("controller {way}");
    let total = total_of_so_many(seeds, &kind, |seed| really(seed, way, None), Report::add);
    // While nodes leave half of the runs are not disturbed.
    let drains = way.contains("--drain");
    let half = if drains { 2 } else { 1 };
    assert!(total.recoveries > seeds / 2 && total.checkpoints > seeds / 2, "{total}");
    if seeds < TELLING_SEEDS {
        return total;
    }
    assert!(total.node_deaths > seeds / 2 / half, "{total}");
    assert!(total.controllers > seeds / 4 / half, "{total}");
    assert!(!drains || total.left > seeds / 20, "{total}");
    assert!(!way.contains("--vault") || total.unvaulted > 0, "{total}");
    assert!(!way.contains("--halts") || total.suspends > seeds, "{total}");
    total
}

fn none_of_these_finds_a_fault_of_the_real_controller(ways: &[&str]) {
    for way in ways {
        none_finds_a_fault_of_the_real_controller(way, REAL_SEEDS);
    }
}

#[test]
fn no_seed_of_the_real_controller_finds_a_fault() {
    let total = none_finds_a_fault_of_the_real_controller("", 4 * REAL_SEEDS);
    assert!(total.roll_backs > REAL_SEEDS / 5, "{total}");
}

/// The same where all ranks go back together.
#[test]
fn no_seed_of_the_real_controller_finds_a_fault_where_all_ranks_go_back() {
    let total = none_finds_a_fault_of_the_real_controller("coordinated", REAL_SEEDS);
    assert!(total.roll_backs > REAL_SEEDS / 2, "{total}");
    none_of_these_finds_a_fault_of_the_real_controller(&[
        "coordinated --drain",
        "coordinated --vault",
        "coordinated --halts",
    ]);
}

/// The same where the ranks of a node, or of a cluster, do.
#[test]
fn no_seed_of_the_real_controller_finds_a_fault_with_units() {
    none_of_these_finds_a_fault_of_the_real_controller(&[
        "--units",
        "--units --drain",
        "--units --vault",
        "--cluster-units",
        "--cluster-units --drain",
        "--cluster-units --halts",
    ]);
}

/// The same with routers, and with images in a vault.
#[test]
fn no_seed_of_the_real_controller_finds_a_fault_with_routers_or_a_vault() {
    none_of_these_finds_a_fault_of_the_real_controller(&[
        "--routed",
        "--routed --drain",
        "--vault",
        "--vault --drain",
    ]);
}

/// The same with copies in another cluster or domain, whose nodes die together, and with clients
/// that have the job stand still, vanish, or lose their controller; and where ranks that come back
/// alone stand for a checkpoint of all now and then.
#[test]
fn no_seed_of_the_real_controller_finds_a_fault_with_copies_outside_or_clients() {
    none_of_these_finds_a_fault_of_the_real_controller(&[
        "--outside",
        "--halts",
        "--unfit",
        "--fallback",
    ]);
}

/// The same where the network between the nodes is known.
#[test]
fn no_seed_of_the_real_controller_finds_a_fault_with_a_network() {
    none_of_these_finds_a_fault_of_the_real_controller(&["--topology", "--topology --drain"]);
}

#[test]
fn every_mistake_around_the_real_controller_is_found() {
    all_are_found(real::MUTATIONS, |(mutation, way), seed| {
        really(seed, way, Some(mutation)).is_err()
    });
}
