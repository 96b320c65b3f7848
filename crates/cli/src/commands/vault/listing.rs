//! What a vault holds, as `eyrie vault ls` shows it.

use crate::commands::vault::args::Ls;
use crate::show::tables;
use eyrie_terminal::{print, units};
use eyrie_vault::record::{Commit, Made};
use eyrie_vault::vault::State;
use serde_json::{Value, json};

pub fn state_text(state: &State) -> String {
    match state {
        State::Whole => "whole".into(),
        State::Degraded(nodes) => format!("degraded (nodes {nodes:?})"),
        State::Lost(nodes) => format!("LOST (nodes {nodes:?})"),
    }
}

/// How the parity of a generation came to be.
fn made_text(made: Made) -> String {
    match made {
        Made::Anew => "made anew".into(),
        Made::Updated { base, bytes, .. } => {
            format!("of {base}, {} changed", units::bytes(bytes))
        }
    }
}

/// An object, as it is listed.
pub struct StoredObject {
    pub node: u32,
    pub name: String,
    /// None: nobody was asked.
    pub bytes: Option<u64>,
}

/// Generations, as they are listed.
pub struct Listing {
    rows: Vec<Vec<String>>,
    objects: Vec<Vec<String>>,
    all: Vec<Value>,
    why: String,
}

impl Listing {
    pub fn new() -> Listing {
        let head = ["GENERATION", "SCHEME", "NODES", "STORED", "NEEDS", "PARITY", "STATE"];
        let objects = ["GENERATION", "NODE", "OBJECT", "SIZE"].map(String::from).to_vec();
        let rows = vec![head.map(String::from).to_vec()];
        Listing { rows, objects: vec![objects], all: Vec::new(), why: String::new() }
    }

    /// `held`: its objects, if they are to be listed, too.
    pub fn add(&mut self, commit: &Commit, state: &State, held: Option<Vec<StoredObject>>) {
        let generation = commit.generation;
        let nodes: Vec<u32> = commit.groups.iter().flatten().map(|s| s.node).collect();
        let stored: u64 = commit.groups.iter().flatten().map(|s| s.payload).sum();
        let (needs, text) = (commit.needs(), state_text(state));
        self.rows.push(vec![
            generation.to_string(),
            commit.scheme.to_string(),
            nodes.len().to_string(),
            units::bytes(stored),
            if needs.is_empty() { "-".into() } else { format!("{needs:?}") },
            made_text(commit.made),
            text.clone(),
        ]);
        if !commit.why.is_empty() {
            self.why += &format!("\ngeneration {generation}: {}\n", commit.why);
        }
        let mut entry = json!({
            "generation": generation, "scheme": commit.scheme.to_string(), "nodes": nodes,
            "stored_bytes": stored, "needs": needs, "state": text,
            "parity": made_text(commit.made), "why": commit.why,
        });
        if let Some(held) = held {
            let object =
                |h: &StoredObject| json!({"node": h.node, "name": h.name, "bytes": h.bytes});
            entry["objects"] = held.iter().map(object).collect();
            self.objects.extend(held.into_iter().map(|StoredObject { node, name, bytes }| {
                let size = bytes.map_or_else(|| "-".into(), units::bytes);
                vec![generation.to_string(), node.to_string(), name, size]
            }));
        }
        self.all.push(entry);
    }

    pub fn print(&self, args: &Ls) -> anyhow::Result<()> {
        if args.look.json {
            print(&(serde_json::to_string_pretty(&self.all)? + "\n"));
            return Ok(());
        }
        print(&tables::table(&self.rows));
        if args.why {
            print(&self.why);
        }
        if args.objects {
            print(&format!("\n{}", tables::table(&self.objects)));
        }
        Ok(())
    }
}
