//! The folders of jobs, and of what nodes store: as files, variables and `--local` name them.

use crate::config::files::Files;
use anyhow::anyhow;
use clap::Command;
use eyrie_state::local;
use std::path::{Path, PathBuf};

/// Has the folders of jobs and of what nodes store known to all that this command starts.
pub fn put_folders(files: &Files) -> anyhow::Result<()> {
    let put = |(key, name, hidden): (&str, &str, &str)| {
        let typed = std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let folder = match typed {
            Some(path) => Some(std::path::absolute(&path).map_err(|e| anyhow!("{name}: {e}"))?),
            None => files.folder(key)?,
        };
        // SAFETY: this process has one thread.
        unsafe {
            match folder {
                Some(path) => std::env::set_var(hidden, path),
                None => std::env::remove_var(hidden),
            }
        }
        anyhow::Ok(())
    };
    use eyrie_state::home::{HOME, HOME_OF_JOB};
    use eyrie_state::local::{LOCAL, LOCAL_OF_JOB};
    [("home", HOME, HOME_OF_JOB), ("local", LOCAL, LOCAL_OF_JOB)].into_iter().try_for_each(put)
}

/// The same for a node on another host, by the files that it has; what its controller says goes
/// before that.
pub fn put_hosts_folders(all: &Command) -> anyhow::Result<()> {
    put_folders(&Files::load(all)?)
}

/// Has the nodes of this command's jobs store what they store there (`--local`).
pub fn choose_local(folder: Option<&Path>) -> anyhow::Result<()> {
    let Some(folder) = folder else { return Ok(()) };
    let home = std::env::var_os("HOME");
    let path = match (folder.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => {
            std::path::absolute(folder).map_err(|e| anyhow!("--local {}: {e}", folder.display()))?
        }
    };
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var(eyrie_state::local::LOCAL_OF_JOB, path) };
    Ok(())
}

/// Where nodes on this machine store what they store, for people.
pub fn local_shown(home: &std::path::Path) -> String {
    match local::wanted() {
        Some(wish) => format!("{} ({})", wish.folder.display(), wish.source),
        None => format!("{} (as state)", home.display()),
    }
}
