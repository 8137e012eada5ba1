//! Files: what is reached, what is refused, and what a failure leaves behind.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags};

use conjure_guest::protocol::{
    EntryKind, ErrorCode, FrameKind, GuestError, LineRange, Reply, Request, ViewReply,
};

use crate::client::{Guest, PLENTY, wait_until};

fn view(path: &str, range: Option<(u64, Option<u64>)>, max_bytes: u64) -> Request {
    let range = range.map(|(first, last)| LineRange { first, last });
    Request::View { path: path.to_owned(), range, max_bytes }
}

fn replace(path: &str, old: &str, new: &str) -> Request {
    Request::Replace { path: path.to_owned(), old: old.to_owned(), new: new.to_owned() }
}

/// No draft is left in a directory.
#[track_caller]
fn assert_no_drafts(dir: &Path) {
    let entries = std::fs::read_dir(dir).expect("a directory").flatten();
    let drafts: Vec<_> = entries
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().contains("conjure"))
        .collect();
    assert_eq!(drafts, Vec::<std::ffi::OsString>::new());
}

#[test]
fn what_is_written_is_read() {
    let mut guest = Guest::start();
    let content: Vec<u8> = (0..10_000_000_u32).map(|number| (number % 253) as u8).collect();
    for (path, content, dirs) in [("a/b/c.bin", content.as_slice(), 2), ("small", b"x", 0), ("empty", b"", 0)]
    {
        let size = content.len() as u64;
        assert_eq!(guest.write(path, content), Ok(Reply::Write { size, existed: false, dirs }));
        let outcome = guest.read(path);
        assert_eq!(outcome.result, Ok(Reply::Read { size }));
        assert!(outcome.content == content, "{path} came back changed");
        assert_eq!(guest.write(path, b"new"), Ok(Reply::Write { size: 3, existed: true, dirs: 0 }));
        assert_eq!(std::fs::read(guest.work(path)).expect("there"), b"new");
    }
    let part = Request::Read { path: "small".to_owned(), offset: 1, length: Some(1) };
    assert_eq!(guest.call(part).content, b"e");
    let beyond = Request::Read { path: "small".to_owned(), offset: 100, length: None };
    assert_eq!(guest.call(beyond).content, b"");
    let absolute = guest.work("small").display().to_string();
    assert_eq!(guest.read(&absolute).content, b"new");
    assert_no_drafts(&guest.path("work"));
}

#[test]
fn content_that_uses_up_its_credit_ends_all_the_same() {
    let mut guest = Guest::start();
    for size in [1, 5, 64 * 1024, 300_000] {
        assert!(guest.write("file", &vec![b'x'; size]).is_ok());
        let read = Request::Read { path: "file".to_owned(), offset: 0, length: None };
        let channel = guest.open(read, u32::try_from(size).expect("small"), None);
        let outcome = guest.finish(channel);
        assert_eq!(outcome.result, Ok(Reply::Read { size: size as u64 }));
        assert_eq!(outcome.content.len(), size);
    }
    let channel = guest.open(view("file", None, 300_000), 300_000, None);
    assert_eq!(guest.finish(channel).content.len(), 300_000);
}

#[test]
fn permissions_are_kept_or_as_asked_for() {
    let mut guest = Guest::start();
    let mode =
        |guest: &Guest, name: &str| std::fs::metadata(guest.work(name)).expect("there").mode() & 0o7777;
    guest.write("plain", b"1").expect("written");
    assert_eq!(mode(&guest, "plain"), 0o644);
    std::fs::set_permissions(guest.work("plain"), std::fs::Permissions::from_mode(0o750)).expect("changed");
    guest.write("plain", b"2").expect("written");
    assert_eq!(mode(&guest, "plain"), 0o750);
    let channel = guest.open(Request::Write { path: "plain".to_owned(), mode: Some(0o4711) }, 0, None);
    guest.feed(channel, b"3");
    guest.finish(channel).result.expect("written");
    assert_eq!(mode(&guest, "plain"), 0o711, "and no set-user-id");
    guest.call(replace("plain", "3", "4")).result.expect("replaced");
    assert_eq!(mode(&guest, "plain"), 0o711);
}

