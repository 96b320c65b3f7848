//! A network as SVG: nodes and switches as dots, links as lines that are coloured, and as wide, as
//! the messages on them are many. Several views stand beside each other: before and after.

use super::{MOST_PICTURED, Mark, View};
use crate::shape::{Link, Shape, Vertex};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Pixels between two nodes, and around a view.
const STEP: f64 = 32.0;
const MARGIN: f64 = 40.0;
/// Colours of links with 0, 1, 2 ... messages; the last one is of all above.
const COLOURS: [&str; 6] = ["#d0d0d0", "#2a9d58", "#e0a800", "#e07000", "#c81e1e", "#7a0a4a"];

/// The views with their titles; none if they are too large.
pub fn svg(views: &[(&str, View)]) -> Option<String> {
    let mut body = String::new();
    let (mut width, mut height, mut messages) = (MARGIN, 0.0f64, 0);
    for (title, view) in views {
        if view.network.shape.vertices() > MOST_PICTURED * 2 {
            return None;
        }
        let places = places(view);
        let right = places.iter().map(|place| place.0).fold(0.0, f64::max);
        let bottom = places.iter().map(|place| place.1).fold(0.0, f64::max);
        let _ = writeln!(body, r#"<g transform="translate({width},{})">"#, MARGIN * 1.5);
        let title = escaped(title);
        let _ = writeln!(body, r#"<text y="-26" font-weight="bold">{title}</text>"#);
        draw(view, &places, &mut body);
        body.push_str("</g>\n");
        width += right.max(title.len() as f64 * 8.0) + MARGIN * 1.5;
        height = height.max(bottom);
        messages = messages.max(view.sharing.map_or(0, |sharing| sharing.most()));
    }
    height += MARGIN * 3.0;
    let mut all = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    all.push_str(&body);
    let _ = writeln!(all, r#"<g transform="translate({MARGIN},{})">"#, height - MARGIN / 2.0);
    let last = COLOURS.len() as u32 - 1;
    for count in 0..=messages.min(last) {
        let (x, colour) = (f64::from(count) * 90.0, COLOURS[count as usize]);
        let more = if count == last { " or more" } else { "" };
        let line = format!(r#"<path d="M{x},-4 h24" stroke="{colour}" stroke-width="4"/>"#);
        let _ = writeln!(all, r#"{line}<text x="{}">{count}{more}</text>"#, x + 30.0);
    }
    all.push_str("</g>\n</svg>\n");
    Some(all)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Where vertices are: in their grid, planes beside each other; or nodes in rows with their
/// switches above them.
fn places(view: &View) -> Vec<(f64, f64)> {
    let shape = view.network.shape.as_ref();
    match &view.network.lattice {
        Some(lattice) => {
            let dims = lattice.dims();
            let rows = dims.get(1).copied().unwrap_or(1);
            let place = |cell: u32| {
                let (x, y) = (cell % dims[0], cell / dims[0] % rows);
                let plane = cell / dims[0] / rows;
                (f64::from(plane * (dims[0] + 1) + x) * STEP, f64::from(y) * STEP)
            };
            (0..shape.nodes()).map(|node| place(lattice.cell(node))).collect()
        }
        None => in_levels(shape),
    }
}

/// Each vertex above those that it is linked with and that are nearer to nodes.
fn in_levels(shape: &dyn Shape) -> Vec<(f64, f64)> {
    let (nodes, vertices) = (shape.nodes(), shape.vertices() as usize);
    let ends: Vec<_> = (0..shape.links()).filter_map(|link| shape.ends(link)).collect();
    let mut levels = vec![u32::MAX; vertices];
    levels[..nodes as usize].fill(0);
    let mut level = 0;
    let mut is_growing = true;
    while is_growing {
        is_growing = false;
        for (from, to) in &ends {
            if levels[*from as usize] == level && levels[*to as usize] == u32::MAX {
                levels[*to as usize] = level + 1;
                is_growing = true;
            }
        }
        level += 1;
    }
    let mut counts: HashMap<u32, u32> = HashMap::new();
    levels.iter().for_each(|level| *counts.entry(*level).or_default() += 1);
    let top = levels.iter().copied().filter(|level| *level != u32::MAX).max().unwrap_or(0);
    let widest = counts.values().copied().max().unwrap_or(1);
    let mut seen: HashMap<u32, u32> = HashMap::new();
    let place = |level: &u32| {
        let at = seen.entry(*level).or_default();
        let gap = f64::from(widest) / f64::from(counts[level]) * STEP;
        let x = (f64::from(*at) + 0.5) * gap;
        *at += 1;
        (x, f64::from(top.saturating_sub(*level)) * STEP * 3.0)
    };
    levels.iter().map(place).collect()
}

/// Links, those with most messages on top, then nodes.
fn draw(view: &View, places: &[(f64, f64)], body: &mut String) {
    let shape = view.network.shape.as_ref();
    let mut links: HashMap<(Vertex, Vertex), u32> = HashMap::new();
    for link in 0..shape.links() as Link {
        if let Some((from, to)) = shape.ends(link) {
            let both = links.entry((from.min(to), from.max(to))).or_default();
            *both = (*both).max(view.messages(link));
        }
    }
    let mut links: Vec<_> = links.into_iter().map(|(ends, messages)| (messages, ends)).collect();
    links.sort_unstable();
    for (messages, (one, other)) in links {
        let colour = COLOURS[(messages as usize).min(COLOURS.len() - 1)];
        let width = 1.0 + f64::from(messages.min(6)) * 0.8;
        let line = way(places[one as usize], places[other as usize]);
        let look = format!(r#"fill="none" stroke="{colour}" stroke-width="{width:.1}""#);
        let _ = writeln!(body, r#"<path {look} d="{line}"/>"#);
    }
    let marks = view.marks();
    for (vertex, (x, y)) in places.iter().enumerate() {
        let (fill, stroke) = match marks.get(vertex) {
            Some(Mark::Ranks) => ("#3060c0", "#1a3670"),
            Some(Mark::Free) => ("white", "#3060c0"),
            Some(Mark::Lost) => ("#202020", "#c81e1e"),
            None => ("#909090", "#505050"),
        };
        let name = escaped(&view.network.names.get(vertex as u32));
        let look = format!(r#"fill="{fill}" stroke="{stroke}" stroke-width="1.5""#);
        let dot = format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="6" {look}>"#);
        let _ = writeln!(body, "{dot}<title>{name}</title></circle>");
    }
}

/// A straight line to what is near, a bow to what is not, so that it is seen beside what it passes.
fn way(from: (f64, f64), to: (f64, f64)) -> String {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let far = dx.hypot(dy);
    if far < STEP * 1.5 || (dx != 0.0 && dy != 0.0) {
        return format!("M{:.1},{:.1} L{:.1},{:.1}", from.0, from.1, to.0, to.1);
    }
    let bow = 0.12 + 4.0 / far;
    let (x, y) = ((from.0 + to.0) / 2.0 - dy * bow, (from.1 + to.1) / 2.0 + dx * bow);
    format!("M{:.1},{:.1} Q{x:.1},{y:.1} {:.1},{:.1}", from.0, from.1, to.0, to.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;
    use crate::reader::read_topology;
    use crate::sharing::Sharing;
    use crate::situation::Situation;

    fn drawn(description: &str) -> Option<String> {
        let network = read_topology(description).unwrap();
        let pattern = Pattern::ring(4, 1.0);
        let situation = Situation::new(&network, 4, &[]).unwrap();
        let sharing = Sharing::of(&network, &pattern, &situation);
        let view = View {
            network: &network,
            situation: Some(&situation),
            sharing: Some(&sharing),
            lost: Some(1),
        };
        svg(&[("before & after", view)])
    }

    #[test]
    fn each_node_and_link_is_drawn_once() {
        let picture = drawn("mesh 4x2").unwrap();
        assert_eq!(picture.matches("<circle").count(), 8);
        // 3 * 2 along x and 4 along y.
        assert_eq!(picture.matches("<path fill").count(), 10);
        assert!(picture.contains("before &amp; after") && picture.ends_with("</svg>\n"));
        // One lost, four without ranks.
        assert_eq!(picture.matches("#202020").count(), 1);
        assert_eq!(picture.matches(r#"fill="white" stroke"#).count(), 4);
    }

    #[test]
    fn other_networks_are_drawn_too() {
        for (text, circles, paths) in
            [("fat-tree 4", 36, 48), ("tofu 1x1x2x2x3x2", 24, 60), ("torus 4x4", 16, 32)]
        {
            let picture = drawn(text).unwrap();
            assert_eq!(picture.matches("<circle").count(), circles, "{text}");
            assert_eq!(picture.matches("<path fill").count(), paths, "{text}");
        }
        assert_eq!(drawn("torus 100x100x2"), None);
    }
}
