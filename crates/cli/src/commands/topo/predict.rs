//! `eyrie topo predict`: messages before and after a spare has taken a lost node's place.

use super::args::Predict;
use super::input::{Given, called, given, node};
use super::show::write_svg;
use anyhow::bail;
use eyrie_terminal::{Failure, print, print_json};
use eyrie_topo::choice::MOST_FLOWS;
use eyrie_topo::picture::{self, View};
use eyrie_topo::shape::{Link, Node};
use eyrie_topo::sharing::Sharing;
use eyrie_topo::situation::Move;
use eyrie_topo::{Network, Pattern, Situation, flow, model};
use serde_json::{Value, json};
use std::io::IsTerminal;

/// Links that are told.
const WORST: usize = 10;

/// What messages do in a situation.
struct Look {
    situation: Situation,
    sharing: Sharing,
    /// In times of what the largest message alone takes; none if there are too many to simulate.
    time: Option<f64>,
}

impl Look {
    fn new(network: &Network, pattern: &Pattern, situation: Situation) -> Look {
        let sharing = Sharing::of(network, pattern, &situation);
        let largest = pattern.messages.iter().map(|message| message.bytes).fold(0.0, f64::max);
        let simulate = || flow::simulate(network, pattern, &situation).total / largest;
        let time = (pattern.messages.len() <= MOST_FLOWS).then(simulate);
        Look { situation, sharing, time }
    }

    fn json(&self, network: &Network) -> Value {
        json!({
            "sharing": self.sharing.most(),
            "links_by_messages": self.sharing.histogram(network),
            "time": self.time,
        })
    }
}

/// A spare, and what it makes of the pattern.
struct After {
    spare: Node,
    look: Look,
    by_sharing: Option<f64>,
    by_flows: Option<f64>,
}

impl After {
    fn new(given: &Given, before: &Look, lost: Node, spare: Node) -> After {
        let moves = [Move { from: lost, to: spare }];
        let situation = given.situation.after(&moves, lost);
        let look = Look::new(&given.network, &given.pattern, situation);
        let by_sharing = before.time.map(|time| model::slowdown(time, look.sharing.most()));
        let by_flows = before.time.zip(look.time).map(|(before, after)| after / before);
        After { spare, look, by_sharing, by_flows }
    }
}

pub fn predict(args: &Predict) -> Result<i32, Failure> {
    let given = given(&args.program)?;
    let (network, pattern) = (&given.network, &given.pattern);
    let before = Look::new(network, pattern, given.situation.clone());
    let spares = match &args.spare {
        Some(text) => vec![node(network, text)?],
        None => given.situation.spares.clone(),
    };
    if let Some(wrong) = spares.iter().find(|spare| !given.situation.spares.contains(spare)) {
        return Err(anyhow::anyhow!("node {} is no spare", called(network, *wrong)).into());
    }
    let after: Vec<After> = match given.lost {
        Some(lost) => {
            spares.iter().map(|spare| After::new(&given, &before, lost, *spare)).collect()
        }
        None => Vec::new(),
    };
    if let Some(path) = &args.svg {
        svg(&given, &before, &after, path)?;
    }
    if args.program.json {
        print_json(&json!({
            "kind": network.shape.kind(),
            "nodes": network.nodes(),
            "ranks": pattern.ranks,
            "messages": pattern.messages.len(),
            "lost": given.lost.map(|lost| network.names.get(lost)),
            "before": before.json(network),
            "after": after.iter().map(|one| as_json(&given, &before, one)).collect::<Vec<_>>(),
        }))?;
        return Ok(0);
    }
    print(&text(&given, &before, &after));
    Ok(0)
}

/// Links that have more messages than before, most first.
fn worse(given: &Given, before: &Look, after: &After) -> Vec<(Link, u32, u32)> {
    let worst = after.look.sharing.worst(usize::MAX, 2).into_iter();
    let with_before = worst.map(|(link, now)| (link, before.sharing.messages[link as usize], now));
    debug_assert!(given.network.shape.links() as usize == before.sharing.messages.len());
    with_before.filter(|(_, then, now)| now > then).take(WORST).collect()
}

fn ends(network: &Network, link: Link) -> (String, String) {
    let (from, to) = network.shape.ends(link).unwrap_or_default();
    (network.names.get(from), network.names.get(to))
}

