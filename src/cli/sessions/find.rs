//! Which session the user means: by its id, or by the beginning of it.

use conjure::SessionId;

use crate::cli::failure::Failure;
use crate::cli::host::Host;
use crate::cli::terminal::printable;

/// What every id begins with.
const BEGINNING: &str = "ses_";

/// How many are named where several could be meant.
const MOST_NAMED: usize = 5;

/// The session whose id begins so.
pub(super) async fn find(host: &Host, wanted: &str) -> Result<SessionId, Failure> {
    let ids = host.runtime.session_ids(&host.tenant).await?;
    among(&ids, wanted)
}

fn among(ids: &[SessionId], wanted: &str) -> Result<SessionId, Failure> {
    let digits = wanted.strip_prefix(BEGINNING).unwrap_or(wanted);
    if digits.is_empty()
        || digits.len() > 32
        || !digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    {
        return Err(Failure::usage(format!("`{}` is no session's id", printable(wanted)))
            .hint("an id is `ses_` and 32 digits of `0` to `f`; its beginning is enough"));
    }
    let beginning = format!("{BEGINNING}{digits}");
    let fitting: Vec<SessionId> =
        ids.iter().filter(|id| id.to_string().starts_with(&beginning)).copied().collect();
    match fitting.as_slice() {
        [one] => Ok(*one),
        [] => Err(Failure::usage(format!("there is no session `{beginning}`"))
            .hint("`conjure sessions list` lists them; another `--data` or `--tenant` has others")),
        several => {
            let mut named: Vec<String> = several.iter().take(MOST_NAMED).map(SessionId::to_string).collect();
            if several.len() > MOST_NAMED {
                named.push(format!("{} more", several.len() - MOST_NAMED));
            }
            Err(Failure::usage(format!("`{beginning}` could be any of {} sessions", several.len()))
                .hint(format!("write more of the id: {}", named.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_enough_where_it_fits_one() {
        let ids = [0x1f_u128 << 120, (0x1f_u128 << 120) + 1, 0x20_u128 << 120].map(SessionId::from_bits);
        assert_eq!(among(&ids, "ses_2").unwrap(), ids[2]);
        assert_eq!(among(&ids, "20").unwrap(), ids[2]);
        assert_eq!(among(&ids, &ids[1].to_string()).unwrap(), ids[1]);
        let several = among(&ids, "ses_1f").unwrap_err();
        assert_eq!(several.message, "`ses_1f` could be any of 2 sessions");
        assert!(several.hint.unwrap().contains(&ids[1].to_string()));
        assert_eq!(among(&ids, "ses_3").unwrap_err().message, "there is no session `ses_3`");
        for wrong in ["", "ses_", "ses_X", "../x", "ses_\x1b", &"0".repeat(33)] {
            let refused = among(&ids, wrong).unwrap_err();
            assert!(refused.message.ends_with("is no session's id"), "{}", refused.message);
            assert!(!refused.message.contains('\x1b'));
        }
    }
}
