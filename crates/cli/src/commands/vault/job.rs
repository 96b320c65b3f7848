//! `eyrie vault ls|verify|scrub JOB`: the vault of a job that runs, by the nodes that have it.
//!
//! Kept true: only the nodes touch their files; what they could not check is told, and is no
//! success.

use crate::client::{Client, find_running, outlives};
use crate::commands::vault::args::{Look, Ls};
use crate::commands::vault::listing::{Listing, StoredObject};
use crate::show::tables;
use anyhow::{Context, anyhow};
use eyrie_control::vault::{Checked, Condition, Inspected, Kept};
use eyrie_control::{ClientMsg, NodeMsg};
use eyrie_state::home::{self, JobEntry};
use eyrie_terminal::{FAILED, Failure, Progress, print};
use eyrie_vault::vault::{Mended, State};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The job that is meant by what stands where folders may: one name, and no folder of that name.
pub fn named(members: &[PathBuf]) -> Result<Option<JobEntry>, Failure> {
    match members {
        [name] if !name.exists() && name.components().count() == 1 => {
            let text = name.to_string_lossy();
            let found = home::resolve(&home::home()?, &text);
            found.with_context(|| format!("there is no folder {text}, and no such job"))?;
            Ok(Some(find_running(&text)?))
        }
        _ => Ok(None),
    }
}

/// What a job answers, up to its end.
fn ask(job: &JobEntry, message: &ClientMsg, quiet: bool) -> anyhow::Result<Vec<NodeMsg>> {
    let mut remote = Client::connect(job)?.send_unlimited(message)?;
    let mut all = Vec::new();
    // How many parts there are is known to the nodes only.
    let progress = Progress::working("the nodes look", quiet);
    loop {
        match remote.next() {
            Ok(NodeMsg::Done) => return Ok(all),
            Ok(message) => {
                all.push(message);
                progress.tell(&format!("{} parts", all.len()));
            }
            Err(_) if remote.is_over() && outlives(job) => {
                return Err(anyhow!("the job's controller died: ask the next one"));
            }
            Err(error) => return Err(error),
        }
    }
}

/// What can be had, by the nodes that live.
fn state(kept: &Kept) -> State {
    let lost = |group: &Vec<eyrie_vault::record::Summary>| -> Vec<u32> {
        let nodes = group.iter().map(|summary| summary.node);
        nodes.filter(|node| kept.lost.contains(node)).collect()
    };
    let groups: Vec<Vec<u32>> = kept.commit.groups.iter().map(lost).collect();
    let beyond = |lost: &&Vec<u32>| lost.len() > kept.commit.scheme.tolerates();
    let gone: Vec<u32> = groups.iter().filter(beyond).flatten().copied().collect();
    match (gone.is_empty(), kept.lost.is_empty()) {
        (false, _) => State::Lost(gone),
        (true, false) => State::Degraded(kept.lost.clone()),
        (true, true) => State::Whole,
    }
}

pub fn ls(job: &JobEntry, args: &Ls) -> Result<i32, Failure> {
    let mut listing = Listing::new();
    for message in ask(job, &ClientMsg::Vault, args.look.quiet)? {
        let NodeMsg::InVault(kept) = message else {
            return Err(anyhow!("unexpected answer: {message:?}").into());
        };
        let held = |(rank, generation, node): &(u32, u32, u32)| {
            let name = format!("rank-{rank}.gen-{generation}");
            StoredObject { node: *node, name, bytes: None }
        };
        let held: Vec<StoredObject> = kept.files.iter().map(held).collect();
        listing.add(&kept.commit, &state(&kept), args.objects.then_some(held));
    }
    listing.print(args)?;
    Ok(0)
}

/// What was found of the files of images: of each image, on each of its nodes.
#[derive(Default)]
struct Images {
    sound: u64,
    repaired: u64,
    /// Damaged, and not made anew.
    left: u64,
    /// Of those that are not sound.
    lines: Vec<String>,
    members: Vec<Value>,
    unread: Vec<String>,
}

impl Images {
    fn add(&mut self, found: Inspected) {
        let Inspected { node, rank, generation, condition } = found;
        let name = format!("checkpoint {generation} of rank {rank} on node {node}");
        let (state, why) = match condition {
            Condition::Sound => {
                self.sound += 1;
                ("sound", None)
            }
            Condition::Repaired(why) => {
                self.repaired += 1;
                self.lines.push(format!("{name} was made anew: {why}\n"));
                ("repaired", Some(why))
            }
            Condition::Damaged(why) => {
                self.left += 1;
                self.lines.push(format!("{name} is damaged: {why}\n"));
                ("damaged", Some(why))
            }
            Condition::Unread(why) => {
                self.unread.push(format!("{name}: {why}"));
                ("unread", Some(why))
            }
        };
        self.members.push(json!({
            "node": node, "rank": rank, "generation": generation, "state": state, "why": why,
        }));
    }

