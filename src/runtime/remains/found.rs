//! Which files a session has at its model's service: its record says it.
//!
//! They are those that uploads of its artifacts were recorded with, also of artifacts that it has no more, and those that recorded answers
//! name. What came with a history from elsewhere is somebody else's. What was uploaded or made and never recorded, because its host ended
//! in between, nobody knows.

use std::collections::BTreeSet;
use std::sync::Arc;

use conjure_artifact::FileRemoval;
use conjure_conversation::{Block, Event, EventKind};
use conjure_journal::{JournalError, JournalErrorKind, PageLimit, SessionKey};

use super::super::error::RuntimeError;
use super::super::records::{Records, read};

/// What was found in a record.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// How many events it holds.
    pub(crate) events: u64,
    /// The ids of the files.
    pub(crate) files: Vec<String>,
    /// Why some of it could not be read.
    pub(crate) unreadable: Option<String>,
}

/// Reads a session's record. `removal`: that of its model; without it, blocks are read as the service of `conjure-anthropic` writes them.
pub(crate) async fn files_of(
    records: &Records,
    key: &SessionKey,
    removal: Option<&Arc<dyn FileRemoval>>,
) -> Result<Found, RuntimeError> {
    let (mut own, mut foreign) = (BTreeSet::new(), BTreeSet::new());
    let mut found = Found::default();
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

/// Whether it will not be read at another time, either.
pub(super) fn is_damage(error: &JournalError) -> bool {
    matches!(error.kind(), JournalErrorKind::Corrupt | JournalErrorKind::Future)
}

fn collect(
    event: &Event,
    removal: Option<&Arc<dyn FileRemoval>>,
    own: &mut BTreeSet<String>,
    foreign: &mut BTreeSet<String>,
) {
    match &event.kind {
        EventKind::ArtifactUploaded { uploaded } => own.extend(given(removal, &uploaded.block)),
        EventKind::ModelAnswered { response, .. } => own.extend(made(removal, &response.content)),
        EventKind::Imported { messages, .. } => {
            for message in messages {
                foreign.extend(made(removal, &message.content));
                foreign.extend(message.content.iter().filter_map(|block| given(removal, block)));
            }
        }
        _ => {}
    }
}

fn given(removal: Option<&Arc<dyn FileRemoval>>, block: &Block) -> Option<String> {
    match removal {
        Some(removal) => removal.given(block),
        #[cfg(feature = "anthropic")]
        None => conjure_anthropic::hosted::uploaded_file(block).map(|id| id.as_str().to_owned()),
        #[cfg(not(feature = "anthropic"))]
        None => None,
    }
}

fn made(removal: Option<&Arc<dyn FileRemoval>>, answer: &[Block]) -> Vec<String> {
    match removal {
        Some(removal) => removal.made(answer),
        #[cfg(feature = "anthropic")]
        None => {
            let ids = conjure_anthropic::hosted::produced_files(answer);
            ids.iter().map(|id| id.as_str().to_owned()).collect()
        }
        #[cfg(not(feature = "anthropic"))]
        None => Vec::new(),
    }
}
