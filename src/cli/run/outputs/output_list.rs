//! The recorded files of a session's turns, including those at the model's service.
//!
//! State: none. The event log is read each time.

use std::collections::{HashMap, HashSet};

use conjure::artifact::{FileSource, SessionFile};
use conjure::{SessionEvent, SessionEventKind};

use crate::cli::cli_error::CliError;
use crate::cli::command_runtime::CommandRuntime;

/// All files of a session, in the order in which they were produced. A turn's files appear when it ends.
pub(crate) async fn list_outputs(
    host: &CommandRuntime,
    session: &conjure::Session,
) -> Result<Vec<SessionFile>, CliError> {
    let mut files = session.files().await?;
    let events = host.runtime.events(&host.tenant, session.id(), 0).await?;
    sort_by_events(&mut files, &events);
    Ok(files)
}

/// Sorts files by the order of these events, since a session lists them by id.
pub(crate) fn sort_by_events(files: &mut [SessionFile], events: &[SessionEvent]) {
    let places: HashMap<_, _> = files_in_events(events)
        .enumerate()
        .map(|(place, file)| ((file.source, file.id.as_str()), place))
        .collect();
    files.sort_by_key(|file| (file.turn, places.get(&(file.source, file.id.as_str())).copied()));
}

/// The newest file of each name, and all older ones.
pub(crate) fn split_newest(files: &[SessionFile]) -> (Vec<&SessionFile>, Vec<&SessionFile>) {
    let mut names = HashSet::new();
    let (mut newest, mut older): (Vec<_>, Vec<_>) =
        files.iter().rev().partition(|file| names.insert(file.name.as_str()));
    newest.reverse();
    older.reverse();
    (newest, older)
}

/// The ids of the files at the model's service in these events.
pub(crate) fn hosted_file_ids<'e>(events: impl IntoIterator<Item = &'e SessionEvent>) -> HashSet<String> {
    files_in_events(events)
        .filter(|file| file.source == FileSource::Hosted)
        .map(|file| file.id.clone())
        .collect()
}

/// The files in these events.
fn files_in_events<'e>(
    events: impl IntoIterator<Item = &'e SessionEvent>,
) -> impl Iterator<Item = &'e SessionFile> {
    events.into_iter().flat_map(|event| match &event.kind {
        SessionEventKind::SessionFilesProduced { files, .. } => files.as_slice(),
        _ => &[],
    })
}

#[cfg(test)]
mod tests {
    use conjure::SessionId;
    use conjure::artifact::Completeness;
    use conjure::runtime::Timestamp;
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
            schema: conjure::session::SESSION_EVENT_SCHEMA,
            id: "evt_1_0".parse().unwrap(),
            seq: 1,
            created_at: Timestamp::from_millis(0),
            processed_at: Some(Timestamp::from_millis(0)),
            session_id: SessionId::from_bits(1),
            kind: SessionEventKind::SessionFilesProduced {
                files: files.to_vec(),
                completeness: Completeness::Complete,
            },
        }
    }

    #[test]
    fn files_stand_in_the_order_in_which_they_were_produced() {
        let first = [file(1, "file_x", "table"), file(1, "file_b", "table"), file(1, "file_c", "notes")];
        let second = [file(2, "file_a", "table")];
        let mut files = [&first[..], &second[..]].concat();
        files.sort_by(|one, other| one.id.cmp(&other.id));
        sort_by_events(&mut files, &[produced(&first), produced(&second)]);
        let ids = |files: &[&SessionFile]| files.iter().map(|file| file.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&files.iter().collect::<Vec<_>>()), ["file_x", "file_b", "file_c", "file_a"]);
        let (newest, older) = split_newest(&files);
        assert_eq!(ids(&newest), ["file_c", "file_a"]);
        assert_eq!(ids(&older), ["file_x", "file_b"]);
    }
}