    /// An error if some are damaged.
    fn all_sound(&self, write: bool) -> Result<(), Failure> {
        let hint = match (self.left, write) {
            (0, _) => return Ok(()),
            (_, true) => {
                "they are not used any more; the next checkpoints of their ranks need nothing of \
                 them"
            }
            (_, false) => "see `eyrie vault scrub`",
        };
        Err(Failure::new(FAILED, anyhow!("{} images are damaged", self.left)).remedy(hint))
    }

    fn json(&self) -> Value {
        json!({
            "sound": self.sound, "damaged": self.left + self.repaired, "repaired": self.repaired,
            "members": self.members,
        })
    }

    fn text(&self) -> String {
        let Images { sound, repaired, left, lines, .. } = self;
        if self.members.is_empty() {
            return "there are no images yet\n".into();
        }
        format!(
            "{}{sound} images are sound, {} damaged; {repaired} repaired\n",
            lines.concat(),
            left + repaired
        )
    }
}

/// What was found of the parity; `none`: there is none.
fn chunks(found: &Mended, none: bool) -> String {
    if none {
        // Its images are told of.
        let how = "--vault rs:K+M or xor:K makes it, from the first checkpoint on";
        return format!("there is no parity to look at: {how}\n");
    }
    let Mended { sound, damaged, repaired, lost, .. } = found;
    format!(
        "{sound} chunks are sound, {damaged} damaged or missing; {repaired} repaired, {lost} lost\n"
    )
}

/// `write`: what is damaged is made anew.
pub fn mend(job: &JobEntry, look: &Look, write: bool, rate: u64) -> Result<i32, Failure> {
    let head = ["GENERATION", "NODE", "SOUND", "DAMAGED", "REPAIRED", "LOST"];
    let mut rows = vec![head.map(String::from).to_vec()];
    let (mut total, mut unchecked) = (Mended::default(), Vec::new());
    let mut members: Vec<Value> = Vec::new();
    let (mut all, mut images): (Vec<Checked>, Images) = (Vec::new(), Images::default());
    for message in ask(job, &ClientMsg::Scrub { write, rate }, look.quiet)? {
        match message {
            NodeMsg::Checked(checked) => all.push(checked),
            NodeMsg::Inspected(inspected) => images.add(inspected),
            other => return Err(anyhow!("unexpected answer: {other:?}").into()),
        }
    }
    unchecked.append(&mut images.unread);
    let none = all.is_empty();
    all.sort_by_key(|checked| (checked.generation, checked.node));
    for Checked { generation, node, result } in all {
        match result {
            Ok(found) => {
                let Mended { sound, damaged, repaired, lost, ref why } = found;
                let numbers = [generation, u64::from(node), sound, damaged, repaired, lost];
                rows.push(numbers.map(|number| number.to_string()).to_vec());
                members.push(json!({
                    "generation": generation, "node": node, "sound": sound, "damaged": damaged,
                    "repaired": repaired, "lost": lost, "why": why, "error": null,
                }));
                total.add(&found);
            }
            Err(why) => {
                members.push(json!({"generation": generation, "node": node, "error": why}));
                unchecked.push(format!("generation {generation}, node {node}: {why}"));
            }
        }
    }
    let Mended { sound, damaged, repaired, lost, ref why } = total;
    if look.json {
        let all = json!({
            "sound": sound, "damaged": damaged, "repaired": repaired, "lost": lost,
            "members": members, "images": images.json(),
        });
        print(&(serde_json::to_string_pretty(&all)? + "\n"));
    } else {
        let table = if rows.len() > 1 { tables::table(&rows) } else { String::new() };
        print(&(table + &images.text() + &chunks(&total, none)));
    }
    // What cannot be made anew for now is not lost, and not sound either.
    let left = if write { damaged.saturating_sub(repaired) } else { damaged };
    if left > 0 {
        let hint = if write {
            "the nodes bring those images that they have as files into the vault again"
        } else {
            "see `eyrie vault scrub`"
        };
        let why = why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        let text = anyhow!("{left} chunks are not sound{why}");
        return Err(Failure::new(FAILED, text).remedy(hint));
    }
    images.all_sound(write)?;
    match unchecked.is_empty() {
        true => Ok(0),
        false => {
            Err(Failure::new(FAILED, anyhow!("not all was checked: {}", unchecked.join("; "))))
        }
    }
}
