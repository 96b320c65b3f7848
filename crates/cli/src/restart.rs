//! `eyrie restart`: goes on with a job that was saved as a whole, where it was or elsewhere.

use crate::args::{MapMode, Restart};
use crate::clusters;
use crate::console;
use crate::hosts::{self, Wish};
use crate::launch;
use crate::saving;
use crate::vault;
use anyhow::{Context, anyhow};
use eyrie_control::{AtRest, ClientMsg, Ft, JobSpec, StoredFile};
use eyrie_node::depot::{Depot, Fetched};
use eyrie_node::home;
use eyrie_node::placement::Map;
use eyrie_node::routing::Routing;
use eyrie_node::saved::SavedJob;
use eyrie_node::spawn::Prefix;
use eyrie_objects::Place;
use eyrie_terminal::{FAILED, Failure, USAGE};
use std::path::Path;

pub fn restart(args: &Restart) -> Result<i32, Failure> {
    let home = home::home()?;
    let fetched = Place::is_meant(&args.job).then(|| fetch(&home, args)).transpose()?;
    let job = home::resolve(&home, fetched.as_deref().unwrap_or(&args.job))?;
    if !job.alive && !job.saved {
        let text = "was not saved (SIGQUIT to `eyrie run`, or eyrie checkpoint JOB --end)";
        return Err(Failure::new(FAILED, anyhow!("job {} has ended and {text}", job.id)));
    }
    if job.resumable {
        let text = "has nodes that wait for another controller: eyrie resume goes on with it";
        return Err(Failure::new(FAILED, anyhow!("job {} {text}", job.id)));
    }
    let folder = home::claim(&job)?;
    let saved = SavedJob::read(&folder.path)?;
    let binary = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    if Prefix::of(&binary).restorer.is_none() {
        let text = "the program eyrie-restorer is missing beside eyrie and in ../libexec";
        return Err(Failure::new(FAILED, anyhow!(text)));
    }
    let mut spec = saved.spec.clone();
    place(args, &mut spec)
        .and_then(|named| divide(args, &mut spec, &named))
        .map_err(|error| Failure::new(USAGE, error))?;
    for name in &args.ignored.ignore_feature {
        if !spec.ignore_features.contains(name) {
            spec.ignore_features.push(name.clone());
        }
    }
    spec.verbose = args.verbose;
    spec.keep = spec.keep || args.keep;
    check_kept(args, &spec).map_err(|error| Failure::new(USAGE, error))?;
    if let Some(key) = &args.save_key {
        spec.save_key = Some(launch::key_path(key));
    }
    spec.at_rest = key_again(args, &spec.at_rest)?;
    spec.appended = args.appended.map_or(spec.appended, Into::into);
    spec.orphans = args.orphans.map_or(spec.orphans, Into::into);
    spec.files = args.files.map_or(spec.files, Into::into);
    spec.files_limit_bytes = args.files_limit.unwrap_or(spec.files_limit_bytes);
    spec.tls = spec.tls || args.guard.tls;
    spec.transport = args.guard.transport(spec.transport);
    args.guard
        .check(spec.tls, &spec.transport)
        .map_err(|text| Failure::new(USAGE, anyhow!(text)))?;
    check_stored(&saved, &folder.path, spec.save_key.as_deref())?;
    if spec.ha.take().is_some() {
        console::say(
            "the job goes on without --ha: what it goes on from lies on this machine, which no \
             standby has",
        );
    }
    spec.input_is_file = launch::input_is_file();
    let (there, vault) = (spec.nodes + spec.spares, spec.vault);
    if spec.is_vaulted() && (there as usize) < vault.least() {
        console::say(&format!(
            "--vault {vault} needs {} nodes at least, and there are {there}: images are copied to \
             a partner",
            vault.least()
        ));
    }
    let order = ClientMsg::Restart(Box::new(spec));
    launch::start_in(&folder, &binary, &order, Some(&saved), args.label)
}

