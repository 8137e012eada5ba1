//! Files that are hard to find. The processes that hold them are grandchildren of one that stands for the guest.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::Uid;

use super::*;

const UNBOUNDED: DiskUsage = DiskUsage { bytes: u64::MAX, inodes: u64::MAX };

const MIB: u64 = 1 << 20;

struct Holder {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Holder {
    /// Runs a shell script in `dir`. It prints a line when it is ready, and reads a line to continue.
    #[expect(clippy::disallowed_methods, reason = "the kernel decides how such files look")]
    fn start(dir: &Path, script: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "sh -c 'sh -c \"$SCRIPT\"; true'; true"]).env("SCRIPT", script);
        command.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a shell");
        let input = process.stdin.take().expect("a pipe");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, input, output }
    }

    fn ready(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn proceed(&mut self) {
        self.input.write_all(b"\n").expect("it reads");
    }

    fn measure(&self, dir: &Path) -> Measurement {
        let dir = std::fs::File::open(dir).expect("a directory").into();
        measure(&dir, "/elsewhere", Pid::from_child(&self.process), UNBOUNDED).expect("measured")
    }

    fn end(mut self) {
        drop(self.input);
        self.process.wait().expect("it ends");
    }
}

/// Whether this is root. Where not, that is recorded as a skip of the calling test.
#[track_caller]
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        test_support::skip("only root can make such files", "run the tests as root");
    }
    is_root
}

/// Its files have another device than its directories.
#[test]
fn files_of_a_layered_file_system_count() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let script = "exec unshare --mount sh -ec '
        mkdir low up all; mount -t tmpfs low low; mount -t tmpfs up up; mkdir up/files up/work
        mount -t overlay -o lowerdir=low,upperdir=up/files,workdir=up/work all all; cd all
        exec 3> removed; rm removed; head -c 1M /dev/zero >&3; echo $$; read line
        head -c 2M /dev/zero > kept; mkdir other; mount -t tmpfs other other
        head -c 4M /dev/zero > other/file; echo; read line'";
    let mut holder = Holder::start(dir.path(), script);
    let pid = holder.ready();
    if pid.is_empty() {
        test_support::skip("root may not mount here", "run the tests outside of a container");
        return holder.end();
    }
    let top = PathBuf::from(format!("/proc/{pid}/cwd"));
    assert_eq!(holder.measure(&top).used, DiskUsage { bytes: MIB, inodes: 2 });
    holder.proceed();
    holder.ready();
    assert_eq!(holder.measure(&top).used, DiskUsage { bytes: 3 * MIB, inodes: 3 });
    holder.proceed();
    holder.end();
}

/// The path of the mapping need not lie in the directory: the file system may be mounted twice.
#[test]
fn mapped_files_are_known_to_be_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = |kept: &str| {
        format!(
            "exec python3 -c \"
import mmap, os
memory = mmap.mmap(-1, 4096, mmap.MAP_SHARED)
named = os.memfd_create('name')
os.write(named, bytes(4096))
of_named = mmap.mmap(named, 4096)
os.close(named)
file = os.open('file', os.O_RDWR | os.O_CREAT)
os.unlink('file')
os.write(file, bytes(4096))
{kept}
os.close(file)
print(flush=True)
input()\""
        )
    };
    for (kept, expected) in [
        ("", Completeness::Complete),
        // Such a mapping has a descriptor of its own.
        ("mapping = mmap.mmap(file, 4096)", Completeness::Complete),
        ("import ctypes; ctypes.CDLL(None).mmap(None, 4096, 1, 1, file, 0)", Completeness::Incomplete),
    ] {
        let mut holder = Holder::start(dir.path(), &script(kept));
        holder.ready();
        assert_eq!(holder.measure(dir.path()).completeness, expected, "{kept}");
        holder.proceed();
        holder.end();
    }
}

/// A directory of another user, whose files programs can use by their names, may hide some.
#[test]
fn directories_that_programs_cannot_enter_hide_nothing() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let set = |name: &str, mode: u32| {
        let path = dir.path().join(name);
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("changed");
    };
    std::fs::create_dir_all(dir.path().join("other/below")).expect("a directory");
    set("", 0o755);
    // Only this thread gets another user.
    let measure_as_other = || {
        let path = dir.path().to_owned();
        let thread = std::thread::spawn(move || {
            let other = Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(other, other, other).expect("root may");
            let dir = std::fs::File::open(path).expect("a directory").into();
            measure(&dir, "/elsewhere", Pid::from_raw(i32::MAX).expect("no process"), UNBOUNDED)
        });
        let measurement = thread.join().expect("it ends").expect("measured");
        (measurement.used.inodes, measurement.completeness)
    };
    for (mode, expected) in [
        (0o755, (3, Completeness::Complete)),
        (0o744, (2, Completeness::Complete)),
        (0o700, (2, Completeness::Complete)),
        (0o711, (2, Completeness::Incomplete)),
    ] {
        set("other", mode);
        assert_eq!(measure_as_other(), expected, "{mode:o}");
    }
}
