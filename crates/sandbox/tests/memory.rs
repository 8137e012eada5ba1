//! That the host's memory stays flat, however much goes through (S6, S9). A binary of its own: it measures its
//! own process, so its tests run in one function, one after the other.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of a test fail by panic")]

mod support;

use std::fs;

use bytes::Bytes;
use conjure_sandbox::{Command, CommandEnd, Executor};
use futures_util::{StreamExt, stream};
use support::{Bed, bed, options, peak_memory};

/// How much the peak may grow: a few windows and buffers, nothing near to what passes through.
const ROOM: u64 = 24 * 1024 * 1024;

/// Not a divisor of any size or frame, so that a piece at the wrong place shows.
const PATTERN: usize = 1024 * 1024 + 7;

#[tokio::test]
async fn memory_is_flat_whatever_passes_through() {
    let bed = bed().await;
    let pattern: Bytes =
        (0..PATTERN).map(|place| (place * 31 + place / 251) as u8).collect::<Vec<_>>().into();
    bed.bash("true").await.unwrap();
    let before = peak_memory();
    for size in [1024, 10 * 1024 * 1024, 1024 * 1024 * 1024] {
        in_and_out(&bed, &pattern, size).await;
    }
    ten_gigabytes_of_output(&bed).await;
    let growth = peak_memory() - before;
    assert!(growth < ROOM, "the peak grew by {growth} bytes");
}

/// S9.
async fn in_and_out(bed: &Bed, pattern: &Bytes, size: usize) {
    let whole = pattern.clone();
    let pieces = stream::iter((0..size).step_by(PATTERN)).map(move |start| {
        let length = PATTERN.min(size - start);
        Ok(whole.slice(..length))
    });
    let written = bed.sandbox.write("big", pieces.boxed(), options()).await.unwrap();
    assert_eq!(written.size, size as u64);
    let mut content = bed.sandbox.read("big", options()).await.unwrap();
    let mut place = 0;
    while let Some(piece) = content.next().await {
        let mut piece = piece.unwrap();
        while !piece.is_empty() {
            let start = place % PATTERN;
            let part = piece.split_to(piece.len().min(PATTERN - start));
            assert!(part == pattern[start..start + part.len()], "wrong bytes at {place}");
            place += part.len();
        }
    }
    assert_eq!(place, size);
    fs::remove_file(bed.path("big")).unwrap();
}

/// S6.
async fn ten_gigabytes_of_output(bed: &Bed) {
    let total = 10 * 1024 * 1024 * 1024_u64;
    let script = format!("echo begin; head -c {} /dev/zero; echo end", total - 10);
    let mut command = Command::bash(&script);
    command.spill = 1024 * 1024;
    let outcome = bed.sandbox.run(command, options()).await.unwrap();
    assert_eq!((outcome.end, outcome.stdout.total), (CommandEnd::Exited(0), total));
    assert_eq!((outcome.stdout.head.len(), outcome.stdout.tail.len()), (48 * 1024, 48 * 1024));
    assert!(outcome.stdout.head.starts_with(b"begin\n\0") && outcome.stdout.tail.ends_with(b"\0end\n"));
    let spill = outcome.stdout.spill_path.expect("there was more than head and tail");
    assert_eq!((outcome.stdout.spilled, fs::metadata(spill).unwrap().len()), (1 << 20, 1 << 20));
}
