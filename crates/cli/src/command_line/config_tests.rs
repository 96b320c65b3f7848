//! Reading files, and putting what they say before what was typed.

use crate::command_line::{self, Command as Sub, of_matches};
use crate::config::defaults::{self, OptionConflict, relaxed};
use crate::config::files::Files;
use crate::config::options;
use crate::options::checkpoints::FtMode;
use crate::options::run::Run;
use anyhow::anyhow;
use clap::error::ErrorKind;
use eyrie_config::file::File;
use eyrie_config::places::Candidate;
use eyrie_config::typed::Typed;
use eyrie_terminal::{Failure, USAGE};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Files of these contents, those first that go before others.
fn files(texts: &[&str]) -> anyhow::Result<Files> {
    let all = command_line::command();
    let mut files = Vec::new();
    for (number, text) in (1..).zip(texts) {
        let file = File::parse(Path::new(&format!("file{number}")), text)?;
        options::check(&all, &file)?;
        files.push(file);
    }
    Ok(Files { files })
}

fn refused(text: &str) -> String {
    format!("{:#}", files(&[text]).expect_err(text))
}

/// What is read of these words with these files.
fn read(texts: &[&str], words: &[&str]) -> anyhow::Result<Sub> {
    let (all, files) = (command_line::command(), files(texts)?);
    let words = ["eyrie"].iter().chain(words).map(OsString::from).collect();
    let typed = Typed::new(&all, words);
    let set = typed.set(&all);
    let given = typed.given(&all, &files.of_command(&all, &typed.path), &set);
    let used = typed.fitting(&all, given, defaults::say_lost_guard)?;
    let (found, defaults) = defaults::read(command_line::command, typed, set, used)?;
    Ok(of_matches(&found, defaults)?)
}

fn run(texts: &[&str], words: &[&str]) -> Run {
    let words: Vec<&str> = ["run"].iter().chain(words).chain(&["--", "prog"]).copied().collect();
    match read(texts, &words).unwrap_or_else(|e| panic!("{words:?}: {e:#}")) {
        Sub::Run(run) => run,
        other => panic!("{other:?}"),
    }
}

fn wrong(texts: &[&str], words: &[&str]) -> String {
    match read(texts, words) {
        Err(error) => format!("{error:#}"),
        Ok(command) => panic!("{words:?}: {command:?}"),
    }
}

#[test]
fn what_is_wrong_in_a_file_is_told_with_its_line_and_what_is_like_it() {
    for (text, told) in [
        (
            "\n[run]\nckpt-evry = 3",
            "file1, line 3: [run] has no option ckpt-evry; is it ckpt-every?",
        ),
        ("[run]\nckpt_every = 3", "line 2: [run] has no option ckpt_every; is it ckpt-every?"),
        ("ckpt-every = 3", "line 1: ckpt-every stands in no table: write it under [run]"),
        ("lokal = '/x'", "line 1: lokal: there is no such key; is it local?"),
        ("home = 3\nlocal = true", "line 2: local: write a folder in quotation marks"),
        ("\n[runn]\nnp = 3", "line 2: [runn]: there is no such command; is it [run]?"),
        ("[mpiexec]\nnp = 3", "write them under [run]"),
        ("[image.inspct]\njson = true", "is it [image.inspect]?"),
        ("[status]\nspares = 3", "[status] has no option spares; [run] has"),
        ("[run]\nlabel = 3", "line 2: label: write true or false"),
        ("[run]\nspares = true", "spares: it takes a value (S), and not true or false"),
        ("[run]\nspares = [1, 2]", "spares: it takes a value (S), and not a list of them"),
        ("[run]\nname = 2026-01-01", "name: datetime is nothing that an option takes"),
        ("[run]\nnp =", "file1, line 2: "),
        ("[run]\nnp = 1\nnp = 2", "file1, line 3: "),
        ("[[run]]\nnp = 1", "file1, line 1: run: write [run], with one pair of brackets"),
        ("[__node]\nid = 'x'", "there is no such command"),
        ("[run]\nhelp = true", "[run] has no option help"),
    ] {
        let refusal = refused(text);
        assert!(refusal.contains(told), "{text:?}: {refusal}");
    }
    assert!(files(&["# nothing\n", "", "[run]\n[image.inspect]\njson = true\n"]).is_ok());
}

