//! `eyrie-sim [--mutation NAME] [--trace] [KIND] FIRST [COUNT]`: runs seeds; says which fail and
//! why. Without a kind jobs are simulated in mode `logged`, with `--vault`, `--units`,
//! `--cluster-units`, `--outside`, `--drain`, `--routed` other jobs (see `Config`), with one of
//! `OTHERS` something else. `--every-step` goes through a small job (`--small`) once for every
//! fault at every step of it, `--fault STEP:WHAT` once with that one.

use eyrie_sim::{Config, Mutation, Report, led, links, reigns, run, steps, ties, together, watch};
use std::fmt::{Debug, Display};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: eyrie-sim [--together [--vault] | --links | --ties | --reigns |\n  \
                     --led | --watch | --cluster-units | --outside | [--units] [--vault]\n  \
                     [--routed] [--drain] [--halts] [--small]\n  \
                     [--every-step | --fault STEP:WHAT]]\n  \
                     [--trace] [--mutation NAME] FIRST-SEED [HOW-MANY]";
/// Simulations of their own.
const OTHERS: [&str; 6] = ["--together", "--links", "--ties", "--reigns", "--led", "--watch"];

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
    ];
    let (mut ask, mut numbers) = (Ask::default(), Vec::new());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--trace" => ask.trace = true,
            "--every-step" => ask.every_step = true,
            "--fault" => ask.fault = Some(args.next().unwrap_or_default().parse()?),
            "--mutation" => ask.mutation = Some(args.next().unwrap_or_default()),
            kind if jobs.contains(&kind) || OTHERS.contains(&kind) => ask.kinds.push(arg),
            number => numbers.push(number.parse::<u64>().map_err(|_| String::from(USAGE))?),
        }
    }
    ask.first = *numbers.first().ok_or(USAGE)?;
    ask.count = numbers.get(1).copied().unwrap_or(1);
    Ok(ask)
}

fn simulate_sets(ask: &Ask, mistake: Option<together::Mistake>) -> ExitCode {
    let vaulted = ask.is("--vault");
    let kind = if vaulted { together::Kind::Vault } else { together::Kind::Copies };
    let (drains, small, trace) = (ask.is("--drain"), ask.is("--small"), ask.trace);
    let job = |seed| together::Job { seed, kind, drains, small, mistake, trace };
    if ask.every_step {
        let with = |at: Option<steps::At>| match at {
            Some(at) => format!(" --fault {at}"),
            None => String::from(" --small"),
        };
        let one = |seed| together::run_every_step(job(seed)).map_err(|(at, why)| (with(at), why));
        return ask.seeds_with(one, together::Steps::add);
    }
    if let Some(at) = ask.fault {
        let with = |why| (format!(" --fault {at}"), why);
        return ask.seeds_with(
            |seed| together::run_one(job(seed), at).map_err(with),
            together::Report::add,
        );
    }
    ask.seeds(|seed| together::run(job(seed)), together::Report::add)
}

fn simulate(ask: &Ask) -> Result<ExitCode, String> {
    let trace = ask.trace;
    if ask.is("--together") {
        let all = together::Mistake::ALL.into_iter().chain(together::Mistake::VAULT);
        let all = all.chain(together::Mistake::DRAIN).chain(together::Mistake::REIGNS);
        let all = all.chain(together::Mistake::DRAIN_VAULT);
        let mistake = ask.mistake(&all.collect::<Vec<_>>())?;
        return Ok(simulate_sets(ask, mistake));
    }
    if ask.is("--links") {
        let mistake = ask.mistake(&links::Mistake::ALL)?;
        return Ok(ask.seeds(|s| links::run(s, mistake, trace), links::Report::add));
    }
    if ask.is("--ties") {
        let mistake = ask.mistake(&ties::Mistake::ALL)?;
        return Ok(ask.seeds(|s| ties::run(s, mistake, trace), ties::Report::add));
    }
    if ask.is("--reigns") {
        let mistake = ask.mistake(&reigns::Mistake::ALL)?;
        return Ok(ask.seeds(|s| reigns::run(s, mistake, trace), reigns::Report::add));
    }
    if ask.is("--led") {
        let mistake = ask.mistake(&led::Mistake::ALL)?;
        return Ok(ask.seeds(|s| led::run(s, mistake, trace), led::Report::add));
    }
    if ask.is("--watch") {
        let mistake = ask.mistake(&watch::Mistake::ALL)?;
        return Ok(ask.seeds(|s| watch::run(s, mistake, trace), watch::Report::add));
    }
    let all = Mutation::ALL.into_iter().chain(Mutation::UNITS);
    let all = all.chain(Mutation::CLUSTERS).chain(Mutation::ROUTED).chain(Mutation::SITES);
    let all = all.chain(Mutation::HALTS);
    let mutation = ask.mistake(&all.collect::<Vec<_>>())?;
    let job = |seed| Config { trace, ..Config::of(seed, |kind| ask.is(kind), mutation) };
    if ask.every_step {
        let with = |at: steps::At| format!(" --fault {at}");
        let with = |at: Option<steps::At>| at.map_or_else(|| String::from(" --small"), with);
        let one = |seed| steps::run(job(seed)).map_err(|(at, why)| (with(at), why));
        return Ok(ask.seeds_with(one, steps::Report::add));
    }
    if let Some(at) = ask.fault {
        return Ok(ask.seeds_with(
            |seed| {
                let with = |why| (format!(" --fault {at}"), why);
                steps::run_one(job(seed), at).map_err(with)
            },
            Report::add,
        ));
    }
    Ok(ask.seeds(|seed| run(job(seed)), Report::add))
}

fn main() -> ExitCode {
    let done = read(std::env::args().skip(1)).and_then(|ask| simulate(&ask));
    done.unwrap_or_else(|why| {
        eprintln!("{why}");
        ExitCode::from(2)
    })
}
