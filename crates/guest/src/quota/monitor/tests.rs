use super::*;

const ALLOWED: DiskUsage = DiskUsage { bytes: 1 << 20, inodes: 10 };

/// A usage above the hard limit is measured again on request, since the host may have removed files.
#[test]
fn usage_above_the_hard_limit_is_measured_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("UTF-8").to_owned();
    let quota = Quota { path, allowed: ALLOWED, basis: QuotaBasis::Everything };
    let mut monitor = QuotaMonitor::new(quota, Duration::ZERO).expect("a directory");
    monitor.is_stale = false;
    assert_eq!((monitor.exceeds_hard_limit(), monitor.next_wakeup(false)), (None, None));
    let used = plus(hard_limit(ALLOWED), DiskUsage { bytes: 1, inodes: 0 });
    monitor.evaluate(used, DiskUsage::default());
    assert_eq!(monitor.next_wakeup(false), None);
    assert_eq!(monitor.exceeds_hard_limit(), Some(QuotaExcess { used, allowed: ALLOWED }));
    assert!(monitor.next_wakeup(false).is_some());
    // File operations may have replaced these files.
    monitor.evaluate(DiskUsage::default(), DiskUsage::default());
    monitor.change_started();
    monitor.change_ended(Some(used));
    assert_eq!(monitor.exceeds_hard_limit(), None);
    assert_eq!(monitor.write_budget().used, used);
}

/// The monitor measures before the first program runs, also on a machine that is too slow to measure beside it.
#[test]
fn usage_at_the_handshake_ends_no_program_and_growth_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("UTF-8").to_owned();
    let quota = Quota { path, allowed: ALLOWED, basis: QuotaBasis::Everything };
    let nothing = DiskUsage::default();
    let mut monitor = QuotaMonitor::new(quota.clone(), Duration::ZERO).expect("a directory");
    let more = plus(ALLOWED, SLACK);
    assert!(monitor.evaluate(more, nothing).is_some());
    std::fs::write(dir.path().join("file"), vec![1; 2 << 20]).expect("written");
    let mut monitor = QuotaMonitor::new(quota, Duration::ZERO).expect("a directory");
    assert_eq!(monitor.state, QuotaState::Exceeded(monitor.used.expect("measured")));
    assert_eq!(monitor.evaluate(monitor.used.expect("measured"), nothing), None);
    assert!(monitor.evaluate(plus(more, more), nothing).is_some());
}

/// A measurement is not a snapshot of one moment.
#[test]
fn usage_that_may_be_counted_twice_ends_no_program() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("UTF-8").to_owned();
    let quota = Quota { path, allowed: ALLOWED, basis: QuotaBasis::Everything };
    let mut monitor = QuotaMonitor::new(quota, Duration::ZERO).expect("a directory");
    let nothing = DiskUsage::default();
    let full = DiskUsage { bytes: 0, inodes: ALLOWED.inodes };
    let more = DiskUsage { bytes: 0, inodes: ALLOWED.inodes + 2 };
    monitor.evaluate(nothing, nothing);
    // One operation is in progress, one failed, and one wrote a file.
    monitor.change_started();
    assert_eq!(monitor.uncertainty(), ALLOWED);
    monitor.change_ended(None);
    assert_eq!(monitor.uncertainty(), ALLOWED);
    monitor.unsettled = monitor.changing;
    monitor.change_started();
    monitor.change_ended(Some(DiskUsage { bytes: 4096, inodes: 1 }));
    assert_eq!(monitor.uncertainty(), DiskUsage { bytes: 4096, inodes: 1 });
    // One too many is no proof; two are.
    monitor.is_stale = false;
    let one = DiskUsage { bytes: 0, inodes: ALLOWED.inodes + 1 };
    assert_eq!((monitor.evaluate(one, monitor.uncertainty()), monitor.used), (None, Some(full)));
    assert!(monitor.is_stale);
    assert!(monitor.evaluate(more, monitor.uncertainty()).is_some());
}