/// The key for what nodes store has to be there, and to be the one of before.
fn key_again(args: &Restart, before: &AtRest) -> Result<AtRest, Failure> {
    let refuse = |text: String| Err(Failure::new(USAGE, anyhow!(text)));
    let (file, mark) = match (before, &args.encrypt_at_rest) {
        (AtRest::Keyed { mark, .. }, Some(file)) => (file.as_path(), mark),
        (AtRest::Keyed { file, mark }, None) => (Path::new(file), mark),
        (before, None) => return Ok(before.clone()),
        (_, Some(_)) => {
            return refuse("--encrypt-at-rest: the job was saved without a key".into());
        }
    };
    match saving::keyed(file)? {
        AtRest::Keyed { mark: found, .. } if found != *mark => {
            let file = file.display();
            refuse(format!("--encrypt-at-rest={file}: the job was saved with another key"))
        }
        keyed => Ok(keyed),
    }
}

/// Refuses to keep logs that are not there, or are of no use to `eyrie replay`. What was taken when
/// the job was started is let be.
fn check_kept(args: &Restart, spec: &JobSpec) -> anyhow::Result<()> {
    let asked = args.keep || args.routers.is_some_and(|share| share > 0);
    if !asked || !spec.keep || (spec.ft == Ft::Logged && spec.routers == 0) {
        return Ok(());
    }
    let mode = spec.mode();
    let logs = "--keep is for eyrie replay, which takes the logs of --ft logged";
    match args.keep {
        true => Err(anyhow!("{logs}: the job goes on with --ft {mode}")),
        false => Err(anyhow!("{logs}: the job was started with it, so leave --routers out")),
    }
}

/// Refuses a job of which an object store has images that cannot be had there, before anything
/// begins.
fn check_stored(saved: &SavedJob, folder: &Path, key: Option<&str>) -> Result<(), Failure> {
    let Some(stored) = &saved.stored else { return Ok(()) };
    let is_there_only = |file: &&StoredFile| !folder.join(&file.name).exists();
    let files: Vec<StoredFile> = stored.files.iter().filter(is_there_only).cloned().collect();
    if files.is_empty() {
        return Ok(());
    }
    let url = stored.place.as_str();
    let place = Place::parse(url).map_err(|e| Failure::new(FAILED, e))?;
    let key = vault::key(key.map(Path::new)).map_err(|e| Failure::new(USAGE, e))?;
    let text = || format!("{url} has images of the job, its folder has not");
    let mut depot = Depot::open(place, None, key).with_context(text)?;
    Ok(depot.has(&files).with_context(text)?)
}

/// Fetches a job from an object store into a folder of its own. Returns its name.
fn fetch(home: &Path, args: &Restart) -> Result<String, Failure> {
    let url = args.job.as_str();
    let key = vault::key(args.save_key.as_deref()).map_err(|e| Failure::new(USAGE, e))?;
    let place = Place::parse(url).map_err(|e| Failure::new(USAGE, e))?;
    let named = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric());
    let Some((_, id)) = place.split().filter(|(_, name)| named(name)) else {
        let text = format!("{url} names no job: s3://BUCKET/PREFIX/JOB");
        return Err(Failure::new(USAGE, anyhow!(text)));
    };
    let id = id.to_string();
    if home::jobs(home).iter().any(|job| job.id == id) {
        let text = "is here already: eyrie restart JOB goes on with what is here, and eyrie abort";
        let text = format!("job {id} {text} JOB gives that up, so that {url} can be fetched");
        return Err(Failure::new(FAILED, anyhow!(text)));
    }
    let mut depot = Depot::open(place, None, key).with_context(|| url.to_string())?;
    let mut fetched = Fetched::default();
    let get = |folder: &Path| depot.fetch(folder).map(|it| fetched = it);
    home::create_with(home, &id, get)?.with_context(|| format!("cannot fetch {url}"))?;
    for why in &fetched.damaged {
        console::say(&format!("a newer state of the job is not whole: {why}"));
    }
    console::say(&format!("job {id} goes on from {} at {url}", fetched.list));
    Ok(id)
}

/// Puts the nodes into as many clusters as there were, or into those that their hosts are in.
fn divide(args: &Restart, spec: &mut JobSpec, named: &[String]) -> anyhow::Result<()> {
    let count = spec.clusters.count();
    if count == 0 && !named.is_empty() {
        return Err(anyhow!("the job was saved without clusters: leave cluster= out"));
    }
    let all = (spec.nodes + spec.spares) as usize;
    let moved = args.hosts.is_some() || args.nodes.is_some();
    if count == 0 || (!moved && spec.clusters.of.len() == all) {
        return Ok(());
    }
    let (names, of) = match named.is_empty() {
        true => clusters::in_blocks(count, spec.nodes, spec.spares)?,
        false => clusters::by_name(named)?,
    };
    // Of one cluster nothing is to be told apart.
    let one = names.len() < 2;
    (spec.clusters.names, spec.clusters.of) = if one { Default::default() } else { (names, of) };
    Ok(())
}

