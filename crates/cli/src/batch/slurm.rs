//! Inside a Slurm allocation: which hosts it has and how many tasks each is to run, from the
//! environment alone; `srun` stands for the remote shell.

use crate::batch::system::variable;
use crate::hosts::entry::Entry;
use anyhow::{Context, anyhow, bail};

/// Starts one task on the host whose name follows. The node's daemon shares processors and memory
/// of the allocation with whatever else runs there, and is no MPI program.
pub const SRUN: &str = "srun --nodes=1 --ntasks=1 --overlap --cpu-bind=none --mem=0 --mpi=none \
                        --quiet --unbuffered --nodelist";
/// More hosts than a job can have.
const MOST: usize = 100_000;

/// The hosts of the allocation that this process is in.
pub fn hosts() -> anyhow::Result<Option<Vec<Entry>>> {
    if variable("SLURM_JOB_ID").is_none() {
        return Ok(None);
    }
    let Some(list) = variable("SLURM_JOB_NODELIST") else { return Ok(None) };
    let names = expand(&list).with_context(|| format!("SLURM_JOB_NODELIST={list}"))?;
    let Some(text) = variable("SLURM_TASKS_PER_NODE") else {
        return Ok(Some(names.into_iter().map(|name| Entry::of(name, None)).collect()));
    };
    let tasks = counts(&text).with_context(|| format!("SLURM_TASKS_PER_NODE={text}"))?;
    if tasks.len() != names.len() {
        bail!("SLURM_TASKS_PER_NODE={text} is not for the hosts {list}");
    }
    let entries = names.into_iter().zip(tasks);
    Ok(Some(entries.map(|(name, slots)| Entry::of(name, Some(slots))).collect()))
}

/// The number of tasks that the allocation was made for.
pub fn tasks() -> Option<u32> {
    variable("SLURM_JOB_ID")?;
    variable("SLURM_NTASKS")?.parse().ok()
}

/// Host names of a list like `node[1-3,07],login,r[1-2]c[1-4]`, as Flux writes them, too.
pub fn expand(list: &str) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in list.char_indices().chain([(list.len(), ',')]) {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                names.extend(expand_one(&list[begin..at])?);
                begin = at + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) || names.len() > MOST {
            bail!("is no list of hosts");
        }
    }
    if depth != 0 {
        bail!("a bracket is not closed");
    }
    Ok(names)
}

/// The same for one name with any number of brackets.
fn expand_one(name: &str) -> anyhow::Result<Vec<String>> {
    let Some((head, rest)) = name.split_once('[') else {
        return if name.is_empty() {
            Err(anyhow!("a name is empty"))
        } else {
            Ok(vec![name.into()])
        };
    };
    let (inner, tail) = rest.split_once(']').ok_or_else(|| anyhow!("a bracket is not closed"))?;
    let tails = if tail.is_empty() { vec![String::new()] } else { expand_one(tail)? };
    let mut names = Vec::new();
    for range in inner.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<usize>().ok().filter(|_| digits)
        };
        let (Some(from), Some(to)) = (number(first), number(last)) else {
            bail!("'{range}' is no range of numbers");
        };
        if to < from || (to - from + 1).saturating_mul(tails.len()) > MOST - names.len().min(MOST) {
            bail!("'{range}' is no range of hosts");
        }
        // Leading zeros belong to the names.
        let width = first.len();
        for number in from..=to {
            names.extend(tails.iter().map(|tail| format!("{head}{number:0width$}{tail}")));
        }
    }
    Ok(names)
}

/// Numbers of a list like `4(x2),3`.
fn counts(list: &str) -> anyhow::Result<Vec<u32>> {
    let mut all = Vec::new();
    for word in list.split(',') {
        let (count, times) = match word.split_once("(x") {
            Some((count, rest)) => (count, rest.strip_suffix(')').unwrap_or("")),
            None => (word, "1"),
        };
        match (count.parse::<u32>(), times.parse::<usize>()) {
            (Ok(count), Ok(times)) if count > 0 && times <= MOST => {
                all.extend(std::iter::repeat_n(count, times));
            }
            _ => bail!("'{word}' is no number of tasks"),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_hosts_are_expanded() {
        let all = |list| expand(list).unwrap().join(" ");
        assert_eq!(all("node7"), "node7");
        assert_eq!(all("n[1-3,7],login"), "n1 n2 n3 n7 login");
        assert_eq!(all("n[08-11]"), "n08 n09 n10 n11");
        assert_eq!(all("r[1-2]c[3,5]-ib"), "r1c3-ib r1c5-ib r2c3-ib r2c5-ib");
        for bad in ["", "a,,b", "n[1-", "n[1-3", "n]", "n[3-1]", "n[a-b]", "n[]", "n[0-999999999]"]
        {
            assert!(expand(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_of_tasks_are_expanded() {
        assert_eq!(counts("4(x2),3").unwrap(), [4, 4, 3]);
        for bad in ["", "4(x", "4(x2", "x", "0", "-1"] {
            assert!(counts(bad).is_err(), "{bad}");
        }
    }
}
