//! `eyrie-sim [--mutation NAME] [--trace] [--vault] [--drain] FIRST [COUNT]`: runs seeds; says
//! which fail and why. With `--together` of jobs whose ranks go back together.

use eyrie_sim::{Config, Mutation, Report, run, together};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str =
    "usage: eyrie-sim [--together | [--vault] [--drain]] [--trace] [--mutation NAME] FIRST [COUNT]";

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
    let (mut trace, mut all, mut vault, mut drain) = (false, false, false, false);
    let mut mutation = None;
    let mut numbers = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--trace" => trace = true,
            "--together" => all = true,
            "--vault" => vault = true,
            "--drain" => drain = true,
            "--mutation" => {
                let name = args.next().unwrap_or_default();
                mutation = Mutation::ALL.into_iter().find(|m| format!("{m:?}") == name);
                if mutation.is_none() {
                    eprintln!("no mutation '{name}'; there are {:?}", Mutation::ALL);
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
        match run(Config { seed, vault, drain, mutation, trace }) {
            Ok(report) => total.add(&report),
            Err(why) => {
                failed += 1;
                println!("seed {seed} failed: {why}");
                let more = format!(
                    "{}{}",
                    if vault { " --vault" } else { "" },
                    if drain { " --drain" } else { "" }
                );
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
