//! `eyrie-sim [KIND] [--mutation NAME] [--trace] FIRST [COUNT]`: runs seeds; says which fail and
//! why. `KIND` is one of `KINDS`, or words that say what job the controller has (`real::Setup`):
//! without any it is one in mode `logged`. `--every-step` goes through a small job (`--small`) once
//! for every fault at every step of it, `--fault STEP:WHAT` once with that one.

use eyrie_sim::{
    consensus, election, heartbeat, lease, links, real, returns, revocation, watchdog,
};
use real::steps;
use std::fmt::{Debug, Display};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: eyrie-sim [links | heartbeat | election | lease | watchdog |\n  \
                     returns | consensus | revocation |\n  \
                     [coordinated | --units | --cluster-units | --routed | --outside]\n  \
                     [--vault] [--drain] [--halts] [--unfit] [--topology] [--fallback]\n  \
                     [--only-no-faults | --only-ranks | --only-nodes]\n  \
                     [--small] [--every-step | --fault STEP:WHAT]]\n  \
                     [--trace] [--mutation NAME] FIRST-SEED [HOW-MANY]";
/// Simulations of their own, and words of jobs, with the options by which they were called before.
const KINDS: [(&str, &str); 10] = [
    ("controller", "controller"),
    ("coordinated", "--together"),
    ("links", "--links"),
    ("heartbeat", "--ties"),
    ("election", "--reigns"),
    ("lease", "--led"),
    ("watchdog", "--watch"),
    ("returns", "--returns"),
    ("consensus", "consensus"),
    ("revocation", "revocation"),
];

/// What is asked for.
#[derive(Default)]
struct Ask {
    kinds: Vec<String>,
    mutation: Option<String>,
    /// At every step of a small job one; or this one.
    every_step: bool,
    fault: Option<steps::At>,
    trace: bool,
    first: u64,
    count: u64,
}

impl Ask {
    fn is(&self, kind: &str) -> bool {
        self.kinds.iter().any(|k| k == kind)
    }

    /// The mistake of that name. Err: there is none.
    fn mistake<M: Copy + Debug>(&self, all: &[M]) -> Result<Option<M>, String> {
        let Some(name) = &self.mutation else { return Ok(None) };
        let found = all.iter().copied().find(|m| format!("{m:?}") == *name);
        found.map(Some).ok_or_else(|| format!("no mutation '{name}'; there are {all:?}"))
    }

    /// Runs the seeds and sums up.
    fn seeds<R: Default + Display>(
        &self,
        run: impl Fn(u64) -> Result<R, String>,
        add: impl Fn(&mut R, &R),
    ) -> ExitCode {
        self.seeds_with(|seed| run(seed).map_err(|why| (String::new(), why)), add)
    }

    /// The same of runs that say with what other arguments one is run again.
    fn seeds_with<R: Default + Display>(
        &self,
        run: impl Fn(u64) -> Result<R, (String, String)>,
        add: impl Fn(&mut R, &R),
    ) -> ExitCode {
        let (mut total, mut failed, begun) = (R::default(), 0, Instant::now());
        for seed in self.first..self.first + self.count {
            match run(seed) {
                Ok(report) => add(&mut total, &report),
                Err((with, why)) => {
                    failed += 1;
                    println!("seed {seed} failed: {why}");
                    let kinds: String = self.kinds.iter().map(|k| format!(" {k}")).collect();
                    let name = self.mutation.iter().map(|m| format!(" --mutation {m}"));
                    let more = kinds + &name.collect::<String>() + &with;
                    let again = "cargo run -q -p eyrie-sim -- --trace";
                    println!("  again, step by step: {again}{more} {seed}");
                }
            }
        }
        println!("{total}, {:.1} s", begun.elapsed().as_secs_f64());
        println!("sim: {} passed, {failed} failed", self.count - failed);
        ExitCode::from(u8::from(failed > 0))
    }
}

