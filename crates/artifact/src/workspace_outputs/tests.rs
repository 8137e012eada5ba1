//! Detection of a turn's output files in real directories.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::time::{Duration, UNIX_EPOCH};

use conjure_base::{Clock as _, SystemClock};
use futures_util::StreamExt as _;
use rustix::fs::{CWD, Mode, OFlags};
use tempfile::TempDir;

use super::*;

struct Fixture {
    dir: TempDir,
    outputs: WorkspaceOutputs,
    known: Vec<SessionFile>,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let outputs = WorkspaceOutputs::new(dir.path().join("workspace"));
        fs::create_dir(dir.path().join("workspace")).unwrap();
        Self { dir, outputs, known: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("workspace").join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Begins a turn: what is there was made before, by the clock that dates files.
    fn turn_start(&self) -> Timestamp {
        let probe = self.dir.path().join("probe");
        let changed = |path: &Path| {
            fs::write(path, "").unwrap();
            let metadata = fs::metadata(path).unwrap();
            Duration::new(
                u64::try_from(metadata.ctime()).unwrap(),
                u32::try_from(metadata.ctime_nsec()).unwrap(),
            )
        };
        let before = changed(&probe);
        while changed(&probe) < before + SLACK * 2 {}
        let turn_start = SystemClock.timestamp();
        // Files written from now on have no earlier time, even if the clock of the file system is behind.
        while changed(&probe) < Duration::from_millis(turn_start.millis()) {}
        turn_start
    }

    async fn produced(&self, turn_start: Timestamp) -> TurnOutputs {
        let turn = TurnId::FIRST;
        let record =
            FinishedTurnInfo { turn, began: turn_start, messages: Vec::new(), known: self.known.clone() };
        self.outputs.turn_outputs(&record).await.unwrap()
    }

    /// The output files of a turn that started at `turn_start`: names and kinds of change.
    async fn reported(&self, turn_start: Timestamp) -> Vec<(String, FileChange)> {
        let produced = self.produced(turn_start).await;
        produced.files.into_iter().map(|file| (file.id, file.change)).collect()
    }

    async fn read(&self, file: &SessionFile) -> Result<Vec<u8>, OutputError> {
        let content = self.outputs.open(file).await?;
        let mut bytes = Vec::new();
        let mut stream = content.stream;
        while let Some(piece) = stream.next().await {
            bytes.extend_from_slice(&piece?);
        }
        assert_eq!(content.size, Some(bytes.len() as u64));
        Ok(bytes)
    }
}

fn created(name: &str) -> (String, FileChange) {
    (name.to_owned(), FileChange::Created)
}

fn changed(name: &str) -> (String, FileChange) {
    (name.to_owned(), FileChange::Changed)
}

fn set_modified(path: &Path, seconds: u64) {
    let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(seconds));
    File::options().append(true).open(path).unwrap().set_times(times).unwrap();
}

#[tokio::test]
async fn files_created_or_changed_by_a_turn_are_reported() {
    let fixture = Fixture::new();
    fixture.write("input.csv", "1");
    fixture.write("edited.csv", "1");
    let turn_start = fixture.turn_start();
    fixture.write("edited.csv", "22");
    fixture.write("a/b/chart.png", b"\x89PNG\r\n\x1a\n");
    fs::create_dir(fixture.path("empty")).unwrap();
    let produced = fixture.produced(turn_start).await;
    assert_eq!(produced.completeness, Completeness::Complete);
    let [chart, edited] = &produced.files[..] else { panic!("{produced:?}") };
    assert_eq!(
        *chart,
        SessionFile {
            source: FileSource::Workspace,
            id: "a/b/chart.png".to_owned(),
            name: "a/b/chart.png".to_owned(),
            size: Some(8),
            content_type: "image/png".to_owned(),
            digest: Some(Digest::of_bytes(b"\x89PNG\r\n\x1a\n")),
            change: FileChange::Created,
            turn: TurnId::FIRST,
        }
    );
    assert_eq!((edited.id.as_str(), edited.change), ("edited.csv", FileChange::Changed));
    assert_eq!(fixture.read(edited).await.unwrap(), b"22");
    assert_eq!(fixture.outputs.open(chart).await.unwrap().name, "chart.png");
    assert_eq!(fixture.reported(fixture.turn_start()).await, [], "the next turn did nothing");
}

