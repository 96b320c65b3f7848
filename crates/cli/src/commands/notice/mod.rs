//! `eyrie notice`: nodes and controllers on this machine are told that it is about to end: now, or
//! when its cloud says so (`--watch`).

pub mod args;
mod cloud;
mod everyone;
mod http;
mod watch;

use crate::client::order;
use crate::commands::notice::args::Notice;
use crate::commands::notice::everyone::nobody;
use crate::messages::say;
use eyrie_control::ClientMsg;
use eyrie_state::home;
use eyrie_terminal::{Failure, print, print_json};
use serde_json::json;

pub fn notice(args: &Notice) -> Result<i32, Failure> {
    if args.all_users {
        everyone::check()?;
    }
    if let Some(cloud) = args.watch {
        let why = watch::wait(cloud, args)?;
        match args.json {
            true => say(&why),
            false => print(&format!("{why}: the nodes here are told\n")),
        }
    }
    if args.all_users { everyone::tell() } else { tell(args.json) }
}

/// Tells the nodes and the controllers of this user's jobs.
fn tell(json: bool) -> Result<i32, Failure> {
    let home = home::home()?;
    let nodes = eyrie_launcher::notice::tell(&home)?;
    if !json {
        nodes.iter().for_each(|node| print(&format!("told {}\n", node.display())));
    }
    let mut saved = Vec::new();
    for job in home::jobs(&home).into_iter().filter(|job| job.alive) {
        match order(&job, &ClientMsg::Notice) {
            Ok(()) => {
                if !json {
                    print(&format!("told job {}: it is saved\n", job.id));
                }
                saved.push(job.id);
            }
            Err(why) => say(&format!("job {}: {why:#}", job.id)),
        }
    }
    let any = !(nodes.is_empty() && saved.is_empty());
    if json {
        let nodes: Vec<_> = nodes.iter().map(|node| node.to_string_lossy()).collect();
        print_json(&json!({ "nodes": nodes, "jobs": saved }))?;
    }
    if any { Ok(0) } else { Err(nobody()) }
}
