//! `eyrie image`: looking into a process image, with no process and no job around.

pub mod args;

use crate::commands::image::args::{
    Image as Args, ImageAction, ImageExtract, ImageInspect, ImageVerify,
};
use crate::messages::say;
use crate::show::tables;
use anyhow::{Context, anyhow};
use eyrie_image::{Alike, Image, ImageError, Inspection, Verdict};
use eyrie_terminal::{FAILED, Failure, print, print_json, units};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a region that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;

pub fn image(args: &Args) -> Result<i32, Failure> {
    match &args.action {
        ImageAction::Inspect(inspect) => self::inspect(inspect),
        ImageAction::Verify(verify) => self::verify(verify),
        ImageAction::Extract(extract) => self::extract(extract),
    }
}

fn open(path: &Path) -> anyhow::Result<Image> {
    Image::open(path).map_err(|error| match error {
        // It names the file itself.
        ImageError::Read { .. } => anyhow!(error),
        error => anyhow!(error).context(format!("cannot use {}", path.display())),
    })
}

fn inspect(args: &ImageInspect) -> Result<i32, Failure> {
    if !args.shared.is_empty() {
        return shared(args);
    }
    let found = open(&args.file)?.inspect();
    if args.json {
        print(&(serde_json::to_string_pretty(&as_json(&found))? + "\n"));
    } else {
        print(&as_text(&found));
    }
    Ok(0)
}

/// How much of some images stands in those before them too.
fn shared(args: &ImageInspect) -> Result<i32, Failure> {
    let files: Vec<&PathBuf> = std::iter::once(&args.file).chain(&args.shared).collect();
    let images = files.iter().map(|file| open(file)).collect::<anyhow::Result<Vec<Image>>>()?;
    let found = eyrie_image::alike(&images)?;
    if args.json {
        let row = |(file, a): (&&PathBuf, &Alike)| {
            json!({
                "file": file, "pages": a.pages, "shared": a.shared,
                "shared_in_runs": a.shared_in_runs,
            })
        };
        let all: Vec<Value> = files.iter().zip(&found).map(row).collect();
        print(&(serde_json::to_string_pretty(&all)? + "\n"));
        return Ok(0);
    }
    let head = ["IMAGE", "MEMORY", "BEFORE TOO", "SHARE", "64 KIB RUNS"];
    let mut rows = vec![head.map(String::from).to_vec()];
    let mut row = |name: String, [pages, same, runs]: [u64; 3]| {
        let size = |pages: u64| units::bytes(pages * 4096);
        rows.push(vec![name, size(pages), size(same), share(same, pages), share(runs, pages)]);
    };
    let mut sum = [0; 3];
    for (file, a) in files.iter().zip(&found) {
        let figures = [a.pages, a.shared, a.shared_in_runs];
        sum.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
        row(file.display().to_string(), figures);
    }
    row("all".into(), sum);
    print(&tables::table(&rows));
    Ok(0)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}

fn address(at: u64) -> String {
    format!("{at:#x}")
}

/// A share in per cent.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

