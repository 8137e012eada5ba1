//! [`ListItem`]: an item of a list that the deltas of a stream extend: content parts and reasoning details.

use conjure_model_http::{RawObject, quoted};
use serde_json::value::RawValue;

use crate::object_members::array_items;

/// An item of a list.
#[derive(Debug)]
pub(super) enum ListItem {
    /// Any item, as JSON.
    Raw(String),
    /// A reasoning detail whose text is extended by the details after it.
    Growing {
        fields: RawObject,
        /// The member with the growing text.
        name: &'static str,
        text: String,
    },
}

impl ListItem {
    /// A content part that is a text.
    pub(super) fn text_part(text: &str) -> Self {
        Self::Raw(format!(r#"{{"type":"text","text":{}}}"#, quoted(text)))
    }

    fn new(raw: &RawValue) -> Self {
        let verbatim = || Self::Raw(raw.get().to_owned());
        let Ok(fields) = serde_json::from_str::<RawObject>(raw.get()) else { return verbatim() };
        let name = match fields.text("type").as_deref() {
            Some("reasoning.text") => "text",
            Some("reasoning.summary") => "summary",
            _ => return verbatim(),
        };
        match fields.text(name) {
            Some(text) => Self::Growing { fields, name, text },
            None => verbatim(),
        }
    }

    /// Joins the next item to this one if it is the next piece of a text of the same type and index. For other members, the last value
    /// counts. Returns whether the items were joined.
    fn join(&mut self, next: &Self) -> bool {
        let (Self::Growing { fields, text, .. }, Self::Growing { fields: more, name, text: piece }) =
            (self, next)
        else {
            return false;
        };
        if ["type", "index"].iter().any(|member| fields.get(member) != more.get(member)) {
            return false;
        }
        for (other, raw) in more.iter().filter(|(other, raw)| other != name && *raw != "null") {
            fields.set(other, raw.to_owned());
        }
        text.push_str(piece);
        true
    }

    pub(super) fn into_json(self) -> String {
        match self {
            Self::Raw(raw) => raw,
            Self::Growing { mut fields, name, text } => {
                fields.set(name, quoted(&text));
                fields.to_json()
            }
        }
    }
}

/// Appends the items of a list. An item that continues the last one is joined with it, because OpenRouter writes `reasoning_details` in
/// that way.
pub(super) fn continue_list(items: &mut Vec<ListItem>, raw: &RawValue) {
    for item in array_items(raw) {
        let item = ListItem::new(item);
        if !items.last_mut().is_some_and(|last| last.join(&item)) {
            items.push(item);
        }
    }
}
