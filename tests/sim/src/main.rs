//! `eyrie-sim [--mutation NAME] [--trace] [--vault | --units | --routed] [--drain] FIRST [COUNT]`:
//! runs seeds; says which fail and why. With `--together` of jobs whose ranks go back together,
//! with `--units` of those in which the ranks of a node do, with `--drain` of those whose nodes
//! leave, with `--routed` of those whose messages go by routers.

use eyrie_sim::{Config, Mutation, Report, run, together};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: eyrie-sim [--together | --units | [--vault] [--routed] [--drain]]\n  \
                     [--trace] \
                     [--mutation NAME] FIRST-SEED [HOW-MANY]";

/// Seeds of jobs whose ranks go back together.
fn together(first: u64, count: u64, trace: bool) -> ExitCode {
    let (mut total, mut failed) = (together::Report::default(), 0);
    let begun = Instant::now();
    for seed in first..first + count {
        match together::run(seed, None, trace) {
            Ok(report) => total.add(&report),
            Err(why) => {
                failed += 1;
                println!("seed {seed} failed: {why}");
                let again = "cargo run -q -p eyrie-sim -- --together --trace";
                println!("  again, step by step: {again} {seed}");
            }
        }
    }
    println!("{total}, {:.1} s", begun.elapsed().as_secs_f64());
    println!("sim: {} passed, {failed} failed", count - failed);
    ExitCode::from(u8::from(failed > 0))
}

fn main() -> ExitCode {
    let (mut trace, mut all, mut vault) = (false, false, false);
    let (mut units, mut drain, mut routed) = (false, false, false);
    let mut mutation = None;
    let mut numbers = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--trace" => trace = true,
            "--together" => all = true,
            "--vault" => vault = true,
            "--units" => units = true,
            "--drain" => drain = true,
            "--routed" => routed = true,
            "--mutation" => {
                let name = args.next().unwrap_or_default();
                let all = Mutation::ALL.into_iter().chain(Mutation::UNITS);
                let all: Vec<Mutation> = all.chain(Mutation::ROUTED).collect();
                mutation = all.iter().copied().find(|m| format!("{m:?}") == name);
                if mutation.is_none() {
                    eprintln!("no mutation '{name}'; there are {all:?}");
                    return ExitCode::from(2);
                }
            }
            number => match number.parse::<u64>() {
                Ok(number) => numbers.push(number),
                Err(_) => {
                    eprintln!("{USAGE}");
                    return ExitCode::from(2);
                }
            },
        }
    }
    let (Some(first), count) = (numbers.first(), numbers.get(1).copied().unwrap_or(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if all {
        return together(*first, count, trace);
    }
    let mut total = Report::default();
    let mut failed = 0;
    let begun = Instant::now();
    for seed in *first..first + count {
        match run(Config { seed, vault, units, drain, routed, mutation, trace }) {
            Ok(report) => total.add(&report),
            Err(why) => {
                failed += 1;
                println!("seed {seed} failed: {why}");
                let kinds = [
                    (vault, " --vault"),
                    (units, " --units"),
                    (drain, " --drain"),
                    (routed, " --routed"),
                ];
                let more: String = kinds.iter().filter(|k| k.0).map(|k| k.1).collect();
                println!(
                    "  again, step by step: cargo run -q -p eyrie-sim -- --trace{more} {seed}"
                );
            }
        }
    }
    println!("{total}, {:.1} s", begun.elapsed().as_secs_f64());
    println!("sim: {} passed, {failed} failed", count - failed);
    ExitCode::from(u8::from(failed > 0))
}
