use std::fs;
use std::sync::Mutex;

use conjure_base::{Clock as _, SystemClock};

use super::*;
use crate::docker::image::progress::ImageProgress;

fn environment() -> Vec<(OsString, OsString)> {
    vec![("PATH".into(), "/usr/bin:/bin".into())]
}

fn shell(build_dir: &Arc<BuildDir>, script: &str) -> BuildProcess {
    let program = HostProgram::find("sh", "dash", &environment()).unwrap();
    BuildProcess::start(build_dir, &program, &["-c".into(), script.into()], &environment()).unwrap()
}

fn failure_of(lines: &[&str]) -> ImageError {
    explained("mmdebstrap", "exit status: 25", &lines.iter().map(ToString::to_string).collect())
}

#[test]
fn a_program_that_is_missing_is_told_with_its_package() {
    let error =
        HostProgram::find("mmdebstrap", "mmdebstrap", &[("PATH".into(), "/nonexistent".into())]).unwrap_err();
    assert_eq!(error.kind(), ImageErrorKind::MissingProgram);
    assert_eq!(error.to_string(), "`mmdebstrap` is not on this machine");
    assert_eq!(error.hint(), Some("install it: `apt-get install mmdebstrap`"));
}

#[test]
fn a_failure_is_told_in_the_words_of_the_program_and_with_what_helps() {
    for (lines, kind, message) in [
        (
            &[
                "Err:1 http://127.0.0.1:1/debian trixie InRelease",
                "  Could not connect to 127.0.0.1:1 (127.0.0.1). - connect (111: Connection refused)",
                "E: Failed to fetch http://127.0.0.1:1/debian  Could not connect to 127.0.0.1:1",
                "E: Some index files failed to download. They have been ignored, or old ones used instead.",
                "E: apt-get update --error-on=any -oAPT::Status-Fd=<$fd> -oDpkg::Use-Pty=false failed",
                "E: mmdebstrap failed to run",
            ][..],
            ImageErrorKind::Network,
            "`mmdebstrap` failed: E: Failed to fetch http://127.0.0.1:1/debian",
        ),
        (&["tar: write error: No space left on device"], ImageErrorKind::NoSpace, "No space left"),
        (
            &["E: Unable to locate package nonsense"],
            ImageErrorKind::BadRequest,
            "Unable to locate package nonsense",
        ),
        (
            &["ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE."],
            ImageErrorKind::Failed,
            "HASHES",
        ),
        (
            &["/usr/bin/python3: No module named pip"],
            ImageErrorKind::MissingProgram,
            "`pip` is not on this machine",
        ),
        (
            &["W: GPG error: trixie InRelease: NO_PUBKEY 1", "E: it is not signed"],
            ImageErrorKind::Failed,
            "E: it is not signed",
        ),
        (
            &["E: something new", "I: cleaning"],
            ImageErrorKind::Failed,
            "`mmdebstrap` failed: E: something new",
        ),
        (&[], ImageErrorKind::Failed, "`mmdebstrap` failed: exit status: 25"),
    ] {
        let error = failure_of(lines);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[tokio::test]
async fn what_a_program_says_is_told_line_by_line_and_how_it_ended() {
    let build_dir = BuildDir::make(None).unwrap();
    let heard = Mutex::new(Vec::new());
    let mut listener = |progress| heard.lock().unwrap().push(progress);
    let progress = ProgressReporter::to(&mut listener);
    let mut process =
        shell(&build_dir, "printf '10%%\\r20%%\\none\\n\\n' >&2; printf 'E: no\\n' >&2; exit 3");
    let error = process.finish(&progress).await.unwrap_err();
    assert_eq!(error.to_string(), "`sh` failed: E: no");
    let expected = ["20%", "one", "E: no"].map(|line| ImageProgress::Line(line.to_owned()));
    assert_eq!(*heard.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_program_that_is_given_up_ends_with_all_that_it_started_and_clears_up_before() {
    let build_dir = BuildDir::make(None).unwrap();
    let dir = build_dir.path().to_owned();
    fs::create_dir(dir.join("kept")).unwrap();
    let script = "trap 'rmdir kept; exit' TERM; \
                  sh -c 'trap \"\" TERM; echo $$; exec >&2; while :; do sleep 1000; done' & \
                  wait; while :; do wait; done";
    let mut process = shell(&build_dir, script);
    let mut lines = BufReader::new(process.take_output().unwrap()).lines();
    // It ignores what asks it to end.
    let stubborn: i32 = lines.next_line().await.unwrap().unwrap().parse().unwrap();
    drop(process);
    build_dir.wait_cleanup().await;
    assert!(!dir.join("kept").exists());
    // It was killed; whoever adopted it may be slow to take notice.
    let deadline = SystemClock.deadline(Duration::from_secs(20));
    let is_gone = || match fs::read_to_string(format!("/proc/{stubborn}/stat")) {
        Ok(stat) => stat.rsplit_once(") ").unwrap().1.starts_with(['Z', 'X']),
        Err(_) => true,
    };
    while !is_gone() {
        assert!(!SystemClock.remaining(deadline).is_zero(), "it lives on");
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(5))).await;
    }
    drop(build_dir);
    assert!(!dir.exists());
}
