//! The jobs that are simulated, as a controller is told of them.

use crate::real::{Mode, Setup};
use crate::types::Mutation;
use crate::world::{VAULT_BEARS, World};
use eyrie_control::gateway::Clusters;
use eyrie_control::vault::Manner;
use eyrie_control::{
    Appended, CheckpointPolicy, Dedup, Fallback, Files, Freeze, Ft, JobSpec, Orphans, Placement,
    Program, Protection, Security, Storage, Timing, Wtime,
};
use eyrie_protocol::membership::Neighbours;
use eyrie_protocol::routing::Routing;
use eyrie_vault::Scheme;

/// What is drawn.
pub struct Drawn {
    ft: Ft,
    vault: Scheme,
    map: Vec<u32>,
    pub nodes: u32,
    /// Routers are the last of them.
    pub spares: u32,
    routers: u32,
    router_share: u32,
    clusters: Clusters,
    domains: Vec<String>,
    replicas: u32,
    checkpoint_every_ms: u64,
    fallback: Fallback,
}

impl Drawn {
    /// A job of this mode, of which the world knows what its nodes do.
    pub fn of(world: &mut World, setup: Setup, map: Vec<u32>, nodes: u32) -> Drawn {
        let spares = world.random.below(3) as u32;
        let replicas = world.replicas as u32;
        let checkpoint_every_ms = match setup.mode {
            _ if setup.fallback => 50 + 100 * world.random.below(4),
            Mode::Logged | Mode::Routed => 300 + 500 * world.random.below(3),
            // With many a snapshot to go back to.
            Mode::Coordinated | Mode::Nodes | Mode::Clusters => 150 + world.random.below(300),
        };
        let (clusters, domains, ft) = (Clusters::default(), Vec::new(), Ft::Logged);
        let (routers, router_share) = (0, 1);
        let fallback = match setup.fallback {
            true => Fallback::Every(1 + world.random.below(2) as u32),
            false => Fallback::Off,
        };
        let vault = match setup.vault {
            true => Scheme::Rs { k: 8, m: VAULT_BEARS as u16 },
            false => Scheme::Partner,
        };
        let drawn = Drawn {
            ft,
            vault,
            map,
            nodes,
            spares,
            routers,
            router_share,
            clusters,
            domains,
            replicas,
            checkpoint_every_ms,
            fallback,
        };
        match setup.mode {
            Mode::Logged if setup.outside => drawn.outside(world),
            Mode::Logged => drawn,
            Mode::Coordinated => {
                world.units = vec![0; drawn.map.len()];
                (world.together, world.replicas) = (true, 0);
                Drawn { ft: Ft::Coordinated, ..drawn }
            }
            Mode::Nodes if world.mutated(Mutation::OnlyTheDead) => drawn,
            Mode::Nodes => Drawn { ft: Ft::Node, ..drawn },
            Mode::Clusters => drawn.clustered(world),
            Mode::Routed => drawn.routed(world),
        }
    }

    /// Copies are in the other one of two clusters, or of nodes that fail together in the other
    /// half.
    fn outside(self, world: &mut World) -> Drawn {
        let all = self.nodes + self.spares;
        let of: Vec<u32> = (0..all).map(|node| node % self.nodes * 2 / self.nodes).collect();
        world.sites = Neighbours::new(2, of.clone(), true);
        let clusters = world.random.one_in(2);
        if !world.mutated(Mutation::OutcomesInRing) {
            world.neighbours = match clusters {
                true => world.sites.clone(),
                false => Neighbours::default().with_domains(of.clone()),
            };
        }
        let known = !world.mutated(Mutation::ImagesInRing);
        let names = ["a", "b"].map(String::from);
        if clusters {
            let outside = Some(true).filter(|_| known);
            let clusters = Clusters { names: names.to_vec(), of, outside, ..Clusters::default() };
            return Drawn { clusters, ..self };
        }
        let domains = of.into_iter().filter(|_| known).map(|of| names[of as usize].clone());
        Drawn { domains: domains.collect(), ..self }
    }

    /// There are two clusters. Whether copies are in the other one is drawn.
    fn clustered(self, world: &mut World) -> Drawn {
        let all = self.nodes + self.spares;
        let of: Vec<u32> = (0..all).map(|node| node % self.nodes * 2 / self.nodes).collect();
        let outside = world.random.one_in(2);
        world.neighbours = Neighbours::new(2, of.clone(), outside);
        world.units = self.map.iter().map(|node| of[*node as usize]).collect();
        let names = vec![String::from("a"), String::from("b")];
        let clusters = Clusters { names, of, ..Clusters::default() };
        Drawn { ft: Ft::Cluster { outside }, clusters, ..self }
    }

    fn routed(self, world: &mut World) -> Drawn {
        let ranks = world.ranks();
        let share = 1 + world.random.below(u64::from(ranks)) as u32;
        let routers = Routing::count(ranks, share).min(3);
        let spares = self.spares + routers;
        let first = self.nodes + self.spares;
        world.routing = Routing::new((first..first + routers).collect(), share);
        Drawn { routers, spares, router_share: share, ..self }
    }
}

/// A network that has all nodes of a job, or not quite: nothing is drawn, so that all else is as
/// without it. It is slow, so that messages count.
fn network(seed: u64) -> String {
    let shapes = ["mesh 3x4", "torus 4x4", "fat-tree 4", "mesh 2x2", "xgft 4,4 1,2"];
    format!("{}\nbandwidth 1K\n", shapes[seed as usize % shapes.len()])
}

/// The job with the network between its nodes, where that is known.
pub fn with_network(mut spec: JobSpec, setup: Setup) -> JobSpec {
    if setup.topology {
        spec.placement.topology = network(setup.seed);
    }
    spec
}

pub fn of(drawn: Drawn) -> JobSpec {
    let Drawn { ft, vault, map, nodes, spares, routers, router_share, clusters, .. } = drawn;
    let (replicas, checkpoint_every_ms) = (drawn.replicas, drawn.checkpoint_every_ms);
    let manner = Manner { domains: drawn.domains, ..Manner::default() };
    JobSpec {
        program: Program {
            path: b"/bin/program".to_vec(),
            argv: vec![b"program".to_vec()],
            size: map.len() as u32,
            name: None,
            input_is_file: false,
            verbose: true,
        },
        placement: Placement {
            nodes,
            spares,
            routers,
            router_share,
            homes: map,
            clusters,
            ..Placement::default()
        },
        protection: Protection {
            ft,
            checkpoint_policy: CheckpointPolicy::Auto,
            incremental: false,
            freeze: Freeze::Auto,
            dedup: Dedup::Off,
            log_limit_bytes: 1 << 20,
            log_replicas: replicas,
            clocks: Wtime::Auto,
            strict_output: true,
            appended: Appended::Auto,
            orphans: Orphans::Refuse,
            files: Files::Auto,
            files_limit_bytes: 0,
            fallback: drawn.fallback,
        },
        storage: Storage { vault, manner, ..Storage::default() },
        security: Security::default(),
        timing: Timing {
            checkpoint_every_ms,
            checkpoint_first_ms: checkpoint_every_ms / 3,
            controller_limit_ms: 60_000,
            ..Timing::default()
        },
    }
}
