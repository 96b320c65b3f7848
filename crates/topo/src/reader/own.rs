//! Eyrie's own format: the first line is a kind of network and its sizes, the others say more of
//! it.
//!
//! ```text
//! tofu 1x1x6x2x3x2     # or mesh, torus, xgft, fat-tree, dragonfly, graph
//! fold b*a z*c         # the grid that ranks see: six by twelve
//! names k[000-071]
//! bandwidth 5G
//! engines 4
//! memory 11.8G
//! ```

use super::{Mistake, ReadError, expand, lines};
use crate::network::{Hardware, Lattice, Names, Network};
use crate::shape::{
    Dragonfly, Graph, GraphError, Grid, MOST_VERTICES, Shape, SizeError, Tofu, Xgft,
};
use std::collections::HashMap;

/// What a file says, each with its line.
#[derive(Default)]
struct Said<'a> {
    kind: Option<(usize, &'a str, Vec<&'a str>)>,
    words: HashMap<&'a str, (usize, Vec<&'a str>)>,
    nodes: Vec<(usize, &'a str)>,
    switches: Vec<(usize, &'a str)>,
    links: Vec<(usize, Vec<&'a str>)>,
}

const KINDS: [&str; 7] = ["mesh", "torus", "tofu", "xgft", "fat-tree", "dragonfly", "graph"];
const WORDS: [&str; 7] = ["wrap", "order", "fold", "names", "bandwidth", "engines", "memory"];
/// Names of axes, as Tofu has them and those of more dimensions after them.
const AXES: &str = "xyzabcde";

fn collect(text: &str) -> Result<Said<'_>, ReadError> {
    let mut said = Said::default();
    for (line, text) in lines(text) {
        let mut words = text.split_whitespace();
        let word = words.next().unwrap_or_default();
        let rest: Vec<&str> = words.collect();
        let is_graph = matches!(&said.kind, Some((_, "graph", _)));
        match word {
            _ if KINDS.contains(&word) => {
                if said.kind.replace((line, word, rest)).is_some() {
                    return Err(Mistake::Twice(String::from("kind of network")).at(line));
                }
            }
            _ if said.kind.is_none() => return Err(Mistake::Word(word.into()).at(line)),
            "node" | "switch" | "link" if !is_graph => {
                let kind = said.kind.as_ref().map(|(_, kind, _)| String::from(*kind));
                return Err(
                    Mistake::NotFor { word: word.into(), kind: kind.unwrap_or_default() }.at(line)
                );
            }
            "node" => said.nodes.extend(rest.iter().map(|names| (line, *names))),
            "switch" => said.switches.extend(rest.iter().map(|names| (line, *names))),
            "link" => said.links.push((line, rest)),
            _ if WORDS.contains(&word) => {
                if said.words.insert(word, (line, rest)).is_some() {
                    return Err(Mistake::Twice(word.into()).at(line));
                }
            }
            _ => return Err(Mistake::Word(word.into()).at(line)),
        }
    }
    Ok(said)
}

pub fn read(text: &str) -> Result<Network, ReadError> {
    let said = collect(text)?;
    let Some((line, kind, values)) = &said.kind else { return Err(Mistake::Nothing.at(1)) };
    let (line, kind) = (*line, *kind);
    let size = |error: SizeError| Mistake::Size { kind: kind.into(), error }.at(line);
    let value = |word, needs| Mistake::Value { word, needs }.at(line);
    let hardware = hardware(&said)?;
    let mut graph_names = None;
    let mut lattice = None;
    let shape: Box<dyn Shape> = match kind {
        "mesh" | "torus" => {
            let needs = "sizes: for example 8x8x8";
            let dims = one(values).and_then(sizes).ok_or_else(|| value("mesh or torus", needs))?;
            let grid =
                Grid::new(&dims, &wraps(&said, dims.len(), kind == "torus")?).map_err(size)?;
            let grid = match order(&said, dims.len())? {
                Some(order) => grid.ordered(order),
                None => grid,
            };
            let own = (0..grid.nodes()).collect();
            lattice = Some(Lattice::new(grid.dims().to_vec(), grid.wraps().to_vec(), own));
            Box::new(grid)
        }
        "tofu" => {
            let needs = "six sizes: for example 1x1x6x2x3x2";
            let dims = one(values).and_then(sizes).ok_or_else(|| value("tofu", needs))?;
            let wraps = wraps(&said, 3, false)?;
            let tofu = Tofu::new(&dims, [wraps[0], wraps[1], wraps[2]]).map_err(size)?;
            lattice = fold(&said, tofu.grid())?;
            Box::new(tofu)
        }
        "xgft" => {
            let needs = "children and parents of each level: for example 4,4 1,2";
            let lists = values.iter().map(|list| numbers(list, ',')).collect::<Option<Vec<_>>>();
            let Some([children, parents]) = lists.as_deref() else {
                return Err(value("xgft", needs));
            };
            Box::new(Xgft::new(children, parents).map_err(size)?)
        }
        "fat-tree" => {
            let ports = one(values).and_then(|text| text.parse().ok());
            let ports =
                ports.ok_or_else(|| value("fat-tree", "the ports of a switch: for example 16"))?;
            Box::new(Xgft::fat_tree(ports).map_err(size)?)
        }
        "dragonfly" => Box::new(
            dragonfly(values)
                .ok_or_else(|| {
                    value("dragonfly", "sizes: for example groups=9 routers=4 nodes=2 global=2")
                })?
                .map_err(size)?,
        ),
        _ => {
            let (graph, names) = graph(&said, line)?;
            graph_names = Some(names);
            Box::new(graph)
        }
    };
    refuse_others(&said, kind)?;
    let names = match graph_names {
        Some(names) => names,
        None => names_of(&said, shape.as_ref())?,
    };
    Ok(Network { shape, names, hardware, lattice })
}

/// Words that mean nothing for a kind.
fn refuse_others(said: &Said, kind: &str) -> Result<(), ReadError> {
    let mut words: Vec<_> = said.words.iter().map(|(word, (line, _))| (*line, *word)).collect();
    words.sort_unstable();
    for (line, word) in words {
        let is_meant = match word {
            "wrap" => matches!(kind, "mesh" | "tofu"),
            "order" => matches!(kind, "mesh" | "torus"),
            "fold" => kind == "tofu",
            "names" => kind != "graph",
            _ => true,
        };
        if !is_meant {
            return Err(Mistake::NotFor { word: word.into(), kind: kind.into() }.at(line));
        }
    }
    Ok(())
}

fn one<'a>(values: &[&'a str]) -> Option<&'a str> {
    if let [value] = values { Some(value) } else { None }
}

