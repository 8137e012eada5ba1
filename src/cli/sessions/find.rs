//! Finds a session by its id, or by the beginning of its id.

use conjure::SessionId;

use crate::cli::cli_error::CliError;
use crate::cli::command_runtime::CommandRuntime;
use crate::cli::terminal::printable;

/// The prefix of every id.
const ID_PREFIX: &str = "sesn_";

/// The prefix of ids in output of earlier versions.
const FORMER_ID_PREFIX: &str = "ses_";

/// The maximum number of candidates that an error lists.
const MAX_NAMED: usize = 5;

/// The session whose id begins with this text.
pub(super) async fn find(host: &CommandRuntime, wanted: &str) -> Result<SessionId, CliError> {
    let ids = host.runtime.session_ids(&host.tenant).await?;
    find_among(&ids, wanted)
}

fn find_among(ids: &[SessionId], wanted: &str) -> Result<SessionId, CliError> {
    let stripped = wanted.strip_prefix(ID_PREFIX).or_else(|| wanted.strip_prefix(FORMER_ID_PREFIX));
    let digits = stripped.unwrap_or(wanted);
    if digits.is_empty()
        || digits.len() > 32
        || !digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    {
        return Err(CliError::usage(format!("`{}` is no session's id", printable(wanted)))
            .with_hint("an id is `sesn_` and 32 digits of `0` to `f`; its beginning is enough"));
    }
    let beginning = format!("{ID_PREFIX}{digits}");
    let fitting: Vec<SessionId> =
        ids.iter().filter(|id| id.to_string().starts_with(&beginning)).copied().collect();
    match fitting.as_slice() {
        [one] => Ok(*one),
        [] => Err(CliError::usage(format!("there is no session `{beginning}`"))
            .with_hint("`conjure sessions list` lists them; another `--data` or `--tenant` has others")),
        several => {
            let mut named: Vec<String> = several.iter().take(MAX_NAMED).map(SessionId::to_string).collect();
            if several.len() > MAX_NAMED {
                named.push(format!("{} more", several.len() - MAX_NAMED));
            }
            Err(CliError::usage(format!("`{beginning}` could be any of {} sessions", several.len()))
                .with_hint(format!("write more of the id: {}", named.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_enough_where_it_fits_one() {
        let ids = [0x1f_u128 << 120, (0x1f_u128 << 120) + 1, 0x20_u128 << 120].map(SessionId::from_bits);
        assert_eq!(find_among(&ids, "sesn_2").unwrap(), ids[2]);
        assert_eq!(find_among(&ids, "ses_2").unwrap(), ids[2]);
        assert_eq!(find_among(&ids, "20").unwrap(), ids[2]);
        assert_eq!(find_among(&ids, &ids[1].to_string()).unwrap(), ids[1]);
        assert_eq!(find_among(&ids, &ids[1].stored_name()).unwrap(), ids[1]);
        let several = find_among(&ids, "ses_1f").unwrap_err();
        assert_eq!(several.message, "`sesn_1f` could be any of 2 sessions");
        assert!(several.hint.unwrap().contains(&ids[1].to_string()));
        assert_eq!(find_among(&ids, "ses_3").unwrap_err().message, "there is no session `sesn_3`");
        for wrong in ["", "ses_", "sesn_", "sesn_X", "ses", "../x", "sesn_\x1b", &"0".repeat(33)] {
            let refused = find_among(&ids, wrong).unwrap_err();
            assert!(refused.message.ends_with("is no session's id"), "{}", refused.message);
            assert!(!refused.message.contains('\x1b'));
        }
    }
}