fn read(mut args: impl Iterator<Item = String>) -> Result<Ask, String> {
    let jobs = [
        "--vault",
        "--units",
        "--cluster-units",
        "--outside",
        "--drain",
        "--routed",
        "--halts",
        "--small",
        "--unfit",
        "--topology",
        "--fallback",
        "--only-no-faults",
        "--only-ranks",
        "--only-nodes",
    ];
    let (mut ask, mut numbers) = (Ask::default(), Vec::<u64>::new());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--trace" => ask.trace = true,
            "--every-step" => ask.every_step = true,
            "--fault" => ask.fault = Some(args.next().unwrap_or_default().parse()?),
            "--mutation" => ask.mutation = Some(args.next().unwrap_or_default()),
            kind if jobs.contains(&kind) => ask.kinds.push(arg),
            other => match KINDS.iter().find(|(name, option)| [*name, *option].contains(&other)) {
                Some((name, _)) => ask.kinds.push((*name).to_string()),
                None => numbers.push(other.parse().map_err(|_| String::from(USAGE))?),
            },
        }
    }
    ask.first = *numbers.first().ok_or(USAGE)?;
    ask.count = numbers.get(1).copied().unwrap_or(1);
    Ok(ask)
}

/// Jobs of the controller.
fn simulate_jobs(ask: &Ask) -> Result<ExitCode, String> {
    let all = real::MUTATIONS.into_iter().map(|(mutation, _)| mutation);
    let mutation = ask.mistake(&all.collect::<Vec<_>>())?;
    let faults = match ask.kinds.iter().find_map(|k| k.strip_prefix("--only-")) {
        Some("no-faults") => real::Faults::None,
        Some("ranks") => real::Faults::Ranks,
        Some("nodes") => real::Faults::Nodes,
        _ => real::Faults::All,
    };
    let of = |seed| real::Setup::of(seed, |word| ask.is(word));
    let setup = |seed| real::Setup { faults, mutation, trace: ask.trace, ..of(seed) };
    if ask.every_step {
        let with = |at: steps::At| format!(" --fault {at}");
        let with = |at: Option<steps::At>| at.map_or_else(|| String::from(" --small"), with);
        let one = |seed| steps::run(setup(seed), None).map_err(|(at, why)| (with(at), why));
        return Ok(ask.seeds_with(one, steps::Report::add));
    }
    if let Some(at) = ask.fault {
        let with = |why| (format!(" --fault {at}"), why);
        let one = |seed| steps::run_one(setup(seed), at).map_err(with);
        return Ok(ask.seeds_with(one, real::Report::add));
    }
    Ok(ask.seeds(|seed| real::run(setup(seed)), real::Report::add))
}

fn simulate(ask: &Ask) -> Result<ExitCode, String> {
    let trace = ask.trace;
    if ask.is("links") {
        let mistake = ask.mistake(&links::Mistake::ALL)?;
        return Ok(ask.seeds(|s| links::run(s, mistake, trace), links::Report::add));
    }
    if ask.is("heartbeat") {
        let mistake = ask.mistake(&heartbeat::Mistake::ALL)?;
        return Ok(ask.seeds(|s| heartbeat::run(s, mistake, trace), heartbeat::Report::add));
    }
    if ask.is("election") {
        let mistake = ask.mistake(&election::Mistake::ALL)?;
        return Ok(ask.seeds(|s| election::run(s, mistake, trace), election::Report::add));
    }
    if ask.is("returns") {
        let mistake = ask.mistake(&returns::Mistake::ALL)?;
        return Ok(ask.seeds(|s| returns::run(s, mistake, trace), returns::Report::add));
    }
    if ask.is("lease") {
        let mistake = ask.mistake(&lease::Mistake::ALL)?;
        return Ok(ask.seeds(|s| lease::run(s, mistake, trace), lease::Report::add));
    }
    if ask.is("watchdog") {
        let mistake = ask.mistake(&watchdog::Mistake::ALL)?;
        return Ok(ask.seeds(|s| watchdog::run(s, mistake, trace), watchdog::Report::add));
    }
    if ask.is("consensus") {
        let mistake = ask.mistake(&consensus::MISTAKES)?;
        return Ok(ask.seeds(|s| consensus::run(s, mistake, trace), consensus::Report::add));
    }
    if ask.is("revocation") {
        let mistake = ask.mistake(&revocation::MISTAKES)?;
        return Ok(ask.seeds(|s| revocation::run(s, mistake, trace), revocation::Report::add));
    }
    simulate_jobs(ask)
}

fn main() -> ExitCode {
    let done = read(std::env::args().skip(1)).and_then(|ask| simulate(&ask));
    done.unwrap_or_else(|why| {
        eprintln!("{why}");
        ExitCode::from(2)
    })
}