#[tokio::test]
async fn chowned_or_moved_files_are_not_reported() {
    let fixture = Fixture::new();
    let path = fixture.write("input", "1");
    fixture.write("directory/inner", "1");
    let turn_start = fixture.turn_start();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(fixture.path("input"), fixture.path("moved")).unwrap();
    fs::rename(fixture.path("directory"), fixture.path("elsewhere")).unwrap();
    fs::hard_link(fixture.path("moved"), fixture.path("linked")).unwrap();
    assert_eq!(fixture.reported(turn_start).await, []);
}

#[tokio::test]
async fn forged_modification_times_do_not_hide_files() {
    let fixture = Fixture::new();
    let old = fixture.write("old", "1");
    let known = fixture.write("known", "1");
    let turn_start = fixture.turn_start();
    // As `tar` and `cp -p` do.
    set_modified(&fixture.write("unpacked", "x"), 1_000_000);
    // A date in the future alone does not count, and one that is set now does.
    set_modified(&fixture.write("future", "x"), 4_000_000_000);
    set_modified(&old, 1_000_000);
    assert_eq!(fixture.reported(turn_start).await, [created("future"), created("unpacked")]);

    // A file that a turn before produced is compared with what it was.
    let mut fixture = fixture;
    fixture.known = fixture.produced(Timestamp::from_millis(0)).await.files;
    let turn_start = fixture.turn_start();
    fs::write(&known, "2").unwrap();
    set_modified(&known, 1_000_000);
    set_modified(&old, 1_000_001);
    assert_eq!(fixture.reported(turn_start).await, [changed("known")]);
}

#[tokio::test]
async fn a_replaced_known_file_is_reported_as_changed() {
    let mut fixture = Fixture::new();
    let turn_start = fixture.turn_start();
    fixture.write("report", "1");
    fixture.known = fixture.produced(turn_start).await.files;
    assert_eq!(fixture.known.len(), 1);
    let turn_start = fixture.turn_start();
    fixture.write("new", "2");
    fs::rename(fixture.path("new"), fixture.path("report")).unwrap();
    assert_eq!(fixture.reported(turn_start).await, [changed("report")]);
    fs::remove_file(fixture.path("report")).unwrap();
    assert_eq!(fixture.reported(turn_start).await, []);
}

#[tokio::test]
async fn links_and_pipes_are_not_reported() {
    let fixture = Fixture::new();
    let turn_start = fixture.turn_start();
    let outside = fixture.dir.path().join("secret");
    fs::write(&outside, "secret").unwrap();
    symlink(&outside, fixture.path("file")).unwrap();
    symlink(fixture.dir.path(), fixture.path("directory")).unwrap();
    symlink(".", fixture.path("circle")).unwrap();
    rustix::fs::mkfifoat(CWD, fixture.path("pipe"), Mode::RWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.path("socket")).unwrap();
    let produced = fixture.produced(turn_start).await;
    assert_eq!(produced, TurnOutputs::default());
}

#[tokio::test]
async fn recorded_files_are_opened_only_beneath_the_workspace() {
    let fixture = Fixture::new();
    let turn_start = fixture.turn_start();
    fixture.write("a/report", "good");
    fs::write(fixture.dir.path().join("secret"), "secret").unwrap();
    let file = fixture.produced(turn_start).await.files.remove(0);
    let named = |id: &str| SessionFile { id: id.to_owned(), ..file.clone() };
    for id in ["../secret", "/etc/passwd", "a/../../secret", "", ".", "a/./report/..", "absent", "a/report/x"]
    {
        let error = fixture.outputs.open(&named(id)).await.unwrap_err();
        assert!(matches!(error, OutputError::NotFound { .. }), "{id}: {error}");
    }
    for id in ["a"] {
        let error = fixture.outputs.open(&named(id)).await.unwrap_err();
        assert!(matches!(error, OutputError::NotAFile { .. }), "{id}: {error}");
    }
    // Exchanged since it was recorded: by links to it, by a directory that is a link, by a pipe.
    fs::remove_file(fixture.path("a/report")).unwrap();
    symlink("../../secret", fixture.path("a/report")).unwrap();
    assert!(matches!(fixture.outputs.open(&file).await, Err(OutputError::NotAFile { .. })));
    fs::remove_file(fixture.path("a/report")).unwrap();
    rustix::fs::mkfifoat(CWD, fixture.path("a/report"), Mode::RWXU).unwrap();
    assert!(matches!(fixture.outputs.open(&file).await, Err(OutputError::NotAFile { .. })));
    fs::remove_dir_all(fixture.path("a")).unwrap();
    fs::create_dir(fixture.dir.path().join("elsewhere")).unwrap();
    fs::write(fixture.dir.path().join("elsewhere/report"), "secret").unwrap();
    symlink("../elsewhere", fixture.path("a")).unwrap();
    assert!(matches!(fixture.outputs.open(&file).await, Err(OutputError::NotAFile { .. })));
}