#[test]
fn a_truncated_write_leaves_the_old_file() {
    let mut guest = Guest::start();
    guest.write("file", b"old").expect("written");
    for path in ["file", "new/directory/file"] {
        let channel = guest.open(Request::Write { path: path.to_owned(), mode: None }, 0, None);
        assert_eq!(guest.next_of(channel).kind, FrameKind::Credit);
        guest.send_data(channel, b"half");
        guest.send(FrameKind::Cancel, channel, &[]);
        assert_eq!(guest.finish(channel).result.expect_err("cancelled").code, ErrorCode::Cancelled);
        // The host that does not know yet.
        guest.send_data(channel, b"more");
    }
    let channel = guest.open(Request::Write { path: "file".to_owned(), mode: None }, 0, Some(50));
    let error = guest.finish(channel).result.expect_err("late");
    assert_eq!(error.code, ErrorCode::TimedOut);
    assert!(error.message.contains("`file`"), "{error}");
    assert_eq!(std::fs::read(guest.work("file")).expect("there"), b"old");
    assert!(!guest.work("new").exists());
    assert_no_drafts(&guest.path("work"));
}

#[test]
fn a_full_disk_leaves_the_old_file() {
    let mut guest = Guest::start();
    guest.write("file", b"old").expect("written");
    // The limit of file size stands for the disk: it needs no privilege, and the worker inherits it.
    let pid = rustix::process::Pid::from_raw(guest.pid().cast_signed());
    let limit = rustix::process::Rlimit { current: Some(100_000), maximum: Some(100_000) };
    rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limit).expect("set");
    let error = guest.write("file", &vec![1; 3_000_000]).expect_err("too much");
    assert_eq!(error.code, ErrorCode::TooLarge);
    assert!(error.message.contains("`file`"), "{error}");
    assert_eq!(std::fs::read(guest.work("file")).expect("there"), b"old");
    assert_no_drafts(&guest.path("work"));
    // The spill of a command, too, is cut by it, which is no failure of the command.
    let outcome = guest.bash("seq 100000");
    assert_eq!(outcome.exec().stdout.total, 588_895);
    assert_eq!(outcome.exec().stdout.spill_path, None);
    assert_eq!(std::fs::read_dir(guest.work(".spill")).expect("a directory").count(), 0);
}

#[track_caller]
fn refused(guest: &mut Guest, path: &str) -> GuestError {
    let read = guest.read(path);
    assert_eq!(read.content, b"", "{path}");
    let error = read.result.expect_err(path);
    assert!(error.message.contains(path), "{error}");
    let viewed = guest.call(view(path, None, 1000));
    assert_eq!(viewed.content, b"", "{path}");
    assert_eq!(viewed.result.expect_err(path).code, error.code);
    error
}

#[test]
fn paths_outside_the_roots_are_refused() {
    let mut guest = Guest::start();
    let secret = guest.path("outside/secret");
    std::fs::write(&secret, "secret").expect("written");
    symlink(&secret, guest.work("absolute")).expect("linked");
    symlink("../outside/secret", guest.work("climbing")).expect("linked");
    symlink(guest.path("outside"), guest.work("directory")).expect("linked");
    symlink("/proc/self/cwd", guest.work("magic")).expect("linked");
    symlink("loop", guest.work("loop")).expect("linked");
    std::fs::write(guest.work("real"), "real").expect("written");
    symlink("real", guest.work("inside")).expect("linked");
    let absolute = secret.display().to_string();
    let dotted = guest.path("work/../outside/secret").display().to_string();
    let paths = [
        "absolute",
        "climbing",
        "directory/secret",
        "magic/x",
        "loop",
        "../outside/secret",
        "a/../../outside/secret",
        absolute.as_str(),
        dotted.as_str(),
        "/etc/passwd",
        "/",
        "/proc/self/root/etc/passwd",
    ];
    for path in paths {
        let error = refused(&mut guest, path);
        // `a` does not exist, which is all that may be learnt.
        let is_refused = error.code == ErrorCode::PathNotAllowed || path.starts_with("a/");
        assert!(is_refused, "{path}: {error:?}");
        guest.write(path, b"written").expect_err(path);
        guest.call(replace(path, "secret", "changed")).result.expect_err(path);
        let list = Request::List { path: path.to_owned(), depth: 1, max_entries: 10, hidden: true };
        guest.call(list).result.expect_err(path);
    }
    assert_eq!(std::fs::read(&secret).expect("there"), b"secret");
    assert_eq!(std::fs::read_dir(guest.path("outside")).expect("a directory").count(), 1);
    // A link within the root is followed, and stays a link.
    assert_eq!(guest.read("inside").content, b"real");
    guest.write("inside", b"changed").expect("written");
    assert_eq!(std::fs::read(guest.work("real")).expect("there"), b"changed");
    assert!(guest.work("inside").is_symlink());
}