fn numbers(text: &str, separator: char) -> Option<Vec<u32>> {
    text.split(separator).map(|word| word.parse().ok()).collect()
}

fn sizes(text: &str) -> Option<Vec<u32>> {
    numbers(text, 'x')
}

fn axis(letter: char, count: usize) -> Option<usize> {
    AXES.find(letter).filter(|axis| *axis < count)
}

/// Along which of `count` axes there is a way round.
fn wraps(said: &Said, count: usize, all: bool) -> Result<Vec<bool>, ReadError> {
    let mut wraps = vec![all; count];
    if let Some((line, values)) = said.words.get("wrap") {
        let needs = Mistake::Value { word: "wrap", needs: "axes of the grid: for example xz" };
        let letters = one(values).ok_or_else(|| needs.clone().at(*line))?;
        for letter in letters.chars() {
            let axis = axis(letter, count).ok_or_else(|| needs.clone().at(*line))?;
            wraps[axis] = true;
        }
    }
    Ok(wraps)
}

/// In which order messages go along the axes.
fn order(said: &Said, count: usize) -> Result<Option<Vec<usize>>, ReadError> {
    let Some((line, values)) = said.words.get("order") else { return Ok(None) };
    let needs = || {
        Mistake::Value { word: "order", needs: "all axes, each once: for example zyx" }.at(*line)
    };
    let letters = one(values).ok_or_else(needs)?;
    let order: Option<Vec<usize>> = letters.chars().map(|letter| axis(letter, count)).collect();
    let order = order.ok_or_else(needs)?;
    let mut once = order.clone();
    once.sort_unstable();
    if once.into_iter().eq(0..count) { Ok(Some(order)) } else { Err(needs()) }
}