#[tokio::test]
async fn a_missing_or_linked_workspace_is_an_error() {
    let fixture = Fixture::new();
    fs::rename(fixture.path(""), fixture.dir.path().join("moved")).unwrap();
    let record = FinishedTurnInfo {
        turn: TurnId::FIRST,
        began: Timestamp::from_millis(0),
        messages: Vec::new(),
        known: Vec::new(),
    };
    let error = fixture.outputs.turn_outputs(&record).await.unwrap_err();
    assert!(matches!(&error, OutputError::NotFound { name } if name == "/workspace"), "{error}");
    symlink("moved", fixture.dir.path().join("workspace")).unwrap();
    assert!(fixture.outputs.turn_outputs(&record).await.is_err());
}

#[tokio::test]
async fn a_replaced_directory_becomes_the_workspace() {
    let fixture = Fixture::new();
    let turn_start = fixture.turn_start();
    fs::rename(fixture.path(""), fixture.dir.path().join("moved")).unwrap();
    fixture.write("new", "x");
    assert_eq!(fixture.reported(turn_start).await, [created("new")]);
}

#[tokio::test]
async fn scanning_and_hashing_are_bounded() {
    let mut fixture = Fixture::new();
    let turn_start = fixture.turn_start();
    for name in ["a", "b", "c"] {
        fixture.write(name, "12345");
    }
    fixture.write("large", vec![0; 100]);
    fixture.outputs = fixture.outputs.clone().with_bounds(WalkBounds::default(), 12);
    let produced = fixture.produced(turn_start).await;
    let digested: Vec<bool> = produced.files.iter().map(|file| file.digest.is_some()).collect();
    assert_eq!(digested, [true, true, false, false]);
    assert_eq!(produced.files[3].size, Some(100));

    fixture.outputs = fixture.outputs.clone().with_bounds(WalkBounds { entries: 2, depth: 64 }, 0);
    let produced = fixture.produced(turn_start).await;
    assert_eq!((produced.files.len(), produced.completeness), (2, Completeness::Truncated));
    fixture.write("x/y/z", "1");
    fixture.outputs = fixture.outputs.clone().with_bounds(WalkBounds { entries: 100, depth: 1 }, 0);
    let produced = fixture.produced(turn_start).await;
    assert_eq!((produced.files.len(), produced.completeness), (4, Completeness::Truncated));
}

#[tokio::test]
async fn of_too_many_files_the_shallowest_are_reported() {
    let mut fixture = Fixture::new();
    let turn_start = fixture.turn_start();
    for number in 0..20 {
        fixture.write(&format!("node_modules/m{number}/index.js"), "x");
    }
    fixture.write("out/chart.png", "x");
    fixture.write("report.csv", "x");
    fixture.outputs.list_limits = OutputListLimits { max_files: 3, ..LIST_LIMITS };
    let expected = ["node_modules/m0/index.js", "out/chart.png", "report.csv"];
    let reported =
        |produced: &TurnOutputs| produced.files.iter().map(|file| file.id.clone()).collect::<Vec<_>>();
    let produced = fixture.produced(turn_start).await;
    assert_eq!(
        (&*reported(&produced), produced.completeness),
        (&expected.map(String::from)[..], Completeness::Truncated)
    );
    fixture.outputs.list_limits =
        OutputListLimits { max_total_path_bytes: "out/chart.pngreport.csv".len(), ..LIST_LIMITS };
    let produced = fixture.produced(turn_start).await;
    assert_eq!(
        (&*reported(&produced), produced.completeness),
        (&expected[1..].iter().map(ToString::to_string).collect::<Vec<_>>()[..], Completeness::Truncated)
    );
    fixture.outputs.list_limits = OutputListLimits { max_files: 22, ..LIST_LIMITS };
    let produced = fixture.produced(turn_start).await;
    assert_eq!((produced.files.len(), produced.completeness), (22, Completeness::Complete));
}

