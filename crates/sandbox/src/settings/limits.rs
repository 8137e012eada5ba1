//! The resource limits of a sandbox: memory, processors, processes, files, disk. Values are checked when they are
//! set, so a connector never gets a limit that the kernel refuses.
//!
//! A limit applies only if the machine can enforce it. Otherwise the boundary is open in the sandbox's
//! [`crate::Isolation`]. That is an error if the context's floor requires the boundary.

/// An invalid limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be {min} to {max}, and is {value}")]
pub struct LimitError {
    what: &'static str,
    min: String,
    max: String,
    value: String,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
const TIB: u64 = 1024 * GIB;

/// The resource limits of a sandbox.
///
/// ```
/// use conjure_sandbox::Limits;
///
/// let limits = Limits::default().with_memory(64 << 20)?.with_cpus(0.5)?;
/// assert_eq!((limits.memory(), limits.cpus()), (64 << 20, 0.5));
/// assert!(Limits::default().with_memory(0).is_err());
/// # Ok::<(), conjure_sandbox::LimitError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    memory: u64,
    /// The number of processors in thousandths, so that limits can be compared.
    millicpus: u32,
    processes: u32,
    open_files: u32,
    disk: u64,
    inodes: u64,
    tmp: u64,
    disk_limit: DiskLimit,
}

/// How the limits on bytes and files of a workspace are enforced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum DiskLimit {
    /// The guest measures often and ends commands that exceed it. This works on every machine; the limit may be
    /// exceeded a little.
    #[default]
    Watched,
    /// The kernel enforces it exactly, with a file system of the workspace's own. It works for jails of a root process,
    /// in a session's own workspace, and needs `mke2fs` (package e2fsprogs), `mount` and a loop device. If it cannot be
    /// used, that is an error.
    Kernel,
}

impl Default for Limits {
    /// The defaults of the specification (5.8, 13.1) are 512 MiB of memory and one processor. Further defaults: 256
    /// processes, 1,024 open files each; 1 GiB and 200,000 files and directories in the workspace; 256 MiB of
    /// temporary files.
    fn default() -> Self {
        Self {
            memory: 512 * MIB,
            millicpus: 1000,
            processes: 256,
            open_files: 1024,
            disk: GIB,
            inodes: 200_000,
            tmp: 256 * MIB,
            disk_limit: DiskLimit::Watched,
        }
    }
}

