//! What the commands of `eyrie topo` are given: files and words, made into a network and a program.

use super::args::Program;
use anyhow::{Context, anyhow, bail};
use eyrie_topo::shape::Node;
use eyrie_topo::spares::{self, Policy};
use eyrie_topo::{Network, Pattern, Situation, reader};
use std::io::Read;
use std::path::Path;

/// The text of a file, or of standard input.
fn text_of(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let most = reader::MOST_BYTES as u64 + 1;
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("cannot read {}", path.display()))?;
    String::from_utf8(bytes).map_err(|_| anyhow!("{} is no text", path.display()))
}

pub fn network(path: &Path) -> anyhow::Result<Network> {
    let text = text_of(path)?;
    reader::read_topology(&text).map_err(|error| anyhow!("{}, {error}", path.display()))
}

pub fn node(network: &Network, text: &str) -> anyhow::Result<Node> {
    network.find(text).ok_or_else(|| {
        let nodes = network.nodes();
        anyhow!("no node '{text}' among {nodes}: use a name, a number, or coordinates (3,4)")
    })
}

/// A node's name, and where it is.
pub fn called(network: &Network, node: Node) -> String {
    let name = network.names.get(node);
    match &network.lattice {
        Some(lattice) => {
            let cell = lattice.cell(node);
            let at =
                (0..lattice.dims().len()).map(|axis| lattice.coordinate(cell, axis).to_string());
            format!("{name} ({})", at.collect::<Vec<_>>().join(","))
        }
        None => name,
    }
}

/// A program on a network.
pub struct Given {
    pub network: Network,
    pub pattern: Pattern,
    pub situation: Situation,
    pub lost: Option<Node>,
}

pub fn given(program: &Program) -> anyhow::Result<Given> {
    let network = network(&program.network)?;
    let pattern = match (&program.pattern, &program.traffic) {
        (Some(pattern), _) => Pattern::parse(pattern, program.bytes as f64)?,
        (None, Some(path)) => {
            let text = text_of(path)?;
            Pattern::read(&text).map_err(|error| anyhow!("{}, {error}", path.display()))?
        }
        (None, None) => bail!("no messages: give --pattern or --traffic"),
    };
    let spares = match &program.spares {
        Some(text) => spare_nodes(&network, text)?,
        None => Vec::new(),
    };
    let situation = Situation::new(&network, pattern.ranks, &spares)?;
    let lost = program.lost.as_ref().map(|text| node(&network, text)).transpose()?;
    if let Some(lost) = lost.filter(|lost| !situation.node_of.contains(lost)) {
        bail!("node {} has no ranks: nothing moves when it is lost", called(&network, lost));
    }
    Ok(Given { network, pattern, situation, lost })
}

/// From `row`, `spread:4`, or names.
fn spare_nodes(network: &Network, text: &str) -> anyhow::Result<Vec<Node>> {
    let (policy, count) = text.split_once(':').unwrap_or((text, "1"));
    if let Some(policy) = Policy::parse(policy) {
        let count = count.parse().map_err(|_| anyhow!("'{count}' is no number of spares"))?;
        return Ok(spares::choose(network, policy, count)?);
    }
    let mut all = Vec::new();
    for name in reader::expand(text)? {
        let node = node(network, &name)?;
        if all.contains(&node) {
            bail!("spare node '{name}' is named twice");
        }
        all.push(node);
    }
    Ok(all)
}