#[tokio::test]
async fn too_long_paths_are_skipped_and_reported() {
    let fixture = Fixture::new();
    let turn_start = fixture.turn_start();
    let dirs = format!("{}/", "x".repeat(200)).repeat(5);
    let longest = format!("{dirs}{}", "y".repeat(LIST_LIMITS.max_path_bytes - dirs.len()));
    fixture.write(&longest, "1");
    let produced = fixture.produced(turn_start).await;
    assert_eq!((produced.files.len(), produced.completeness), (1, Completeness::Complete));
    fixture.write(&format!("{longest}y"), "1");
    // Longer than the system opens.
    let mut dir = rustix::fs::openat(CWD, fixture.path(""), OFlags::PATH, Mode::empty()).unwrap();
    for _ in 0..30 {
        let name = "z".repeat(200);
        rustix::fs::mkdirat(&dir, &name, Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, &name, OFlags::PATH, Mode::empty()).unwrap();
    }
    rustix::fs::openat(&dir, "deep", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    let produced = fixture.produced(turn_start).await;
    assert_eq!((produced.files.len(), produced.completeness), (1, Completeness::Truncated));
}

#[tokio::test]
async fn a_moved_file_is_reported_as_missing() {
    let fixture = Fixture::new();
    let turn_start = fixture.turn_start();
    fixture.write("directory/inner", "x");
    let known = HashMap::new();
    let call = CancellationToken::new();
    let scan = OutputScan { outputs: fixture.outputs.clone(), turn: TurnId::FIRST, known, call };
    let inspect = || {
        let (id, evidence, change) =
            ("directory/inner".to_owned(), WriteEvidence::Certain, FileChange::Created);
        scan.inspect(
            &fixture.outputs.open_dir().unwrap(),
            CandidateFile { id, size: 1, evidence, change },
            &mut 0,
        )
    };
    assert!(matches!(inspect(), ScanVerdict::Produced(_)));
    fs::rename(fixture.path("directory"), fixture.path("moved")).unwrap();
    assert!(matches!(inspect(), ScanVerdict::Unchanged));
    symlink("moved", fixture.path("directory")).unwrap();
    assert!(matches!(inspect(), ScanVerdict::Unreachable));
    assert_eq!(fixture.reported(turn_start).await, [created("moved/inner")]);
}

#[tokio::test]
async fn unrecordable_names_are_skipped_and_reported() {
    use std::os::unix::ffi::OsStrExt as _;

    let fixture = Fixture::new();
    let turn_start = fixture.turn_start();
    fs::write(fixture.path("").join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "x").unwrap();
    fixture.write("line\nbreak", "x");
    let produced = fixture.produced(turn_start).await;
    assert_eq!((produced.files.len(), produced.completeness), (1, Completeness::Truncated));
    assert_eq!(fixture.read(&produced.files[0]).await.unwrap(), b"x");
}

#[tokio::test]
async fn an_unreadable_directory_is_reported_as_skipped() {
    if rustix::process::geteuid().is_root() {
        // Root looks everywhere.
        return;
    }
    let fixture = Fixture::new();
    let turn_start = fixture.turn_start();
    fixture.write("closed/x", "1");
    fixture.write("private", "22");
    fs::set_permissions(fixture.path("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(fixture.path("private"), fs::Permissions::from_mode(0o000)).unwrap();
    let produced = fixture.produced(turn_start).await;
    fs::set_permissions(fixture.path("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(produced.completeness, Completeness::Truncated);
    assert_eq!((produced.files[0].size, produced.files[0].digest), (Some(2), None));
}

#[tokio::test]
async fn a_file_that_changes_during_download_is_an_error() {
    let fixture = Fixture::new();
    let turn_start = fixture.turn_start();
    let path = fixture.write("log", vec![b'x'; 1 << 20]);
    let file = fixture.produced(turn_start).await.files.remove(0);
    for size in [1 << 19, 1 << 21] {
        let mut stream = fixture.outputs.open(&file).await.unwrap().stream;
        assert!(stream.next().await.unwrap().is_ok());
        File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
        let rest: Vec<_> = stream.collect().await;
        let error = rest.last().unwrap().as_ref().unwrap_err();
        assert!(matches!(error, OutputError::Failed { name, .. } if name == "log"), "{error}");
    }
}

/// Files being written during the scan are reported, with a digest only if it matches the bytes read.
#[tokio::test]
async fn a_file_being_written_has_no_wrong_digest() {
    let fixture = Fixture::new();
    let turn_start = fixture.turn_start();
    let path = fixture.write("log", vec![b'x'; 4 << 20]);
    let stop = CancellationToken::new();
    let writer = {
        let (stop, file) = (stop.clone(), File::options().write(true).open(&path).unwrap());
        std::thread::spawn(move || {
            let mut size = 4 << 20;
            while !stop.is_cancelled() {
                size += 1;
                file.set_len(size).unwrap();
            }
        })
    };
    let produced = fixture.produced(turn_start).await;
    stop.cancel();
    writer.join().unwrap();
    let [file] = &produced.files[..] else { panic!("{produced:?}") };
    assert!(file.size >= Some(4 << 20));
    if let (Some(digest), Some(size)) = (file.digest, file.size) {
        let bytes = fs::read(&path).unwrap();
        assert_eq!(Digest::of_bytes(&bytes[..usize::try_from(size).unwrap()]), digest);
    }
}

/// A directory that is repeatedly swapped for a link is never followed: files outside are neither reported nor read.
#[tokio::test]
async fn a_directory_swapped_for_a_link_is_not_followed() {
    let fixture = Fixture::new();
    let turn_start = fixture.turn_start();
    fixture.write("directory/inner", "good");
    let outside = fixture.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("inner"), "secret").unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink(&outside, fixture.path("link")).unwrap();
    let stop = CancellationToken::new();
    let swapper = {
        let (stop, one, other) = (stop.clone(), fixture.path("directory"), fixture.path("link"));
        std::thread::spawn(move || {
            while !stop.is_cancelled() {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, &one, CWD, &other, flags).unwrap();
            }
        })
    };
    let file = SessionFile {
        source: FileSource::Workspace,
        id: "directory/inner".to_owned(),
        name: "directory/inner".to_owned(),
        size: None,
        content_type: String::new(),
        digest: None,
        change: FileChange::Created,
        turn: TurnId::FIRST,
    };
    let (mut reported, mut read, mut refused) = (0, 0, 0);
    for _ in 0..1_000_000 {
        for file in fixture.produced(turn_start).await.files {
            assert!(
                file.id.ends_with("/inner")
                    && file.digest.is_none_or(|digest| digest == Digest::of_bytes(b"good")),
                "{file:?}"
            );
            reported += 1;
        }
        match fixture.read(&file).await {
            Ok(bytes) => {
                assert_eq!(bytes, b"good");
                read += 1;
            }
            Err(OutputError::NotAFile { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if reported >= 20 && read >= 20 && refused >= 20 {
            break;
        }
    }
    stop.cancel();
    swapper.join().unwrap();
    assert!(reported >= 20 && read >= 20 && refused >= 20, "{reported} told, {read} read, {refused} refused");
}

#[tokio::test]
async fn a_recorded_turn_start_separates_files_exactly() {
    let fixture = Fixture::new();
    fixture.write("input", "1");
    let turn_start = fixture.turn_start();
    // Within what the recorded time alone would let count.
    let metadata = fs::metadata(fixture.write("late-input", "1")).unwrap();
    let metadata = TurnStart((metadata.ctime(), u32::try_from(metadata.ctime_nsec()).unwrap()));
    while TurnStart::now() <= metadata {
        std::hint::spin_loop();
    }
    fixture.outputs.record_turn_start(TurnId::FIRST);
    for name in ["a", "b", "c", "d"] {
        fixture.write(name, "x");
    }
    assert_eq!(fixture.reported(turn_start).await, ["a", "b", "c", "d"].map(created));
    fixture.outputs.record_turn_start(TurnId::FIRST.next());
    assert_eq!(fixture.reported(turn_start).await.len(), 5, "of another turn the recorded time counts");
}

#[test]
fn the_event_logs_turn_start_has_slack() {
    let since = TurnStart::from_timestamp(Timestamp::from_millis(1_000_000_005));
    assert_eq!(since, TurnStart((999_999, 955_000_000)));
    assert_eq!(TurnStart::from_timestamp(Timestamp::from_millis(0)), TurnStart((0, 0)));
    assert!(TurnStart::from_timestamp(Timestamp::from_millis(u64::MAX)) > since);
}