/// The grid that ranks see in a Tofu: each of its axes goes to and fro through several.
fn fold(said: &Said, grid: &Grid) -> Result<Option<Lattice>, ReadError> {
    let dims = grid.dims();
    let Some((line, values)) = said.words.get("fold") else { return Ok(None) };
    let needs = || {
        let needs = "all axes of more than one node, each once: for example b*a z*c";
        Mistake::Value { word: "fold", needs }.at(*line)
    };
    let mut is_used = vec![false; dims.len()];
    let mut axes: Vec<Vec<usize>> = Vec::new();
    for value in values {
        let mut folded = Vec::new();
        for word in value.split('*') {
            let mut letters = word.chars();
            let (Some(letter), None) = (letters.next(), letters.next()) else {
                return Err(needs());
            };
            let axis = axis(letter, dims.len()).ok_or_else(needs)?;
            if std::mem::replace(&mut is_used[axis], true) {
                return Err(needs());
            }
            folded.push(axis);
        }
        axes.push(folded);
    }
    let is_whole = is_used.iter().zip(dims).all(|(is_used, size)| *is_used || *size == 1);
    if axes.is_empty() || !is_whole {
        return Err(needs());
    }
    let lengths: Vec<u32> =
        axes.iter().map(|folded| folded.iter().map(|axis| dims[*axis]).product()).collect();
    let mut nodes = Vec::with_capacity(grid.nodes() as usize);
    for cell in 0..grid.nodes() {
        let mut place = Default::default();
        let mut rest = cell;
        for (folded, length) in axes.iter().zip(&lengths) {
            unfold(rest % length, folded, dims, &mut place);
            rest /= length;
        }
        nodes.push(grid.node(&place));
    }
    let wraps = vec![false; lengths.len()];
    Ok(Some(Lattice::new(lengths, wraps, nodes)))
}

/// The coordinates of a step on a way to and fro: the first axis turns each time it is at an end.
fn unfold(step: u32, folded: &[usize], dims: &[u32], place: &mut [u32; 8]) {
    let mut rest = step;
    for axis in folded {
        let size = dims[*axis];
        let (at, turns) = (rest % size, rest / size);
        place[*axis] = if turns % 2 == 1 { size - 1 - at } else { at };
        rest = turns;
    }
}

fn dragonfly(values: &[&str]) -> Option<Result<Dragonfly, SizeError>> {
    let mut sizes = HashMap::new();
    for value in values {
        let (name, number) = value.split_once('=')?;
        if sizes.insert(name, number.parse::<u32>().ok()?).is_some() {
            return None;
        }
    }
    let mut size = |name| sizes.remove(name);
    let found = Dragonfly::new(size("groups")?, size("routers")?, size("nodes")?, size("global")?);
    sizes.is_empty().then_some(found)
}

fn names_of(said: &Said, shape: &dyn Shape) -> Result<Names, ReadError> {
    let (nodes, mut names, line) = (shape.nodes(), Vec::new(), said.words.get("names"));
    match line {
        Some((line, lists)) => {
            for list in lists {
                names.extend(expand(list).map_err(|error| Mistake::from(error).at(*line))?);
            }
            if names.len() != nodes as usize {
                return Err(Mistake::Names { names: names.len(), nodes }.at(*line));
            }
        }
        None => names.extend((0..nodes).map(|node| format!("n{node}"))),
    }
    names.extend((nodes..shape.vertices()).map(|vertex| format!("switch-{}", vertex - nodes)));
    let line = line.map_or(1, |(line, _)| *line);
    Names::new(names).map_err(|name| Mistake::Again { name, before: line }.at(line))
}

