//! `eyrie vault` over folders that stand for nodes.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

use std::path::Path;
use std::process::{Command, Output, Stdio};

const NODES: u32 = 6;

/// The eyrie to test: the one of the staged prefix, or the one just built.
fn eyrie() -> Command {
    let staged =
        std::env::var_os("EYRIE_PREFIX").map(|prefix| Path::new(&prefix).join("bin/eyrie"));
    Command::new(staged.unwrap_or_else(|| env!("CARGO_BIN_EXE_eyrie").into()))
}

/// Runs `eyrie vault ACTION ARGS FOLDERS`, each of `nodes` being a folder.
fn vault(home: &Path, action: &str, args: &[&str], nodes: &[u32]) -> Output {
    let mut command = eyrie();
    command.current_dir(home).args(["vault", action]).args(args);
    command.args(nodes.iter().map(|node| format!("n{node}"))).output().unwrap()
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn good(output: Output) -> String {
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{out}{err}");
    out
}

fn content(node: u32) -> Vec<u8> {
    (0..60_000 * node).map(|n| (n.wrapping_mul(n + node) >> 7) as u8).collect()
}

fn all() -> Vec<u32> {
    (0..NODES).collect()
}

/// A vault with one generation.
fn world() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for node in all() {
        let folder = home.path().join(format!("from/node-{node}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("rank.img"), content(node)).unwrap();
    }
    let made = vault(home.path(), "import", &["--vault", "rs:4+2", "--from", "from"], &all());
    assert!(good(made).starts_with("generation 1: 6 objects"));
    home
}

fn assert_exported(home: &Path, to: &str, nodes: &[u32]) {
    good(vault(home, "export", &["--to", to], nodes));
    for node in all() {
        let path = home.join(to).join(format!("node-{node}/rank.img"));
        assert!(std::fs::read(path).unwrap() == content(node), "node {node}");
    }
}

#[test]
fn what_was_imported_is_exported_also_without_two_nodes() {
    let home = world();
    let home = home.path();
    assert_exported(home, "whole", &all());
    assert_exported(home, "four", &[5, 0, 3, 2]);
    let out = good(vault(home, "ls", &["--objects"], &[1, 2, 3, 4, 5]));
    assert!(out.contains("degraded (nodes [0])") && out.contains("rank.img"), "{out}");
    let lost = vault(home, "export", &["--to", "three"], &[0, 1, 2]);
    let (_, err) = texts(&lost);
    assert_eq!(lost.status.code(), Some(1));
    assert!(err.contains("nodes [3, 4, 5] are missing"), "{err}");
    assert!(err.contains("no generation can be had"), "{err}");
    let again = vault(home, "export", &["--to", "whole"], &all());
    assert_eq!(again.status.code(), Some(1), "nothing is overwritten");
}

#[test]
fn what_changed_is_stored_in_any_way_and_it_is_told_why() {
    let home = world();
    let home = home.path();
    let file = home.join("from/node-5/rank.img");
    let mut bytes = content(5);
    for (way, told) in [
        ("update", "update by --by; auto would be "),
        ("increments", "increments by --by; auto would be "),
        ("whole", "whole by --by; auto would be "),
    ] {
        bytes[100_000] ^= 1;
        std::fs::write(&file, &bytes).unwrap();
        let args = ["--from", "from", "--link", "200", "--by", way];
        let out = good(vault(home, "import", &args, &all()));
        assert!(out.contains(told) && out.contains("between nodes"), "{out}");
        let to = format!("to-{way}");
        good(vault(home, "export", &["--to", &to], &[1, 2, 4, 5]));
        assert!(std::fs::read(home.join(&to).join("node-5/rank.img")).unwrap() == bytes);
        assert!(std::fs::read(home.join(&to).join("node-3/rank.img")).unwrap() == content(3));
    }
    let out = good(vault(home, "ls", &["--why"], &all()));
    assert!(out.contains("of 1, ") && out.contains("{2}"), "{out}");
    assert!(
        out.contains("generation 2: update by --by") && out.contains("chunks changed"),
        "{out}"
    );
    // With changes only nothing can be updated.
    let out = good(vault(home, "import", &["--from", "from", "--by", "increments"], &all()));
    assert!(out.starts_with("generation 5"), "{out}");
    let (_, err) = texts(&vault(home, "import", &["--from", "from", "--by", "update"], &all()));
    assert!(err.contains("cannot be stored as update now, but as whole, increments"), "{err}");
    let (_, err) = texts(&vault(home, "import", &["--from", "from", "--by", "fast"], &all()));
    assert!(err.contains("there are whole, increments, update"), "{err}");
}

/// The generations that `ls` lists, each with those that it refers to.
fn generations(home: &Path) -> Vec<(u64, Vec<u64>)> {
    let out = good(vault(home, "ls", &["--json"], &all()));
    let listed: serde_json::Value = serde_json::from_str(&out).unwrap();
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let needs =
        |it: &serde_json::Value| it["needs"].as_array().unwrap().iter().map(number).collect();
    listed.as_array().unwrap().iter().map(|it| (number(&it["generation"]), needs(it))).collect()
}

#[test]
fn no_more_generations_than_are_to_be_kept_stay() {
    let home = world();
    let home = home.path();
    let import = |more: &[&str]| {
        let args = [&["--from", "from"][..], more].concat();
        good(vault(home, "import", &args, &all()))
    };
    // As each night: a byte of one file, and nothing of the others.
    let changed = |night: u8| {
        let path = home.join("from/node-3/rank.img");
        let mut bytes = content(3);
        bytes[usize::from(night) * 5000] = night;
        std::fs::write(path, &bytes).unwrap();
        bytes
    };
    for night in 2..=12 {
        changed(night);
        import(&["--by", "increments", "--keep", "3"]);
        let there = generations(home);
        assert!(there.len() <= 6, "{there:?}");
        let whole = |it: &(u64, Vec<u64>)| it.1.iter().all(|g| there.iter().any(|k| k.0 == *g));
        assert!(there.iter().all(whole), "{there:?}");
    }
    let out = import(&["--by", "increments", "--keep", "1"]);
    assert!(out.contains(" is the same, whole\n") && out.contains(" are dropped\n"), "{out}");
    let there = generations(home);
    assert!(there.len() == 1 && there[0].1.is_empty(), "{there:?}");
    good(vault(home, "verify", &[], &all()));
    good(vault(home, "export", &["--to", "restored"], &[0, 1, 2, 3]));
    assert!(std::fs::read(home.join("restored/node-3/rank.img")).unwrap() == changed(12));
    // Left to itself nothing is stored twice.
    let out = import(&["--keep", "1", "--json"]);
    let done: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(done["whole"].is_null() && done["dropped"].as_array().unwrap().len() == 1, "{out}");
    let none = vault(home, "import", &["--from", "from", "--keep", "0"], &all());
    assert_eq!(none.status.code(), Some(2));
}

#[test]
fn what_was_encrypted_is_exported_with_its_key_only() {
    let home = world();
    let home = home.path();
    for (name, key) in [("key", "7".repeat(64)), ("other", "8".repeat(64)), ("bad", "9".into())] {
        std::fs::write(home.join(name), key).unwrap();
    }
    good(vault(home, "import", &["--from", "from", "--key", "key"], &all()));
    // The first object has no bytes, and none that are encrypted.
    for (to, more, line) in [
        ("no", &[][..], "generation 2 is encrypted: give its key"),
        ("nor", &["--key", "other"], "was encrypted with another key"),
        ("never", &["--key", "bad"], "64 hexadecimal digits"),
    ] {
        let args = [&["--to", to], more].concat();
        let refused = vault(home, "export", &args, &all());
        let (_, err) = texts(&refused);
        assert_eq!(refused.status.code(), Some(1), "{err}");
        assert!(err.contains(line), "{err}");
    }
    // Two folders are made anew by somebody who has no key.
    for node in [1, 4] {
        std::fs::remove_dir_all(home.join(format!("n{node}"))).unwrap();
        std::fs::create_dir(home.join(format!("n{node}"))).unwrap();
    }
    good(vault(home, "repair", &[], &all()));
    good(vault(home, "export", &["--to", "yes", "--key", "key"], &[0, 1, 4, 5]));
    for node in all() {
        let path = home.join("yes").join(format!("node-{node}/rank.img"));
        assert!(std::fs::read(path).unwrap() == content(node), "node {node}");
    }
}

#[test]
fn scrub_repairs_flipped_bits_and_repair_lost_folders() {
    let home = world();
    let home = home.path();
    good(vault(home, "verify", &[], &all()));
    let file = home.join("n4/gen-1.data");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[100_000] ^= 4;
    std::fs::write(&file, &bytes).unwrap();
    let found = vault(home, "verify", &["--json"], &all());
    let (out, err) = texts(&found);
    assert_eq!(found.status.code(), Some(1), "{err}");
    assert!(out.contains("\"damaged\": 1"), "{out}");
    assert!(good(vault(home, "scrub", &[], &all())).contains("1 repaired, 0 lost"));
    good(vault(home, "verify", &[], &all()));
    for node in [1, 2] {
        std::fs::remove_dir_all(home.join(format!("n{node}"))).unwrap();
        std::fs::create_dir(home.join(format!("n{node}"))).unwrap();
    }
    let out = good(vault(home, "repair", &["--limit", "1G"], &all()));
    assert!(out.contains("0 lost"), "{out}");
    good(vault(home, "verify", &[], &all()));
    assert_exported(home, "restored", &[1, 2, 3, 4]);
}

#[test]
fn members_that_are_missing_are_no_success() {
    let home = world();
    let home = home.path();
    std::fs::rename(home.join("n1"), home.join("away")).unwrap();
    let five = [0, 2, 3, 4, 5];
    for action in ["verify", "scrub", "repair"] {
        let found = vault(home, action, &["--json"], &five);
        let (out, err) = texts(&found);
        assert_eq!(found.status.code(), Some(1), "{action}: {out}{err}");
        assert!(out.contains("\"damaged\": 0"), "{action}: {out}");
        assert!(out.contains("\"state\": \"degraded (nodes [1])\""), "{action}: {out}");
        assert!(err.contains("generation 1 is degraded (nodes [1])"), "{action}: {err}");
    }
    let found = vault(home, "scrub", &[], &[0, 2, 3]);
    let (_, err) = texts(&found);
    assert_eq!(found.status.code(), Some(1), "{err}");
    assert!(err.contains("generation 1 is LOST (nodes [1, 4, 5])"), "{err}");
    std::fs::rename(home.join("away"), home.join("n1")).unwrap();
    for action in ["verify", "scrub", "repair"] {
        good(vault(home, action, &[], &all()));
    }
}

#[test]
fn one_command_at_a_time_changes_folders_and_a_dead_one_none() {
    let home = world();
    let home = home.path();
    std::fs::remove_dir_all(home.join("n2")).unwrap();
    std::fs::create_dir(home.join("n2")).unwrap();
    // A byte a second: it is at work as long as this test takes.
    let mut command = eyrie();
    command.current_dir(home).args(["vault", "repair", "--limit", "1"]);
    command.args(all().iter().map(|node| format!("n{node}")));
    let mut slow = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let who = format!("`eyrie vault repair` (process {})", slow.id());
    // What is in the file is written by who has it; the last folder is had when all are.
    let last = home.join("n5/lock");
    while !std::fs::read_to_string(&last).is_ok_and(|text| text.trim_end() == who) {
        assert!(slow.try_wait().unwrap().is_none(), "it has ended");
        std::thread::yield_now();
    }
    let by = format!("in use by {who}");
    for (action, args) in [("scrub", &[][..]), ("repair", &[]), ("import", &["--from", "from"])] {
        let refused = vault(home, action, args, &[5, 4]);
        let (_, err) = texts(&refused);
        assert_eq!(refused.status.code(), Some(1), "{err}");
        assert!(err.contains(&by) && err.contains("nothing was changed"), "{err}");
    }
    good(vault(home, "ls", &[], &all()));
    assert_exported(home, "meanwhile", &[0, 1, 3, 4, 5]);
    slow.kill().unwrap();
    slow.wait().unwrap();
    good(vault(home, "repair", &[], &all()));
    assert_exported(home, "restored", &[1, 2, 3, 4]);
    // What is left when a folder was just being made a member is no obstacle.
    std::fs::remove_dir_all(home.join("n2")).unwrap();
    std::fs::create_dir(home.join("n2")).unwrap();
    for left in ["dropped", "dropped.part", "vault.part"] {
        std::fs::write(home.join("n2").join(left), "half").unwrap();
    }
    good(vault(home, "repair", &[], &all()));
    assert_exported(home, "again", &[1, 2, 3, 4]);
}

#[test]
fn what_is_no_vault_is_refused_with_a_reason() {
    let home = world();
    let home = home.path();
    let refused = |action: &str, args: &[&str], nodes: &[u32]| {
        let output = vault(home, action, args, nodes);
        assert_ne!(output.status.code(), Some(0));
        texts(&output).1
    };
    let import = |scheme: &str| refused("import", &["--vault", scheme, "--from", "from"], &[8, 9]);
    assert!(import("rs:4+2").contains("needs 3 nodes at least"));
    assert!(import("raid").contains("rs:K+M"));
    let taken = refused("import", &["--vault", "partner", "--from", "from"], &[0, 1]);
    assert!(taken.contains("n0 is not empty"), "{taken}");
    std::fs::write(home.join("from/x"), "x").unwrap();
    let output = eyrie().current_dir(home).args(["vault", "ls", "from"]).output().unwrap();
    assert!(texts(&output).1.contains("from is no member of a vault"));
    std::fs::write(home.join("n0/vault"), "EYRIEVLT and more").unwrap();
    assert!(refused("ls", &[], &[0]).contains("cannot be used"));
}

/// A file with one bit of a byte flipped, at several places, and cut.
fn mutations(path: &Path) -> Vec<Vec<u8>> {
    let whole = std::fs::read(path).unwrap();
    let places = [whole.len() / 2, whole.len().saturating_sub(1)];
    let mut all: Vec<Vec<u8>> = places
        .into_iter()
        .filter(|at| *at < whole.len())
        .map(|at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            bytes
        })
        .collect();
    all.push(whole[..whole.len() / 2].to_vec());
    all
}

/// Whatever happens to the files of one member, the others have what it had.
#[test]
fn damage_to_any_file_of_one_member_is_borne_and_repaired() {
    let home = world();
    let member = home.path().join("n2");
    let names: Vec<_> = std::fs::read_dir(&member).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(names.len() >= 6, "{names:?}");
    for path in names.iter().filter(|path| !path.ends_with("lock")) {
        let whole = std::fs::read(path).unwrap();
        for (number, bytes) in mutations(path).into_iter().enumerate() {
            let case = format!("{} {number}", path.display());
            std::fs::write(path, bytes).unwrap();
            assert_exported(home.path(), "out", &all());
            let (_, told) = texts(&vault(home.path(), "verify", &[], &all()));
            assert!(!told.contains("cannot open"), "{case}: {told}");
            good(vault(home.path(), "repair", &[], &all()));
            good(vault(home.path(), "verify", &[], &all()));
            let is = std::fs::read(path).unwrap();
            // Which generations never were is known in other words after a later controller.
            assert!(is == whole || path.ends_with("dropped"), "{case}");
            std::fs::remove_dir_all(home.path().join("out")).unwrap();
        }
    }
    // Without the file itself, too.
    for name in ["vault", "dropped"] {
        std::fs::remove_file(member.join(name)).unwrap();
        good(vault(home.path(), "repair", &[], &all()));
        good(vault(home.path(), "verify", &[], &all()));
    }
}

/// What drops generations needs something in their place.
#[test]
fn nothing_is_dropped_for_nothing() {
    let home = world();
    std::fs::create_dir_all(home.path().join("empty/node-0")).unwrap();
    std::fs::create_dir_all(home.path().join("flat")).unwrap();
    std::fs::write(home.path().join("flat/rank.img"), content(1)).unwrap();
    std::fs::create_dir_all(home.path().join("some/node-0")).unwrap();
    std::fs::write(home.path().join("some/node-0/rank.img"), content(1)).unwrap();
    std::fs::create_dir_all(home.path().join("other/node-9")).unwrap();
    std::fs::write(home.path().join("other/node-9/rank.img"), content(1)).unwrap();
    for (from, said) in [
        ("missing", "cannot read missing"),
        ("empty", "nothing to store"),
        ("flat", "is no folder of a node"),
        ("some", "node 1 has objects in generation 1"),
        ("other", "of node 9"),
    ] {
        let output = vault(home.path(), "import", &["--keep", "1", "--from", from], &all());
        let (_, told) = texts(&output);
        assert!(!output.status.success() && told.contains(said), "{from}: {told}");
        assert!(good(vault(home.path(), "ls", &[], &all())).contains("rs:4+2"));
        assert_exported(home.path(), "out", &all());
        std::fs::remove_dir_all(home.path().join("out")).unwrap();
    }
    // Nothing is made of nothing, either.
    let output = vault(home.path(), "import", &["--vault", "local", "--from", "missing"], &[7]);
    assert!(!output.status.success() && !home.path().join("n7").exists());
    // Nodes that have none now are named by empty folders.
    for node in 1..NODES {
        std::fs::create_dir_all(home.path().join(format!("some/node-{node}"))).unwrap();
    }
    good(vault(home.path(), "import", &["--keep", "1", "--from", "some"], &all()));
}
