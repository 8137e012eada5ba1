//! The guest binary, which is built into the library, in an executable form.
//!
//! It is a sealed memory file, one for the whole process, created at the first use. No process can change it, and a
//! crash leaves nothing. Where the system does not execute memory files (the setting `vm.memfd_noexec`, no `/proc`),
//! each sandbox gets a private file instead, which is removed with it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flate2::read::ZlibDecoder;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

/// A static ELF program, compressed, which saves more than half of it; `build.rs` builds and checks it.
static COMPRESSED: &[u8] = include_bytes!(env!("CONJURE_GUEST_PROGRAM"));

/// The path under which the memory file can be executed.
///
/// # Errors
/// If the system provides no memory file. The next call tries again.
pub(super) fn as_memfd() -> io::Result<PathBuf> {
    static SEALED: OnceLock<OwnedFd> = OnceLock::new();
    let sealed = match SEALED.get() {
        Some(sealed) => sealed,
        // If two threads create a file at the same time, one file is kept and the other is closed.
        None => {
            let made = seal()?;
            SEALED.get_or_init(|| made)
        }
    };
    Ok(PathBuf::from(format!("/proc/self/fd/{}", sealed.as_raw_fd())))
}

fn seal() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = match memfd_create("conjure-guest", flags | MemfdFlags::EXEC) {
        // Kernels before 6.3 do not know the flag; their memory files can always be executed.
        Err(Errno::INVAL) => memfd_create("conjure-guest", flags)?,
        made => made?,
    };
    let mut file = File::from(memory);
    write_to(&mut file)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}

/// The program itself, uncompressed anew at each call: a matter of milliseconds.
#[cfg(feature = "docker")]
pub(crate) fn bytes() -> io::Result<Vec<u8>> {
    let mut program = Vec::new();
    write_to(&mut program)?;
    Ok(program)
}

fn write_to(target: &mut impl Write) -> io::Result<()> {
    io::copy(&mut ZlibDecoder::new(COMPRESSED), target).map(drop)
}

/// Writes the program into this private directory.
pub(super) fn as_file(dir: &Path) -> io::Result<PathBuf> {
    let path = dir.join("conjure-guest");
    if !path.exists() {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o500).open(&path)?;
        write_to(&mut file)?;
    }
    Ok(path)
}
