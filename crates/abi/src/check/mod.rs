//! How calls are checked (`EYRIE_CHECK`), and what is told of wrong ones.
//!
//! `off`: nothing is looked at that the library does not need itself, and nothing but the class is
//! told. `on`: a message names function, argument and value. `full`: also whether all ranks call
//! the same collectives, what is never freed, and where in the program it was. Kept true: all of it
//! follows from the program's own calls, so a replay finds the same.

mod detail;
pub mod level;
mod told;

use std::sync::Mutex;
use std::sync::PoisonError;

use eyrie_core::agreement::{Collective, Operation};
use eyrie_core::error::Class;
use eyrie_core::handle::Handle;
use eyrie_core::machine::Machine;
use eyrie_core::made;

use crate::global;
pub use level::{is_full, is_off};
pub use told::{Arg, Argument, Told, ToldAnyway, ToldBy};

/// The last error that a function returned or gave to a handler, and what was told of it.
static LAST: Mutex<Option<(i32, String)>> = Mutex::new(None);

/// In full: the program calls a function with these arguments.
#[cold]
pub fn called(m: &mut Machine, name: &'static str, arguments: &[Argument]) {
    made::called(global::public(name));
    m.agreement.call = collective(m, global::public(name), arguments);
}

/// The functions that are compared.
const ALIKE: [&str; 17] = [
    "Allgather",
    "Allgatherv",
    "Allreduce",
    "Alltoall",
    "Alltoallv",
    "Alltoallw",
    "Barrier",
    "Bcast",
    "Exscan",
    "Gather",
    "Gatherv",
    "Reduce",
    "Reduce_scatter",
    "Reduce_scatter_block",
    "Scan",
    "Scatter",
    "Scatterv",
];

/// What is to be the same on all ranks, if the call is a blocking collective.
fn collective(m: &Machine, name: &'static str, arguments: &[Argument]) -> Option<Collective> {
    let short = name.strip_prefix("MPI_")?;
    let short = short.strip_suffix("_c").unwrap_or(short);
    if !ALIKE.contains(&short) {
        return None;
    }
    let of = |wanted: &str| arguments.iter().find(|a| a.name == wanted).map(|a| a.told);
    let number = |wanted| if let Some(Told::Number(n)) = of(wanted) { Some(n) } else { None };
    let handle = |wanted| if let Some(Told::Handle(h, _)) = of(wanted) { Some(h) } else { None };
    let bytes = |count, datatype| {
        let size = m.types.get(handle(datatype)?).ok()?.size;
        u64::try_from(number(count)?).ok()?.checked_mul(size)
    };
    let root = number("root");
    let here =
        root.is_some() && root == handle("comm").and_then(|c| m.comm_rank(c).ok()).map(i64::from);
    let bytes = match short {
        "Bcast" | "Reduce" | "Allreduce" | "Scan" | "Exscan" => bytes("count", "datatype"),
        "Reduce_scatter_block" => bytes("rcount", "datatype"),
        "Allgather" | "Alltoall" => bytes("rcount", "rtype"),
        "Gather" if here => bytes("rcount", "rtype"),
        "Gather" => bytes("scount", "stype"),
        "Scatter" if here => bytes("scount", "stype"),
        "Scatter" => bytes("rcount", "rtype"),
        _ => None,
    };
    let op = handle("op").map(|op| match op.is_dynamic() {
        true => Operation::Own,
        false => Operation::Predefined(op.0),
    });
    let root = root.and_then(|root| i32::try_from(root).ok());
    Some(Collective { name: short_name(name), root, op, bytes })
}

/// Small and large counts are one function.
fn short_name(name: &'static str) -> &'static str {
    name.strip_suffix("_c").unwrap_or(name)
}

/// What there is to say of an error of this function, or nothing.
#[cold]
pub fn told_of(name: &'static str, class: Class, on: Handle, arguments: &[Argument]) -> String {
    if is_off() {
        return String::new();
    }
    let m = global::machine(name);
    let mut text = match m.agreement.difference.take() {
        Some(difference) => difference,
        None => detail::of(m, class, on, arguments),
    };
    if is_full()
        && let Some(place) = made::caller(&std::backtrace::Backtrace::force_capture())
    {
        let between = if text.is_empty() { "" } else { "; " };
        text.push_str(&format!("{between}called at {place}"));
    }
    let kept =
        if text.is_empty() { String::new() } else { format!("{}: {text}", global::public(name)) };
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some((class.0, kept));
    text
}

/// What was told of the last error, if it has this code.
pub fn last(code: i32) -> Option<String> {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let told = last.as_ref().filter(|(class, text)| *class == code && !text.is_empty());
    told.map(|(_, text)| text.clone())
}

/// At MPI_Finalize: what the program has not freed.
pub fn tell_leaks(m: &Machine) {
    if !is_full() {
        return;
    }
    for leak in m.leaks() {
        let (kind, plural) = (leak.kind, if leak.count == 1 { "" } else { "s" });
        let place = leak.at.map(|at| format!(", called at {at}")).unwrap_or_default();
        let (rank, _) = m.world();
        eprintln!(
            "eyrie: rank {rank}: MPI_Finalize: {} {kind}{plural} of {} not freed{place}",
            leak.count, leak.call
        );
    }
}