/// Bytes a second from `5G`, `11.8G`.
fn speed(text: &str) -> Option<f64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "" => 1.0,
        "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return None,
    };
    number
        .parse::<f64>()
        .ok()
        .map(|number| number * scale)
        .filter(|speed| (1.0..=1e15).contains(speed))
}

fn hardware(said: &Said) -> Result<Hardware, ReadError> {
    let mut hardware = Hardware::default();
    let number = |word: &'static str| -> Result<Option<f64>, ReadError> {
        let Some((line, values)) = said.words.get(word) else { return Ok(None) };
        let needs = Mistake::Value { word, needs: "bytes a second: for example 5G" };
        one(values).and_then(speed).map(Some).ok_or_else(|| needs.at(*line))
    };
    if let Some(speed) = number("bandwidth")? {
        hardware.link_bytes_per_s = speed;
    }
    if let Some(speed) = number("memory")? {
        hardware.memory_links = speed / hardware.link_bytes_per_s;
    }
    if let Some((line, values)) = said.words.get("engines") {
        let needs = Mistake::Value { word: "engines", needs: "a number from 1 to 64" };
        let engines =
            one(values).and_then(|text| text.parse().ok()).filter(|n| (1..=64).contains(n));
        hardware.engines = engines.ok_or_else(|| needs.at(*line))?;
    }
    Ok(hardware)
}

fn graph(said: &Said, line: usize) -> Result<(Graph, Names), ReadError> {
    let mut names: Vec<String> = Vec::new();
    let mut lines: HashMap<String, usize> = HashMap::new();
    for (line, list) in said.nodes.iter().chain(&said.switches) {
        for name in expand(list).map_err(|error| Mistake::from(error).at(*line))? {
            if let Some(before) = lines.insert(name.clone(), *line) {
                return Err(Mistake::Again { name, before }.at(*line));
            }
            names.push(name);
            if names.len() > MOST_VERTICES as usize {
                return Err(Mistake::Graph(MOST_VERTICES).at(*line));
            }
        }
    }
    let expanded = said.nodes.iter().filter_map(|(_, list)| expand(list).ok());
    let nodes = expanded.map(|names| names.len()).sum::<usize>() as u32;
    let vertices = names.len() as u32;
    let names = Names::new(names).map_err(|name| Mistake::Again { name, before: line }.at(line))?;
    let mut links = Vec::new();
    for (line, values) in &said.links {
        let needs = "two lists of names, and a speed against other links if it is not 1";
        let wrong = || Mistake::Value { word: "link", needs }.at(*line);
        let (ones, others, speed) = match values.as_slice() {
            [ones, others] => (ones, others, 1.0),
            [ones, others, speed] => (ones, others, speed.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        };
        if !(1e-6..=1e6).contains(&speed) {
            return Err(wrong());
        }
        let number = |name: String| match names.number(&name) {
            Some(number) => Ok(number),
            None => Err(Mistake::Unknown(name).at(*line)),
        };
        let list = |list: &str| -> Result<Vec<u32>, ReadError> {
            let names = expand(list).map_err(|error| Mistake::from(error).at(*line))?;
            names.into_iter().map(number).collect()
        };
        let (ones, others) = (list(ones)?, list(others)?);
        if links.len() + ones.len().saturating_mul(others.len()) > 1 << 20 {
            return Err(Mistake::Graph(MOST_VERTICES).at(*line));
        }
        for one in &ones {
            for other in &others {
                if one == other {
                    return Err(Mistake::Loop(names.get(*one)).at(*line));
                }
                links.push((*one, *other, speed));
            }
        }
    }
    let graph = Graph::new(nodes, vertices, &links).map_err(|error| match error {
        GraphError::Vertices => {
            Mistake::Value { word: "graph", needs: "lines that name nodes" }.at(line)
        }
        GraphError::Unreachable(one, other) => {
            let (one, other) = (names.get(one), names.get(other));
            let line = lines.get(&other).copied().unwrap_or(line);
            Mistake::Unreachable(one, other).at(line)
        }
    })?;
    Ok((graph, names))
}

#[cfg(test)]
#[path = "own_tests.rs"]
mod tests;
