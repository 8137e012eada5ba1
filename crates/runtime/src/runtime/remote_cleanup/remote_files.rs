//! Finds the files of a session at its model's service in its record.
//!
//! These are the files that its uploads were recorded with, also of artifacts that it no longer has, and the files
//! that recorded responses name. Files of an imported history belong to others. A file that was never recorded,
//! because the process died first, is not known.

use std::collections::BTreeSet;
use std::sync::Arc;

use conjure_artifact::ServiceFileDeletion;
use conjure_conversation::{Block, Event, EventKind};
use conjure_journal::{JournalError, JournalErrorKind, PageLimit, SessionKey};

use crate::runtime::error::RuntimeError;
use crate::runtime::session::session_reader::{SessionReader, read};

/// The files that a record names.
#[derive(Debug, Default)]
pub(crate) struct RemoteFiles {
    /// The number of events.
    pub(crate) events: u64,
    /// The ids of the files.
    pub(crate) files: Vec<String>,
    /// Why some events could not be read.
    pub(crate) unreadable: Option<String>,
}

/// Reads a session's record. `removal` is that of its model. Without it, blocks are read in the format of
/// `conjure-anthropic`.
pub(crate) async fn remote_files(
    records: &SessionReader,
    key: &SessionKey,
    removal: Option<&Arc<dyn ServiceFileDeletion>>,
) -> Result<RemoteFiles, RuntimeError> {
    let (mut own, mut foreign) = (BTreeSet::new(), BTreeSet::new());
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
                Ok(event) => collect(&event, removal, &mut own, &mut foreign),
                Err(error) => found.unreadable = Some(error.to_string()),
            }
        }
    }
    found.files = own.difference(&foreign).cloned().collect();
    Ok(found)
}

/// Whether later attempts to read it will fail, too.
pub(super) fn is_damage(error: &JournalError) -> bool {
    matches!(error.kind(), JournalErrorKind::Corrupt | JournalErrorKind::Newer)
}

fn collect(
    event: &Event,
    removal: Option<&Arc<dyn ServiceFileDeletion>>,
    own: &mut BTreeSet<String>,
    foreign: &mut BTreeSet<String>,
) {
    match &event.kind {
        EventKind::ArtifactUploaded { uploaded } => own.extend(uploaded_file(removal, &uploaded.block)),
        EventKind::ModelAnswered { response, .. } => own.extend(produced_files(removal, &response.content)),
        EventKind::Imported { messages, .. } => {
            for message in messages {
                foreign.extend(produced_files(removal, &message.content));
                foreign.extend(message.content.iter().filter_map(|block| uploaded_file(removal, block)));
            }
        }
        _ => {}
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