#[test]
fn read_only_roots_are_not_changed() {
    let mut guest = Guest::start();
    let fixed = guest.path("fixed/file");
    std::fs::write(&fixed, "fixed").expect("written");
    let path = fixed.display().to_string();
    assert_eq!(guest.read(&path).content, b"fixed");
    assert_eq!(guest.write(&path, b"x").expect_err("refused").code, ErrorCode::PathNotAllowed);
    assert_eq!(
        guest.call(replace(&path, "fixed", "x")).result.expect_err("refused").code,
        ErrorCode::PathNotAllowed
    );
    let below = guest.path("fixed/new/file").display().to_string();
    assert_eq!(guest.write(&below, b"x").expect_err("refused").code, ErrorCode::PathNotAllowed);
    assert_eq!(std::fs::read_dir(guest.path("fixed")).expect("a directory").count(), 1);
}

#[test]
fn a_root_for_reading_only_within_another_is_not_changed_by_detours() {
    let mut guest = Guest::start_without_handshake();
    std::fs::create_dir(guest.work("skills")).expect("a directory");
    std::fs::create_dir(guest.work("other")).expect("a directory");
    std::fs::write(guest.work("skills/file"), "fixed").expect("written");
    symlink("skills", guest.work("link")).expect("linked");
    let mut hello = guest.hello();
    let path = guest.work("skills").display().to_string();
    hello
        .roots
        .push(conjure_guest::protocol::Root { path, access: conjure_guest::protocol::Access::ReadOnly });
    guest.send_json(FrameKind::Hello, 0, &hello);
    for path in ["skills/file", "other/../skills/file", "link/file", "link/new/file"] {
        guest.write(path, b"x").expect_err(path);
    }
    assert_eq!(guest.read("link/file").content, b"fixed");
    assert_eq!(std::fs::read_dir(guest.work("skills")).expect("a directory").count(), 1);
}

#[test]
fn races_with_links_do_not_escape() {
    let mut guest = Guest::start();
    let secret = guest.path("outside/file");
    std::fs::write(&secret, "secret").expect("written");
    std::fs::create_dir_all(guest.work("now/sub")).expect("directories");
    std::fs::write(guest.work("now/file"), "inside").expect("written");
    symlink(guest.path("outside"), guest.work("trap")).expect("linked");
    let stop = Arc::new(AtomicBool::new(false));
    let racer = {
        let (stop, work) = (Arc::clone(&stop), guest.path("work"));
        // `now` is the real directory and a link to outside in turn, many times during each operation.
        std::thread::spawn(move || {
            let mut swaps = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let (now, trap) = (work.join("now"), work.join("trap"));
                rustix::fs::renameat_with(CWD, &now, CWD, &trap, RenameFlags::EXCHANGE).expect("swapped");
                swaps += 1;
            }
            swaps
        })
    };
    let mut reached = 0;
    for round in 0..150 {
        for path in ["now/file", "now/sub/../file"] {
            let outcome = guest.read(path);
            reached += usize::from(outcome.content == b"inside");
            assert!(outcome.content == b"inside" || outcome.content.is_empty(), "{outcome:?}");
        }
        // A whole new file in the real directory, or none: never outside.
        let _ = guest.write("now/file", b"inside");
        let _ = guest.write(&format!("now/deep{}/new", round % 3), b"inside");
        let _ = guest.call(replace("now/file", "inside", "inside"));
        assert_eq!(std::fs::read(&secret).expect("there"), b"secret");
    }
    stop.store(true, Ordering::Relaxed);
    let swaps = racer.join().expect("the racer did not fail");
    assert_eq!(std::fs::read_dir(guest.path("outside")).expect("a directory").count(), 1);
    assert_eq!(std::fs::read(&secret).expect("there"), b"secret");
    assert!(swaps > 150 && reached > 0, "{swaps} swaps, reached {reached} times of 300");
}

