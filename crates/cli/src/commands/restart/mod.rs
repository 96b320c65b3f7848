//! `eyrie restart`: goes on with a job that was saved as a whole, where it was or elsewhere.

pub mod args;
mod place;

use crate::commands::restart::args::Restart;
use crate::commands::restart::place::placed;
use crate::config::{defaults, folders};
use crate::launch::console::ConsoleOptions;
use crate::launch::{controller, spec};
use crate::messages;
use crate::options::{key_file, saving};
use anyhow::{Context, anyhow};
use eyrie_control::{AtRest, ClientMsg, StoredFile};
use eyrie_exchange::second_level::{Fetched, SecondLevel};
use eyrie_objects::StoreUrl;
use eyrie_process::spawn::Prefix;
use eyrie_state::home;
use eyrie_state::saved_job::SavedJob;
use eyrie_terminal::{FAILED, Failure, Progress, USAGE};
use std::path::Path;

pub fn restart(args: &Restart) -> Result<i32, Failure> {
    folders::choose_local(args.local.local.as_deref())?;
    let home = home::home()?;
    let fetched = StoreUrl::is_meant(&args.job).then(|| fetch(&home, args)).transpose()?;
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
    // What a file says of other jobs than this one does not count.
    let relaxed = defaults::relaxed(args, |args| placed(args, &saved.spec).map(drop))?;
    let args = relaxed.as_ref().unwrap_or(args);
    let mut spec = placed(args, &saved.spec)?;
    for name in &args.processor.ignore_feature {
        if !spec.placement.ignore_features.contains(name) {
            spec.placement.ignore_features.push(name.clone());
        }
    }
    spec.program.verbose = args.output.verbose;
    if let Some(key) = &args.save_key {
        spec.security.save_key = Some(saving::key_path(key));
    }
    spec.security.at_rest = key_again(args, &spec.security.at_rest)?;
    spec.protection.appended = args.appended.unwrap_or(spec.protection.appended);
    spec.protection.orphans = args.orphans.unwrap_or(spec.protection.orphans);
    spec.protection.files = args.files.unwrap_or(spec.protection.files);
    spec.protection.files_limit_bytes =
        args.files_limit.unwrap_or(spec.protection.files_limit_bytes);
    check_stored(&saved, &folder.path, spec.security.save_key.as_deref())?;
    if spec.storage.ha.take().is_some() {
        messages::say(
            "the job goes on without --ha: what it goes on from lies on this machine, which no \
             standby has",
        );
    }
    spec.program.input_is_file = spec::input_is_file();
    let (there, vault) = (spec.placement.nodes + spec.placement.spares, spec.storage.vault);
    if spec.is_vaulted() && (there as usize) < vault.least() {
        messages::say(&format!(
            "--vault {vault} needs {} nodes at least, and there are {there}: images are copied to \
             a partner",
            vault.least()
        ));
    }
    let order = ClientMsg::Restart(Box::new(spec));
    controller::start_in(
        &folder,
        &binary,
        &order,
        Some(&saved),
        ConsoleOptions {
            label: args.output.label,
            quiet: args.output.quiet,
            metrics: args.metrics.open(args.output.quiet)?,
        },
    )
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
    let place = StoreUrl::parse(url).map_err(|e| Failure::new(FAILED, e))?;
    let key = key_file::key(key.map(Path::new)).map_err(|e| Failure::new(USAGE, e))?;
    let text = || format!("{url} has images of the job, its folder has not");
    let mut store = SecondLevel::open(place, None, key).with_context(text)?;
    Ok(store.has(&files).with_context(text)?)
}

/// Fetches a job from an object store into a folder of its own. Returns its name.
fn fetch(home: &Path, args: &Restart) -> Result<String, Failure> {
    let url = args.job.as_str();
    let key = key_file::key(args.save_key.as_deref()).map_err(|e| Failure::new(USAGE, e))?;
    let place = StoreUrl::parse(url).map_err(|e| Failure::new(USAGE, e))?;
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
    let mut store = SecondLevel::open(place, None, key).with_context(|| url.to_string())?;
    let mut fetched = Fetched::default();
    let progress = Progress::working(&format!("fetching {url}"), args.output.quiet);
    let get = |folder: &Path| store.fetch(folder).map(|it| fetched = it);
    home::create_with(home, &id, get)?.with_context(|| format!("cannot fetch {url}"))?;
    drop(progress);
    for why in &fetched.damaged {
        messages::say(&format!("a newer state of the job is not whole: {why}"));
    }
    messages::say(&format!("job {id} goes on from {} at {url}", fetched.list));
    Ok(id)
}
