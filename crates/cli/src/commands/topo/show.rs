//! `eyrie topo show`: a network as it was understood.

use super::args::Show;
use super::input::{called, network, node};
use anyhow::Context;
use eyrie_terminal::{Failure, print, print_json};
use eyrie_topo::Network;
use eyrie_topo::picture::{self, View};
use serde_json::json;
use std::io::IsTerminal;
use std::path::Path;

pub fn show(args: &Show) -> Result<i32, Failure> {
    let network = network(&args.network)?;
    let shape = network.shape.as_ref();
    let links = (0..shape.links()).filter(|link| shape.ends(*link).is_some()).count();
    let route = args.route.as_deref().map(|ends| route(&network, ends)).transpose()?;
    let view = View { network: &network, situation: None, sharing: None, lost: None };
    if let Some(path) = &args.svg {
        write_svg(path, &[("network", view)])?;
    }
    let hardware = &network.hardware;
    if args.json {
        print_json(&json!({
            "kind": shape.kind(),
            "nodes": shape.nodes(),
            "switches": shape.vertices() - shape.nodes(),
            "links": links,
            "grid": network.lattice.as_ref().map(|lattice| lattice.dims()),
            "ways": shape.choices(),
            "bandwidth": hardware.link_bytes_per_s,
            "engines": hardware.engines,
            "memory": hardware.memory_links.is_finite()
                .then_some(hardware.memory_links * hardware.link_bytes_per_s),
            "route": route,
        }))?;
        return Ok(0);
    }
    let mut text = format!("{}: {} nodes", shape.kind(), shape.nodes());
    if shape.vertices() > shape.nodes() {
        text += &format!(", {} switches", shape.vertices() - shape.nodes());
    }
    text += &format!(", {links} links of {:.1} GB/s", hardware.link_bytes_per_s / 1e9);
    if hardware.engines > 0 {
        text += &format!(", {} engines a node", hardware.engines);
    }
    if hardware.memory_links.is_finite() {
        let memory = hardware.memory_links * hardware.link_bytes_per_s / 1e9;
        text += &format!(", memory {memory:.1} GB/s");
    }
    text.push('\n');
    if let Some(lattice) = &network.lattice {
        let sizes: Vec<String> = lattice.dims().iter().map(u32::to_string).collect();
        text += &format!("ranks see a grid of {}\n", sizes.join("x"));
    }
    if let Some(picture) = picture::text(&view, std::io::stdout().is_terminal()) {
        text += &format!("\n{picture}");
    }
    if let Some(route) = route {
        text += &format!("\nroute: {}\n", route.join(" > "));
    }
    print(&text);
    Ok(0)
}

/// The vertices of a route, by their names.
fn route(network: &Network, ends: &[String]) -> anyhow::Result<Vec<String>> {
    let [from, to] = ends else { anyhow::bail!("a route has two ends") };
    let (from, to) = (node(network, from)?, node(network, to)?);
    let mut links = Vec::new();
    network.shape.route(from, to, 0, &mut links);
    let name = |vertex| match vertex < network.nodes() {
        true => called(network, vertex),
        false => network.names.get(vertex),
    };
    let rest = links.iter().filter_map(|link| network.shape.ends(*link)).map(|(_, end)| name(end));
    Ok(std::iter::once(name(from)).chain(rest).collect())
}

/// Writes a picture, or says why there is none.
pub fn write_svg(path: &Path, views: &[(&str, View)]) -> anyhow::Result<()> {
    let most = picture::MOST_PICTURED;
    let picture = picture::svg(views)
        .with_context(|| format!("no picture: more than {} nodes and switches", most * 2))?;
    std::fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))
}