#[test]
fn only_regular_files_are_files() {
    let mut guest = Guest::start();
    let fifo = guest.work("fifo");
    assert!(guest.bash("mkfifo fifo; mkdir directory").result.is_ok());
    let _socket = std::os::unix::net::UnixListener::bind(guest.work("socket")).expect("bound");
    for name in ["fifo", "socket"] {
        assert_eq!(refused(&mut guest, name).code, ErrorCode::NotRegular);
        assert_eq!(guest.write(name, b"x").expect_err(name).code, ErrorCode::NotRegular);
        assert_eq!(guest.call(replace(name, "a", "b")).result.expect_err(name).code, ErrorCode::NotRegular);
    }
    assert!(fifo.exists());
    assert_eq!(guest.read("directory").result.expect_err("a directory").code, ErrorCode::IsDirectory);
    assert_eq!(guest.write("directory", b"x").expect_err("a directory").code, ErrorCode::IsDirectory);
    assert_eq!(guest.write("", b"x").expect_err("no name").code, ErrorCode::BadRequest);
    assert_eq!(guest.write("..", b"x").expect_err("no name").code, ErrorCode::IsDirectory);
    guest.write("file", b"x").expect("written");
    assert_eq!(guest.write("file/x", b"x").expect_err("a file").code, ErrorCode::NotDirectory);
    assert_eq!(guest.read("none").result.expect_err("none").code, ErrorCode::NotFound);
}

#[test]
fn devices_are_no_files() {
    let mut guest = Guest::start_without_handshake();
    let mut hello = guest.hello();
    let access = conjure_guest::protocol::Access::ReadWrite;
    hello.roots.push(conjure_guest::protocol::Root { path: "/dev".to_owned(), access });
    guest.send_json(FrameKind::Hello, 0, &hello);
    assert_eq!(refused(&mut guest, "/dev/zero").code, ErrorCode::NotRegular);
    assert_eq!(guest.write("/dev/null", b"x").expect_err("a device").code, ErrorCode::NotRegular);
}

#[test]
fn a_text_is_viewed_by_lines() {
    let mut guest = Guest::start();
    std::fs::write(guest.work("text"), "eins\nzwei\ndrei\nvier").expect("written");
    let mut check = |range, max_bytes, expected: &str, first: u64, last: u64, truncated: bool| {
        let outcome = guest.call(view("text", range, max_bytes));
        assert_eq!(String::from_utf8_lossy(&outcome.content), expected);
        let seen =
            ViewReply::Text { first_line: first, last_line: last, total_lines: 4, size: 19, truncated };
        assert_eq!(outcome.result, Ok(Reply::View(seen)));
    };
    check(None, 1000, "eins\nzwei\ndrei\nvier", 1, 4, false);
    check(Some((2, Some(3))), 1000, "zwei\ndrei\n", 2, 3, false);
    check(Some((3, None)), 1000, "drei\nvier", 3, 4, false);
    check(Some((4, Some(99))), 1000, "vier", 4, 4, false);
    check(None, 7, "eins\nzw", 1, 2, true);
    check(None, 5, "eins\n", 1, 1, true);
    check(None, 0, "", 0, 0, true);
    for range in [(0, None), (3, Some(2)), (5, None)] {
        let error = guest.call(view("text", Some(range), 1000)).result.expect_err("no such lines");
        assert_eq!(error.code, ErrorCode::BadRequest, "{error}");
    }
    std::fs::write(guest.work("wide"), "äöü").expect("written");
    assert_eq!(guest.call(view("wide", None, 3)).content, "ä".as_bytes(), "cut between characters");
    std::fs::write(guest.work("none"), "").expect("written");
    let nothing = ViewReply::Text { first_line: 0, last_line: 0, total_lines: 0, size: 0, truncated: false };
    assert_eq!(guest.call(view("none", None, 10)).result, Ok(Reply::View(nothing)));
    std::fs::write(guest.work("binary"), b"text\0").expect("written");
    assert_eq!(guest.call(view("binary", None, 10)).result, Ok(Reply::View(ViewReply::Binary { size: 5 })));
}

