//! `cargo run --release -p conjure-sandbox --all-features --example quota`: by how much a jail exceeds its disk quota.
//!
//! No ordinary file system limits a directory, so the guest looks often and ends what writes too much. Commands that write as
//! fast as they can show what passes in between: bytes in one file, bytes in many processes, files without a name, and
//! empty files.

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock};
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, DataDir, ExecutionContext, Executor as _, Jail, Limits, QuotaExcess,
    Sandbox,
};

const MIB: u64 = 1 << 20;

/// Each ends only when it is ended.
const WRITERS: [(&str, &str); 6] = [
    ("1 MiB at a time", "for ((i = 0; ; i++)); do dd if=/dev/zero of=big$i bs=1M count=32; done"),
    ("four writers at once", "for i in 1 2 3 4; do dd if=/dev/zero of=big$i bs=1M & done; wait"),
    ("allocated by the C library", "for ((i = 0; ; i++)); do fallocate --posix -l 16M big$i; done"),
    (
        "files without a name",
        "exec perl -e 'for (my $i = 0; ; $i++) { open $f[$i], \">\", $i; unlink $i; syswrite $f[$i], \"x\" x 8388608 }'",
    ),
    ("empty files", "exec perl -e 'for (my $i = 0; ; $i++) { open my $f, \">\", $i }'"),
    (
        "empty files of two writers",
        "for j in 1 2; do perl -e 'for (my $i = 0; ; $i++) { open my $f, \">\", \"$ARGV[0].$i\" }' $j & done; wait",
    ),
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let data = DataDir::temporary()?;
    let jail = Jail::new([]).with_data(data.clone());
    println!("{:30} {:>24} {:>24} {:>12}", "", "allowed", "taken when it was ended", "overshoot");
    for (name, script) in WRITERS {
        for (bytes, inodes) in [(64 * MIB, 2_000), (1024 * MIB, 200_000)] {
            let workspace = data.workspace()?;
            let limits = Limits::default().with_disk(bytes)?.with_inodes(inodes)?.with_memory(2048 * MIB)?;
            let context = ExecutionContext { limits, ..ExecutionContext::new(workspace.path()) };
            let sandbox = Sandbox::open(&jail, &context, Arc::new(SystemClock), soon(30)).await?;
            let outcome = sandbox.run(Command::bash(script), CallOptions::until(soon(120))).await?;
            let CommandEnd::QuotaExceeded(excess) = outcome.end else {
                return Err(format!("`{name}` ended otherwise: {:?}", outcome.end).into());
            };
            report(name, &excess);
            sandbox.cleanup().await;
        }
    }
    Ok(())
}

fn report(name: &str, excess: &QuotaExcess) {
    let QuotaExcess { used, allowed } = excess;
    let (unit, used, allowed) = if used.bytes > allowed.bytes {
        ("bytes", used.bytes, allowed.bytes)
    } else {
        ("files", used.inodes, allowed.inodes)
    };
    let permille = (used - allowed) * 1000 / allowed;
    let percent = format!("{}.{} %", permille / 10, permille % 10);
    println!("{name:30} {:>24} {:>24} {percent:>12}", format!("{allowed} {unit}"), format!("{used} {unit}"));
}

fn soon(seconds: u64) -> Deadline {
    SystemClock.deadline(Duration::from_secs(seconds))
}
