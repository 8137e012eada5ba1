//! Shows a file or directory to a model, and reads files.
//!
//! A text is read twice. The first pass checks that it is text and finds its lines; the second pass sends the
//! requested lines. So memory use is constant, and no part of a non-text file is sent. The file may change in
//! between, so the second pass checks again, because the host relies on valid text.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

use rustix::fs::FileType;
use rustix::io::Errno;

use conjure_guest::protocol::{ErrorCode, GuestError, LineRange, Reply, ViewReply};

use super::io::{CHUNK_LEN, copy, io_failure};
use super::list::{self, ListLimits};
use super::resolve::WorkerRoots;
use crate::error::{self, file_error};

const DOING: &str = "view";
const READING: &str = "read";

/// How much of a directory is shown.
const DIR: ListLimits = ListLimits { depth: 2, entries: 2_000, hidden: false };

/// Shows the file or directory at `path`.
pub(super) fn view(
    roots: &WorkerRoots<'_>,
    path: &str,
    range: Option<LineRange>,
    max_bytes: u64,
    output: &mut impl Write,
) -> Result<Reply, GuestError> {
    let resolved = roots.resolve(path)?;
    let (opened, stat) = resolved.open(DOING)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => {
            let listing = list::list_dir(&resolved, opened, DIR)?;
            return Ok(Reply::View(ViewReply::Directory {
                entries: listing.entries,
                truncated: listing.truncated,
            }));
        }
        _ => return Err(file_error(Errno::NXIO, path, DOING)),
    }
    let mut file = File::from(opened);
    let size = stat.st_size.cast_unsigned();
    let mut start = Vec::with_capacity(16);
    (&mut file).take(16).read_to_end(&mut start).map_err(|error| io_failure(&error, path, DOING))?;
    file.rewind().map_err(|error| io_failure(&error, path, DOING))?;
    if let Some(media_type) = image_type(&start) {
        if size > max_bytes {
            let message = format!(
                "cannot view `{path}`: the image has {size} bytes, the most is {max_bytes}; make a smaller copy"
            );
            return Err(error::error(ErrorCode::TooLarge, message));
        }
        let size = copy(&mut file, output, max_bytes, path, DOING)?;
        return Ok(Reply::View(ViewReply::Image { media_type: media_type.to_owned(), size }));
    }
    let wanted = check_range(path, range)?;
    let Some(scan) = scan_text(&mut file, path, wanted)? else {
        return Ok(Reply::View(ViewReply::Binary { size }));
    };
    if range.is_some() && wanted.0 > scan.lines.max(1) {
        let message = format!(
            "cannot view `{path}` from line {}: it has {} lines; begin within them",
            wanted.0, scan.lines
        );
        return Err(error::error(ErrorCode::BadRequest, message));
    }
    let (sent, lines) = send(&mut file, path, &scan, max_bytes, output)?;
    Ok(Reply::View(ViewReply::Text {
        first_line: if sent == 0 { 0 } else { wanted.0 },
        last_line: if sent == 0 { 0 } else { wanted.0 + lines - 1 },
        total_lines: scan.lines,
        size: scan.size,
        truncated: sent < scan.end - scan.start,
    }))
}

/// Sends `length` bytes of a file from `offset`.
pub(super) fn read(
    roots: &WorkerRoots<'_>,
    path: &str,
    offset: u64,
    length: Option<u64>,
    output: &mut impl Write,
) -> Result<Reply, GuestError> {
    let (file, stat) = roots.resolve(path)?.open_file(READING)?;
    let size = stat.st_size.cast_unsigned();
    let mut file = File::from(file);
    if offset > 0 {
        // No file is larger than a signed offset.
        let offset = offset.min(i64::MAX.cast_unsigned());
        file.seek(SeekFrom::Start(offset)).map_err(|error| io_failure(&error, path, READING))?;
    }
    copy(&mut file, output, length.unwrap_or(u64::MAX), path, READING)?;
    Ok(Reply::Read { size })
}