#[test]
fn a_huge_text_is_counted_and_its_lines_are_found() {
    let mut guest = Guest::start();
    assert!(guest.bash("seq 5000000 > huge").result.is_ok());
    let outcome = guest.call(view("huge", Some((4_000_000, Some(4_000_001))), 1000));
    assert_eq!(outcome.content, b"4000000\n4000001\n");
    let Ok(Reply::View(ViewReply::Text { total_lines, .. })) = outcome.result else { panic!("{outcome:?}") };
    assert_eq!(total_lines, 5_000_000);
}

#[test]
fn images_are_sent_completely_or_not_at_all() {
    let mut guest = Guest::start();
    let kinds: [(&str, &[u8]); 4] = [
        ("image/png", b"\x89PNG\r\n\x1a\nrest"),
        ("image/jpeg", b"\xff\xd8\xff\xe0rest"),
        ("image/gif", b"GIF89arest"),
        ("image/webp", b"RIFF\x10\0\0\0WEBPrest"),
    ];
    for (media_type, bytes) in kinds {
        std::fs::write(guest.work("image"), bytes).expect("written");
        let size = bytes.len() as u64;
        let outcome = guest.call(view("image", None, size));
        let seen = ViewReply::Image { media_type: media_type.to_owned(), size };
        assert_eq!((outcome.content.as_slice(), outcome.result), (bytes, Ok(Reply::View(seen))));
        let outcome = guest.call(view("image", None, size - 1));
        assert_eq!(outcome.content, b"");
        assert_eq!(outcome.result.expect_err("too large").code, ErrorCode::TooLarge);
    }
}

#[test]
fn directories_are_listed_within_limits() {
    let mut guest = Guest::start();
    let script = "mkdir -p top/a/b/c .hidden/x; echo 12345 > top/a/file; ln -s / top/link; mkfifo top/a-fifo; touch top/.dot
        for i in $(seq 3000); do : > top/a/b/c/$i; done";
    assert!(guest.bash(script).result.is_ok());
    let mut list = |path: &str, depth, max_entries, hidden| {
        let request = Request::List { path: path.to_owned(), depth, max_entries, hidden };
        match guest.call(request).result {
            Ok(Reply::List { entries, truncated }) => {
                let paths: Vec<String> = entries.iter().map(|entry| entry.path.clone()).collect();
                assert!(paths.is_sorted());
                (entries, paths, truncated)
            }
            other => panic!("no list: {other:?}"),
        }
    };
    let (entries, paths, truncated) = list("top", 2, 100, false);
    assert_eq!((paths.join(" ").as_str(), truncated), ("a a-fifo a/b a/file link", false));
    let kinds: Vec<EntryKind> = entries.iter().map(|entry| entry.kind).collect();
    use EntryKind::{Directory, File, Other, Symlink};
    assert_eq!(kinds, [Directory, Other, Directory, File, Symlink]);
    assert_eq!(entries[3].size, 6);
    assert!(entries.iter().all(|entry| entry.modified_ns > 1_600_000_000_000_000_000));
    assert_eq!(list("top", 1, 100, true).1.join(" "), ".dot a a-fifo link");
    assert_eq!(list("top", 9, 4, false).1.join(" "), "a a-fifo a/b link", "outer levels come first");
    let (_, paths, truncated) = list("top", 9, 100_000, false);
    assert_eq!((paths.len(), truncated), (3006, false));
    let (_, paths, truncated) = list("top/a/b/c", 1, 10, false);
    assert_eq!((paths.len(), truncated), (10, true));
    let Ok(Reply::View(ViewReply::Directory { entries, .. })) = guest.call(view("top", None, 10)).result
    else {
        panic!("no directory");
    };
    assert_eq!(entries.len(), 5);
    let error =
        guest.call(Request::List { path: "top/a/file".to_owned(), depth: 1, max_entries: 1, hidden: false });
    assert_eq!(error.result.expect_err("a file").code, ErrorCode::NotDirectory);
}