#[test]
fn values_are_looked_at_as_if_they_were_typed() {
    let told = wrong(&["[run]\nckpt-every = 'soon'"], &["run", "prog"]);
    assert!(told.starts_with("file1, line 2: ckpt-every: invalid value 'soon'"), "{told}");
    let told = wrong(&["[run]\nkeep = true\n\nft = 'logd'"], &["run", "prog"]);
    assert!(told.starts_with("file1, line 4: ft: invalid value 'logd'"), "{told}");
    assert!(told.contains("possible values: logged"), "{told}");
    // `eyrie config` looks at all of them.
    let text = "[run]\nft = 'loged'\nnodes = -1\nspares = 1\nckpt-every = 5\n[restart]\nmap = 'x'\n\
                [status]\nverbose = true\n[vault.ls]\njson = true";
    let all = files(&[text]).unwrap().refusals(&command_line::command());
    let all: Vec<String> = all.iter().map(|error| format!("{error:#}")).collect();
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all[0].ends_with("; a similar value exists: 'logged'"), "{all:?}");
    assert!(all[1].starts_with("file1, line 3: nodes: invalid value '-1'"), "{all:?}");
    assert!(all[2].starts_with("file1, line 7: map: invalid value 'x'"), "{all:?}");
    // Of another command it is not looked at now.
    assert!(read(&["[restart]\nmap = 'x'"], &["run", "prog"]).is_ok());
}

#[test]
fn what_is_typed_goes_before_the_users_file_and_that_before_the_sites() {
    let (user, site) = ("[run]\nckpt-every = 30\nspares = 2", "[run]\nckpt-every = 7\nkeep = true");
    let r = run(&[user, site], &["-n", "2"]);
    assert_eq!(
        (r.checkpoints.ckpt_every, r.placement.spares, r.keep, r.size),
        (30_000, Some(2), true, Some(2))
    );
    let r = run(&[user, site], &["--ckpt-every", "5ms"]);
    assert_eq!((r.checkpoints.ckpt_every, r.placement.spares), (5, Some(2)));
    assert_eq!(run(&["[run]\nckpt-every = 0.5"], &[]).checkpoints.ckpt_every, 500);
    // Lists take the place of lists.
    let list = "[run]\nignore-feature = ['avx2', 'fma']";
    assert_eq!(run(&[list], &[]).processor.ignore_feature, ["avx2", "fma"]);
    assert_eq!(run(&[list], &["--ignore-feature", "bmi2"]).processor.ignore_feature, ["bmi2"]);
    // A value that may be left out.
    let none = run(&["[run]\nencrypt-at-rest = false", "[run]\nencrypt-at-rest = true"], &[]);
    assert!(none.saving.at_rest.encrypt_at_rest.is_none());
    assert!(run(&["[run]\nencrypt-at-rest = true"], &[]).saving.at_rest.encrypt_at_rest.is_some());
}

#[test]
fn what_a_file_switches_on_can_be_switched_off() {
    let on = "[run]\nlabel = true\nverbose = true";
    assert!(run(&[on], &[]).output.label);
    let r = run(&[on], &["--label=false", "--keep=true"]);
    assert!(!r.output.label && r.output.verbose && r.keep);
    assert!(!run(&["[run]\nlabel = false", on], &[]).output.label);
    // Behind the program's name it is the program's.
    let r = run(&[on], &["--", "prog", "--label=false"]);
    assert!(r.output.label && r.command.contains(&"--label=false".into()));
}

#[test]
fn a_value_that_does_not_go_with_what_was_typed_loses_silently() {
    let nodes = "[run]\nnodes = 4\nverbose = true";
    let r = run(&[nodes], &["--hosts", "a,b"]);
    assert!(r.placement.nodes.is_none() && r.placement.hosts.is_some() && r.output.verbose);
    let r = run(&[nodes], &["-q"]);
    assert!(r.placement.nodes == Some(4) && r.output.quiet && !r.output.verbose);
    // What another option is needed for comes with it, in whichever order, or is left out.
    let save = "[run]\nsave-to = 's3://b/p'\nsave-rate = '1M'\nsave-every = 60";
    let r = run(&[save], &[]);
    assert!(r.saving.save_to.is_some() && r.saving.save_rate.is_some());
    let r = run(&["[run]\nsave-to = 's3://b/p'\nlabel = true"], &[]);
    assert!(r.saving.save_to.is_none() && r.output.label);
    // It may be for the hosts of an allocation.
    let rsh = "[run]\nrsh = 'ssh -p 22'";
    assert!(
        run(&[rsh], &[]).host_options.rsh.is_some()
            && run(&[rsh], &["--hosts", "a"]).host_options.rsh.is_some()
    );
    assert!(run(&[rsh], &["--nodes", "2"]).host_options.rsh.is_none());
    // The user's goes before the site's.
    let r = run(&["[run]\nhosts = 'a'", "[run]\nnodes = 4"], &[]);
    assert!(r.placement.hosts.is_some() && r.placement.nodes.is_none());
}

#[test]
fn two_values_of_one_file_that_do_not_go_together_are_an_error() {
    let told = wrong(&["[run]\nnodes = 4\nhosts = 'a'"], &["run", "prog"]);
    let names = told.contains("file1, line") && told.contains("nodes") && told.contains("hosts");
    assert!(names && told.contains("leave one of them out"), "{told}");
    // Not if one of them is typed.
    let r = run(&["[run]\nnodes = 4\nhosts = 'a'"], &["--nodes", "2"]);
    assert!(r.placement.nodes == Some(2) && r.placement.hosts.is_none());
}