fn as_json(given: &Given, before: &Look, after: &After) -> Value {
    let network = &given.network;
    let links = worse(given, before, after).into_iter().map(|(link, then, now)| {
        let (from, to) = ends(network, link);
        json!({ "from": from, "to": to, "before": then, "after": now })
    });
    json!({
        "spare": network.names.get(after.spare),
        "look": after.look.json(network),
        "slowdown_by_sharing": after.by_sharing,
        "slowdown_by_flows": after.by_flows,
        "links": links.collect::<Vec<_>>(),
    })
}

fn told(number: Option<f64>) -> String {
    number.map_or_else(|| String::from("-"), |number| format!("{number:.2}"))
}

/// Whose messages share the link that has most, which is why it takes so much longer.
fn sharers(given: &Given, look: &Look) -> String {
    let network = &given.network;
    let Some((link, most)) = look.sharing.worst(1, 2).first().copied() else {
        return String::new();
    };
    let all = Sharing::sharers(network, &given.pattern, &look.situation, link);
    let node = |rank: u32| network.names.get(look.situation.node_of[rank as usize]);
    let told =
        |(from, to): &(u32, u32)| format!("rank {from} ({}) to {to} ({})", node(*from), node(*to));
    let mut told: Vec<String> = all.iter().take(WORST).map(told).collect();
    if all.len() > WORST {
        told.push(format!("{} others", all.len() - WORST));
    }
    let (from, to) = ends(network, link);
    format!("{from} > {to} has {most}, which take turns: {}\n", told.join(", "))
}

fn text(given: &Given, before: &Look, after: &[After]) -> String {
    let network = &given.network;
    let is_coloured = std::io::stdout().is_terminal();
    let picture = |look: &Look| {
        let (situation, sharing) = (Some(&look.situation), Some(&look.sharing));
        let view = View { network, situation, sharing, lost: given.lost };
        picture::text(&view, is_coloured).unwrap_or_default()
    };
    let mut text = format!(
        "{} ranks, {} messages on {} nodes\nbefore: at most {} on a link, {} times one message\n",
        given.pattern.ranks,
        given.pattern.messages.len(),
        network.nodes(),
        before.sharing.most(),
        told(before.time),
    );
    match (given.lost, after) {
        (Some(lost), [one]) => {
            text += &format!(
                "after {} is lost, on {}: at most {} on a link, {} times one message\n\
                 slow-down: {} by flows, {} by sharing (equation 2)\n",
                called(network, lost),
                called(network, one.spare),
                one.look.sharing.most(),
                told(one.look.time),
                told(one.by_flows),
                told(one.by_sharing),
            );
            for (link, then, now) in worse(given, before, one) {
                let (from, to) = ends(network, link);
                text += &format!("  {from} > {to}: {then} before, {now} after\n");
            }
            text += &sharers(given, &one.look);
            text += &format!("\n{}", picture(&one.look));
        }
        (Some(lost), all) => {
            text += &format!("after {} is lost:\n", called(network, lost));
            text += "  SPARE                 SHARING  BY FLOWS  BY SHARING\n";
            for one in all {
                text += &format!(
                    "  {:<20}  {:>7}  {:>8}  {:>10}\n",
                    called(network, one.spare),
                    one.look.sharing.most(),
                    told(one.by_flows),
                    told(one.by_sharing),
                );
            }
        }
        (None, _) => text += &format!("\n{}", picture(before)),
    }
    text
}

fn svg(
    given: &Given,
    before: &Look,
    after: &[After],
    path: &std::path::Path,
) -> anyhow::Result<()> {
    let view = |look| view_of(given, look);
    let mut views = vec![("before", view(before))];
    match (given.lost, after) {
        (Some(_), [one]) => views.push(("after", view(&one.look))),
        (Some(_), _) => bail!("a picture is of one spare: give --spare"),
        (None, _) => {}
    }
    write_svg(path, &views)
}

fn view_of<'a>(given: &'a Given, look: &'a Look) -> View<'a> {
    let (situation, sharing) = (Some(&look.situation), Some(&look.sharing));
    View { network: &given.network, situation, sharing, lost: given.lost }
}
