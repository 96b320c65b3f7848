//! What a process is besides its memory: the processor that it needs, and what the kernel keeps
//! about it.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;

use common::{Process, checkpoint, restorer};
use eyrie_image::{RestoreError, RestoreOptions, RestoreSpec, restore};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

fn null() -> OwnedFd {
    File::options().read(true).write(true).open("/dev/null").unwrap().into()
}

fn bring_back(image: &Path, ignore: &[&str]) -> Result<Process, RestoreError> {
    let ignore_features = ignore.iter().map(|s| (*s).to_owned()).collect();
    let options = RestoreOptions { ignore_features, ..RestoreOptions::default() };
    let spec = RestoreSpec {
        image,
        restorer: restorer(),
        stdio: [null(), null(), null()],
        segments: vec![],
        start_stopped: false,
        options,
    };
    restore(spec).map(Process::of)
}

/// Restores an image where features are hidden, and tells the error if there is one.
fn received(image: &Path, hidden: &str, ignore: &[&str]) -> Option<String> {
    // The variable must not be seen by other tests: a process of its own.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "restores_an_image"])
        .env("EYRIE_TEST_RESTORER", restorer())
        .env("EYRIE_IMAGE_HIDE_FEATURES", hidden)
        .env("EYRIE_TEST_IMAGE", image)
        .env("EYRIE_TEST_IGNORE", ignore.join(","))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
    text.lines().find_map(|l| l.split_once("refused: ").map(|(_, error)| error.to_owned()))
}

/// Not a test of its own: [`received`] runs it in another process.
#[test]
#[ignore = "run by other tests"]
fn restores_an_image() {
    let image = std::env::var_os("EYRIE_TEST_IMAGE").unwrap();
    let ignore = std::env::var("EYRIE_TEST_IGNORE").unwrap();
    let ignore: Vec<&str> = ignore.split(',').collect();
    match bring_back(Path::new(&image), &ignore) {
        Ok(mut process) => process.kill(),
        Err(error) => println!("refused: {error}"),
    }
}

/// A frozen and killed program's image.
fn image_of(folder: &Path, compiler: &str, name: &str, flags: &[&str], args: &[&str]) {
    let program = common::compile_with(compiler, folder, name, name, flags);
    // That of a program before.
    let _ = std::fs::remove_file(folder.join("ready"));
    let mut process = Process::start(&program, args, folder);
    common::wait_for_line(folder);
    checkpoint(process.pid, &folder.join("image")).unwrap();
    process.kill();
}

fn has(feature: &str) -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    text.split_ascii_whitespace().any(|f| f == feature)
}

#[test]
fn a_missing_feature_that_the_c_library_chose_is_named() {
    for flags in [&[][..], &["-static"]] {
        let folder = tempfile::tempdir().unwrap();
        image_of(folder.path(), "cc", "waiting", flags, &["10000"]);
        let image = folder.path().join("image");
        assert_eq!(received(&image, "", &[]), None);
        let error = received(&image, "sse4_2,ssse3", &[]).unwrap();
        assert!(error.contains("lacks ssse3, sse4_2, which the program uses"), "{error}");
        let error = received(&image, "sse4_2,ssse3", &["ssse3"]).unwrap();
        assert!(error.contains("lacks sse4_2,"), "{error}");
        assert_eq!(received(&image, "sse4_2,ssse3", &["ssse3", "sse4_2"]), None);
    }
}

#[test]
fn a_missing_feature_that_nobody_asked_for_is_no_matter() {
    // Neither the C library nor the program looks at it.
    let folder = tempfile::tempdir().unwrap();
    image_of(folder.path(), "cc", "waiting", &[], &["10000"]);
    let image = folder.path().join("image");
    for feature in ["rdrand", "aes", "pclmulqdq", "sha_ni", "vaes"] {
        println!("{feature}: {}", has(feature));
        assert_eq!(received(&image, feature, &[]), None, "{feature}");
    }
    // musl asks for nothing.
    if common::compiler("musl-gcc") {
        image_of(folder.path(), "musl-gcc", "zmm", &["-static", "-DPLAIN"], &[]);
        assert_eq!(received(&image, "sse4_2,ssse3,avx512vl", &[]), None);
    }
}

#[test]
fn libraries_that_ask_for_all_use_what_is_known_of_them() {
    // It loads libstdc++, libgcc_s and libm, and asks for nothing itself.
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("waits.cc");
    std::fs::write(
        &source,
        "#include <fstream>\n#include <unistd.h>\n\
         int main() { std::ofstream(\"ready\") << \"ready\" << std::endl; for (;;) pause(); }\n",
    )
    .unwrap();
    let program = folder.path().join("waits");
    let made = Command::new("c++").arg(&source).arg("-o").arg(&program).status();
    assert!(made.unwrap().success());
    let mut process = Process::start(&program, &[], folder.path());
    common::wait_for_line(folder.path());
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    process.kill();
    assert_eq!(received(&image, UNUSED, &[]), None);
    if has("rdrand") {
        let error = received(&image, &format!("{UNUSED},rdrand"), &[]).unwrap();
        assert!(error.contains("lacks rdrand, which the program uses"), "{error}");
    }
}

