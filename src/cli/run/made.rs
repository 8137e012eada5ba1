//! The files that the turns of a session produced, as its record has them: also those that the model's service keeps.
//!
//! State: none; the record is read when it is asked for.

use std::collections::{HashMap, HashSet};

use conjure::{FileSource, SessionEvent, SessionEventKind, SessionFile};

use crate::cli::failure::Failure;
use crate::cli::host::Host;

/// All files of a session, in the order in which they were produced. What a turn under way has produced comes with its end.
pub(super) async fn files(host: &Host, session: &conjure::Session) -> Result<Vec<SessionFile>, Failure> {
    let mut files = session.files().await?;
    let events = host.runtime.events(&host.tenant, session.id(), 0).await?;
    put_in_order(&mut files, &events);
    Ok(files)
}

/// Puts files in the order in which these events tell of them. A session has them by their ids, which say nothing of that.
pub(crate) fn put_in_order(files: &mut [SessionFile], events: &[SessionEvent]) {
    let places: HashMap<_, _> =
        told(events).enumerate().map(|(place, file)| ((file.source, file.id.as_str()), place)).collect();
    files.sort_by_key(|file| (file.turn, places.get(&(file.source, file.id.as_str())).copied()));
}

/// The newest file of each name, and all older ones.
pub(super) fn newest(files: &[SessionFile]) -> (Vec<&SessionFile>, Vec<&SessionFile>) {
    let mut names = HashSet::new();
    let (mut newest, mut older): (Vec<_>, Vec<_>) =
        files.iter().rev().partition(|file| names.insert(file.name.as_str()));
    newest.reverse();
    older.reverse();
    (newest, older)
}

/// The ids of the files with the model's service that these events tell of.
pub(crate) fn of_service<'e>(events: impl IntoIterator<Item = &'e SessionEvent>) -> HashSet<String> {
    told(events).filter(|file| file.source == FileSource::Hosted).map(|file| file.id.clone()).collect()
}

/// The files that these events tell of.
fn told<'e>(events: impl IntoIterator<Item = &'e SessionEvent>) -> impl Iterator<Item = &'e SessionFile> {
    events.into_iter().flat_map(|event| match &event.kind {
        SessionEventKind::SessionFilesProduced { files, .. } => files.as_slice(),
        _ => &[],
    })
}

#[cfg(test)]
mod tests {
    use conjure::{Completeness, SessionId, Timestamp};
    use serde_json::json;

    use super::*;

    fn file(turn: u64, id: &str, name: &str) -> SessionFile {
        let file = json!({
            "source": "hosted", "id": id, "name": name, "content_type": "text/plain", "change": "created", "turn": turn,
        });
        serde_json::from_value(file).unwrap()
    }

    fn produced(files: &[SessionFile]) -> SessionEvent {
        SessionEvent {
            schema: 1,
            id: "evt_1_0".to_owned(),
            seq: 1,
            created_at: Timestamp::from_millis(0),
            session_id: SessionId::from_bits(1),
            kind: SessionEventKind::SessionFilesProduced {
                files: files.to_vec(),
                completeness: Completeness::Whole,
            },
        }
    }

    #[test]
    fn files_stand_in_the_order_in_which_they_were_produced() {
        let first = [file(1, "file_x", "table"), file(1, "file_b", "table"), file(1, "file_c", "notes")];
        let second = [file(2, "file_a", "table")];
        let mut files = [&first[..], &second[..]].concat();
        files.sort_by(|one, other| one.id.cmp(&other.id));
        put_in_order(&mut files, &[produced(&first), produced(&second)]);
        let ids = |files: &[&SessionFile]| files.iter().map(|file| file.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&files.iter().collect::<Vec<_>>()), ["file_x", "file_b", "file_c", "file_a"]);
        let (newest, older) = newest(&files);
        assert_eq!(ids(&newest), ["file_c", "file_a"]);
        assert_eq!(ids(&older), ["file_x", "file_b"]);
    }
}
