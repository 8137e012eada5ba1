//! Large data through a sandbox: output that is cut, files of any size, and the host's memory, which stays
//! flat. What measures memory measures its process, so it is a process of its own.

use bytes::Bytes;
use conjure_sandbox::{CallOptions, Command, CommandEnd, Executor, Limits, View};
use futures_util::{StreamExt, stream};

use crate::support::{Fixture, Kind, bash, bearing, options, peak_memory, rerun, soon, test_parameters};

/// How much the peak may grow: a few windows and buffers, nothing near to what passes through.
const ROOM: u64 = 24 * 1024 * 1024;

/// Not a divisor of any size or frame, so that a piece at the wrong place shows.
const PATTERN: usize = 1024 * 1024 + 7;

pub(crate) async fn memory_is_constant_for_any_amount_of_data(kind: &dyn Kind, test: &str) {
    if test_parameters().is_none() {
        let outcome = rerun(&[], test, "to measure").output().unwrap();
        let output = String::from_utf8_lossy(&outcome.stdout);
        let is_good = outcome.status.success() && output.contains("1 passed");
        assert!(is_good, "{output}{}", String::from_utf8_lossy(&outcome.stderr));
        return;
    }
    let limits = Limits::default().with_disk(4 << 30).unwrap();
    let fixture = Fixture::limited(kind, limits).await;
    let pattern: Bytes =
        (0..PATTERN).map(|place| (place * 31 + place / 251) as u8).collect::<Vec<_>>().into();
    bash(&fixture, &format!("({} > /dev/null 2>&1 &)", fixture.sleeper())).await;
    fixture.until_sleeping(1).await;
    let guest = kind.guest(fixture.sleeper_pid(), std::process::id());
    let before = [peak_memory(std::process::id()), peak_memory(guest.cast_unsigned())];
    for size in [1024, 10 * 1024 * 1024, 1024 * 1024 * 1024] {
        in_and_out(&fixture, &pattern, size).await;
    }
    gigabytes_of_output(&fixture).await;
    let after = [peak_memory(std::process::id()), peak_memory(guest.cast_unsigned())];
    for (before, after, whose) in [(before[0], after[0], "the host's"), (before[1], after[1], "the guest's")]
    {
        assert!(after - before < ROOM, "{whose} peak grew by {} bytes", after - before);
    }
    fixture.sandbox.cleanup().await;
}

async fn in_and_out(fixture: &Fixture, pattern: &Bytes, size: usize) {
    let complete = pattern.clone();
    let pieces = stream::iter((0..size).step_by(PATTERN)).map(move |start| {
        let length = PATTERN.min(size - start);
        Ok(complete.slice(..length))
    });
    let written = fixture.sandbox.write("big", pieces.boxed(), CallOptions::until(soon(600))).await.unwrap();
    assert_eq!(written.size, size as u64);
    let mut content = fixture.sandbox.read("big", CallOptions::until(soon(600))).await.unwrap();
    let mut index = 0;
    while let Some(piece) = content.next().await {
        let mut piece = piece.unwrap();
        while !piece.is_empty() {
            let start = index % PATTERN;
            let part = piece.split_to(piece.len().min(PATTERN - start));
            assert!(part == pattern[start..start + part.len()], "wrong bytes at {index}");
            index += part.len();
        }
    }
    assert_eq!(index, size);
    fixture.remove("big").await;
}

/// More than 4 GiB, which a number of 32 bits could not count.
async fn gigabytes_of_output(fixture: &Fixture) {
    let total = 5 * 1024 * 1024 * 1024_u64;
    let script = format!("echo begin; head -c {} /dev/zero; echo end", total - 10);
    let mut command = Command::bash(&script);
    command.spill = 1024 * 1024;
    let outcome = fixture.sandbox.run(command, CallOptions::until(soon(900))).await.unwrap();
    assert_eq!((outcome.end, outcome.stdout.total), (CommandEnd::Exited(0), total));
    assert_eq!((outcome.stdout.head.len(), outcome.stdout.tail.len()), (48 * 1024, 48 * 1024));
    assert!(outcome.stdout.head.starts_with(b"begin\n\0") && outcome.stdout.tail.ends_with(b"\0end\n"));
    let spill = outcome.stdout.spill_path.expect("there was more than head and tail");
    assert_eq!(outcome.stdout.spilled, 1 << 20);
    assert_eq!(bash(fixture, &format!("head -n 1 {spill}; stat -c %s {spill}")).await, "begin\n1048576\n");
}

pub(crate) async fn truncated_output_is_complete_in_a_read_only_file(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let outcome = fixture.bash("seq 100000").await.unwrap();
    let path = outcome.stdout.spill_path.unwrap();
    assert_eq!(bash(&fixture, &format!("wc -l < {path}; tail -n 1 {path}")).await, "100000\n100000\n");
    let change = fixture.bash(&format!("echo x >> {path} || rm -f {path}")).await.unwrap();
    assert_ne!(change.end, CommandEnd::Exited(0));
    let View::Text { total_lines, .. } = fixture.sandbox.view(&path, None, 1 << 20, options()).await.unwrap()
    else {
        panic!("a text");
    };
    assert_eq!(total_lines, 100_000);
    assert!(fixture.sandbox.create_file(&path, b"x", options()).await.is_err());
}

/// The sandbox has little memory.
pub(crate) async fn much_output_needs_little_memory(kind: &dyn Kind) {
    let fixture = Fixture::limited(kind, Limits::default().with_memory(64 << 20).unwrap()).await;
    let total = 256 * 1024 * 1024_u64;
    let command = Command::bash(&format!("echo begin; head -c {} /dev/zero; echo end", total - 10));
    let outcome = fixture.sandbox.run(command, options()).await.unwrap();
    assert_eq!((outcome.end, outcome.stdout.total), (CommandEnd::Exited(0), total));
    assert!(outcome.stdout.head.starts_with(b"begin\n\0") && outcome.stdout.tail.ends_with(b"\0end\n"));
}