/// Features that no program of these tests uses.
const UNUSED: &str = "avx512_bf16,avx512_vnni,amx_tile,clwb,rdpid,serialize,vaes,sha_ni";

/// The bytes of the instruction that asks are part of others in Python and its modules.
#[test]
fn bytes_that_look_like_a_question_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let script = "import pickle, time\n\
                  open('ready', 'w').write('ready')\n\
                  while True: time.sleep(1)\n";
    let mut command = Command::new("python3");
    command.args(["-c", script]).current_dir(folder.path());
    command.stdin(null()).stdout(null()).stderr(null());
    let mut process = Process::spawn(&mut command);
    common::wait_for_line(folder.path());
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    process.kill();
    assert_eq!(received(&image, UNUSED, &[]), None);
}

#[test]
fn registers_in_use_are_named() {
    if !std::arch::is_x86_feature_detected!("avx512f") || !common::compiler("musl-gcc") {
        println!("NOT RUN: needs AVX-512 and musl-gcc");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Nothing in it asks; its registers tell.
    image_of(folder.path(), "musl-gcc", "zmm", &["-static", "-mavx512f"], &[]);
    let image = folder.path().join("image");
    assert_eq!(received(&image, "avx512vl,avx2", &[]), None);
    let error = received(&image, "avx512f", &[]).unwrap();
    assert!(error.contains("lacks avx512f, which the program uses"), "{error}");
    if !has("amx_int8") {
        println!("NOT RUN: this processor has no AMX");
        return;
    }
    image_of(folder.path(), "cc", "zmm", &["-mavx512f", "-DAMX"], &[]);
    let error = received(&image, "amx_tile", &[]).unwrap();
    assert!(error.contains("lacks amx_tile, which the program uses"), "{error}");
}

/// Twin and process have as much memory: where it runs out the kernel must not take the process.
#[test]
fn where_memory_runs_out_the_twin_dies_first() {
    let folder = tempfile::tempdir().unwrap();
    let score = |pid: libc::pid_t| {
        std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().to_owned()
    };
    let mut process = common::start_waiting(folder.path(), "scores", &["10000"]);
    std::fs::write(format!("/proc/{}/oom_score_adj", process.pid), "17").unwrap();
    let mut frozen = eyrie_image::Frozen::stop(process.pid).unwrap();
    let twin = frozen.twin().unwrap();
    assert_eq!([score(twin.pid()), score(process.pid)], ["1000", "17"]);
    frozen.release().unwrap();
    let image = folder.path().join("image");
    twin.write_image(&image, b"").unwrap();
    process.kill();
    let mut process = bring_back(&image, &[]).unwrap();
    assert_eq!(score(process.pid), "17", "the process's own is in the image");
    process.kill();
}

#[test]
fn priorities_processors_and_limits() {
    common::survives("treated", &[], &["60000"], 3);
}

/// Where memory comes from, what a core file holds, and switches.
#[test]
fn memory_policies_and_seldom_used_switches() {
    let mut mode = 0;
    // SAFETY: writes to a live integer.
    let r = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, 0, 0, 0, 0) };
    if r < 0 {
        println!("NOT RUN: policies: this kernel has none ({})", std::io::Error::last_os_error());
    }
    common::survives("placed", &[], &["40000"], 3);
    // Other threads have no switch of the first one.
    common::survives("placed", &[], &["40000", "apart"], 3);
}

/// Without root.
#[test]
fn without_privileges() {
    common::as_nobody("attributes", &["priorities_", "memory_policies_"], 2);
}

/// Programs of other makes: static, with another C library, at a fixed address.
#[test]
fn programs_of_every_make() {
    let makes: [(&str, &[&str]); 5] = [
        ("cc", &["-static"]),
        ("cc", &["-no-pie"]),
        ("cc", &["-static-pie"]),
        ("musl-gcc", &["-static"]),
        ("musl-gcc", &["-static", "-no-pie"]),
    ];
    for (compiler, flags) in makes {
        if !common::compiler(compiler) {
            continue;
        }
        println!("{compiler} {flags:?}");
        for (name, args) in [("plain", "2000"), ("clock", "1000000"), ("stack", "400")] {
            let folder = tempfile::tempdir().unwrap();
            let program = common::compile_with(compiler, folder.path(), name, name, flags);
            common::program_survives(folder.path(), &program, &[args], 2);
        }
    }
}
