//! Whether the kernel killed something for want of memory, as far as it can be known from a counter.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The kernel's counter of out-of-memory kills: that of the control group, or else that of the machine.
#[derive(Debug)]
pub(crate) struct OomCounter {
    file: Option<File>,
    /// The group's counter costs little to read; the machine's does not, and is read after a kill only.
    is_cheap: bool,
    last: u64,
}

impl OomCounter {
    pub(crate) fn open() -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut paths = Vec::new();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            if controllers.is_empty() {
                paths.push(format!("/sys/fs/cgroup{path}/memory.events"));
            } else if controllers.split(',').any(|controller| controller == "memory") {
                paths.push(format!("/sys/fs/cgroup/memory{path}/memory.oom_control"));
            }
        }
        // In a container, the own group often appears as the root.
        paths.push("/sys/fs/cgroup/memory.events".to_owned());
        paths.push("/sys/fs/cgroup/memory/memory.oom_control".to_owned());
        let group = paths.iter().filter_map(|path| File::open(path).ok()).find(|file| read(file).is_some());
        let is_cheap = group.is_some();
        let file = group.or_else(|| File::open("/proc/vmstat").ok());
        let mut counter = Self { file, is_cheap, last: 0 };
        counter.last = counter.current();
        counter
    }

    fn current(&self) -> u64 {
        self.file.as_ref().and_then(read).unwrap_or(0)
    }

    /// The counter before a command runs.
    pub(crate) fn before(&self) -> u64 {
        if self.is_cheap { self.current() } else { self.last }
    }

    /// Whether something was killed since the counter was `before`.
    pub(crate) fn has_risen(&mut self, before: u64) -> bool {
        self.last = self.current();
        self.last > before
    }
}

fn read(file: &File) -> Option<u64> {
    // `/proc/vmstat` has some 5 KiB.
    let mut bytes = [0_u8; 16 * 1024];
    let length = file.read_at(&mut bytes, 0).ok()?;
    std::str::from_utf8(bytes.get(..length)?)
        .ok()?
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill "))
        .and_then(|count| count.trim().parse().ok())
}
