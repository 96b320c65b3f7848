//! `eyrie-image list`.

use crate::args::List;
use crate::home::{self, Entry};
use eyrie_terminal::{Failure, print};
use serde_json::json;

pub fn list(args: &List) -> Result<i32, Failure> {
    let all = home::entries(&home::home()?);
    if args.json {
        let all: Vec<_> = all.iter().map(as_json).collect();
        print(&(serde_json::to_string_pretty(&all)? + "\n"));
        return Ok(0);
    }
    let mut rows = vec![["NAME", "PID", "STATE", "IMAGES", "COMMAND"].map(String::from)];
    rows.extend(all.iter().map(row));
    let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..4).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, w)| format!("{cell:<w$}  "));
        print(&format!("{}{}\n", cells.collect::<String>(), row[4]));
    }
    Ok(0)
}

fn state(entry: &Entry) -> &'static str {
    if entry.alive { "running" } else { "killed" }
}

fn images(entry: &Entry) -> Vec<std::path::PathBuf> {
    let dir = entry.record.as_ref().filter(|_| entry.alive).map_or(&entry.path, |r| &r.dir);
    home::images(dir)
}

fn row(entry: &Entry) -> [String; 5] {
    let record = entry.record.as_ref();
    let pid = record.filter(|_| entry.alive).map_or("-".into(), |r| r.pid.to_string());
    let command = record.map_or("-".into(), |r| r.command.clone());
    let count = images(entry).len().to_string();
    [entry.name.clone(), pid, state(entry).into(), count, command]
}

fn as_json(entry: &Entry) -> serde_json::Value {
    let record = entry.record.as_ref();
    json!({
        "name": entry.name,
        "state": state(entry),
        "pid": record.filter(|_| entry.alive).map(|r| r.pid),
        "supervisor": record.filter(|_| entry.alive).map(|r| r.supervisor),
        "command": record.map(|r| &r.command),
        "images": images(entry),
    })
}
