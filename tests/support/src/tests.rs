//! Skips are recorded and reported once.

use super::*;

#[test]
fn a_skip_is_reported_once_with_what_would_let_it_run() {
    let path = std::env::temp_dir().join(format!("test-support-{}", std::process::id()));
    record(Some(path.clone()), "`one` is\tnot there", "apt-get install one");
    record(Some(path.clone()), "`one` is\tnot there", "apt-get install one");
    let test = std::thread::current().name().unwrap().to_owned();
    assert_eq!(
        take_report_from(&path).unwrap(),
        format!(
            "skipped, wholly or in part: 1 tests\n  apt-get install one\n    `one` is not there: {test}\n"
        )
    );
    assert_eq!(take_report_from(&path), None);
    let reported = path.with_extension("reported");
    assert!(fs::read_to_string(&reported).unwrap().ends_with("\ttest-support\ttest_support\n"));
    fs::remove_file(reported).unwrap();
}