fn as_json(i: &Inspection) -> Value {
    json!({
        "pid": i.pid,
        "exe": i.exe,
        "arguments": i.arguments,
        "cwd": i.cwd,
        "bytes": i.bytes,
        "pages": i.pages,
        "own_pages": i.own_pages,
        "stored_bytes": i.stored_bytes,
        "meta_bytes": i.meta_bytes,
        "identity": hex(&i.identity),
        "ancestors": i.ancestors.iter().map(|a| json!({
            "name": a.name, "identity": hex(&a.identity), "pages": a.pages,
        })).collect::<Vec<_>>(),
        "threads": i.threads.iter().map(|t| json!({
            "tid": t.tid, "name": t.name, "ip": address(t.ip), "sp": address(t.sp),
            "syscall": t.syscall, "blocked": address(t.blocked), "pending": t.pending,
        })).collect::<Vec<_>>(),
        "regions": i.regions.iter().map(|r| json!({
            "start": address(r.start), "end": address(r.end), "mode": r.mode, "name": r.name,
            "size_pages": r.size_pages(), "pages": r.pages, "own_pages": r.own_pages(),
            "homes": r.homes.iter().map(|(home, pages)| json!({"home": home, "pages": pages}))
                .collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "children": i.children.iter().map(|(pid, suffix)| json!({"pid": pid, "suffix": suffix}))
            .collect::<Vec<_>>(),
        "objects": i.objects.iter().map(|o| json!({
            "name": o.name, "bytes": o.bytes, "pages": o.pages, "held": o.held,
        })).collect::<Vec<_>>(),
        "files": i.files.iter().map(|f| json!({
            "fd": f.fd, "kind": f.kind, "name": f.name, "flags": f.flags, "offset": f.offset,
            "locks": f.locks,
        })).collect::<Vec<_>>(),
    })
}

fn as_text(i: &Inspection) -> String {
    let command = if i.arguments.is_empty() { i.exe.clone() } else { i.arguments.join(" ") };
    let mut text = format!("process {}: {command}\n", i.pid);
    let _ = writeln!(text, "program: {}\nfolder: {}", i.exe, i.cwd);
    let page_bytes = |pages: u64| units::bytes(pages * 4096);
    let _ = writeln!(
        text,
        "file: {}; {} of memory, {} of it here ({}), stored in {}",
        units::bytes(i.bytes),
        page_bytes(i.pages),
        page_bytes(i.own_pages),
        share(i.own_pages, i.pages),
        units::bytes(i.stored_bytes)
    );
    for (k, a) in i.ancestors.iter().enumerate() {
        let _ = writeln!(text, "needs [{}] {}: {}", k + 1, a.name, page_bytes(a.pages));
    }
    for (pid, suffix) in &i.children {
        let _ = writeln!(text, "child process {pid}: in the file with {suffix} appended");
    }
    for o in &i.objects {
        let place = if o.held { "" } else { ", in the image of another process" };
        let (size, stored) = (units::bytes(o.bytes), page_bytes(o.pages));
        let _ = writeln!(text, "shared: {} of {size}, {stored} stored{place}", o.name);
    }
    let row = |cells: &[&str]| cells.iter().map(|c| (*c).to_string()).collect::<Vec<_>>();
    let mut rows = vec![row(&["THREAD", "NAME", "IP", "SP", "WAITS IN"])];
    rows.extend(i.threads.iter().map(|t| {
        let call = t.syscall.map_or("-".into(), |nr| format!("system call {nr}"));
        vec![t.tid.to_string(), t.name.clone(), address(t.ip), address(t.sp), call]
    }));
    let _ = write!(text, "\n{}", tables::table(&rows));
    let mut rows = vec![row(&["REGION", "SIZE", "MODE", "PAGES", "CHANGED", "HOMES", "NAME"])];
    rows.extend(i.regions.iter().map(|r| {
        let homes = r.homes.iter().map(|(home, pages)| match home {
            0 => format!("here:{pages}"),
            k => format!("[{k}]:{pages}"),
        });
        vec![
            format!("{:x}-{:x}", r.start, r.end),
            page_bytes(r.size_pages()),
            r.mode.clone(),
            r.pages.to_string(),
            share(r.own_pages(), r.pages),
            homes.collect::<Vec<_>>().join(" "),
            r.name.clone(),
        ]
    }));
    let _ = write!(text, "\n{}", tables::table(&rows));
    if !i.files.is_empty() {
        let mut rows = vec![row(&["FD", "KIND", "OFFSET", "FLAGS", "LOCKS", "NAME"])];
        rows.extend(i.files.iter().map(|f| {
            let flags = format!("{:#o}", f.flags);
            let (fd, offset) = (f.fd.to_string(), f.offset.to_string());
            vec![fd, f.kind.clone(), offset, flags, f.locks.to_string(), f.name.clone()]
        }));
        let _ = write!(text, "\n{}", tables::table(&rows));
    }
    text
}

fn verify(args: &ImageVerify) -> Result<i32, Failure> {
    let parts = Image::verify_parts(&args.file);
    let holds = parts.iter().all(|p| p.error.is_none());
    if args.json {
        let shown = |p: &Verdict| {
            let error = p.error.as_ref().map(|e| e.to_string());
            json!({"part": p.part, "holds": error.is_none(), "detail": p.detail, "error": error})
        };
        let all: Vec<Value> = parts.iter().map(shown).collect();
        let all = json!({"holds": holds, "parts": all});
        print(&(serde_json::to_string_pretty(&all)? + "\n"));
    } else {
        let row = |p: &Verdict| match &p.error {
            None => vec![p.part.clone(), "holds".into(), p.detail.clone()],
            Some(error) => vec![p.part.clone(), "DAMAGED".into(), error.to_string()],
        };
        print(&tables::table(&parts.iter().map(row).collect::<Vec<_>>()));
    }
    if holds {
        return Ok(0);
    }
    let bad = parts.iter().filter(|p| p.error.is_some()).map(|p| p.part.as_str());
    let bad = bad.collect::<Vec<_>>().join(", ");
    Err(Failure::new(FAILED, anyhow!("{} is damaged: {bad}", args.file.display())))
}

fn extract(args: &ImageExtract) -> Result<i32, Failure> {
    let image = open(&args.file)?;
    let named = |suffix: String| {
        let mut name = OsString::from(&args.file);
        name.push(suffix);
        PathBuf::from(name)
    };
    let output = match (&args.output, args.region) {
        (Some(output), _) => output.clone(),
        (None, None) => named(".core".into()),
        (None, Some(at)) => named(format!(".{at:x}.bin")),
    };
    let mut options = OpenOptions::new();
    let to = options.write(true).create_new(true).mode(0o600).open(&output);
    let to = to.with_context(|| format!("cannot make {}", output.display()))?;
    let done = match args.region {
        None => core(&image, &to, &output),
        Some(at) => region(&image, at, &to, &output),
    };
    if done.is_err() {
        // Half a file is of no use; what went wrong is what counts.
        let _ = fs::remove_file(&output);
    }
    let (text, value) = done?;
    match args.json {
        true => print_json(&value)?,
        false => print(&text),
    }
    Ok(0)
}

/// What was written, in words and as JSON.
type Extracted = (String, Value);

fn core(image: &Image, to: &File, output: &Path) -> anyhow::Result<Extracted> {
    let report = eyrie_image::write_core(image, to)?;
    for file in &report.changed_files {
        say(&format!("{file} is not what it was: only stored pages of it are in the core file"));
    }
    let exe = image.inspect().exe;
    let size = units::bytes(report.bytes);
    let path = output.display();
    let value = json!({
        "file": output, "bytes": report.bytes, "segments": report.segments, "program": exe,
        "region": null,
    });
    Ok((format!("{path}: {size} in {} segments; gdb {exe} {path}\n", report.segments), value))
}

fn region(image: &Image, at: u64, to: &File, output: &Path) -> anyhow::Result<Extracted> {
    let found = image.inspect();
    let region = found.regions.iter().find(|r| (r.start..r.end).contains(&at));
    let region = region.ok_or_else(|| {
        anyhow!("no region holds the address {at:#x} (see `eyrie image inspect`)")
    })?;
    to.set_len(region.end - region.start).context("cannot write")?;
    let mut buffer = vec![0; COPY_BYTES.min(region.end - region.start) as usize];
    for (start, pages) in image.stored(region.start, region.end) {
        let mut at = start;
        let end = start + pages * 4096;
        while at < end {
            let wanted = (end - at).min(buffer.len() as u64) as usize;
            let n = image.read_memory(at, &mut buffer[..wanted])?;
            to.write_all_at(&buffer[..n], at - region.start).context("cannot write")?;
            at += n as u64;
        }
    }
    let size = units::bytes(region.end - region.start);
    let (start, end, name) = (region.start, region.end, &region.name);
    let value = json!({
        "file": output, "bytes": end - start, "segments": null, "program": found.exe,
        "region": { "start": address(start), "end": address(end), "name": name },
    });
    Ok((format!("{}: {size}, {start:#x}-{end:#x} {name}\n", output.display()), value))
}