#[test]
fn other_commands_take_of_run_what_holds_for_them() {
    let text = "local = '/l'\n[restart]\nspares = 1\n[run]\nnp = 3\nnodes = 4\nlabel = true\n\
                files = 'warn'\nckpt-every = 9";
    match read(&[text], &["restart", "x"]).unwrap() {
        Sub::Restart(r) => {
            assert!(
                r.output.label
                    && r.placement.nodes.is_none()
                    && r.files.is_none()
                    && r.placement.spares == Some(1)
            );
            assert_eq!(r.local.local, Some("/l".into()));
        }
        other => panic!("{other:?}"),
    }
    match read(&[text], &["grow", "x"]).unwrap() {
        Sub::Grow(grow) => assert_eq!(grow.nodes, 1),
        other => panic!("{other:?}"),
    }
    match read(&[text], &["verify", "prog"]).unwrap() {
        Sub::Verify(verify) => assert!(verify.size == 3 && verify.label),
        other => panic!("{other:?}"),
    }
    match read(&["[join]\nckpt-every = 5", text], &["join", "prog"]).unwrap() {
        Sub::Join(join) => {
            assert_eq!((join.checkpoints.ckpt_every, join.placement.nodes), (5_000, Some(4)))
        }
        other => panic!("{other:?}"),
    }
    assert!(read(&["[image.inspect]\njson = true"], &["image", "inspect", "x"]).is_ok());
}

#[test]
fn what_was_typed_wrong_is_told_as_without_files() {
    let error = read(&["[run]\nckpt-every = 9"], &["run", "--unknown", "prog"]).unwrap_err();
    let kind = error.downcast_ref::<clap::Error>().unwrap().kind();
    assert_eq!(kind, ErrorKind::UnknownArgument);
    let error = read(&["[run]\nckpt-every = 9"], &["run"]).unwrap_err();
    let kind = error.downcast_ref::<clap::Error>().unwrap().kind();
    assert_eq!(kind, ErrorKind::MissingRequiredArgument);
    // What is missing may be in a file.
    assert!(run(&["[run]\nnodes = 2"], &["--netns"]).placement.nodes.is_some());
}

fn conflict(text: &str) -> Failure {
    Failure::new(USAGE, OptionConflict::new(text))
}

#[test]
fn values_that_a_job_has_no_use_for_are_dropped_one_by_one() {
    let text = "[run]\nvault = 'rs:4+2'\nft = 'none'\nsave-every = 60";
    let r = run(&[text], &["-n", "4"]);
    let next: Run =
        r.defaults.retreat(conflict("--vault is for jobs over nodes: give --nodes")).unwrap();
    assert!(
        next.storage.vault.is_none() && next.saving.save_every.is_some() && next.size == Some(4)
    );
    // What was typed is not dropped.
    let typed = run(&["[run]\nft = 'none'"], &["--vault", "rs:4+2"]);
    let next: Run = typed.defaults.retreat(conflict("--vault and --ft none")).unwrap();
    assert!(next.ft == FtMode::Logged && next.storage.vault.is_some());
    let stays: Result<Run, _> = next.defaults.retreat(conflict("--vault"));
    assert!(stays.unwrap_err().cause::<OptionConflict>().is_some());
    // Two of one file: they are named.
    let both: Result<Run, _> =
        r.defaults.retreat(conflict("--save-every saves, with --ft none nothing"));
    let told = format!("{:?}", both.unwrap_err());
    assert!(told.contains("save-every does not go with ft") && told.contains("line 3"), "{told}");
    // Other failures are left alone.
    let other: Result<Run, _> = r.defaults.retreat(Failure::from(anyhow!("--vault")));
    assert!(other.is_err());
    let relaxed = relaxed(&r, |run: &Run| match run.storage.vault {
        Some(_) => Err(conflict("--vault is for jobs over nodes")),
        None => Ok(()),
    });
    assert!(relaxed.unwrap().is_some_and(|run| run.storage.vault.is_none()));
}

#[test]
fn files_that_others_can_write_to_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    let candidate = |named| [Candidate { path: path.clone(), whose: "yours", named }];
    let all = command_line::command();
    assert!(Files::of(&all, &candidate(false)).unwrap().files.is_empty());
    let told = Files::of(&all, &candidate(true)).unwrap_err().to_string();
    assert!(told.contains("EYRIE_CONFIG") && told.contains("no such file"), "{told}");
    fs::write(&path, "local = '~/x'\nhome = 'y'").unwrap();
    let files = Files::of(&all, &candidate(true)).unwrap();
    assert!(files.folder("local").unwrap().unwrap().is_absolute());
    assert!(files.folder("home").unwrap_err().to_string().contains("line 2: home"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let told = Files::of(&all, &candidate(true)).unwrap_err().to_string();
    assert!(told.contains("chmod go-w") && !told.contains("EYRIE_HOME"), "{told}");
}
