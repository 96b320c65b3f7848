//! Where nodes store what they store, and what is left of it.

use super::*;
use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;

fn wish(folder: &Path) -> Wish {
    Wish { folder: folder.to_path_buf(), source: LOCAL, explicit: true }
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn what_is_asked_for_goes_before_what_a_batch_system_gives() {
    // Not on /tmp or another file system in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = folder.path().to_str().unwrap();
    let by = |all: &[(&str, &str)]| {
        let all: HashMap<String, PathBuf> =
            all.iter().map(|(name, value)| (name.to_string(), value.into())).collect();
        wanted_by(&|name| all.get(name).cloned())
            .map(|wish| (wish.folder.display().to_string(), wish.source, wish.explicit))
    };
    let found = |source| Some((path.to_string(), source, false));
    assert_eq!(by(&[]), None);
    assert_eq!(by(&[(OF_JOBS, path)]), None, "outside of an allocation it is nothing of jobs");
    for allocation in ALLOCATIONS {
        assert_eq!(by(&[(OF_JOBS, path), (allocation, "7")]), found(OF_JOBS));
    }
    assert_eq!(by(&[(OF_JOBS, "/"), (OF_SLURM, path)]), found(OF_SLURM));
    assert_eq!(by(&[(OF_SLURM, "/no/such")]), None);
    assert_eq!(by(&[(OF_SLURM, "/dev/shm")]), None, "it takes memory");
    let asked = |source| Some((String::from("/no/such"), source, true));
    assert_eq!(by(&[(LOCAL, "/no/such"), (OF_SLURM, path)]), asked(LOCAL));
    assert_eq!(by(&[(LOCAL, "/else"), (LOCAL_OF_JOB, "/no/such")]), asked("--local"));
}

#[test]
fn a_link_leads_to_the_storage_and_goes_with_it() {
    let (home, local) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let job = home.path().join("abcd");
    fs::create_dir(&job).unwrap();
    let place = job.join("node-0");
    assert!(make(&place, "abcd-0", None).unwrap().is_none() && !place.exists());
    let made = make(&place, "abcd-0", Some(wish(local.path()))).unwrap().unwrap();
    fs::write(place.join("image"), "x").unwrap();
    assert!(made.path.join("image").exists() && made.path.starts_with(local.path()));
    let root = local.path().join(format!("eyrie-{}", user()));
    assert_eq!(fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
    // The next node leaves alone what is in use, and removes what is not.
    let next = job.join("node-1");
    let other = make(&next, "abcd-1", Some(wish(local.path()))).unwrap().unwrap();
    assert_eq!(entries(&root), 2);
    drop(other);
    drop(make(&job.join("node-2"), "abcd-2", Some(wish(local.path()))).unwrap());
    assert!(place.join("image").exists() && !next.exists());
    // With the job's folder all goes.
    at_rest::remove_dir_all(&job).unwrap();
    assert!(!job.exists() && !made.path.exists());
    assert_eq!(entries(&root), 0);
}

#[test]
fn what_is_kept_stays_until_its_link_goes() {
    let (home, local) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [kept, next] = ["node-0", "node-1"].map(|name| home.path().join(name));
    drop(make(&kept, "abcd-0", Some(wish(local.path()))).unwrap());
    keep(&kept);
    drop(make(&next, "abcd-1", Some(wish(local.path()))).unwrap());
    assert!(kept.is_dir());
    at_rest::remove_dir_all(&kept).unwrap();
    assert!(fs::symlink_metadata(&kept).is_err());
    // A link of somebody else is removed, and nothing else.
    let theirs = tempfile::tempdir().unwrap();
    symlink(theirs.path(), &kept).unwrap();
    at_rest::remove_dir_all(&kept).unwrap();
    assert!(theirs.path().exists() && fs::symlink_metadata(&kept).is_err());
}

#[test]
fn a_folder_that_is_not_the_users_alone_is_refused() {
    let (home, local) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = home.path().join("node-0");
    let root = root(&wish(local.path())).unwrap();
    let set = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    set(&root, 0o750);
    let told = make(&place, "abcd-0", Some(wish(local.path()))).unwrap_err().to_string();
    assert!(told.contains("chmod 700"), "{told}");
    // What a batch system gives is no duty.
    let given = Wish { explicit: false, ..wish(local.path()) };
    assert!(make(&place, "abcd-0", Some(given)).unwrap().is_none());
    set(&root, 0o700);
    set(local.path(), 0o777);
    let told = make(&place, "abcd-0", Some(wish(local.path()))).unwrap_err().to_string();
    assert!(told.contains("chmod o-w"), "{told}");
    set(local.path(), 0o1777);
    assert!(make(&place, "abcd-0", Some(wish(local.path()))).unwrap().is_some());
    let told = make(&place, "x", Some(wish(Path::new("/no/such")))).unwrap_err().to_string();
    assert!(told.contains("/no/such") && told.contains("--local"), "{told}");
}