impl Limits {
    /// The maximum memory of all processes together in bytes, temporary files included.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        self.memory
    }

    /// The number of processors.
    #[must_use]
    pub fn cpus(&self) -> f64 {
        f64::from(self.millicpus) / 1000.0
    }

    /// The number of processors in thousandths.
    #[must_use]
    pub const fn millicpus(&self) -> u32 {
        self.millicpus
    }

    /// The number of processes and threads.
    #[must_use]
    pub const fn processes(&self) -> u32 {
        self.processes
    }

    /// The number of open files of each process.
    #[must_use]
    pub const fn open_files(&self) -> u32 {
        self.open_files
    }

    /// The maximum disk usage of the workspace in bytes.
    #[must_use]
    pub const fn disk(&self) -> u64 {
        self.disk
    }

    /// The number of files and directories in the workspace.
    #[must_use]
    pub const fn inodes(&self) -> u64 {
        self.inodes
    }

    /// The maximum size of temporary files outside the workspace, in bytes.
    #[must_use]
    pub const fn tmp(&self) -> u64 {
        self.tmp
    }

    /// How the limit of the workspace is enforced.
    #[must_use]
    pub const fn disk_limit(&self) -> DiskLimit {
        self.disk_limit
    }

    /// Sets how the limit of the workspace is enforced.
    #[must_use]
    pub const fn with_disk_limit(self, disk_limit: DiskLimit) -> Self {
        Self { disk_limit, ..self }
    }

    /// Sets the memory in bytes: 8 MiB to 64 TiB.
    ///
    /// # Errors
    /// If the value is out of range.
    pub fn with_memory(self, bytes: u64) -> Result<Self, LimitError> {
        in_range("memory", bytes, 8 * MIB, 64 * TIB, size)?;
        Ok(Self { memory: bytes, ..self })
    }

    /// Sets the number of processors: 0.05 to 4,096, rounded down to thousandths. With fewer, a container may not
    /// start in time, and measuring its disk usage can take too long.
    ///
    /// # Errors
    /// If the value is out of range or not a number.
    pub fn with_cpus(self, cpus: f64) -> Result<Self, LimitError> {
        const LEAST: f64 = 0.05;
        const MOST: f64 = 4096.0;
        if !(LEAST..=MOST).contains(&cpus) {
            return Err(LimitError {
                what: "the number of processors",
                min: LEAST.to_string(),
                max: MOST.to_string(),
                value: cpus.to_string(),
            });
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 50 and 4,096,000, as was just checked"
        )]
        let millicpus = (cpus * 1000.0) as u32;
        Ok(Self { millicpus, ..self })
    }

    /// Sets the number of processes and threads: 8 to 1,000,000.
    ///
    /// # Errors
    /// If the value is out of range.
    pub fn with_processes(self, processes: u32) -> Result<Self, LimitError> {
        in_range("the number of processes", processes.into(), 8, 1_000_000, unit_value)?;
        Ok(Self { processes, ..self })
    }

    /// Sets the number of open files of each process: 32 to 1,000,000.
    ///
    /// # Errors
    /// If the value is out of range.
    pub fn with_open_files(self, open_files: u32) -> Result<Self, LimitError> {
        in_range("the number of open files", open_files.into(), 32, 1_000_000, unit_value)?;
        Ok(Self { open_files, ..self })
    }

    /// Sets the bytes of the workspace: 64 KiB to 64 TiB.
    ///
    /// # Errors
    /// If the value is out of range.
    pub fn with_disk(self, bytes: u64) -> Result<Self, LimitError> {
        in_range("the size of the workspace", bytes, 64 * KIB, 64 * TIB, size)?;
        Ok(Self { disk: bytes, ..self })
    }

    /// Sets the number of files and directories in the workspace: 16 to 1,000,000,000.
    ///
    /// # Errors
    /// If the value is out of range.
    pub fn with_inodes(self, inodes: u64) -> Result<Self, LimitError> {
        in_range("the number of files in the workspace", inodes, 16, 1_000_000_000, unit_value)?;
        Ok(Self { inodes, ..self })
    }

    /// Sets the bytes of temporary files: 64 KiB to 64 TiB.
    ///
    /// # Errors
    /// If the value is out of range.
    pub fn with_tmp(self, bytes: u64) -> Result<Self, LimitError> {
        in_range("the size of temporary files", bytes, 64 * KIB, 64 * TIB, size)?;
        Ok(Self { tmp: bytes, ..self })
    }
}

fn in_range(
    what: &'static str,
    given: u64,
    least: u64,
    most: u64,
    write: fn(u64) -> String,
) -> Result<(), LimitError> {
    if (least..=most).contains(&given) {
        return Ok(());
    }
    Err(LimitError { what, min: write(least), max: write(most), value: write(given) })
}

fn unit_value(number: u64) -> String {
    number.to_string()
}

/// Formats a number of bytes in the largest exact unit.
fn size(bytes: u64) -> String {
    let units = [(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
    units
        .into_iter()
        .find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit))
        .map_or_else(|| format!("{bytes} bytes"), |(unit, name)| format!("{} {name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_sandbox_could_live_with_is_refused_with_its_bounds() {
        let limits = Limits::default();
        let refusals = [
            limits.with_memory(0),
            limits.with_memory(u64::MAX),
            limits.with_cpus(0.0),
            limits.with_cpus(-1.0),
            limits.with_cpus(f64::NAN),
            limits.with_cpus(f64::INFINITY),
            limits.with_processes(0),
            limits.with_processes(u32::MAX),
            limits.with_open_files(3),
            limits.with_disk(0),
            limits.with_inodes(0),
            limits.with_tmp(u64::MAX),
        ];
        let texts: Vec<String> =
            refusals.into_iter().map(|refusal| refusal.unwrap_err().to_string()).collect();
        assert_eq!(texts[0], "memory must be 8 MiB to 64 TiB, and is 0 bytes");
        assert_eq!(texts[2], "the number of processors must be 0.05 to 4096, and is 0");
        assert_eq!(texts[4], "the number of processors must be 0.05 to 4096, and is NaN");
        assert_eq!(texts[6], "the number of processes must be 8 to 1000000, and is 0");
    }

    #[test]
    fn processors_count_in_thousandths() {
        let limits = Limits::default().with_cpus(1.2345).unwrap();
        assert_eq!(limits.millicpus(), 1234);
        assert_eq!(Limits::default().with_cpus(0.05).unwrap().millicpus(), 50);
    }
}