/// Says where the job goes on. Returns the clusters that are named there.
fn place(args: &Restart, spec: &mut JobSpec) -> anyhow::Result<Vec<String>> {
    if spec.nodes == 0 {
        return match options(args).first() {
            Some(option) => Err(anyhow!(
                "--{option}: a job that was saved without --nodes or --hosts goes on without"
            )),
            None => Ok(Vec::new()),
        };
    }
    if args.map.is_some() {
        spec.cyclic = args.map == Some(MapMode::Cyclic);
    }
    let routers = routers(args, spec)?;
    let allocated = spec.hosts.as_ref().is_some_and(|h| !h.shell) && args.nodes.is_none();
    if args.hosts.is_some() || allocated {
        let wish = Wish {
            hosts: args.hosts.as_deref(),
            here: false,
            reach: &args.reach,
            ranks: spec.size,
            spares: args.spares.unwrap_or(0) + routers,
            map: if spec.cyclic { Map::Cyclic } else { Map::Block },
            file: None,
        };
        let plan = hosts::plan(&wish)?.ok_or_else(|| {
            anyhow!(
                "the job ran in an allocation of Slurm: go on in one, or give --nodes or --hosts"
            )
        })?;
        (spec.nodes, spec.homes, spec.netns) = (plan.nodes, plan.homes, false);
        spec.manner.domains = plan.domains;
        (spec.spares, spec.routers) = (args.spares.unwrap_or(0) + routers, routers);
        spec.hosts = Some(Box::new(plan.hosts));
        // Those of a rank file were of the hosts that were.
        spec.slots = Vec::new();
        return Ok(plan.clusters);
    }
    let elsewhere = ["prefix", "address", "join-limit", "oversubscribe"];
    if let Some(option) = options(args).into_iter().find(|o| elsewhere.contains(o)) {
        return Err(anyhow!("--{option} is for other hosts: give --hosts, too"));
    }
    if let Some(nodes) = args.nodes {
        (spec.nodes, spec.hosts, spec.homes) = (nodes, None, Vec::new());
        spec.manner.domains = Vec::new();
        spec.slots = Vec::new();
        (spec.spares, spec.routers) = (args.spares.unwrap_or(0) + routers, routers);
    } else if spec.hosts.is_some() && (args.map.is_some() || args.spares.is_some()) {
        return Err(anyhow!("--map and --spares: give --hosts or --nodes, too"));
    } else if args.routers.is_some() {
        return Err(anyhow!("--routers: give --hosts or --nodes, too"));
    }
    spec.spares = args.spares.map_or(spec.spares, |spares| spares + spec.routers);
    Ok(Vec::new())
}

/// How many routers there are where the job goes on, if that is elsewhere.
fn routers(args: &Restart, spec: &mut JobSpec) -> anyhow::Result<u32> {
    match args.routers {
        Some(0) => return Ok(0),
        Some(_) if spec.ft != Ft::Logged => {
            let mode = spec.mode();
            return Err(anyhow!("--routers: the job runs with --ft {mode}, which has none"));
        }
        Some(share) => spec.router_share = share,
        None if spec.routers == 0 => return Ok(0),
        None => {}
    }
    Ok(Routing::count(spec.size, spec.router_share).max(spec.clusters.count()))
}

/// Names of the options given that say where.
fn options(args: &Restart) -> Vec<&'static str> {
    let all = [
        ("nodes", args.nodes.is_some()),
        ("hosts", args.hosts.is_some()),
        ("map", args.map.is_some()),
        ("spares", args.spares.is_some()),
        ("routers", args.routers.is_some()),
        ("prefix", args.reach.prefix.is_some()),
        ("address", args.reach.address.is_some()),
        ("join-limit", args.reach.join_limit.is_some()),
        ("oversubscribe", args.reach.oversubscribe),
    ];
    all.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
}