fn image_type(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// Returns the requested lines: first and last, inclusive.
fn check_range(path: &str, range: Option<LineRange>) -> Result<(u64, u64), GuestError> {
    let Some(LineRange { first, last }) = range else { return Ok((1, u64::MAX)) };
    let last = last.unwrap_or(u64::MAX);
    if first == 0 || last < first {
        let message = format!(
            "cannot view lines {first} to {last} of `{path}`: lines count from 1, and the first is not after the last"
        );
        return Err(error::error(ErrorCode::BadRequest, message));
    }
    Ok((first, last))
}

/// The position of the requested lines in a text.
#[derive(Debug, PartialEq, Eq)]
struct TextScan {
    size: u64,
    lines: u64,
    /// The byte range of the requested lines.
    start: u64,
    end: u64,
}

/// Scans a whole file. `None` when it is not text.
fn scan_text(file: &mut impl Read, path: &str, wanted: (u64, u64)) -> Result<Option<TextScan>, GuestError> {
    let mut buffer = vec![0; CHUNK_LEN];
    // The number of bytes at the start of the buffer that begin an incomplete character.
    let mut carried = 0;
    // The line breaks so far, and the byte range of the requested lines once it is known.
    let (mut size, mut breaks) = (0_u64, 0_u64);
    let mut start = (wanted.0 == 1).then_some(0);
    let mut end = None;
    let mut ends_in_break = true;
    loop {
        let space = buffer.get_mut(carried..).unwrap_or_default();
        let length = match file.read(space) {
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(io_failure(&error, path, DOING)),
        };
        let fresh = space.get(..length).unwrap_or_default();
        if length == 0 {
            if carried > 0 {
                return Ok(None);
            }
            break;
        }
        if fresh.contains(&0) {
            return Ok(None);
        }
        let count = fresh.iter().filter(|byte| **byte == b'\n').count() as u64;
        // Only a chunk that contains a boundary is inspected byte by byte.
        let is_near = |line: u64| (breaks..breaks.saturating_add(count)).contains(&line);
        if is_near(wanted.0.saturating_sub(2)) && start.is_none() || is_near(wanted.1 - 1) && end.is_none() {
            let mut line = breaks;
            for (at, _) in (1..).zip(fresh).filter(|(_, byte)| **byte == b'\n') {
                line += 1;
                if line + 1 == wanted.0 {
                    start.get_or_insert(size + at);
                }
                if line == wanted.1 {
                    end.get_or_insert(size + at);
                }
            }
        }
        ends_in_break = fresh.last() == Some(&b'\n');
        breaks += count;
        size += length as u64;
        let filled = buffer.get(..carried + length).unwrap_or_default();
        match std::str::from_utf8(filled) {
            Ok(_) => carried = 0,
            Err(error) if error.error_len().is_none() => {
                let from = error.valid_up_to();
                let to = filled.len();
                buffer.copy_within(from..to, 0);
                carried = to - from;
            }
            Err(_) => return Ok(None),
        }
    }
    let lines = breaks + u64::from(!ends_in_break);
    let start = start.unwrap_or(size);
    Ok(Some(TextScan { size, lines, start, end: end.unwrap_or(size).max(start) }))
}

/// Sends the requested lines, at most `max_bytes`, cut between characters. Returns the number of bytes and of
/// lines.
fn send(
    file: &mut File,
    path: &str,
    scan: &TextScan,
    max_bytes: u64,
    output: &mut impl Write,
) -> Result<(u64, u64), GuestError> {
    let mut length = (scan.end - scan.start).min(max_bytes);
    if length < scan.end - scan.start {
        // The first omitted byte starts a character, or one of the three bytes before it does.
        let back = length.min(3);
        let mut around = Vec::new();
        file.seek(SeekFrom::Start(scan.start + length - back))
            .map_err(|error| io_failure(&error, path, DOING))?;
        file.take(back + 1).read_to_end(&mut around).map_err(|error| io_failure(&error, path, DOING))?;
        let tail = around.iter().rev().take_while(|byte| **byte & 0xc0 == 0x80).count() as u64;
        length -= tail.min(back);
    }
    file.seek(SeekFrom::Start(scan.start)).map_err(|error| io_failure(&error, path, DOING))?;
    let mut copier =
        TextCopier { output, carried: Vec::new(), is_text: true, breaks: 0, ends_in_break: true };
    let sent = copy(file, &mut copier, length, path, DOING)?;
    if !copier.is_text || !copier.carried.is_empty() {
        let message = format!("cannot view `{path}`: it was changed while it was read; view it again");
        return Err(error::io(message));
    }
    Ok((sent, copier.breaks + u64::from(!copier.ends_in_break)))
}

/// Copies text, counts its lines, and checks that it is UTF-8.
struct TextCopier<'a, W> {
    output: &'a mut W,
    /// The last bytes, if they begin an incomplete character: at most three.
    carried: Vec<u8>,
    is_text: bool,
    breaks: u64,
    ends_in_break: bool,
}

