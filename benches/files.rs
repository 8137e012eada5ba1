//! `cargo bench --bench files`: files into a sandbox and out of it.
//!
//! Cases `in-SIZE` and `out-SIZE` at 1 KB, 10 MB and 1 GB, for the jail, as `local-...` for the kind `local`, and as `docker-...` for a container. In: the
//! content of a file of the host's as a stream of pieces into a new file in the workspace, against `cp` of the same
//! file, a process, to another place of the same disk. Out: a file of the workspace as a stream, against reading it in
//! pieces. Cases `...-memory` are by how much the most that this process had resident grew meanwhile; there is no other.
//! The file cache is warm, and nothing is forced to the disk, on both sides. Excluded: making the sandbox.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time, and spawns for comparison")]

#[path = "support/containers.rs"]
mod containers;
#[expect(clippy::unwrap_used, reason = "the tests' own")]
#[path = "../tests/system/support/engine.rs"]
mod engine;
#[path = "support/harness.rs"]
mod harness;
#[expect(clippy::unwrap_used, reason = "the tests' own")]
#[path = "../tests/system/support/image.rs"]
mod image;
#[path = "support/kinds.rs"]
mod kinds;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{
    CallOptions, ExecutionContext, Executor, Limits, Sandbox, SandboxError, SandboxErrorKind,
};
use futures_util::{StreamExt as _, stream};

use crate::containers::Containers;
use crate::harness::Result;
use crate::kinds::{Kind, kinds};

/// What a size is called, how large it is, and how often it is measured.
const SIZES: [(&str, usize, usize); 3] =
    [("1KB", 1_000, 300), ("10MB", 10_000_000, 30), ("1GB", 1_000_000_000, 3)];

/// How much is read at a time.
const PIECE: usize = 256 * 1024;

fn main() -> Result<()> {
    // Before the runtime, and for longer than it.
    let containers = Containers::find("docker-in-SIZE, docker-out-SIZE")?;
    harness::run(measure(kinds(containers.as_ref())))
}

async fn measure(kinds: Vec<Kind>) -> Result<()> {
    println!("{:24} {:>12} {:>12} {:>12}", "", "ours p50 ms", "other p50 ms", "memory KiB");
    let mut results = Vec::new();
    for (prefix, connector) in kinds {
        let dir = tempfile::tempdir()?;
        let workspace = dir.path().join("workspace");
        std::fs::create_dir(&workspace)?;
        let context = ExecutionContext {
            limits: Limits::default().with_disk(8 << 30)?,
            ..ExecutionContext::new(&workspace)
        };
        let sandbox = Sandbox::open(&*connector, &context, Arc::new(SystemClock), soon()).await?;
        for (size, bytes, rounds) in SIZES {
            let source = dir.path().join("source");
            make(&source, bytes)?;
            let [mut into, mut copied, mut out, mut read] = [(); 4].map(|()| Vec::new());
            let [mut into_memory, mut out_memory] = [0; 2];
            // The first round fills caches.
            for round in 0..=rounds {
                let before = forget_peak()?;
                let took_in = put(&sandbox, &source).await?;
                let grew_in = peak()?.saturating_sub(before);
                let took_copy = copy(&source, &dir.path().join("copy"))?;
                let before = forget_peak()?;
                let took_out = get(&sandbox, bytes).await?;
                let grew_out = peak()?.saturating_sub(before);
                let took_read = plain_read(&workspace.join("file"), bytes)?;
                std::fs::remove_file(workspace.join("file"))?;
                if round > 0 {
                    into.push(took_in);
                    copied.push(took_copy);
                    out.push(took_out);
                    read.push(took_read);
                    into_memory = into_memory.max(grew_in);
                    out_memory = out_memory.max(grew_out);
                }
            }
            for (way, ours, other, memory) in
                [("in", into, copied, into_memory), ("out", out, read, out_memory)]
            {
                let case = format!("{prefix}{way}-{size}");
                let (ours, other) = (median(ours), median(other));
                println!("{case:24} {ours:12.3} {other:12.3} {memory:12}");
                results.push(format!("case={case}-memory ours={memory} unit=KiB"));
                let ratio = ours / other;
                results.push(format!("case={case} ours={ours:.3} other={other:.3} unit=ms ratio={ratio:.2}"));
            }
        }
        sandbox.cleanup().await;
    }
    results.iter().for_each(|result| println!("RESULT goal=files {result}"));
    Ok(())
}

/// A file of this size whose content does not repeat in any piece.
fn make(path: &Path, bytes: usize) -> Result<()> {
    let mut file = File::create(path)?;
    let pattern: Vec<u8> = (0..PIECE + 7).map(|place| (place * 31 + place / 251) as u8).collect();
    let mut left = bytes;
    while left > 0 {
        let length = left.min(pattern.len());
        file.write_all(pattern.get(..length).unwrap_or_default())?;
        left -= length;
    }
    Ok(())
}

/// Into the sandbox.
async fn put(sandbox: &Sandbox, source: &Path) -> Result<Duration> {
    let started = Instant::now();
    let file = File::open(source)?;
    let pieces = stream::unfold(file, |mut file| async {
        let mut piece = vec![0; PIECE];
        match file.read(&mut piece) {
            Ok(0) => None,
            Ok(length) => {
                piece.truncate(length);
                Some((Ok(piece.into()), file))
            }
            Err(error) => Some((Err(SandboxError::new(SandboxErrorKind::Io, error.to_string())), file)),
        }
    });
    sandbox.write("file", pieces.boxed(), CallOptions::until(soon())).await?;
    Ok(started.elapsed())
}

/// Out of the sandbox.
async fn get(sandbox: &Sandbox, bytes: usize) -> Result<Duration> {
    let started = Instant::now();
    let mut content = sandbox.read("file", CallOptions::until(soon())).await?;
    let mut length = 0;
    while let Some(piece) = content.next().await {
        length += std::hint::black_box(piece?).len();
    }
    whole(length, bytes)?;
    Ok(started.elapsed())
}

fn copy(source: &Path, target: &Path) -> Result<Duration> {
    let started = Instant::now();
    let status = std::process::Command::new("cp").arg(source).arg(target).status()?;
    let took = started.elapsed();
    if !status.success() {
        return Err(format!("`cp` failed: {status}").into());
    }
    std::fs::remove_file(target)?;
    Ok(took)
}

fn plain_read(path: &Path, bytes: usize) -> Result<Duration> {
    let started = Instant::now();
    let mut file = File::open(path)?;
    let mut piece = vec![0; PIECE];
    let mut total = 0;
    loop {
        match std::hint::black_box(file.read(&mut piece)?) {
            0 => break,
            length => total += length,
        }
    }
    whole(total, bytes)?;
    Ok(started.elapsed())
}

fn whole(length: usize, bytes: usize) -> Result<()> {
    if length == bytes { Ok(()) } else { Err(format!("{length} of {bytes} bytes came").into()) }
}

/// Makes the kernel measure the peak from now on, and says what is resident, in KiB.
fn forget_peak() -> Result<u64> {
    std::fs::write("/proc/self/clear_refs", "5")?;
    status("VmRSS:")
}

/// The most that was resident, in KiB.
fn peak() -> Result<u64> {
    status("VmHWM:")
}

fn status(field: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).ok_or("the kernel does not tell")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
}

fn soon() -> conjure_base::Deadline {
    SystemClock.deadline(Duration::from_secs(600))
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default().as_secs_f64() * 1000.0
}
