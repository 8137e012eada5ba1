//! Inflates the content of entries, and counts it meanwhile: declared sizes are never trusted.

use flate2::{Crc, Decompress, FlushDecompress, Status};

use crate::package::archive::{Method, ZipEntry};
use crate::package::limits::PackageLimits;
use crate::package::problem::PackageProblem;

const BUFFER_BYTES: usize = 64 * 1024;

/// Why the content of an entry could not be read.
#[derive(Debug)]
pub(crate) enum InflateError<E> {
    Package(PackageProblem),
    /// The sink failed.
    Sink(E),
}

impl<E> From<PackageProblem> for InflateError<E> {
    fn from(problem: PackageProblem) -> Self {
        Self::Package(problem)
    }
}

/// Checks the declared sizes of an entry, before anything is inflated.
pub(crate) fn check_declared_sizes(member: &ZipEntry, limits: &PackageLimits) -> Result<(), PackageProblem> {
    if member.size > limits.entry_bytes {
        return Err(PackageProblem::Limit { what: "bytes", limit: limits.entry_bytes });
    }
    check_ratio(member.size, member.data.len() as u64, limits)
}

const fn check_ratio(size: u64, compressed: u64, limits: &PackageLimits) -> Result<(), PackageProblem> {
    if limits.allows_ratio(size, compressed) {
        Ok(())
    } else {
        Err(PackageProblem::Limit { what: "bytes for each compressed one", limit: limits.ratio })
    }
}

/// Writes the content of an entry to a sink, in chunks. It never writes more than the declared size, and succeeds
/// only if the checksum is correct.
pub(crate) fn unpack<E>(
    member: &ZipEntry,
    archive: &[u8],
    limits: &PackageLimits,
    sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), InflateError<E>> {
    let data = &archive[member.data.clone()];
    let mut crc = Crc::new();
    let mut size = 0;
    let mut take = |piece: &[u8], size: &mut u64| {
        *size += piece.len() as u64;
        if *size > member.size {
            return Err(InflateError::Package(PackageProblem::Contradiction {
                what: "it holds more bytes than it claims",
            }));
        }
        check_ratio(*size, data.len() as u64, limits)?;
        crc.update(piece);
        sink(piece).map_err(InflateError::Sink)
    };
    match member.method {
        Method::Stored => {
            for piece in data.chunks(BUFFER_BYTES) {
                take(piece, &mut size)?;
            }
        }
        Method::Deflated => inflate(data, |piece| take(piece, &mut size))?,
    }
    if size != member.size {
        return Err(PackageProblem::Contradiction { what: "it holds fewer bytes than it claims" }.into());
    }
    if crc.sum() != member.crc {
        return Err(PackageProblem::Corrupt { what: "its checksum is not that of its content" }.into());
    }
    Ok(())
}

fn inflate<E>(
    mut data: &[u8],
    mut take: impl FnMut(&[u8]) -> Result<(), InflateError<E>>,
) -> Result<(), InflateError<E>> {
    let corrupt = |what| InflateError::Package(PackageProblem::Corrupt { what });
    let mut state = Decompress::new(false);
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let (consumed, produced) = (state.total_in(), state.total_out());
        let status = state.decompress(data, &mut buffer, FlushDecompress::None);
        let status = status.map_err(|_| corrupt("its content is not deflated data"))?;
        let consumed = usize::try_from(state.total_in() - consumed).unwrap_or(usize::MAX);
        let produced = usize::try_from(state.total_out() - produced).unwrap_or(usize::MAX);
        data = data.get(consumed..).unwrap_or_default();
        take(buffer.get(..produced).unwrap_or_default())?;
        match status {
            Status::StreamEnd if data.is_empty() => return Ok(()),
            Status::StreamEnd => return Err(corrupt("bytes follow its content")),
            Status::Ok | Status::BufError if consumed == 0 && produced == 0 => {
                return Err(corrupt("its content has no end"));
            }
            Status::Ok | Status::BufError => {}
        }
    }
}