#[test]
fn a_list_always_fits_into_its_frame() {
    let mut guest = Guest::start();
    // Names of 250 control characters: six times as long in JSON.
    let script = "mkdir many; cd many; x=$(printf '\\001%.0s' $(seq 240)); for i in $(seq 1500); do : > \"$x$i\"; done";
    assert!(guest.bash(script).result.is_ok());
    let request = Request::List { path: "many".to_owned(), depth: 1, max_entries: 100_000, hidden: false };
    let Ok(Reply::List { entries, truncated }) = guest.call(request).result else { panic!("no list") };
    assert!(truncated && entries.len() > 500, "{}", entries.len());
}

/// The whole tree, page by page: paths, what was not listed, and how many pages there were.
fn walk(guest: &mut Guest, path: &str, max_entries: u32) -> (Vec<String>, Vec<String>, usize) {
    let (mut paths, mut unlisted, mut after, mut pages) = (Vec::new(), Vec::new(), None, 0);
    loop {
        let request = Request::Walk { path: path.to_owned(), after, max_entries };
        let Ok(Reply::Walk { entries, unlisted: left, next }) = guest.call(request).result else {
            panic!("no page")
        };
        assert!(entries.len() + left.len() <= max_entries as usize + 1);
        paths.extend(entries.into_iter().map(|entry| entry.path));
        unlisted.extend(left.into_iter().map(|left| left.path));
        pages += 1;
        match next {
            Some(next) => after = Some(next),
            None => return (paths, unlisted, pages),
        }
    }
}

#[test]
fn a_tree_is_listed_in_pages_however_large_it_is() {
    let mut guest = Guest::start();
    let script =
        "mkdir -p top/a/b top/a.b/empty 'top/a b'; cd top; touch a/b/c a/d a.b/e 'a b/f' z .h; ln -s / link
        touch $'not\\xff' $'not\\xfe'; mkdir -p $'dir\\xff/in'; mkdir shut; touch shut/x; chmod 000 shut";
    assert!(guest.bash(script).result.is_ok());
    let all =
        [".h", "a", "a/b", "a/b/c", "a/d", "a b", "a b/f", "a.b", "a.b/e", "a.b/empty", "link", "shut", "z"];
    for size in [1, 2, 3, 5, 100] {
        let (paths, unlisted, pages) = walk(&mut guest, "top", size);
        let paths: Vec<&str> =
            paths.iter().map(String::as_str).filter(|path| !path.starts_with("shut/")).collect();
        assert_eq!(paths, all, "{size}");
        let names = unlisted.iter().filter(|path| path.contains('\u{fffd}')).count();
        assert_eq!(names, 3, "{size}: {unlisted:?}");
        assert!(size == 100 || pages > 3, "{size}");
    }
    assert!(guest.bash("chmod 755 top/shut").result.is_ok());
    // As deep and as many as a package manager makes them, and deeper than can be listed.
    let script = "mkdir -p many && cd many && for i in $(seq 60); do mkdir -p node_modules/package-$i/distribution/modules
        touch node_modules/package-$i/distribution/modules/some-quite-long-name-of-a-module-{1..200}.d.ts; done
        mkdir -p $(printf 'd/%.0s' $(seq 70)); touch $(printf 'd/%.0s' $(seq 70))/lost";
    assert!(guest.bash(script).result.is_ok());
    let (paths, unlisted, pages) = walk(&mut guest, "many", 100_000);
    assert_eq!(paths.len(), 1 + 60 * 3 + 60 * 200 + 64);
    assert_eq!(unlisted, ["d/".repeat(63) + "d"]);
    assert!(pages > 1);
    let mut sorted = paths.clone();
    sorted.dedup();
    assert_eq!(sorted.len(), paths.len());
}

