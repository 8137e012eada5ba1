//! The script that runs in bash and executes the commands of the calls, and its messages.
//!
//! The script reads each command from standard input, after the command's length. It reports on standard error, which only the
//! script has: a command gets standard output for both of its streams. So no output of a command can be mistaken for the end of the
//! command. The sandbox keeps the order: output that was written before a report arrives before that report.

use std::collections::BTreeMap;

use conjure_sandbox::{Command, Input};

/// Descriptors 97 to 99 belong to the script: the commands, the reports and the output. The script uses `builtin` because a command
/// may define functions with these names. The second `read` sets the locale in order to count bytes.
const SCRIPT: &str = r#"exec 97<&0 98>&2 99>&1 </dev/null >/dev/null 2>&1
builtin cd -- "$1"
builtin printf '%s\0%s\0' "$(builtin ulimit -f)" "$PWD" >&98
while IFS= builtin read -r __conjure_length <&97 &&
  LC_ALL=C IFS= builtin read -r -N "$__conjure_length" __conjure_command <&97
do
  builtin eval "$__conjure_command" </dev/null >&99 2>&99 97<&- 98>&- 99>&-
  builtin printf '%s\0%s\0' "$?" "$PWD" >&98
done"#;

/// The maximum size of a report in bytes. The longest path has 4096.
const REPORT_MAX: usize = 16 * 1024;

/// The command that starts a shell in this directory, or in the working directory if this one does not exist.
pub(super) fn start_command(directory: Option<&str>) -> Command {
    let directory = directory.unwrap_or(".");
    Command {
        input: Input::Empty,
        merge_stderr: false,
        ..Command::new(["bash", "--noprofile", "--norc", "-c", SCRIPT, "bash", directory])
    }
}

/// Encodes a command for the script. The command sees these variables.
pub(super) fn encode(command: &str, exports: &BTreeMap<String, String>) -> Vec<u8> {
    let mut script = String::new();
    for (name, value) in exports {
        script += &format!("export {name}={}; ", quote(value));
    }
    script += command;
    format!("{}\n{script}", script.len()).into_bytes()
}

/// Quotes a value as one word of the shell.
fn quote(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

/// A report of the script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    /// The file size limit in the first report, and the exit code of a command in all later ones.
    pub(super) value: String,
    /// The shell's working directory.
    pub(super) directory: String,
}

/// Collects the bytes of reports as they arrive.
#[derive(Debug, Default)]
pub(super) struct ReportReader {
    bytes: Vec<u8>,
}

/// The bytes are not a report of the script. A command can send such bytes on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReportTooLong;

impl ReportReader {
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), ReportTooLong> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > REPORT_MAX { Err(ReportTooLong) } else { Ok(()) }
    }

    /// Takes the next complete report.
    pub(super) fn take(&mut self) -> Option<Report> {
        let mut ends = self.bytes.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at);
        let (first, second) = (ends.next()?, ends.next()?);
        let report: Vec<u8> = self.bytes.drain(..=second).collect();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(Report { value: text(report.get(..first)?), directory: text(report.get(first + 1..second)?) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_command_is_sent_after_its_length_with_its_variables() {
        let exports = BTreeMap::from([("A".to_owned(), "it's".to_owned())]);
        assert_eq!(encode("ü\n", &exports), "23\nexport A='it'\\''s'; ü\n".as_bytes());
        assert_eq!(encode("", &BTreeMap::new()), b"0\n");
    }

    proptest! {
        #[test]
        fn reports_are_read_however_they_are_cut(
            reports in prop::collection::vec(("[0-9]{1,3}", "[^\0]{0,40}"), 0..5),
            cuts in prop::collection::vec(1_usize..20, 1..50),
        ) {
            let bytes: Vec<u8> =
                reports.iter().flat_map(|(value, at)| format!("{value}\0{at}\0").into_bytes()).collect();
            let (mut reader, mut seen, mut rest) = (ReportReader::default(), Vec::new(), bytes.as_slice());
            for cut in cuts.into_iter().cycle() {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                prop_assert_eq!(reader.push(piece), Ok(()));
                while let Some(Report { value, directory }) = reader.take() {
                    seen.push((value, directory));
                }
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(seen, reports);
        }
    }

    #[test]
    fn a_report_without_an_end_is_refused() {
        let mut reader = ReportReader::default();
        assert_eq!(reader.push(&vec![b'x'; REPORT_MAX]), Ok(()));
        assert_eq!(reader.push(b"x"), Err(ReportTooLong));
    }
}
