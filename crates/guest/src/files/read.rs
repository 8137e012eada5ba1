//! Sending a file's bytes.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

use conjure_guest::protocol::{GuestError, Reply};

use super::roots::Reach;
use super::worker::{failed, pass};

const DOING: &str = "read";

/// Sends `length` bytes of a file from `offset`.
pub(super) fn read(
    reach: &Reach<'_>,
    path: &str,
    offset: u64,
    length: Option<u64>,
    output: &mut impl Write,
) -> Result<Reply, GuestError> {
    let (file, stat) = reach.place(path)?.open_file(DOING)?;
    let size = stat.st_size.cast_unsigned();
    let mut file = File::from(file);
    if offset > 0 {
        // No file is longer than a signed offset tells.
        let offset = offset.min(i64::MAX.cast_unsigned());
        file.seek(SeekFrom::Start(offset)).map_err(|error| failed(&error, path, DOING))?;
    }
    pass(&mut file, output, length.unwrap_or(u64::MAX), path, DOING)?;
    Ok(Reply::Read { size })
}