#[test]
fn directories_are_made_with_their_permissions() {
    let mut guest = Guest::start();
    let mode = |guest: &Guest, name: &str| {
        std::fs::metadata(guest.work(name)).expect("there").permissions().mode() & 0o7777
    };
    let mut make = |path: &str, mode| guest.call(Request::MakeDir { path: path.to_owned(), mode }).result;
    assert_eq!(make("a/b", 0o6750), Ok(Reply::MakeDir { created: 2 }));
    assert_eq!(make("a/b", 0o700), Ok(Reply::MakeDir { created: 0 }));
    assert_eq!(make("/nowhere", 0o700).expect_err("outside").code, ErrorCode::PathNotAllowed);
    assert_eq!((mode(&guest, "a"), mode(&guest, "a/b")), (0o755, 0o750));
    guest.write("file", b"x").expect("written");
    let error = guest.call(Request::MakeDir { path: "file/below".to_owned(), mode: 0o755 }).result;
    assert_eq!(error.expect_err("a file").code, ErrorCode::NotDirectory);
}

#[test]
fn one_occurrence_is_replaced() {
    let mut guest = Guest::start();
    std::fs::write(guest.work("file"), "one two three two").expect("written");
    assert_eq!(
        guest.call(replace("file", "one", "1")).result,
        Ok(Reply::Write { size: 15, existed: true, dirs: 0 })
    );
    assert_eq!(std::fs::read(guest.work("file")).expect("there"), b"1 two three two");
    let mut code = |path: &str, old: &str| guest.call(replace(path, old, "x")).result.expect_err(old).code;
    assert_eq!(code("file", "two"), ErrorCode::NotUnique);
    assert_eq!(code("file", "four"), ErrorCode::NoMatch);
    assert_eq!(code("file", ""), ErrorCode::BadRequest);
    assert_eq!(code("none", "x"), ErrorCode::NotFound);
    std::fs::write(guest.work("aaa"), "aaa").expect("written");
    assert_eq!(guest.call(replace("aaa", "aa", "x")).result.expect_err("overlap").code, ErrorCode::NotUnique);
    std::fs::write(guest.work("latin"), b"\xe4 x").expect("written");
    assert_eq!(guest.call(replace("latin", "x", "y")).result.expect_err("no text").code, ErrorCode::NotText);
}

#[test]
fn an_unread_file_delays_no_other_and_its_worker_can_be_cancelled() {
    let mut guest = Guest::start();
    assert!(guest.bash("head -c 200000000 /dev/zero > large").result.is_ok());
    let request = || Request::Read { path: "large".to_owned(), offset: 0, length: None };
    let stuck = guest.open(request(), 10, None);
    let before = guest.resident();
    for _ in 0..5 {
        assert_eq!(guest.call(view("large", Some((9, None)), 10)).result.err(), None);
    }
    assert!(guest.resident() < before + 4 * 1024);
    guest.send(FrameKind::Cancel, stuck, &[]);
    let outcome = guest.finish(stuck);
    assert_eq!(outcome.result.expect_err("cancelled").code, ErrorCode::Cancelled);
    let channel = guest.open(request(), PLENTY, None);
    assert_eq!(guest.finish(channel).content.len(), 200_000_000);
    wait_until("all workers are reaped, and one shim waits", || guest.children() == (0, 1));
}