impl<W> TextCopier<'_, W> {
    fn check(&mut self, bytes: &[u8]) {
        let joined = [self.carried.as_slice(), bytes].concat();
        self.carried.clear();
        if let Err(error) = std::str::from_utf8(&joined) {
            self.is_text &= error.error_len().is_none();
            if self.is_text {
                self.carried.extend_from_slice(joined.get(error.valid_up_to()..).unwrap_or_default());
            }
        }
    }
}

impl<W: Write> Write for TextCopier<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let length = self.output.write(bytes)?;
        let written = bytes.get(..length).unwrap_or_default();
        self.check(written);
        self.breaks += written.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.ends_in_break = written.last().map_or(self.ends_in_break, |byte| *byte == b'\n');
        Ok(length)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns its bytes in chunks of the given sizes, repeatedly.
    struct Pieces<'a>(&'a [u8], Vec<usize>, usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let size = self.1[self.2 % self.1.len()].min(buffer.len());
            self.2 += 1;
            self.0.read(&mut buffer[..size])
        }
    }

    proptest! {
        #[test]
        fn a_text_scan_agrees_with_the_lines_of_the_text(
            text in "[ab\né語]{0,60}",
            first in 1_u64..8,
            more in prop::option::of(0_u64..6),
            sizes in prop::collection::vec(1_usize..9, 1..4),
        ) {
            let last = more.map_or(u64::MAX, |more| first + more);
            let found = scan_text(&mut Pieces(text.as_bytes(), sizes, 0), "x", (first, last)).expect("readable");
            let lines: Vec<&str> = text.split_inclusive('\n').collect();
            let skip = lines.len().min(first as usize - 1);
            let take = usize::try_from((last - first).saturating_add(1)).unwrap_or(usize::MAX);
            let wanted: String = lines[skip..].iter().take(take).copied().collect();
            let found = found.expect("text");
            prop_assert_eq!(found.lines, lines.len() as u64);
            prop_assert_eq!(found.size, text.len() as u64);
            prop_assert_eq!(&text[found.start as usize..found.end as usize], wanted);
        }

        #[test]
        fn the_text_copier_detects_invalid_text(bytes in prop::collection::vec(any::<u8>(), 0..20), size in 1_usize..9) {
            let mut copier =
                TextCopier { output: &mut Vec::new(), carried: Vec::new(), is_text: true, breaks: 0, ends_in_break: true };
            for piece in bytes.chunks(size) {
                copier.write_all(piece).expect("memory takes all");
                prop_assert!(copier.carried.len() < 4);
            }
            let is_text = copier.is_text && copier.carried.is_empty();
            prop_assert_eq!(is_text, std::str::from_utf8(&bytes).is_ok());
        }

        #[test]
        fn the_text_scan_detects_invalid_text(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            sizes in prop::collection::vec(1_usize..9, 1..4),
        ) {
            let found = scan_text(&mut Pieces(&bytes, sizes, 0), "x", (1, u64::MAX)).expect("readable");
            let is_text = std::str::from_utf8(&bytes).is_ok() && !bytes.contains(&0);
            prop_assert_eq!(found.is_some(), is_text);
        }
    }
}
