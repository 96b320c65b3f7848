//! Records: what is told of a job that is gone, and what is not believed.

use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

fn job(home: &Path, id: &str) -> PathBuf {
    let folder = home.join(home::JOBS).join(id);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A job of that id and name that has begun, and its folder is gone.
fn record(home: &Path, id: &str, name: Option<&str>, begun: u64) -> PathBuf {
    let folder = job(home, id);
    let mut spec = crate::saved_job::testing::spec();
    spec.program.name = name.map(String::from);
    begin(&folder, id, &spec, begun).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    home.join(HISTORY).join(id)
}

fn ids(home: &Path) -> Vec<String> {
    all(home).0.into_iter().map(|it| it.record.job).collect()
}

#[test]
fn a_job_is_found_by_its_id_its_name_or_as_the_last() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    record(home, "kaaa", Some("heat-1"), 10);
    record(home, "kbbb", Some("heat-1"), 30);
    let folder = record(home, "mccc", None, 20);
    assert_eq!(ids(home), ["kaaa", "mccc", "kbbb"]);
    let job = |name| find(home, name).map(|it| it.record.job).map_err(|e| e.to_string());
    assert_eq!(job("last"), Ok("kbbb".into()));
    assert_eq!(job("heat-1"), Ok("kbbb".into()), "the newest of that name");
    assert_eq!((job("kaaa"), job("m")), (Ok("kaaa".into()), Ok("mccc".into())));
    assert!(job("k").unwrap_err().contains("more than one"));
    assert!(job("").is_err() && job("../mccc").is_err());
    assert!(has(home, "mccc") && !has(home, "zzzz"));
    assert_eq!(fs::metadata(folder.join(RECORD)).unwrap().permissions().mode() & 0o777, 0o600);
    // Commands that act are told that it is over.
    let resolved = home::resolve(home, "heat-1").unwrap_err().to_string();
    assert!(resolved.contains("kbbb has ended"), "{resolved}");
}

#[test]
fn what_others_could_have_written_or_is_no_record_is_refused_by_name() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let folder = record(home, "kaaa", None, 10);
    let file = folder.join(RECORD);
    let good = fs::read(&file).unwrap();
    let refused = || {
        let (found, refused) = all(home);
        assert!(found.is_empty());
        let by_name = find(home, "kaaa").unwrap_err().to_string();
        assert_eq!(by_name, refused[0].to_string());
        assert!(by_name.contains("kaaa"), "{by_name}");
        by_name
    };
    for path in [&file, &folder] {
        let before = fs::metadata(path).unwrap().permissions();
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refused().contains("777"));
        assert!(remove(path).is_err() && path.exists());
        fs::set_permissions(path, before).unwrap();
    }
    let elsewhere = home.join("elsewhere");
    fs::write(&elsewhere, &good).unwrap();
    fs::remove_file(&file).unwrap();
    symlink(&elsewhere, &file).unwrap();
    refused();
    fs::remove_file(&file).unwrap();
    let fifo = std::ffi::CString::new(file.to_str().unwrap()).unwrap();
    // SAFETY: the path ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    assert!(refused().contains("no regular file"));
    fs::remove_file(&file).unwrap();
    eyrie_image::write_private(&file, &vec![b' '; RECORD_BYTES as usize + 1]).unwrap();
    assert!(refused().contains("larger"));
    let text = String::from_utf8(good).unwrap();
    for bad in [text.replace("kaaa", "kbbb"), text[..40].to_string(), String::from("[]")] {
        eyrie_image::write_private(&file, bad.as_bytes()).unwrap();
        assert!(refused().contains("does not decode"));
    }
    eyrie_image::write_private(&file, text.as_bytes()).unwrap();
    assert_eq!(ids(home), ["kaaa"]);
}

#[test]
fn old_records_go_but_not_of_jobs_that_are_there() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let now = now_unix_ms();
    let (day, month) = (24 * 3_600_000, KEPT.as_millis() as u64);
    record(home, "kaaa", None, now - month - day);
    record(home, "kbbb", None, now - month + day);
    record(home, "kccc", None, now - 2 * month);
    job(home, "kccc");
    let mut gone = Vec::new();
    prune(home, KEPT, &mut |it| gone.push(it.record.job.clone()));
    assert_eq!((gone, ids(home)), (vec!["kaaa".into()], vec!["kccc".into(), "kbbb".into()]));
    prune(home, Duration::ZERO, &mut |_| {});
    assert_eq!(ids(home), ["kccc"]);
}

#[test]
fn events_have_the_wall_clock_of_when_the_job_ran() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let begun = now_unix_ms() - 60_000;
    record(home, "kaaa", None, begun);
    // It was saved after 10 s, and goes on now.
    let folder = job(home, "kaaa");
    begin(&folder, "kaaa", &crate::saved_job::testing::spec(), now_unix_ms() - 10_000).unwrap();
    let record = of(home, "kaaa").unwrap().record;
    assert_eq!((record.clocks.len(), record.begun_unix_ms), (2, begun));
    assert_eq!(record.unix_ms(9_000.0), begun + 9_000);
    assert!(record.unix_ms(10_900.0).abs_diff(now_unix_ms()) < 30_000);
}

#[test]
fn events_that_are_too_many_leave_out_checkpoints_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events");
    let event = |kind, bytes| {
        let mut event = Event::new(1.0, kind);
        event.text = "x".repeat(bytes);
        serde_json::to_string(&event).unwrap() + "\n"
    };
    let told = event(EventKind::Restored, 10);
    fs::write(&path, told.clone() + "{\"torn").unwrap();
    assert_eq!(short_events(&path), (told.clone().into_bytes(), 0));
    let long = event(EventKind::Checkpointed, EVENTS_BYTES);
    fs::write(&path, told.clone() + &long + &told).unwrap();
    assert_eq!(short_events(&path), ((told.clone() + &told).into_bytes(), 1));
    let huge = event(EventKind::Restored, EVENTS_BYTES);
    fs::write(&path, huge + &told).unwrap();
    assert_eq!(short_events(&path), (told.into_bytes(), 1));
}
