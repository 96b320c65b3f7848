//! A grid in letters: nodes as they are, and on each link how many messages share it.

use super::{MOST_PICTURED, Mark, View};
use crate::network::Lattice;
use std::fmt::Write as _;

/// What a node looks like, and how many messages its link has, in colours if they are wanted.
struct Pen {
    is_coloured: bool,
}

impl Pen {
    fn node(&self, mark: Mark) -> String {
        let (letter, colour) = match mark {
            Mark::Ranks => ('o', ""),
            Mark::Free => ('.', "2"),
            Mark::Lost => ('X', "1;31"),
        };
        self.coloured(letter, colour)
    }

    fn link(&self, messages: u32, none: char) -> String {
        let colour = match messages {
            0 => "2",
            1 => "32",
            2 => "33",
            3 => "35",
            _ => "1;31",
        };
        let letter = match messages {
            0 => none,
            1..=9 => char::from(b'0' + messages as u8),
            _ => '+',
        };
        self.coloured(letter, colour)
    }

    fn coloured(&self, letter: char, colour: &str) -> String {
        match self.is_coloured && !colour.is_empty() {
            true => format!("\x1b[{colour}m{letter}\x1b[0m"),
            false => letter.to_string(),
        }
    }
}

/// The picture of a network in a grid, plane after plane; none of others and of large ones.
pub fn text(view: &View, is_coloured: bool) -> Option<String> {
    let lattice =
        view.network.lattice.as_ref().filter(|_| view.network.nodes() <= MOST_PICTURED)?;
    let pen = Pen { is_coloured };
    let marks = view.marks();
    let dims = lattice.dims();
    let (columns, rows) = (dims[0], dims.get(1).copied().unwrap_or(1));
    let plane = columns * rows;
    let mut picture = String::new();
    for number in 0..view.network.nodes() / plane {
        if dims.len() > 2 {
            let _ = writeln!(picture, "{}", plane_name(lattice, number * plane));
        }
        for row in 0..rows {
            let first = number * plane + row * columns;
            picture.push_str(&line(view, lattice, &pen, &marks, first, columns));
            picture.push_str(&below(view, lattice, &pen, first, columns));
        }
    }
    Some(picture)
}

/// Which plane: the coordinates that its cells have in common.
fn plane_name(lattice: &Lattice, cell: u32) -> String {
    let name = |axis: usize| format!("axis {}: {}", axis + 1, lattice.coordinate(cell, axis));
    (2..lattice.dims().len()).map(name).collect::<Vec<_>>().join(", ")
}

/// Nodes of a row, and the links between them; at its end the one that goes round.
fn line(
    view: &View,
    lattice: &Lattice,
    pen: &Pen,
    marks: &[Mark],
    first: u32,
    columns: u32,
) -> String {
    let mut line = String::new();
    for cell in first..first + columns {
        let node = lattice.node(cell);
        line.push_str(&pen.node(marks[node as usize]));
        if let Some(next) = lattice.beside(cell, 0, true) {
            line.push_str(&pen.link(view.between(node, lattice.node(next)), '-'));
        }
    }
    line.push('\n');
    line
}

/// The links from a row to the next one; of the last row those that go round.
fn below(view: &View, lattice: &Lattice, pen: &Pen, first: u32, columns: u32) -> String {
    if lattice.dims().len() < 2 || lattice.beside(first, 1, true).is_none() {
        return String::new();
    }
    let mut line = String::new();
    for cell in first..first + columns {
        let next = lattice.beside(cell, 1, true).unwrap_or(cell);
        line.push_str(&pen.link(view.between(lattice.node(cell), lattice.node(next)), '|'));
        line.push(' ');
    }
    line.truncate(line.trim_end_matches(' ').len());
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;
    use crate::reader::read_topology;
    use crate::sharing::Sharing;
    use crate::situation::{Move, Situation};

    #[test]
    fn links_say_how_many_share_them() {
        let network = read_topology("mesh 3x3").unwrap();
        let pattern = Pattern::stencil(&[3, 2], false, 1.0);
        let situation = Situation::new(&network, 6, &[6, 7, 8]).unwrap();
        let sharing = Sharing::of(&network, &pattern, &situation);
        let view = View {
            network: &network,
            situation: Some(&situation),
            sharing: Some(&sharing),
            lost: None,
        };
        assert_eq!(text(&view, false).unwrap(), "o1o1o\n1 1 1\no1o1o\n| | |\n.-.-.\n");
        // Rank 0 is at (0, 2): what it sends to and takes from 1 and 3 goes along the last row and
        // the first column.
        let after = situation.after(&[Move { from: 0, to: 6 }], 0);
        let sharing = Sharing::of(&network, &pattern, &after);
        let view = View {
            network: &network,
            situation: Some(&after),
            sharing: Some(&sharing),
            lost: Some(0),
        };
        assert_eq!(text(&view, false).unwrap(), "X1o1o\n1 2 1\no1o1o\n2 1 |\no1.-.\n");
        assert!(text(&view, true).unwrap().contains("\x1b[1;31mX\x1b[0m"));
    }

    #[test]
    fn planes_follow_each_other_and_others_have_no_picture() {
        let of = |description: &str| {
            let network = read_topology(description).unwrap();
            text(&View { network: &network, situation: None, sharing: None, lost: None }, false)
        };
        assert_eq!(of("torus 3x1x2").unwrap(), "axis 3: 0\no-o-o-\naxis 3: 1\no-o-o-\n");
        assert_eq!(of("mesh 3").unwrap(), "o-o-o\n");
        assert_eq!(of("fat-tree 4"), None);
        assert_eq!(of("torus 100x100"), None);
    }
}
