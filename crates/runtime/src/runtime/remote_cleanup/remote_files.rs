//! Finds the files of a session at its models' services in its record.
//!
//! The record names two kinds of files: uploads, also of artifacts that the session no longer has, and files that
//! responses name. Each file belongs to the model that the session had at that event.
//!
//! - Files of an imported history belong to others, and so do files of the session from which a fork was made.
//! - A file that was never recorded is not known. This happens if the process died before the record was written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use conjure_artifact::ServiceFileDeletion;
use conjure_conversation::{Block, Event, EventKind};
use conjure_journal::{JournalError, JournalErrorKind, PageLimit, SessionKey};

use crate::runtime::error::RuntimeError;
use crate::runtime::session::readers::session_reader::{SessionReader, read};

/// The files that a record names.
#[derive(Debug, Default)]
pub(crate) struct RemoteFiles {
    /// The number of events.
    pub(crate) events: u64,
    /// The ids of the files, by the model that the session had at that event. No list is empty.
    pub(crate) files: Vec<(Option<String>, Vec<String>)>,
    /// Why some events could not be read.
    pub(crate) unreadable: Option<String>,
}

/// Finds the files in a session's record. `opened` is the model that the session was opened with. `removal` returns
/// what can delete the files of a model, and reads their ids. If it returns `None`, blocks are read in the format of
/// `conjure-anthropic`.
pub(crate) async fn remote_files(
    records: &SessionReader,
    key: &SessionKey,
    opened: Option<&str>,
    removal: impl Fn(Option<&str>) -> Option<Arc<dyn ServiceFileDeletion>>,
) -> Result<RemoteFiles, RuntimeError> {
    let mut collected = CollectedFiles::default();
    let mut model = opened.map(str::to_owned);
    let mut deletion = removal(opened);
    let mut found = RemoteFiles::default();
    let mut next = Some(0);
    let events = records.info(key).await?.events;
    while let Some(from) = next {
        let page = match records.page(key, from, PageLimit::default()).await {
            Err(RuntimeError::Journal(error)) if is_damage(&error) => {
                (found.unreadable, found.events) = (Some(error.to_string()), events);
                break;
            }
            page => page?,
        };
        next = page.next();
        for recorded in &page.events {
            found.events = recorded.seq + 1;
            match read(key, recorded) {
                Ok(Event { kind: EventKind::ModelChanged { to, .. }, .. }) => {
                    deletion = removal(Some(&to));
                    model = Some(to);
                }
                Ok(event) => collected.add(&event, model.as_ref(), deletion.as_ref()),
                Err(error) => found.unreadable = Some(error.to_string()),
            }
        }
    }
    found.files = collected.into_own();
    Ok(found)
}

/// Whether every later attempt to read the record will fail, too.
pub(super) fn is_damage(error: &JournalError) -> bool {
    matches!(error.kind(), JournalErrorKind::Corrupt | JournalErrorKind::Newer)
}

/// The files that events name.
#[derive(Debug, Default)]
struct CollectedFiles {
    own: BTreeMap<Option<String>, BTreeSet<String>>,
    /// Files that belong to other sessions, and are not deleted.
    foreign: BTreeSet<String>,
}

impl CollectedFiles {
    fn add(&mut self, event: &Event, model: Option<&String>, removal: Option<&Arc<dyn ServiceFileDeletion>>) {
        let own: Vec<String> = match &event.kind {
            EventKind::ArtifactUploaded { uploaded } => {
                uploaded_file(removal, &uploaded.block).into_iter().collect()
            }
            EventKind::ModelAnswered { response, .. } => produced_files(removal, &response.content),
            // Files of events before the fork belong to the original.
            EventKind::Forked { .. } => {
                let before = std::mem::take(&mut self.own);
                self.foreign.extend(before.into_values().flatten());
                return;
            }
            EventKind::Imported { messages, .. } => {
                for message in messages {
                    self.foreign.extend(produced_files(removal, &message.content));
                    let uploaded = message.content.iter().filter_map(|block| uploaded_file(removal, block));
                    self.foreign.extend(uploaded);
                }
                return;
            }
            _ => return,
        };
        if !own.is_empty() {
            self.own.entry(model.cloned()).or_default().extend(own);
        }
    }

    fn into_own(self) -> Vec<(Option<String>, Vec<String>)> {
        let Self { own, foreign } = self;
        let own =
            own.into_iter().map(|(model, files)| (model, files.difference(&foreign).cloned().collect()));
        own.filter(|(_, files): &(_, Vec<String>)| !files.is_empty()).collect()
    }
}

fn uploaded_file(removal: Option<&Arc<dyn ServiceFileDeletion>>, block: &Block) -> Option<String> {
    match removal {
        Some(removal) => removal.uploaded_id(block),
        #[cfg(feature = "anthropic")]
        None => conjure_anthropic::hosted::uploaded_file(block).map(|id| id.as_str().to_owned()),
        #[cfg(not(feature = "anthropic"))]
        None => None,
    }
}

fn produced_files(removal: Option<&Arc<dyn ServiceFileDeletion>>, answer: &[Block]) -> Vec<String> {
    match removal {
        Some(removal) => removal.produced_ids(answer),
        #[cfg(feature = "anthropic")]
        None => {
            let ids = conjure_anthropic::hosted::produced_files(answer);
            ids.iter().map(|id| id.as_str().to_owned()).collect()
        }
        #[cfg(not(feature = "anthropic"))]
        None => Vec::new(),
    }
}
